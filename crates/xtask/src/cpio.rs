//! Writes cpio archives in the "newc" form, the one the kernel unpacks as an initramfs.
//!
//! The format is in the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`: a header of thirteen
//! fields of eight hexadecimal digits after the magic `070701`, the name, the data, both padded to four bytes; an
//! entry named `TRAILER!!!` ends the archive. Everything belongs to root, and times are zero, so that the same
//! contents give the same bytes.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const SYMLINK: u32 = 0o120000;
const CHARACTER: u32 = 0o020000;

/// An archive being written to `W`.
///
/// Paths are given as the guest sees them (`/bin/sh`); directories above an entry are made when they are not there
/// yet, since the kernel drops an entry whose directory it has not met.
pub struct Archive<W: Write> {
    out: W,
    inode: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// Starts an empty archive.
    pub fn new(out: W) -> Self {
        Archive { out, inode: 0, directories: BTreeSet::new() }
    }

    /// A directory, with permission 0755, and those above it. Asking twice is harmless.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        let path = clean(path);
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|&end| end > 0) {
            if self.directories.insert(path[..end].to_owned()) {
                self.entry(&path[..end], DIRECTORY | 0o755, &[], (0, 0))?;
            }
        }
        Ok(())
    }

    /// A regular file; `mode` is its permission bits.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.parent_of(path)?;
        self.entry(clean(path), REGULAR | (mode & 0o7777), data, (0, 0))
    }

    /// A symbolic link at `path` that holds `target`.
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.parent_of(path)?;
        self.entry(clean(path), SYMLINK | 0o777, target.as_bytes(), (0, 0))
    }

    /// A character device, readable and writable by root.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.parent_of(path)?;
        self.entry(clean(path), CHARACTER | 0o600, &[], (major, minor))
    }

    /// Writes the trailer and gives the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[], (0, 0))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parent_of(&mut self, path: &str) -> io::Result<()> {
        match clean(path).rsplit_once('/') {
            Some((parent, _)) => self.directory(parent),
            None => Ok(()),
        }
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8], device: (u32, u32)) -> io::Result<()> {
        let size = u32::try_from(data.len())
            .map_err(|_| io::Error::other(format!("{name} is too large for a cpio archive (4 GiB)")))?;
        self.inode += 1;
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        let name_size = name.len() as u32 + 1;
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size,
            0, /* no checksum */
        ];
        let mut header = String::with_capacity(110 + name.len() + 4);
        header.push_str("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        header.push_str(name);
        header.push('\0');
        while !header.len().is_multiple_of(4) {
            header.push('\0');
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(data)?;
        self.out.write_all(&[0; 3][..data.len().wrapping_neg() % 4])
    }
}

/// The name as the archive holds it: no leading or trailing slash.
fn clean(path: &str) -> &str {
    path.trim_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode, data, device.
    type Entry = (String, u32, Vec<u8>, (u32, u32));

    /// Reads an archive back, trailer included.
    fn read(bytes: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let field = |i: usize| {
                let start = at + 6 + 8 * i;
                u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (size, name_size) = (field(6) as usize, field(11) as usize);
            let name = &bytes[at + 110..at + 110 + name_size];
            assert_eq!(name.last(), Some(&0));
            let data = (at + 110 + name_size).next_multiple_of(4);
            entries.push((
                String::from_utf8(name[..name_size - 1].to_vec()).unwrap(),
                field(1),
                bytes[data..data + size].to_vec(),
                (field(9), field(10)),
            ));
            at = (data + size).next_multiple_of(4);
        }
        entries
    }

    #[test]
    fn entries_come_back_as_written() {
        let mut archive = Archive::new(Vec::new());
        archive.character_device("/dev/console", 5, 1).unwrap();
        for length in 0..9 {
            archive.file(&format!("/f{length}"), 0o755, &vec![b'x'; length]).unwrap();
        }
        archive.symlink("/bin/sh", "busybox").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let entries = read(&bytes);
        let names: Vec<&str> = entries.iter().map(|e| e.0.as_str()).collect();
        assert_eq!(
            names,
            [
                "dev",
                "dev/console",
                "f0",
                "f1",
                "f2",
                "f3",
                "f4",
                "f5",
                "f6",
                "f7",
                "f8",
                "bin",
                "bin/sh",
                "TRAILER!!!"
            ]
        );
        assert_eq!(entries[1].1, 0o020600);
        assert_eq!(entries[1].3, (5, 1));
        for (length, entry) in entries[2..11].iter().enumerate() {
            assert_eq!((entry.1, entry.2.len()), (0o100755, length));
        }
        assert_eq!((entries[12].1, entries[12].2.as_slice()), (0o120777, &b"busybox"[..]));
    }

    #[test]
    fn directories_are_made_once_and_before_what_they_hold() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/a/b/one", 0o644, b"1").unwrap();
        archive.file("a/b/two", 0o644, b"2").unwrap();
        archive.directory("/a/c/").unwrap();
        let entries = read(&archive.finish().unwrap());
        let names: Vec<&str> = entries.iter().map(|e| e.0.as_str()).collect();
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/b/two", "a/c", "TRAILER!!!"]);
        assert_eq!(entries[0].1, 0o040755);
    }
}
