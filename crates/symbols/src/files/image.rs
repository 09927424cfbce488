//! A file's code as it lies in memory: moved, and for a module linked.

use super::unpack::Bytes;
use crate::{BuildId, Symbol};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SectionKind, elf,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// Names given in a remark; of more, how many there are.
const NAMED: usize = 3;

/// Bytes of the longest number that a relocation changes.
const NUMBER: u64 = 8;

/// The code of one file.
pub(super) struct Image {
    path: PathBuf,
    pieces: Pieces,
    remark: Option<String>,
}

enum Pieces {
    /// Segments, as they lie in the file; the kernel's.
    Segments { bytes: Bytes, segments: Vec<Segment>, moved: u64 },
    /// Sections of code with their addresses, linked; a module's.
    Sections(Vec<(u64, Vec<u8>)>),
}

/// Where linked, where in the file.
struct Segment {
    address: u64,
    offset: u64,
    len: u64,
}

/// Checks that a file is of the build that runs and has code.
pub(super) fn check(path: &Path, bytes: &[u8], running: &BuildId) -> Result<(), String> {
    let elf = parse(path, bytes)?;
    match elf.build_id().ok().flatten().and_then(BuildId::new) {
        None => return Err(format!("{}: has no build-id; what runs has {running}", path.display())),
        Some(found) if found != *running => {
            return Err(format!(
                "{}: is of another build: its build-id is {found}, what runs has {running}",
                path.display()
            ));
        }
        Some(_) => {}
    }
    // Files with debug information alone keep the headers of the rest.
    let has_code = elf
        .sections()
        .any(|s| s.kind() == SectionKind::Text && s.file_range().is_some_and(|(_, len)| len > 0));
    if has_code { Ok(()) } else { Err(format!("{}: has debug information alone, no code", path.display())) }
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<Elf<'a>, String> {
    ElfFile64::parse(bytes).map_err(|e| format!("{}: not a whole 64-bit ELF file: {e}", path.display()))
}

