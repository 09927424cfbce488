//! What an ELF file holds of debug information: sections, uncompressed, and for modules relocated.

use crate::BuildId;
use object::read::elf::{ElfFile64, FileHeader};
use object::{
    CompressionFormat, LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget,
    SectionIndex,
};
use std::borrow::Cow;
use std::collections::HashMap;

/// The sections that lines are read from.
pub(crate) const SECTIONS: [gimli::SectionId; 10] = [
    gimli::SectionId::DebugAbbrev,
    gimli::SectionId::DebugAddr,
    gimli::SectionId::DebugAranges,
    gimli::SectionId::DebugInfo,
    gimli::SectionId::DebugLine,
    gimli::SectionId::DebugLineStr,
    gimli::SectionId::DebugRanges,
    gimli::SectionId::DebugRngLists,
    gimli::SectionId::DebugStr,
    gimli::SectionId::DebugStrOffsets,
];

/// Larger debug sections no kernel has: a header that claims more is wrong.
const LARGEST: u64 = 2 << 30;

/// Nothing grows by more when it is uncompressed (zlib's bound; debug information grows fivefold). What a header claims is
/// memory that is taken before any of it is known to be true.
const LARGEST_RATIO: u64 = 1032;

/// The contents of [`SECTIONS`], in that order; what a file does not have is empty.
pub(crate) type Sections<'a> = [Cow<'a, [u8]>; SECTIONS.len()];

/// An ELF file, 64-bit and little-endian, where its bytes lie.
pub(crate) struct Elf<'a>(ElfFile64<'a, LittleEndian>);

impl<'a> Elf<'a> {
    /// Reads the headers.
    pub fn parse(bytes: &'a [u8]) -> Result<Elf<'a>, String> {
        ElfFile64::parse(bytes).map(Elf).map_err(|e| e.to_string())
    }

    pub fn build_id(&self) -> Option<BuildId> {
        self.0.build_id().ok().flatten().and_then(BuildId::new)
    }

    /// Whether there is anything to read lines from; sections without bytes in the file do not count.
    pub fn has_lines(&self) -> bool {
        [".debug_info", ".debug_line"].iter().all(|name| {
            let section = self.0.section_by_name(name);
            section.is_some_and(|s| s.compressed_file_range().is_ok_and(|range| range.compressed_size > 0))
        })
    }

    /// The file that has the debug information that was stripped from this one (`.gnu_debuglink`).
    pub fn debug_link(&self) -> Option<String> {
        let (name, _) = self.0.gnu_debuglink().ok().flatten()?;
        std::str::from_utf8(name).ok().map(str::to_string)
    }

    /// The addresses of symbols, in the order of `names`.
    pub fn addresses(&self, names: &[&str]) -> Vec<Option<u64>> {
        let mut found = vec![None; names.len()];
        for symbol in self.0.symbols() {
            let Ok(name) = symbol.name_bytes() else { continue };
            if let Some(at) = names.iter().position(|n| n.as_bytes() == name)
                && let Some(slot) = found.get_mut(at)
            {
                *slot = Some(symbol.address());
            }
        }
        found
    }

    /// The sections as they are, uncompressed.
    pub fn sections(&self) -> Result<Sections<'a>, String> {
        self.gather(|section| uncompressed(section))
    }

    /// The sections of a file that is yet to be linked (`ET_REL`, a module), as they are once each section of code lies at
    /// its address in `at`. Sections that have none there lie at 0.
    pub fn sections_at(&self, at: &HashMap<String, u64>) -> Result<Sections<'a>, String> {
        if self.0.elf_header().e_type(LittleEndian) != object::elf::ET_REL {
            return self.sections();
        }
        let address = |index: SectionIndex| {
            let section = self.0.section_by_index(index).ok()?;
            section.name().ok().and_then(|name| at.get(name)).copied()
        };
        self.gather(|section| {
            let mut bytes = uncompressed(section)?;
            let mut relocations = section.relocations().peekable();
            if relocations.peek().is_none() {
                return Ok(bytes);
            }
            let out = bytes.to_mut();
            for (offset, relocation) in relocations {
                let RelocationTarget::Symbol(index) = relocation.target() else { continue };
                match relocation.kind() {
                    RelocationKind::None => continue,
                    RelocationKind::Absolute => {}
                    kind => return Err(format!("relocations of an unknown kind ({kind:?})")),
                }
                let symbol = self.0.symbol_by_index(index).map_err(|e| e.to_string())?;
                let base = symbol.section_index().and_then(address).unwrap_or(0);
                let value = base.wrapping_add(symbol.address()).wrapping_add(relocation.addend() as u64);
                let (size, value) = (usize::from(relocation.size() / 8), value.to_le_bytes());
                let place = usize::try_from(offset).ok().and_then(|o| out.get_mut(o..o.checked_add(size)?));
                if let (Some(place), Some(value)) = (place, value.get(..size)) {
                    place.copy_from_slice(value);
                }
            }
            Ok(bytes)
        })
    }

    /// The address of some function in each section of code that has one in `at`.
    pub fn functions_at(&self, at: &HashMap<String, u64>) -> Vec<u64> {
        let functions = self.0.symbols().filter(|s| s.kind() == object::SymbolKind::Text && s.size() > 0);
        let address = |symbol: object::read::elf::ElfSymbol64<'_, '_, LittleEndian>| {
            let section = self.0.section_by_index(symbol.section_index()?).ok()?;
            Some(at.get(section.name().ok()?)?.wrapping_add(symbol.address()))
        };
        functions.filter_map(address).take(8).collect()
    }

    fn gather(
        &self,
        read: impl Fn(&object::read::elf::ElfSection64<'a, '_, LittleEndian>) -> Result<Cow<'a, [u8]>, String>,
    ) -> Result<Sections<'a>, String> {
        let mut sections = [const { Cow::Borrowed(&[] as &[u8]) }; SECTIONS.len()];
        for (slot, id) in sections.iter_mut().zip(SECTIONS) {
            if let Some(section) = self.0.section_by_name(id.name()) {
                *slot = read(&section).map_err(|e| format!("{}: {e}", id.name()))?;
            }
        }
        Ok(sections)
    }
}

fn uncompressed<'a>(
    section: &object::read::elf::ElfSection64<'a, '_, LittleEndian>,
) -> Result<Cow<'a, [u8]>, String> {
    let data = section.compressed_data().map_err(|e| e.to_string())?;
    let most = (data.data.len() as u64).saturating_mul(LARGEST_RATIO).min(LARGEST);
    if data.format != CompressionFormat::None && data.uncompressed_size > most {
        return Err(format!("claims {} bytes", data.uncompressed_size));
    }
    data.decompress().map_err(|e| e.to_string())
}
