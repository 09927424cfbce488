//! Waiting for descriptors (poll(2)).

use crate::error::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of `fds` is readable, hung up or in error, or `timeout` passes (`None`: for ever).
///
/// The answer has a flag for each descriptor, in order. A signal that interrupts the wait counts as a timeout.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<Vec<bool>> {
    let mut set: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let ms = timeout.map_or(-1, |t| i32::try_from(t.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: `set` is an array of `set.len()` pollfd, live and exclusive for the call.
    let ret = unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, ms) };
    if ret < 0 {
        let error = Error::last("poll");
        if error.errno() != Some(libc::EINTR) {
            return Err(error);
        }
        return Ok(vec![false; fds.len()]);
    }
    Ok(set.iter().map(|p| p.revents != 0).collect())
}