impl Image {
    /// The kernel's, `anchors` being where symbols of it lie in memory. Without any it lies where it was linked for.
    pub fn of_kernel(path: &Path, bytes: Bytes, anchors: &[(&'static str, u64)]) -> Result<Image, String> {
        let elf = parse(path, &bytes)?;
        let header = elf.elf_header();
        let segments: Vec<Segment> = elf
            .elf_program_headers()
            .iter()
            .filter(|h| h.p_type(LittleEndian) == elf::PT_LOAD)
            .map(|h| Segment {
                address: h.p_vaddr(LittleEndian),
                offset: h.p_offset(LittleEndian),
                len: h.p_filesz(LittleEndian),
            })
            .collect();
        let linked = |name: &str| elf.symbols().find(|s| s.name() == Ok(name)).map(|s| s.address());
        let mut moved = anchors.iter().find_map(|(name, now)| Some(now.wrapping_sub(linked(name)?)));
        if moved.is_none() {
            // Stripped: the text's first section is where `_text` is.
            let text = elf.section_by_name(".text").map(|s| s.address());
            let now = anchors.iter().find(|(name, _)| *name == "_text");
            moved = now.and_then(|(_, now)| Some(now.wrapping_sub(text?)));
        }
        let moved = match (moved, anchors) {
            (Some(moved), _) => moved,
            (None, []) => 0,
            (None, _) => {
                return Err(format!(
                    "{}: neither it nor kallsyms tells where the kernel lies (symbols _stext and _text)",
                    path.display()
                ));
            }
        };
        let has_relocations =
            elf.sections().any(|s| s.kind() == SectionKind::Text && s.relocations().next().is_some());
        let is_moved_by_halves =
            header.e_machine(LittleEndian) == elf::EM_X86_64 && moved != 0 && !has_relocations;
        let remark = is_moved_by_halves.then(|| {
            format!("absolute addresses in it are as it was linked, {moved:#x} below where the kernel lies (KASLR)")
        });
        Ok(Image { path: path.into(), pieces: Pieces::Segments { bytes, segments, moved }, remark })
    }

    /// A module's, whose sections lie at the addresses of `at`; `exported` tells where the names lie that it does not define.
    pub fn of_module(
        path: &Path,
        bytes: Bytes,
        at: &HashMap<String, u64>,
        exported: &dyn Fn(&[&str]) -> HashMap<String, u64>,
    ) -> Result<Image, String> {
        let elf = parse(path, &bytes)?;
        let wanted: Vec<&str> =
            elf.symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).collect();
        let outside = exported(&wanted);
        let is_x86 = elf.elf_header().e_machine(LittleEndian) == elf::EM_X86_64;
        let (mut sections, mut unlinked) = (Vec::new(), Vec::new());
        for section in elf.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let (Ok(name), Ok(data)) = (section.name(), section.data()) else { continue };
            let Some(address) = at.get(name).filter(|_| sh_flags.contains(elf::SHF_EXECINSTR)) else {
                continue;
            };
            let mut code = data.to_vec();
            for (offset, relocation) in section.relocations() {
                let (RelocationTarget::Symbol(index), RelocationFlags::Elf { r_type }) =
                    (relocation.target(), relocation.flags())
                else {
                    continue;
                };
                let Ok(symbol) = elf.symbol_by_index(index) else { continue };
                let base = if symbol.is_undefined() {
                    symbol.name().ok().and_then(|name| outside.get(name)).copied()
                } else if let Some(section) = symbol.section_index() {
                    let section = elf.section_by_index(section).ok();
                    let start = section.and_then(|s| at.get(s.name().ok()?).copied());
                    start.map(|start| start.wrapping_add(symbol.address()))
                } else {
                    Some(symbol.address())
                };
                let value = base.map(|base| base.wrapping_add(relocation.addend() as u64));
                let done = value
                    .filter(|_| is_x86)
                    .and_then(|value| place(&mut code, offset, r_type, value, address.wrapping_add(offset)));
                if done.is_none() {
                    unlinked.push(name_of(&elf, &symbol));
                }
            }
            sections.push((*address, code));
        }
        let remark = (!unlinked.is_empty()).then(|| {
            let some: Vec<&str> = unlinked.iter().take(NAMED).map(String::as_str).collect();
            let more = if unlinked.len() > NAMED { ", …" } else { "" };
            format!(
                "{} places in it are not linked, for what they name was not found ({}{more})",
                unlinked.len(),
                some.join(", ")
            )
        });
        Ok(Image { path: path.into(), pieces: Pieces::Sections(sections), remark })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is to be said of it, in a line.
    pub fn remarks(&self) -> Vec<String> {
        let more = self.remark.as_ref().map_or(String::new(), |remark| format!("; {remark}"));
        vec![format!("{}, as it was built: without what the kernel patches{more}", self.path.display())]
    }

    /// Up to `len` bytes from an address in memory on.
    pub fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, String> {
        match &self.pieces {
            Pieces::Sections(sections) => {
                let found = sections.iter().find_map(|(start, code)| {
                    let from = usize::try_from(address.checked_sub(*start)?).ok()?;
                    code.get(from..code.len().min(from.saturating_add(len))).filter(|c| !c.is_empty())
                });
                Ok(found.unwrap_or_default().to_vec())
            }
            Pieces::Segments { bytes, segments, moved } => {
                let linked = address.wrapping_sub(*moved);
                let found = segments.iter().find_map(|s| {
                    let into = linked.checked_sub(s.address).filter(|into| *into < s.len)?;
                    let most = usize::try_from(s.len - into).ok()?.min(len);
                    // With what a number across an edge needs to be changed as a whole.
                    let before = into.min(NUMBER);
                    let after = (s.len - into - most as u64).min(NUMBER);
                    let from = usize::try_from(s.offset.checked_add(into - before)?).ok()?;
                    let whole = usize::try_from(before + after).ok()?.checked_add(most)?;
                    Some((bytes.get(from..from.checked_add(whole)?)?, before, most))
                });
                let Some((found, before, most)) = found else { return Ok(Vec::new()) };
                let mut code = found.to_vec();
                if *moved != 0 {
                    relocate(&parse(&self.path, bytes)?, linked - before, &mut code, *moved);
                }
                code.drain(..before as usize);
                code.truncate(most);
                Ok(code)
            }
        }
    }

    /// Its symbols, as kallsyms would have them.
    pub fn symbols(&self) -> Result<Vec<Symbol>, String> {
        let Pieces::Segments { bytes, .. } = &self.pieces else { return Ok(Vec::new()) };
        let elf = parse(&self.path, bytes)?;
        let mut symbols = Vec::new();
        for symbol in elf.symbols() {
            let Ok(name) = symbol.name() else { continue };
            let section = symbol.section_index().and_then(|index| elf.section_by_index(index).ok());
            let kind = match section.map(|s| (s.address(), s.kind())) {
                Some((0, _)) => 'a',
                Some((_, SectionKind::Text)) => 't',
                Some(_) => 'd',
                None => continue,
            };
            let kind = if symbol.is_global() { kind.to_ascii_uppercase() } else { kind };
            if !name.is_empty() {
                symbols.push(Symbol { address: symbol.address(), kind, name: name.into(), module: None });
            }
        }
        symbols.sort_by_key(|s| s.address);
        Ok(symbols)
    }
}

/// What a relocation refers to: of a section's symbol, the section.
fn name_of(elf: &Elf<'_>, symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>) -> String {
    let own = symbol.name().unwrap_or_default();
    let section = || elf.section_by_index(symbol.section_index()?).ok()?.name().ok().map(str::to_string);
    if own.is_empty() { section().unwrap_or_default() } else { own.into() }
}

/// Writes a value where a relocation says, as `apply_relocate_add` (arch/x86/kernel/module.c); `None` for kinds that it does not know.
fn place(code: &mut [u8], offset: u64, r_type: elf::RelocationType, value: u64, address: u64) -> Option<()> {
    let from = usize::try_from(offset).ok()?;
    let (value, len) = match r_type {
        elf::R_X86_64_NONE => return Some(()),
        elf::R_X86_64_64 => (value, 8),
        elf::R_X86_64_32 | elf::R_X86_64_32S => (value, 4),
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => (value.wrapping_sub(address), 4),
        elf::R_X86_64_PC64 => (value.wrapping_sub(address), 8),
        _ => return None,
    };
    code.get_mut(from..from.checked_add(len)?)?.copy_from_slice(value.to_le_bytes().get(..len)?);
    Some(())
}

/// What the boot does when the kernel is moved (`handle_relocations`, arch/x86/boot/compressed/misc.c), by what the linker left of its
/// relocations: absolute addresses move along, and what is relative to the instruction but absolute by nature (per-CPU data) moves back.
fn relocate(elf: &Elf<'_>, linked: u64, code: &mut [u8], moved: u64) {
    let end = linked.saturating_add(code.len() as u64);
    for section in elf.sections() {
        if section.address() >= end || section.address().saturating_add(section.size()) <= linked {
            continue;
        }
        for (at, relocation) in section.relocations() {
            if at.saturating_add(NUMBER) <= linked || at >= end {
                continue;
            }
            let (RelocationTarget::Symbol(index), RelocationFlags::Elf { r_type }) =
                (relocation.target(), relocation.flags())
            else {
                continue;
            };
            let Ok(symbol) = elf.symbol_by_index(index) else { continue };
            let section = symbol.section_index().and_then(|index| elf.section_by_index(index).ok());
            let is_fixed = section.as_ref().is_none_or(|s| s.address() == 0);
            let (len, by) = match r_type {
                elf::R_X86_64_64 if !is_fixed => (8, moved),
                elf::R_X86_64_32 | elf::R_X86_64_32S if !is_fixed => (4, moved),
                elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 if section.is_some() && is_fixed => {
                    (4, moved.wrapping_neg())
                }
                _ => continue,
            };
            add(code, at.wrapping_sub(linked) as i64, len, by);
        }
    }
}

/// Adds to the little-endian number of `len` bytes at `at`, if it lies in `code` as a whole.
fn add(code: &mut [u8], at: i64, len: usize, by: u64) {
    let Some(place) = usize::try_from(at).ok().and_then(|at| code.get_mut(at..at.checked_add(len)?)) else {
        return;
    };
    let mut number = [0; 8];
    if let Some(low) = number.get_mut(..len) {
        low.copy_from_slice(place);
    }
    let sum = u64::from_le_bytes(number).wrapping_add(by).to_le_bytes();
    if let Some(low) = sum.get(..len) {
        place.copy_from_slice(low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_added_to_where_they_lie() {
        let mut code = [0xff, 0xff, 0xff, 0xff, 0, 7];
        add(&mut code, 0, 4, 2);
        assert_eq!(code, [1, 0, 0, 0, 0, 7]);
        for outside in [-1, 3, i64::MIN, i64::MAX] {
            add(&mut code, outside, 4, 2);
        }
        assert_eq!(code, [1, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn relocations_are_placed_as_the_kernel_places_them() {
        let mut code = [0u8; 16];
        assert!(place(&mut code, 1, elf::R_X86_64_PLT32, 0x1000 - 4, 0x0f01).is_some());
        assert_eq!(code[..6], [0, 0xfb, 0, 0, 0, 0]);
        assert!(place(&mut code, 8, elf::R_X86_64_64, 0x1122_3344_5566_7788, 0).is_some());
        assert_eq!(code[8..], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert!(place(&mut code, 13, elf::R_X86_64_32S, 1, 0).is_none(), "beyond the end");
        assert!(place(&mut code, 0, elf::R_X86_64_GOTPCREL, 1, 0).is_none(), "no module has it");
    }
}
