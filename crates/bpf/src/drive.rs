//! What it takes to make the kernel do something a known number of times, where the standard library has no call for it.

use crate::error::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// A socket to the kernel's rtnetlink(7): a message written to it goes to the kernel, and its answer is there to be read
/// when the write returns.
pub fn netlink_route_socket() -> Result<OwnedFd> {
    // SAFETY: takes numbers, no pointer.
    let fd =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(Error::last("open an rtnetlink socket"));
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Keeps this thread, and threads and processes that it starts from now on, on the CPU that it runs on (sched_setaffinity(2)).
pub fn stay_on_this_cpu() -> Result<()> {
    // SAFETY: no memory effects.
    let cpu = unsafe { libc::sched_getcpu() };
    let cpu = usize::try_from(cpu).map_err(|_| Error::last("sched_getcpu"))?;
    let mut set = [0u64; 16];
    match set.get_mut(cpu / 64) {
        Some(word) => *word = 1 << (cpu % 64),
        None => return Err(Error::Protocol(format!("CPU {cpu} is beyond what a mask of ours holds"))),
    }
    // SAFETY: the mask is readable for the size given.
    let done = unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) };
    if done < 0 { Err(Error::last("stay on one CPU")) } else { Ok(()) }
}
