//! Build-ids: what the linker wrote into a file and into the memory of what was loaded from it.

use std::fmt;
use std::path::Path;

/// An ELF build-id, 20 bytes as a rule. Files of one build, and what was loaded from them, have the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BuildId(Vec<u8>);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

impl BuildId {
    /// The bytes of a note; `None` when there are none.
    pub fn new(bytes: &[u8]) -> Option<BuildId> {
        (!bytes.is_empty() && bytes.len() <= 64).then(|| BuildId(bytes.into()))
    }

    /// The running kernel's (/sys/kernel/notes); `None` where it tells none.
    pub fn of_kernel(root: &Path) -> Option<BuildId> {
        in_notes(&std::fs::read(root.join("sys/kernel/notes")).ok()?)
    }

    /// A loaded module's (/sys/module/NAME/notes/.note.gnu.build-id).
    pub fn of_module(root: &Path, name: &str) -> Option<BuildId> {
        let file = root.join("sys/module").join(name).join("notes/.note.gnu.build-id");
        in_notes(&std::fs::read(file).ok()?)
    }

    /// Where links by build-id lie below `.build-id`: `xx/yyyy…`.
    pub(crate) fn link(&self) -> String {
        let text = self.to_string();
        match text.split_at_checked(2) {
            Some((first, rest)) => format!("{first}/{rest}"),
            None => text,
        }
    }
}

/// The type of the note (`NT_GNU_BUILD_ID`, include/uapi/linux/elf.h).
const NT_GNU_BUILD_ID: u32 = 3;

/// Looks through ELF notes: length of the name, length of what is noted, type; then both, padded to 4 bytes.
fn in_notes(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let word = |at: usize| notes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let (name_len, len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let rest = notes.get(12..)?;
        let name = rest.get(..name_len)?;
        let rest = rest.get(name_len.checked_next_multiple_of(4)?..)?;
        let noted = rest.get(..len)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return BuildId::new(noted);
        }
        notes = rest.get(len.checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, noted: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, noted.len() as u32, kind] {
            bytes.extend(word.to_ne_bytes());
        }
        for part in [name, noted] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let notes =
            [note(b"Xen\0", 6, b"linux\0"), note(b"GNU\0", 3, &[0xab; 20]), note(b"Linux\0", 257, b"")];
        let id = in_notes(&notes.concat()).expect("an id");
        assert_eq!(id.to_string(), "ab".repeat(20));
        assert_eq!(id.link(), format!("ab/{}", "ab".repeat(19)));
    }

    #[test]
    fn notes_without_one_or_cut_short_have_none() {
        assert_eq!(in_notes(&note(b"Xen\0", 3, b"ab")), None);
        let whole = note(b"GNU\0", 3, &[1; 20]);
        for len in 0..whole.len() {
            assert_eq!(in_notes(&whole[..len]), None, "{len}");
        }
        assert_eq!(in_notes(&[0xff; 40]), None);
    }
}
