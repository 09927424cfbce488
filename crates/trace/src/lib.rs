//! From what was asked to events: targets, plans, capture programs, layouts, decoding.
//!
//! ```text
//! Request + Kernel  → Target…   resolve   names and globs against BTF, BPF programs against their own
//! Target            → Probe     plan      attach method, what is captured, where each field lies
//! Probe             → program   program   BPF instructions, through `asm`
//! program           → links     session   load, attach, or the reason why not
//! ring bytes        → Event     event     borrowed, decoded field by field
//! ```
//!
//! A caller resolves and plans with [`Plan::new`], starts with [`Session::start`], and then drains events until it
//! has enough; what was lost on the way is in [`Session::losses`]. Nothing here prints.
#![forbid(unsafe_code)]

pub mod abilities;
mod arch;
mod attach;
mod attach_many;
mod attach_path;
mod batches;
mod blocks;
mod branches;
mod cgroup;
mod context;
mod danger;
mod elsewhere;
mod error;
mod event;
mod expressions;
mod faults;
mod filter;
mod gathering;
mod kernel;
mod layout;
mod list;
mod load_all;
mod modules;
mod notes;
mod own;
pub mod path;
mod pattern;
mod plan;
mod pointee;
mod program;
mod program_code;
mod program_spec;
mod program_target;
mod request;
mod rings;
mod session;
mod sites;
mod suggest;
mod syscalls;
mod systems;
mod target;
mod tracker;
mod walk;
mod ways;

pub use attach::{Counted, Progress, Tell};
pub use blocks::{Block, Blocks, Edge, Exit, Part};
pub use branches::{Branch, Branches, Snapshot};
pub use cgroup::Cgroup;
pub use context::Context;
pub use elsewhere::{Elsewhere, Function, Remark, elsewhere};
pub use error::Error;
pub use event::{Event, Frames, Hits, Note, Output, OutputValue, Stack, Text, Value, whole_characters};
pub use expressions::{Asked, Expressions, Gathered, Key, KeyKind, Shown, ShownKind, Written};
pub use faults::Fault;
pub use filter::{Comm, Filter, PidNamespace};
pub use gathering::{Amount, Entry, Room, Tally};
pub use kernel::Kernel;
pub use layout::{Argument, Layout, StringField};
pub use list::{Listed, Offers, list, list_programs};
pub use load_all::{Verdicts, load_all};
pub use modules::Modules;
pub use notes::{NoteField, NoteKind};
pub use own::{own_pid_namespace, own_tgid};
pub use pattern::{Pattern, split_list};
pub use plan::{Method, Plan, Probe};
pub use pointee::{Form, Format};
pub use program::looking::WATCHED;
pub use program_code::{FunctionCode, ProgramCode, program_code};
pub use program_spec::{ProgramSelector, ProgramSpec};
pub use program_target::{ProgramFunction, TracedProgram};
pub use request::{Mode, Request, Scope, TargetKind, TargetSpec};
pub use session::{Failed, Losses, Session};
pub use suggest::near_names;
pub use syscalls::{Param, Syscall, syscall_name};
pub use target::{Resolved, Target};
pub use walk::{PathField, PathText};
pub use ways::{NoStack, Placed, Records, Sight, Way, Ways, place};
