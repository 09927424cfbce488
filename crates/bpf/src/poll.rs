//! Waiting for descriptors (poll(2)).

use crate::error::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Waits until one of `fds` is readable, hung up or in error, or `timeout` passes (`None`: for ever).
///
/// The answer has a flag for each descriptor, in order. A signal that interrupts the wait counts as a timeout.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<Vec<bool>> {
    let mut set: Vec<libc::pollfd> = fds.iter().map(|fd| entry(fd.as_raw_fd(), libc::POLLIN)).collect();
    if poll(&mut set, timeout)? {
        Ok(set.iter().map(|p| p.revents != 0).collect())
    } else {
        Ok(vec![false; fds.len()])
    }
}

/// Waits until `to` can be written to (or its reader has gone), or `unless` is readable.
///
/// `false` when it was the latter alone: what takes something keeps nobody waiting.
pub fn wait_writable(to: BorrowedFd<'_>, unless: BorrowedFd<'_>) -> Result<bool> {
    loop {
        let mut set = [entry(unless.as_raw_fd(), libc::POLLIN), entry(to.as_raw_fd(), libc::POLLOUT)];
        if poll(&mut set, None)? {
            return Ok(set[1].revents != 0);
        }
    }
}

fn entry(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// `false` on timeout or when a signal interrupted.
fn poll(set: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<bool> {
    let ms = timeout.map_or(-1, |t| i32::try_from(t.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: `set` is an array of `set.len()` pollfd, live and exclusive for the call.
    let ret = unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, ms) };
    if ret < 0 {
        let error = Error::last("poll");
        if error.errno() != Some(libc::EINTR) {
            return Err(error);
        }
    }
    Ok(ret > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn what_can_be_written_to_is_not_given_up() {
        let (_reader, to) = std::io::pipe().expect("pipe");
        let (signals, mut sender) = std::io::pipe().expect("pipe");
        assert!(wait_writable(to.as_fd(), signals.as_fd()).expect("poll"));
        sender.write_all(b"!").expect("write");
        assert!(wait_writable(to.as_fd(), signals.as_fd()).expect("poll"), "there is room");
        let (reader, full) = std::io::pipe().expect("pipe");
        // SAFETY: a live descriptor, and no memory.
        assert_eq!(unsafe { libc::fcntl(full.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        while (&full).write(&[0; 4096]).is_ok() {}
        assert!(!wait_writable(full.as_fd(), signals.as_fd()).expect("poll"), "there is none");
        drop(reader);
        assert!(wait_writable(full.as_fd(), signals.as_fd()).expect("poll"), "the reader has gone");
    }
}
