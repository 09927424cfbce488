//! Large files of this machine, mapped rather than read: of half a gigabyte of debug information a trace looks at a
//! few pages.

use std::fs::OpenOptions;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{self, NonNull};

/// A regular file's bytes, private and read-only.
///
/// As with every map of a file, a file that somebody cuts short while it is mapped ends this process by SIGBUS when a
/// page that is gone is touched: only files that are replaced, never rewritten in place, as package managers do, are to be mapped.
#[derive(Debug)]
pub struct FileMap {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages are read-only and nobody's but this value's; reading them from any thread is sound.
unsafe impl Send for FileMap {}
// SAFETY: as above.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the whole file. What is no regular file, or empty, is an error of kind [`io::ErrorKind::InvalidInput`].
    pub fn open(path: &Path) -> io::Result<FileMap> {
        // A FIFO would keep us until somebody writes to it.
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        let data = file.metadata()?;
        if !data.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let len = usize::try_from(data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too large to map"))?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "empty"));
        }
        // SAFETY: a fresh private mapping at an address of the kernel's choice disturbs no memory of ours; `file` is an
        // open descriptor.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        match NonNull::new(base.cast()) {
            _ if base == libc::MAP_FAILED => Err(io::Error::last_os_error()),
            Some(base) => Ok(FileMap { base, len }),
            None => Err(io::Error::other("mapped at address 0")),
        }
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `base` is the start of `len` bytes that `open` mapped readable, and they stay mapped until `drop`. The
        // file is not written in place meanwhile: the contract in the type's documentation.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, made in `open`, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::FileMap;
    use std::ffi::CString;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    #[test]
    fn a_file_is_its_bytes_and_what_is_none_is_refused() {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        assert_eq!(FileMap::open(file.path()).expect_err("empty").to_string(), "empty");
        file.write_all(b"bytes").expect("write");
        assert_eq!(&*FileMap::open(file.path()).expect("map"), b"bytes");
        assert_eq!(FileMap::open(Path::new("/proc")).expect_err("folder").to_string(), "not a regular file");
        let folder = tempfile::tempdir().expect("temporary folder");
        let fifo = folder.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).expect("path");
        // SAFETY: the path is a string that lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(FileMap::open(&fifo).expect_err("FIFO").to_string(), "not a regular file");
    }
}
