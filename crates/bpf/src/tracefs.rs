//! tracefs where nobody has mounted it.

use crate::error::{Error, Result};
use std::ffi::c_long;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// A mount of tracefs that is at no place and that nobody else sees; gone when it is dropped.
#[derive(Debug)]
pub struct Tracefs(OwnedFd);

/// `enum fsconfig_command` (include/uapi/linux/mount.h).
const FSCONFIG_CMD_CREATE: c_long = 6;
const CLOEXEC: c_long = 1;
/// MOUNT_ATTR_RDONLY, NOSUID, NODEV and NOEXEC.
const READ_ONLY: c_long = 0xf;

impl Tracefs {
    /// By fsopen(2) and fsmount(2) (5.2). Takes CAP_SYS_ADMIN.
    pub fn detached() -> Result<Tracefs> {
        let none = std::ptr::null::<u8>();
        // SAFETY: the name ends with a zero byte; the kernel copies it.
        let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOEXEC) })?;
        // SAFETY: this command takes neither key nor value.
        let made = unsafe {
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0)
        };
        if made < 0 {
            return Err(Error::last("open tracefs"));
        }
        // SAFETY: takes numbers, no pointer.
        descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, READ_ONLY) })
            .map(Tracefs)
    }

    /// A path to its root, for this process and as long as this lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// What a system call answered that makes a descriptor.
fn descriptor(answer: c_long) -> Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Error::last("open tracefs")),
    }
}
