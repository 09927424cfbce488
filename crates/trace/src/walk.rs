//! Paths: from a `struct dentry` up to the root, name by name, across mounts (as fs/d_path.c does).
//!
//! In the record:
//!
//! ```text
//!  0  i32     how the walk ended: one of [`end`], or a negative error
//!  4  u32     bytes of names
//!  8  char[]  names, innermost first, each with its terminator
//! 72  u64     inode number ┐ of what is its own root, a pipe, a socket, …: it has one name, so these lie behind that
//! 80  u16     inode mode   ┘
//! ```

use btf::{Btf, TypeId};

/// How a walk ends.
pub(crate) mod end {
    /// Too many names, or too long: there is more above.
    pub const CUT: i32 = 0;
    /// At the root.
    pub const ROOT: i32 = 1;
    /// At once: the object has no parent. `/`, or no file in a tree at all.
    pub const ALONE: i32 = 2;
}

/// Offsets in the record, from the field's own.
pub(crate) mod place {
    pub const END: u32 = 0;
    pub const USED: u32 = 4;
    pub const NAMES: u32 = 8;
    pub const INO: u32 = NAMES + super::NAME;
    pub const MODE: u32 = INO + 8;
}

/// Room for one name and its terminator; longer ones are cut.
pub(crate) const NAME: u32 = 64;
/// Room for all.
pub(crate) const NAMES: u32 = 128;
/// Most names and mounts on the way.
pub(crate) const STEPS: u32 = 12;

/// A path in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathField {
    /// Its offset.
    pub offset: u32,
}

impl PathField {
    /// Bytes.
    pub const SIZE: u32 = place::NAMES + NAMES;
}

/// Structures that a walk goes through.
pub(crate) const STRUCTS: [&str; 3] = ["dentry", "mount", "inode"];

/// Where their members lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// First byte of `struct dentry` that is read, and how many.
    pub dentry: (u32, u32),
    /// From that byte on.
    pub parent: u32,
    pub name: u32,
    pub inode: u32,
    /// `struct vfsmount` in `struct mount`.
    pub vfsmount: u32,
    /// First byte of `struct mount` that is read, and how many.
    pub mount: (u32, u32),
    /// From that byte on.
    pub mount_parent: u32,
    pub mountpoint: u32,
    /// In `struct inode`.
    pub ino: u32,
    pub mode: u32,
}

/// Most bytes of one read on the way.
const MOST: u32 = 64;

impl Walk {
    /// `None` for a kernel whose structures are others.
    pub fn of(btf: &Btf, find: impl Fn(&str) -> Option<TypeId>) -> Option<Walk> {
        let at = |strukt, path: &str| Some(btf.member(find(strukt)?, path).ok()?.byte_offset());
        let (parent, name) = (at("dentry", "d_parent")?, at("dentry", "d_name.name")?);
        let inode = at("dentry", "d_inode")?;
        let (up, point) = (at("mount", "mnt_parent")?, at("mount", "mnt_mountpoint")?);
        let dentry = span(&[parent, name, inode])?;
        let mount = span(&[up, point])?;
        Some(Walk {
            dentry,
            parent: parent - dentry.0,
            name: name - dentry.0,
            inode: inode - dentry.0,
            vfsmount: at("mount", "mnt")?,
            mount,
            mount_parent: up - mount.0,
            mountpoint: point - mount.0,
            ino: at("inode", "i_ino")?,
            mode: at("inode", "i_mode")?,
        })
    }
}

/// First byte and size of what covers these pointers.
fn span(pointers: &[u32]) -> Option<(u32, u32)> {
    let (first, last) = (pointers.iter().min()?, pointers.iter().max()?);
    let size = last - first + 8;
    (size <= MOST && pointers.iter().all(|p| p % 8 == 0)).then_some((*first, size))
}

/// A path as an event has it.
#[derive(Clone, Copy, Debug)]
pub struct PathText<'a> {
    names: &'a [u8],
    end: i32,
    /// Inode number, where there is no parent.
    pub ino: u64,
    /// Inode mode, where there is no parent; 0 if not known.
    pub mode: u16,
}

impl<'a> PathText<'a> {
    /// Decodes; the error of the walk if it failed.
    pub(crate) fn new(field: &'a [u8]) -> Result<PathText<'a>, i32> {
        let word = |at: u32| {
            field.get(at as usize..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
        };
        let end = word(place::END) as i32;
        if end < 0 {
            return Err(end);
        }
        let used = word(place::USED).min(NAMES) as usize;
        let names = field.get(place::NAMES as usize..).and_then(|n| n.get(..used)).unwrap_or_default();
        let names = names.strip_suffix(&[0]).unwrap_or(names);
        let ino = u64::from(word(place::INO)) | u64::from(word(place::INO + 4)) << 32;
        Ok(PathText { names, end, ino, mode: word(place::MODE) as u16 })
    }

    /// Whether there is more above the first name.
    pub fn is_cut(&self) -> bool {
        self.end == end::CUT
    }

    /// The name of what has no parent: `/` for a root; `[eventfd]`, or nothing, for what is in no tree.
    pub fn alone(&self) -> Option<&'a [u8]> {
        (self.end == end::ALONE).then_some(self.names)
    }

    /// The names from the outermost; each may be cut, see [`PathText::is_name_cut`].
    pub fn names(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.names.rsplit(|b| *b == 0)
    }

    /// Whether a name goes on: it fills its room. (One that just fits is taken for cut, and loses its last character.)
    pub fn is_name_cut(name: &[u8]) -> bool {
        name.len() >= NAME as usize - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(end: i32, names: &[u8]) -> Vec<u8> {
        let mut field = end.to_ne_bytes().to_vec();
        field.extend((names.len() as u32).to_ne_bytes());
        field.extend(names);
        field.resize(place::INO as usize, 0xee);
        field.extend(7u64.to_ne_bytes());
        field.extend(0o010600u64.to_ne_bytes());
        field.resize(PathField::SIZE as usize, 0xee);
        field
    }

    #[test]
    fn names_come_outermost_first() {
        let field = field(end::ROOT, b"zero\0dev\0");
        let path = PathText::new(&field).expect("path");
        assert_eq!(path.names().collect::<Vec<_>>(), [&b"dev"[..], b"zero"]);
        assert!(!path.is_cut() && path.alone().is_none());
    }

    #[test]
    fn what_has_no_parent_is_told_apart() {
        let pipe = field(end::ALONE, b"\0");
        let path = PathText::new(&pipe).expect("path");
        assert_eq!((path.alone(), path.ino, path.mode), (Some(&b""[..]), 7, 0o010600));
        let root = field(end::ALONE, b"/\0");
        assert_eq!(PathText::new(&root).expect("path").alone(), Some(&b"/"[..]));
    }

    #[test]
    fn errors_and_nonsense() {
        assert_eq!(PathText::new(&field(-14, b"")).err(), Some(-14));
        let mut long = field(end::CUT, b"a\0");
        long[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(PathText::new(&long).expect("path").is_cut());
        assert!(PathText::new(&[]).expect("nothing").names().count() <= 1);
    }
}
