//! What can go wrong at the kernel's door.

use std::io;

/// A refused system call, with what was asked and of what.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{action}: {source}")]
    Sys {
        /// What was being done and on what: "create map events (ringbuf, 8388608 bytes)".
        action: String,
        /// The kernel's errno.
        source: io::Error,
    },
    /// BPF_PROG_LOAD failed. The verifier's log may be empty: then the kernel refused before verification.
    #[error("load program {name}: {source}")]
    Load {
        /// Name of the program as given to the kernel.
        name: String,
        /// The kernel's errno.
        source: io::Error,
        /// The verifier's log, level 1, as much of its end as fitted.
        log: String,
    },
    /// The kernel handed over something that its own interface rules out.
    #[error("{0}")]
    Protocol(String),
}

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno of the last system call, for `action`.
    pub(crate) fn last(action: impl Into<String>) -> Error {
        Error::Sys { action: action.into(), source: io::Error::last_os_error() }
    }

    /// The kernel's errno, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Sys { source, .. } | Error::Load { source, .. } => source.raw_os_error(),
            Error::Protocol(_) => None,
        }
    }

    /// Whether the kernel refused for want of permission (EPERM or EACCES).
    ///
    /// EACCES from a program load is the verifier's usual answer and no matter of permission, so a load counts
    /// only with EPERM.
    pub fn is_permission(&self) -> bool {
        match self {
            Error::Load { .. } => self.errno() == Some(libc::EPERM),
            _ => matches!(self.errno(), Some(libc::EPERM | libc::EACCES)),
        }
    }

    /// Whether the kernel had no memory for it (ENOMEM).
    pub fn is_out_of_memory(&self) -> bool {
        self.errno() == Some(libc::ENOMEM)
    }

    /// The verifier's log, when there is one.
    pub fn log(&self) -> Option<&str> {
        match self {
            Error::Load { log, .. } if !log.is_empty() => Some(log),
            _ => None,
        }
    }
}
