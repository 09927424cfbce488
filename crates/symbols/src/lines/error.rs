//! Why a file gives no source lines.

use crate::BuildId;
use std::io;
use std::path::PathBuf;

/// Why a file gives no source lines.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no ELF file that this machine could run, or it is cut short.
    #[error("{}: not a whole 64-bit ELF file: {reason}", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It has no build-id.
    #[error("{}: has no build-id, so it cannot be told whether it is of the kernel that runs (build-id {running})", path.display())]
    NoId {
        /// The file.
        path: PathBuf,
        /// The id wanted.
        running: BuildId,
    },
    /// It is of another build.
    #[error("{}: is of another build: its build-id is {found}, what runs has {running}", path.display())]
    OtherBuild {
        /// The file.
        path: PathBuf,
        /// The file's id.
        found: BuildId,
        /// The id wanted.
        running: BuildId,
    },
    /// The running kernel tells no build-id.
    #[error(
        "the running kernel tells no build-id (/sys/kernel/notes), so no debug file can be known to be its own"
    )]
    NoRunningId,
    /// It has no line information.
    #[error("{}: has no debug information (.debug_info and .debug_line): not the file that debuggers use", path.display())]
    NoLines {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be told where the kernel lies.
    #[error("{}: neither it nor kallsyms tells where the kernel lies (symbols _stext and _text)", path.display())]
    NoAnchor {
        /// The file.
        path: PathBuf,
    },
    /// Its debug information cannot be read.
    #[error("{}: {reason}", path.display())]
    Debug {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}
