//! Names of system registers, system operations, hints and PSTATE's fields, which the decoder does not know.

use std::sync::OnceLock;

/// Number and names, in the order of numbers.
type Table = Vec<(u32, &'static str, &'static str)>;

fn table(cell: &'static OnceLock<Table>, text: &'static str, shifts: &'static [u32]) -> &'static Table {
    cell.get_or_init(|| {
        let parse = |line: &'static str| {
            let mut rest = line;
            let mut number = 0;
            for shift in shifts {
                let (word, after) = rest.split_once(' ')?;
                number |= word.parse::<u32>().ok()? << shift;
                rest = after;
            }
            let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
            Some((number, first, second))
        };
        let mut table: Table = text.lines().filter_map(parse).collect();
        table.sort_unstable();
        table
    })
}

fn find(table: &Table, number: u32) -> Option<(&'static str, &'static str)> {
    let place = table.binary_search_by_key(&number, |entry| entry.0).ok()?;
    table.get(place).map(|entry| (entry.1, entry.2))
}

/// A system register by the 15 bits that `mrs` and `msr` name it with (o0, op1, CRn, CRm, op2).
pub(super) fn register(number: u16, written: bool) -> Option<&'static str> {
    static REGISTERS: OnceLock<Table> = OnceLock::new();
    let table = table(&REGISTERS, include_str!("registers.txt"), &[14, 11, 7, 3, 0]);
    // The file has op0, 2 or 3, of which one bit is encoded.
    let (read, other) = find(table, (u32::from(number) & 0x7fff) + (2 << 14))?;
    Some(if written && !other.is_empty() { other } else { read })
}

/// What `sys` with op1, CRn, CRm, op2 (14 bits) does: the operation, and whether it takes a register.
pub(super) fn operation(number: u32) -> Option<(&'static str, bool)> {
    static OPERATIONS: OnceLock<Table> = OnceLock::new();
    let table = table(&OPERATIONS, include_str!("operations.txt"), &[11, 7, 3, 0]);
    let (takes, name) = find(table, number)?;
    Some((name, takes == "x"))
}

/// A hint (CRm, op2: 7 bits).
pub(super) fn hint(number: u32) -> Option<&'static str> {
    Some(match number {
        0x00 => "nop",
        0x01 => "yield",
        0x02 => "wfe",
        0x03 => "wfi",
        0x04 => "sev",
        0x05 => "sevl",
        0x06 => "dgh",
        0x07 => "xpaclri",
        0x08 => "pacia1716",
        0x0a => "pacib1716",
        0x0c => "autia1716",
        0x0e => "autib1716",
        0x10 => "esb",
        0x11 => "psb csync",
        0x12 => "tsb csync",
        0x14 => "csdb",
        0x18 => "paciaz",
        0x19 => "paciasp",
        0x1a => "pacibz",
        0x1b => "pacibsp",
        0x1c => "autiaz",
        0x1d => "autiasp",
        0x1e => "autibz",
        0x1f => "autibsp",
        0x20 => "bti",
        0x22 => "bti c",
        0x24 => "bti j",
        0x26 => "bti jc",
        0x27 => "pacm",
        0x28 => "chkfeat x16",
        _ => return None,
    })
}

/// A field of PSTATE by op1 and op2 (6 bits).
pub(super) fn pstate(number: u8) -> Option<&'static str> {
    Some(match number {
        0x03 => "uao",
        0x04 => "pan",
        0x05 => "spsel",
        0x19 => "ssbs",
        0x1a => "dit",
        0x1c => "tco",
        0x1e => "daifset",
        0x1f => "daifclr",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_read() {
        assert_eq!(register(0x4000, false), Some("midr_el1"));
        assert_eq!(
            (register(0x1828, false), register(0x1828, true)),
            (Some("dbgdtrrx_el0"), Some("dbgdtrtx_el0"))
        );
        assert_eq!(register(0x7fff, false), None);
        assert_eq!(operation(0x388), Some(("ic ialluis", false)));
        assert_eq!(operation(0x3b1), Some(("dc ivac", true)));
        assert_eq!(operation(0x3fff), None);
    }
}
