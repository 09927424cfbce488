//! SIGINT, SIGTERM and SIGHUP as something to poll (signalfd(2)): no handler runs, none can be missed between a test
//! and a wait.

use crate::error::{Error, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// A signal that asks us to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`.
    Terminate,
    /// The terminal went away.
    HangUp,
}

/// What a command that we start is to get back: the mask that we were started with, and whether SIGINT was ignored.
static ORIGINAL: OnceLock<Original> = OnceLock::new();

#[derive(Clone, Copy)]
pub(crate) struct Original {
    pub mask: libc::sigset_t,
    pub ignores_interrupt: bool,
}

/// The signals as we were started with them; `None` before [`Signals::block`].
pub(crate) fn original() -> Option<Original> {
    ORIGINAL.get().copied()
}

/// Has SIGINT end this process, and the commands that it starts, though a shell ignores it in what a script starts with `&`: links
/// of ours end with us.
pub fn interrupt_ends_us() {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// The descriptor on which they arrive.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Signals {
    /// Blocks the three signals in this thread, and in the threads it starts later, and opens the descriptor.
    ///
    /// SIGHUP stays ignored if it was when we started (`nohup`). SIGINT does not: a shell ignores it in what a script
    /// starts with `&`, and a tracer that `kill -INT` does not end would be left attached. [`crate::Held`] gives a
    /// command the signals as they were before.
    pub fn block() -> Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set; sigaction with a null new action only reads, into live structs; the
        // others get that set and valid numbers.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            let ignored = |number| {
                let mut old = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(number, std::ptr::null(), old.as_mut_ptr());
                old.assume_init().sa_sigaction == libc::SIG_IGN
            };
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            if !ignored(libc::SIGHUP) {
                libc::sigaddset(&mut set, libc::SIGHUP);
            }
            let ignores_interrupt = ignored(libc::SIGINT);
            // A signal whose action is to be ignored is thrown away even while blocked; the default keeps it pending.
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
            let mut mask = set;
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut mask) != 0 {
                return Err(Error::last("block signals"));
            }
            ORIGINAL.get_or_init(|| Original { mask, ignores_interrupt });
            set
        };
        // SAFETY: a new descriptor for a set initialised above.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last("signalfd"));
        }
        // SAFETY: just made, owned by nobody else.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Result<Option<Signal>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let len = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has room for one record, which is what is asked for.
        let got = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), len) };
        if got < 0 {
            let error = Error::last("read signalfd");
            return if error.errno() == Some(libc::EAGAIN) { Ok(None) } else { Err(error) };
        }
        if got as usize != len {
            return Err(Error::Protocol(format!("signalfd gave {got} bytes")));
        }
        // SAFETY: the kernel filled the whole record.
        let number = unsafe { info.assume_init() }.ssi_signo as i32;
        Ok(match number {
            libc::SIGINT => Some(Signal::Interrupt),
            libc::SIGTERM => Some(Signal::Terminate),
            libc::SIGHUP => Some(Signal::HangUp),
            _ => None,
        })
    }
}
