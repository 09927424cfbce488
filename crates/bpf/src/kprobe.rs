//! Kprobes and tracepoints by perf_event_open(2): one at a time, on every kernel since 4.17.

use crate::error::{Error, Result};
use crate::link::Link;
use crate::perf_event::{self, PerfEvent};
use crate::prog::Program;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KprobeAt<'a> {
    /// By the name of its symbol. Of several functions with the name kernels take the first, and since 6.7 none.
    Symbol(&'a str),
    /// By its address, as kallsyms has it.
    Address(u64),
}

/// The number of the kernel's dynamic PMU for kprobes.
const TYPE_PATH: &str = "/sys/bus/event_source/devices/kprobe/type";

/// The bit of `config` that makes a return probe; `format/retprobe` says so, on every kernel bit 0.
const RETPROBE: u64 = 1;

const PERF_EVENT_IOC_SET_BPF: u64 = 0x4004_2408;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;

/// Attaches a [`crate::ProgType::Kprobe`] program to a function's entry, or to its return.
///
/// # Errors
/// ENOENT without CONFIG_KPROBE_EVENTS; EINVAL, EACCES or EOPNOTSUPP for functions that kprobes must not touch; EADDRNOTAVAIL
/// for a name that several functions have (6.7).
pub fn attach_kprobe(prog: &Program, at: KprobeAt<'_>, at_return: bool) -> Result<Link> {
    let ty = std::fs::read_to_string(TYPE_PATH)
        .map_err(|source| Error::Sys { action: format!("kprobes: read {TYPE_PATH}"), source })?;
    let ty = ty.trim().parse().map_err(|_| Error::Protocol(format!("{TYPE_PATH}: cannot read {ty:?}")))?;
    let (name, address) = match at {
        KprobeAt::Symbol(name) => {
            let name = CString::new(name)
                .map_err(|_| Error::Protocol(format!("function name {name:?} holds a zero byte")))?;
            (Some(name), 0)
        }
        KprobeAt::Address(address) => (None, address),
    };
    let event = PerfEvent {
        ty,
        config: if at_return { RETPROBE } else { 0 },
        config1: name.as_ref().map_or(0, |name| name.as_ptr() as u64),
        config2: address,
        ..Default::default()
    };
    // One event of all processes on one CPU: a kprobe fires wherever it is hit, whatever CPU the event is of.
    let fd = perf_event::open(event, -1, 0, || match at {
        KprobeAt::Symbol(name) => format!("kprobe at {name}"),
        KprobeAt::Address(address) => format!("kprobe at {address:#x}"),
    })?;
    give(fd, prog, "kprobe")
}

/// `PERF_TYPE_TRACEPOINT` (include/uapi/linux/perf_event.h).
const TRACEPOINT: u32 = 2;

/// Attaches a [`crate::ProgType::Tracepoint`] program to a tracepoint by its number, as tracefs has it in `events/SYSTEM/NAME/id`.
pub fn attach_tracepoint(prog: &Program, id: u64) -> Result<Link> {
    let event = PerfEvent { ty: TRACEPOINT, config: id, ..Default::default() };
    // Of all processes on one CPU: the program runs wherever the tracepoint is hit (`perf_trace_run_bpf_submit`).
    let fd = perf_event::open(event, -1, 0, || format!("tracepoint {id}"))?;
    give(fd, prog, "tracepoint")
}

/// Gives an event its program, and enables it.
fn give(fd: OwnedFd, prog: &Program, what: &str) -> Result<Link> {
    let raw = fd.as_raw_fd();
    // SAFETY: both requests take a number, no pointer.
    if unsafe { libc::ioctl(raw, PERF_EVENT_IOC_SET_BPF, prog.as_fd().as_raw_fd()) } < 0 {
        return Err(Error::last(format!("give the {what} its program")));
    }
    // SAFETY: as above.
    if unsafe { libc::ioctl(raw, PERF_EVENT_IOC_ENABLE, 0) } < 0 {
        return Err(Error::last(format!("enable the {what}")));
    }
    Ok(Link::of(fd))
}

/// Whether the kernel makes kprobes for perf_event_open(2).
///
/// # Errors
/// It does not (no CONFIG_KPROBE_EVENTS), or sysfs cannot be read.
pub fn kprobes_exist() -> Result<()> {
    std::fs::metadata(TYPE_PATH)
        .map(|_| ())
        .map_err(|source| Error::Sys { action: format!("find {TYPE_PATH}"), source })
}
