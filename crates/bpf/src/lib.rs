//! The kernel's door: the one crate that makes bpf(2), ptrace(2) and signalfd(2) calls and maps memory shared
//! with the kernel. Everything above it is `#![forbid(unsafe_code)]`.
//!
//! What it does: loads programs and BTF, creates maps, attaches links, reads ring buffers without copying, asks
//! for program information, finds programs that others loaded, and starts a command held before its first instruction.
//!
//! What it does not: it knows no target, no type and no event. Instructions come in encoded; records go out as
//! bytes.
//!
//! Every file descriptor is owned ([`std::os::fd::OwnedFd`]): dropping a [`Link`] detaches it, and so does the
//! death of the process, SIGKILL included. Only [`Program::pin`] leaves something behind, and
//! btrace itself pins nothing.

mod branch_records;
mod btf;
mod drive;
mod error;
mod existing;
pub mod features;
mod file_map;
mod image;
mod jited;
mod kprobe;
mod link;
mod map;
mod memory;
mod perf_event;
mod poll;
mod process;
mod prog;
mod ringbuf;
mod signals;
mod sys;
mod tracefs;

pub use branch_records::{BranchFilter, BranchRecords};
pub use btf::{BtfObject, load_btf, module_btf};
pub use drive::{netlink_route_socket, stay_on_this_cpu};
pub use error::{Error, Result};
pub use existing::{
    MapInfo, ProgDetails, btf_bytes, link_ids, map_ids, map_info, pinned_program_id, program_ids,
    program_ids_of_process, tail_called_programs,
};
pub use file_map::FileMap;
pub use image::{ImageFunction, ProgImage};
pub use jited::{Jited, JitedLine};
pub use kprobe::{KprobeAt, attach_kprobe, attach_tracepoint, kprobes_exist};
pub use link::{
    Link, attach_kprobe_multi, attach_kprobe_multi_named, attach_tracing_multi, attach_trampoline,
    open_raw_tracepoint,
};
pub use map::{Map, MapType, online_cpus, possible_cpus};
pub use memory::KernelMemory;
pub use poll::{wait_readable, wait_writable};
pub use process::{Held, Watched, lower_thread_priority, pid_namespace_is_initial, raise_limits};
pub use prog::{AttachTo, AttachType, Load, ProgInfo, ProgType, Program, TestRun, TestRunOutput};
pub use ringbuf::{Drained, RingBuf};
pub use signals::{Signal, Signals, interrupt_ends_us};
pub use sys::{monotonic_ns, realtime_offset_ns};
pub use tracefs::Tracefs;
