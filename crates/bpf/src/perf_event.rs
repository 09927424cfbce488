//! perf_event_open(2), as far as kprobes and branch records need it.

use crate::error::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// The head of `struct perf_event_attr` (include/uapi/linux/perf_event.h), up to `branch_sample_type`
/// (`PERF_ATTR_SIZE_VER2`, 3.4).
#[repr(C)]
#[derive(Default)]
pub struct PerfEvent {
    /// The PMU.
    pub ty: u32,
    pub size: u32,
    /// What of it.
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    /// Bits; see [`DISABLED`].
    pub flags: u64,
    pub wakeup_events: u32,
    pub bp_type: u32,
    /// `kprobe_func`: address of the name; 0 with an address in `config2`.
    pub config1: u64,
    /// `kprobe_addr`, or `probe_offset` from the name.
    pub config2: u64,
    /// Which branches are recorded (`PERF_SAMPLE_BRANCH_*`), where `sample_type` asks for them.
    pub branch_sample_type: u64,
}

/// `disabled`, the first bit of the flags.
pub const DISABLED: u64 = 1;

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// Opens an event for a process (0: ours, -1: all) on a CPU (-1: any). A name that `config1` points to must outlive the call.
pub fn open(event: PerfEvent, pid: i32, cpu: i32, what: impl FnOnce() -> String) -> Result<OwnedFd> {
    let event = PerfEvent { size: size_of::<PerfEvent>() as u32, ..event };
    let no_group = -1i32;
    // SAFETY: `event` is a live struct of the size that it states; the caller keeps the name that it may point to.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &event, pid, cpu, no_group, PERF_FLAG_FD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::last(what()));
    }
    let fd = i32::try_from(fd).map_err(|_| Error::Protocol(format!("perf_event_open gave {fd}")))?;
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
