//! Where the kernel goes on when an instruction of its own faults, as one does that reads the memory of a program which is not there: its
//! exception tables (`struct exception_table_entry`, arch/x86/include/asm/extable.h).

use std::collections::HashMap;
use std::rc::Rc;
use symbols::{Live, Table};

/// An instruction that may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Where it is.
    pub at: u64,
    /// Where the kernel goes on then.
    pub to: u64,
}

/// Bytes of an entry: two addresses, relative to where they are told, and what is done on the way.
const ENTRY: usize = 12;

/// Most bytes of a table: a kernel has some tens of thousands.
const LARGEST: u64 = 4 << 20;

/// Bytes of a module's table that are read at once.
const PIECE: usize = 4092;

/// The tables that were read: by module, the kernel's own by the empty name. A table that cannot be read has no entries: then a step by an
/// exception is not known.
#[derive(Default)]
pub struct Tables(HashMap<String, Rc<[Fault]>>);

impl Tables {
    /// The table of the kernel or of a module, by address.
    pub fn of(&mut self, module: Option<&str>, table: &Table, live: &Live) -> Rc<[Fault]> {
        let name = module.unwrap_or_default();
        if let Some(known) = self.0.get(name) {
            return Rc::clone(known);
        }
        let mut found = match module {
            None => of_kernel(table, live).unwrap_or_default(),
            Some(module) => of_module(module, table, live),
        };
        found.sort_unstable();
        log::debug!("{}: {} instructions may fault", module.unwrap_or("the kernel"), found.len());
        let found: Rc<[Fault]> = found.into();
        self.0.insert(name.to_string(), Rc::clone(&found));
        found
    }
}

fn of_kernel(table: &Table, live: &Live) -> Option<Vec<Fault>> {
    let (start, stop) = (table.anchor("__start___ex_table")?, table.anchor("__stop___ex_table")?);
    let len = stop.checked_sub(start).filter(|len| *len <= LARGEST)?;
    Some(entries(start, &live.read(start, usize::try_from(len).ok()?).ok()?))
}

/// A module's, whose end is not told: it ends where entries are of no code of the module.
fn of_module(module: &str, table: &Table, live: &Live) -> Vec<Fault> {
    let sections = symbols::module_sections(module);
    let is_own = |fault: &&Fault| table.resolve(fault.at).is_some_and(|symbol| symbol.module == Some(module));
    let mut all = Vec::new();
    let Some(start) = sections.get("__ex_table").copied() else { return all };
    let next = sections.values().copied().filter(|other| *other > start).min();
    let end = next.unwrap_or(u64::MAX).min(start.saturating_add(LARGEST));
    let mut at = start;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        let found = entries(at, &live.read(at, len).unwrap_or_default());
        let own = found.iter().take_while(is_own).count();
        all.extend(found.iter().take(own));
        if own < found.len() || found.is_empty() {
            break;
        }
        at = at.saturating_add((found.len() * ENTRY) as u64);
    }
    all
}

fn entries(address: u64, table: &[u8]) -> Vec<Fault> {
    let relative = |entry: &[u8], field: usize, at: u64| {
        let distance = entry.get(field..field + 4)?.try_into().map(i32::from_le_bytes).ok()?;
        Some(at.wrapping_add(field as u64).wrapping_add_signed(distance.into()))
    };
    let entry = |(n, entry): (usize, &[u8])| {
        let at = address.wrapping_add((n * ENTRY) as u64);
        Some(Fault { at: relative(entry, 0, at)?, to: relative(entry, 4, at)? })
    };
    table.chunks_exact(ENTRY).enumerate().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_relative_to_themselves() {
        const AT: u64 = 0xffff_ffff_8288_0b10;
        let mut table = Vec::new();
        for (at, to) in [(-0x80_0000_i32, -0x7f_ff00_i32), (0x100, -0x10)] {
            table.extend(at.to_le_bytes());
            table.extend(to.to_le_bytes());
            table.extend(3_u32.to_le_bytes());
        }
        table.push(1);
        assert_eq!(
            entries(AT, &table),
            [
                Fault { at: AT - 0x80_0000, to: AT + 4 - 0x7f_ff00 },
                Fault { at: AT + 12 + 0x100, to: AT + 16 - 0x10 }
            ]
        );
        assert_eq!(entries(AT, &[]), []);
    }
}
