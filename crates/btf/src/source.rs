//! Where the bytes of a BTF lie: in the kernel's own pages, or in a vector.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};

/// The kernel's own BTF files.
const SYSFS: &str = "/sys/kernel/btf/";

/// No BTF is larger; the offset index could not address it either.
pub(crate) const MAX_LEN: u64 = 256 << 20;

/// The bytes of a BTF blob.
#[derive(Debug)]
pub(crate) enum Source {
    /// Mapped pages of `/sys/kernel/btf/vmlinux`.
    Map(Mmap),
    /// Read, or handed over.
    Bytes(Vec<u8>),
}

impl Source {
    /// Maps `path` if it is the kernel's own (`vmlinux` can be mapped since 6.16), else reads it in one go.
    pub(crate) fn open(path: &Path) -> io::Result<Source> {
        let mut file = File::open(path)?;
        if path.starts_with(SYSFS)
            && let Some(map) = map(&file)
        {
            return Ok(Source::Map(map));
        }
        let size = file.metadata().map(|m| m.len()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(size.min(MAX_LEN) as usize + 1);
        file.by_ref().take(MAX_LEN + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_LEN {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than any BTF (256 MiB)"));
        }
        Ok(Source::Bytes(bytes))
    }
}

/// A map of the whole file, if the kernel grants one: a private one only, `btf_sysfs_vmlinux_mmap` of `kernel/bpf/sysfs_btf.c`
/// refuses a shared one.
#[allow(unsafe_code)]
fn map(file: &File) -> Option<Mmap> {
    // SAFETY: a map is a shared view of its file, so the file must not change under it. This one is only asked for below
    // `/sys/kernel/btf`, where the pages are the read-only BTF section of the running kernel: nothing can write or truncate
    // them. Files anywhere else are read instead.
    unsafe { MmapOptions::new().map_copy_read_only(file) }.ok().filter(|m| m.len() as u64 <= MAX_LEN)
}

impl Deref for Source {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Source::Map(map) => map,
            Source::Bytes(bytes) => bytes,
        }
    }
}
