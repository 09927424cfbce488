//! Processes: a command held before its first instruction, and limits of our own.

use crate::error::{Error, Result};
use crate::signals;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

/// A command that has been executed but has not run its first instruction yet (ptrace(2), PTRACE_TRACEME: the stop
/// after execve).
///
/// Dropped before [`Held::release`], it is killed without ever having run. Afterwards it is an ordinary child.
/// Hold, release and wait belong to one thread: ptrace ties them to it.
#[derive(Debug)]
pub struct Held {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
    released: Cell<bool>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.released.get() && self.status.is_none() {
            // SAFETY: our own child, not waited for since it stopped, so the number is still its own.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL);
            }
        }
    }
}

impl AsFd for Held {
    /// A pidfd: readable once the command has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Held {
    /// Starts `sh -c command` with our standard streams, and holds it.
    pub fn spawn(command: &str) -> Result<Held> {
        let mut sh = Command::new("/bin/sh");
        sh.arg("-c").arg(command);
        let limits = ORIGINAL.get().copied();
        let signals = signals::original();
        // SAFETY: between fork and exec the closure makes system calls alone, which are async-signal-safe.
        unsafe {
            sh.pre_exec(move || {
                for (resource, limit) in limits.iter().flatten() {
                    libc::setrlimit(*resource, limit);
                }
                if signals.is_some_and(|s| s.ignores_interrupt) {
                    libc::signal(libc::SIGINT, libc::SIG_IGN);
                }
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        // A signal that reached the child between PTRACE_TRACEME and exec, even an ignored one (a resized terminal),
        // would stop it there, and `spawn` would wait for the exec for ever. So it starts with everything blocked, and
        // gets its mask while it is held.
        let before = block_all()?;
        let spawned = sh.spawn();
        set_mask(&before)?;
        let child = spawned.map_err(|source| Error::Sys {
            action: "start /bin/sh, held by ptrace until the probes are attached".into(),
            source,
        })?;
        let pid = child.id() as libc::pid_t;
        // `child` has no drop of its own; from here on the process is waited for by hand, since ptrace stops and
        // the exit come through the same call.
        drop(child);
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is a live integer.
        if unsafe { libc::waitpid(pid, &mut status, libc::__WALL) } != pid {
            return Err(Error::last("wait for /bin/sh to stop"));
        }
        if !libc::WIFSTOPPED(status) {
            return Err(Error::Protocol(format!(
                "/bin/sh ended before it ran: {}",
                ExitStatus::from_raw(status)
            )));
        }
        // SAFETY: our own stopped tracee; with EXITKILL it cannot outlive us before it is released.
        if unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL) } < 0 {
            return Err(Error::last("ptrace options for the command"));
        }
        let mask = signals.map_or(before, |s| s.mask);
        // SAFETY: our own stopped tracee; the kernel reads its 8-byte set from the start of the C library's larger one.
        if unsafe { libc::ptrace(PTRACE_SETSIGMASK, pid, KERNEL_SIGSET_SIZE, &mask) } < 0 {
            return Err(Error::last("signal mask of the command"));
        }
        // SAFETY: pidfd_open on our own child, not yet waited for, so its number is still its own.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(Error::last("pidfd_open"));
        }
        // SAFETY: just made (close-on-exec by definition), owned by nobody else.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Held { pid, pidfd, status: None, released: Cell::new(false) })
    }

    /// Process id, as this process sees it.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Lets the command run.
    pub fn release(&self) -> Result<()> {
        // SAFETY: our own stopped tracee.
        if unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, 0) } < 0 {
            return Err(Error::last("release the command"));
        }
        self.released.set(true);
        Ok(())
    }

    /// Its exit status if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.wait_with(libc::WNOHANG)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.wait_with(0)? {
                return Ok(status);
            }
        }
    }

    fn wait_with(&mut self, flags: i32) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: waits for our own child; `status` is a live integer.
            let got = unsafe { libc::waitpid(self.pid, &mut status, flags) };
            if got < 0 {
                let error = Error::last("wait for the command");
                return if error.errno() == Some(libc::EINTR) { Ok(None) } else { Err(error) };
            }
            if got == self.pid && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) {
                self.status = Some(ExitStatus::from_raw(status));
            }
        }
        Ok(self.status)
    }

    /// Asks the command to end (SIGTERM), and the processes it has started: a shell that is ended leaves those that it waits for behind.
    /// What has made itself a child of init's is not among them.
    pub fn terminate(&self) {
        if self.status.is_none() {
            let descendants = descendants(self.pid, &parents());
            // The shell first, for it would begin what comes next.
            for pid in std::iter::once(self.pid).chain(descendants) {
                // SAFETY: our own child, not yet waited for, so the number cannot have been given to another process; and its descendants of
                // this moment.
                unsafe { libc::kill(pid, libc::SIGTERM) };
            }
        }
    }
}

