//! From what was asked to events: targets, plans, capture programs, layouts, decoding.
//!
//! ```text
//! Request + Kernel  → Target…   resolve   names and globs against BTF
//! Target            → Probe     plan      attach method, what is captured, where each field lies
//! Probe             → program   program   BPF instructions, through `asm`
//! program           → links     session   load, attach, or the reason why not
//! ring bytes        → Event     event     borrowed, decoded field by field
//! ```
//!
//! A caller resolves and plans with [`Plan::new`], starts with [`Session::start`], and then drains events until it
//! has enough; what was lost on the way is in [`Session::losses`]. Nothing here prints.
#![forbid(unsafe_code)]

mod attach;
mod context;
mod danger;
mod error;
mod event;
mod filter;
mod kernel;
mod layout;
mod list;
mod modules;
mod notes;
mod own;
mod pattern;
mod plan;
mod pointee;
mod program;
mod request;
mod session;
mod suggest;
mod target;
mod tracker;
mod walk;

pub use context::Context;
pub use error::Error;
pub use event::{Event, Frames, Note, Stack, Text, Value, whole_characters};
pub use filter::{Comm, Filter, PidNamespace};
pub use kernel::Kernel;
pub use layout::{Argument, Layout, StringField};
pub use list::{Listed, Offers, list};
pub use modules::Modules;
pub use notes::{NoteField, NoteKind};
pub use own::{own_pid_namespace, own_tgid};
pub use pattern::{Pattern, split_list};
pub use plan::{Method, Plan, Probe};
pub use pointee::{Form, Format};
pub use request::{Mode, Request, Scope, TargetKind, TargetSpec};
pub use session::{Failed, Losses, Session};
pub use target::{Resolved, Target};
pub use walk::{PathField, PathText};
