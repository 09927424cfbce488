//! What the kernel patches by its tables: static branches (`struct jump_entry`, include/linux/jump_label.h) and static calls (`struct
//! static_call_site`, include/linux/static_call_types.h). Read when a listing of their code is to be shown; where there is none of them
//! nothing is said.

use super::bytes::Bytes;
use std::collections::HashMap;
use std::rc::Rc;
use symbols::Table;

/// Most bytes of a table: a kernel with everything in it has less.
const LARGEST: u64 = 4 << 20;

/// Bytes of a module's table that are read at once.
const PIECE: usize = 4096;

/// Sites of the kernel or of a module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Patched {
    /// By the address of their code.
    branches: Vec<Branch>,
    /// Address of the code, address of the key.
    calls: Vec<(u64, u64)>,
}

/// A static branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    code: u64,
    /// Where it jumps to when it does.
    pub target: u64,
    /// Its key.
    pub key: u64,
    /// Whether it jumps when the key is off.
    pub is_likely: bool,
}

impl Patched {
    /// The static branch at an address.
    pub fn branch(&self, code: u64) -> Option<&Branch> {
        let at = self.branches.binary_search_by_key(&code, |branch| branch.code).ok()?;
        self.branches.get(at)
    }

    /// The key of the static call at an address.
    pub fn call(&self, code: u64) -> Option<u64> {
        let at = self.calls.binary_search_by_key(&code, |call| call.0).ok()?;
        self.calls.get(at).map(|call| call.1)
    }

    fn new(mut branches: Vec<Branch>, mut calls: Vec<(u64, u64)>) -> Patched {
        branches.sort_unstable();
        calls.sort_unstable();
        Patched { branches, calls }
    }
}

/// The tables that were read.
#[derive(Default)]
pub struct Tables {
    /// By module, the kernel's own by the empty name.
    read: HashMap<String, Rc<Patched>>,
}

impl Tables {
    /// The sites of the kernel or of a module.
    pub fn of(&mut self, module: Option<&str>, code: &Table, bytes: &mut Bytes) -> Rc<Patched> {
        let name = module.unwrap_or_default();
        if let Some(known) = self.read.get(name) {
            return Rc::clone(known);
        }
        let found = match module {
            None => of_kernel(code, bytes),
            Some("bpf" | "__builtin__ftrace" | "__builtin__kprobes") => Patched::default(),
            Some(module) => of_module(module, code, bytes),
        };
        log::debug!(
            "{}: {} static branches, {} static calls by its tables",
            module.unwrap_or("the kernel"),
            found.branches.len(),
            found.calls.len()
        );
        let found = Rc::new(found);
        self.read.insert(name.to_string(), Rc::clone(&found));
        found
    }
}

fn of_kernel(code: &Table, bytes: &mut Bytes) -> Patched {
    let mut table = |start: &str, stop: &str| {
        let (start, stop) = (code.anchor(start)?, code.anchor(stop)?);
        let len = stop.checked_sub(start).filter(|len| *len <= LARGEST)?;
        // What cannot be read there is no one's loss but the names'.
        Some((start, bytes.read(None, start, usize::try_from(len).ok()?).ok()?))
    };
    let branches = table("__start___jump_table", "__stop___jump_table").unwrap_or_default();
    let calls = table("__start_static_call_sites", "__stop_static_call_sites").unwrap_or_default();
    Patched::new(branches_in(branches.0, &branches.1), calls_in(calls.0, &calls.1))
}