/// Every process, and its parent: `PID (NAME) STATE PPID …`, where the name may hold anything (proc_pid_stat(5)).
fn parents() -> Vec<(i32, i32)> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let of = |name: &std::ffi::OsStr| {
        let pid: i32 = name.to_str()?.parse().ok()?;
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let behind = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 1..)?;
        let parent = std::str::from_utf8(behind).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    };
    all.flatten().filter_map(|entry| of(&entry.file_name())).collect()
}

/// The children of a process, and theirs, parents first.
fn descendants(pid: i32, parents: &[(i32, i32)]) -> Vec<i32> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        let children = parents.iter().filter(|(child, of)| *of == parent && !found.contains(child));
        let children: Vec<i32> = children.map(|(child, _)| *child).collect();
        found.extend(children);
        at += 1;
    }
    found.split_off(1)
}

/// Somebody else's process, to be told when it has ended (pidfd_open(2)).
#[derive(Debug)]
pub struct Watched {
    pid: u32,
    pidfd: OwnedFd,
}

impl AsFd for Watched {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Watched {
    /// Watches a process by its number as this process sees it; `None` when there is none of that number.
    pub fn open(pid: u32) -> Result<Option<Watched>> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            let error = Error::last(format!("pidfd_open of process {pid}"));
            return if error.errno() == Some(libc::ESRCH) { Ok(None) } else { Err(error) };
        }
        // SAFETY: just made (close-on-exec by definition), owned by nobody else.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Some(Watched { pid, pidfd }))
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// include/uapi/linux/ptrace.h; since 3.11.
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

/// Bytes of the kernel's `sigset_t`.
const KERNEL_SIGSET_SIZE: usize = 8;

/// Blocks every signal in this thread but SIGTRAP, by which the exec stops the child; gives back the mask before.
fn block_all() -> Result<libc::sigset_t> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the first set, pthread_sigmask the second unless it fails.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigdelset(all.as_mut_ptr(), libc::SIGTRAP);
        if libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) != 0 {
            return Err(Error::last("block signals"));
        }
        Ok(before.assume_init())
    }
}

fn set_mask(mask: &libc::sigset_t) -> Result<()> {
    // SAFETY: reads a live, initialised set.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Error::last("restore the signal mask")),
    }
}

/// The limits that [`raise_limits`] raises, as they were: a command that we start gets them back.
static ORIGINAL: OnceLock<[(u32, libc::rlimit); 2]> = OnceLock::new();

/// Most files that we ask for: two descriptors a program, and every function of a kernel is the most.
const FILES: libc::rlim_t = 1 << 18;

/// Raises RLIMIT_MEMLOCK, against which BPF memory counts before 5.11, and RLIMIT_NOFILE, for programs and links are
/// descriptors. Each as far as this process may; what stays low shows in the call that then fails.
pub fn raise_limits() {
    ORIGINAL.get_or_init(|| {
        [
            (libc::RLIMIT_MEMLOCK, raise(libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY)),
            (libc::RLIMIT_NOFILE, raise(libc::RLIMIT_NOFILE, FILES)),
        ]
    });
}

/// Raises one limit; gives back what it was.
fn raise(resource: u32, to: libc::rlim_t) -> libc::rlimit {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to a live struct.
    unsafe { libc::getrlimit(resource, &mut old) };
    let wanted = libc::rlimit { rlim_cur: to.max(old.rlim_cur), rlim_max: to.max(old.rlim_max) };
    let allowed = libc::rlimit { rlim_cur: old.rlim_max, rlim_max: old.rlim_max };
    // SAFETY: reads live structs. Only root may raise the hard limit; others go as far as it.
    let raised =
        unsafe { libc::setrlimit(resource, &wanted) == 0 || libc::setrlimit(resource, &allowed) == 0 };
    if !raised {
        log::debug!("resource limit {resource} stays at {}", old.rlim_cur);
    }
    old
}

/// Whether this process lives in the machine's first pid namespace, where process ids are the kernel's own.
///
/// Its inode is fixed: `PROC_PID_INIT_INO`, include/linux/proc_ns.h.
pub fn pid_namespace_is_initial() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|l| l.as_os_str() == "pid:[4026531836]")
}

/// Gives this thread the lowest priority of ordinary ones (setpriority(2): on Linux it is the thread's alone).
///
/// There is nothing to do about a refusal, and nothing is wrong then but the pace.
pub fn lower_thread_priority() {
    // SAFETY: changes a number of the calling thread in the kernel, no memory.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}