/// A module's, whose ends are not told: a table ends where entries are of no code of the module.
fn of_module(module: &str, code: &Table, bytes: &mut Bytes) -> Patched {
    let sections = symbols::module_sections(module);
    let is_own = |at: u64| code.resolve(at).is_some_and(|symbol| symbol.module == Some(module));
    let (mut branches, mut calls) = (Vec::new(), Vec::new());
    let mut table = |name: &str, take: &mut dyn FnMut(u64, &[u8]) -> bool| {
        let Some(start) = sections.get(name) else { return };
        let next = sections.values().filter(|other| *other > start).min();
        let mut at = *start;
        let end = next.copied().unwrap_or(u64::MAX).min(start.saturating_add(LARGEST));
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            let piece = bytes.read(Some(module), at, len).unwrap_or_default();
            if piece.len() < len && piece.len() < ENTRY || !take(at, &piece) {
                return;
            }
            at = at.saturating_add(piece.len() as u64);
        }
    };
    table("__jump_table", &mut |at, piece| {
        let found = branches_in(at, piece);
        let own = found.iter().take_while(|branch| is_own(branch.code)).count();
        branches.extend(found.iter().take(own));
        own == found.len()
    });
    table(".static_call_sites", &mut |at, piece| {
        let found = calls_in(at, piece);
        let own = found.iter().take_while(|(code, _)| is_own(*code)).count();
        calls.extend(found.iter().take(own));
        own == found.len()
    });
    Patched::new(branches, calls)
}

/// Bytes of a `struct jump_entry` with relative addresses (CONFIG_HAVE_ARCH_JUMP_LABEL_RELATIVE: x86, arm64).
const ENTRY: usize = 16;

fn branches_in(address: u64, table: &[u8]) -> Vec<Branch> {
    let entry = |(n, entry): (usize, &[u8])| {
        let at = address.wrapping_add((n * ENTRY) as u64);
        let key = entry.get(8..16)?.try_into().map(u64::from_le_bytes).ok()?;
        Some(Branch {
            code: relative(entry, 0, at)?,
            target: relative(entry, 4, at)?,
            // Two bits say which way it is laid out, and that it is in code that is gone (JUMP_TYPE_MASK).
            key: at.wrapping_add(8).wrapping_add(key & !3),
            is_likely: key & 1 != 0,
        })
    };
    table.chunks_exact(ENTRY).enumerate().filter_map(entry).collect()
}

fn calls_in(address: u64, table: &[u8]) -> Vec<(u64, u64)> {
    const SITE: usize = 8;
    let site = |(n, site): (usize, &[u8])| {
        let at = address.wrapping_add((n * SITE) as u64);
        // Two bits say that it is a tail call, and of code that is gone (STATIC_CALL_SITE_FLAGS).
        Some((relative(site, 0, at)?, relative(site, 4, at)? & !3))
    };
    table.chunks_exact(SITE).enumerate().filter_map(site).collect()
}

/// An address that is told by how far it is from where that is told.
fn relative(entry: &[u8], field: usize, at: u64) -> Option<u64> {
    let distance = entry.get(field..field + 4)?.try_into().map(i32::from_le_bytes).ok()?;
    Some(at.wrapping_add(field as u64).wrapping_add_signed(distance.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0xffff_ffff_8288_0b10;

    #[test]
    fn entries_are_read_relative_to_themselves() {
        let mut table = Vec::new();
        for (code, target, key) in
            [(0x100i32, 0x180i32, -0x1000i64 | 1), (-0x80_0000, -0x7f_ff00, 0x2000 | 2)]
        {
            table.extend(code.to_le_bytes());
            table.extend(target.to_le_bytes());
            table.extend(key.to_le_bytes());
        }
        table.extend([0; 9]);
        let found = Patched::new(branches_in(AT, &table), calls_in(AT, &table[..8]));
        assert_eq!(found.branches.len(), 2);
        let first =
            Branch { code: AT + 0x100, target: AT + 4 + 0x180, key: AT + 8 - 0x1000, is_likely: true };
        assert_eq!(found.branch(AT + 0x100), Some(&first));
        let second = found.branch(AT + 16 - 0x80_0000).expect("the second");
        assert_eq!(
            (second.target, second.key, second.is_likely),
            (AT + 20 - 0x7f_ff00, AT + 24 + 0x2000, false)
        );
        assert_eq!(found.branch(AT), None);
        assert_eq!(found.call(AT + 0x100), Some((AT + 4 + 0x180) & !3));
        assert_eq!(found.call(0), None);
    }
}
