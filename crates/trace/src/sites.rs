//! Which functions ftrace can patch, asked of the kernel by a program that it runs for us: the address of each name, and
//! the first bytes there.
//!
//! A function that can be traced begins with room for a call (`-mfentry`): a five-byte no-op, or the call of whoever traces it
//! now, after `endbr64` on kernels with IBT. Functions that were freed after boot, or marked notrace, do not. Reading
//! /proc/kallsyms for this would take a hundred times as long.

use crate::error::Error;
use crate::systems;
use asm::{Arg, Helper, MapId, Program};
use bpf::{Load, Map, MapType, ProgType, TestRun};
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd};

/// Names asked for in one run.
const AT_ONCE: usize = 32;
/// Room of a name, its terminator included. Longer ones are not asked for.
const NAME: usize = 128;
/// Bytes read of a function's beginning.
const CODE: usize = 16;
/// A name, its address, the beginning of its code.
const ROW: usize = NAME + 8 + CODE;

/// What the kernel has by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A function at this address that ftrace can patch.
    Patchable(u64),
    /// Something at this address that it cannot.
    Fixed(u64),
    /// Nothing.
    Absent,
}

/// For each name what the kernel finds by it: of several functions the one that it attaches tracing programs to.
///
/// # Errors
/// The kernel has no such helper (before 5.16), or hides its addresses.
pub fn sites(names: &[&str]) -> Result<Vec<Site>, Error> {
    let table = Map::create(MapType::Array, "sites", 4, (AT_ONCE * ROW) as u32, 1)?;
    let mut program = Program::new("sites", "sites");
    program.main(|f| {
        f.line("addresses and first bytes of functions", 1, 1);
        for row in 0..AT_ONCE {
            let name = Arg::MapValue(MapId(0), (row * ROW) as u32);
            let address = (row * ROW + NAME) as u32;
            let to = Arg::MapValue(MapId(0), address);
            f.call(Helper::KALLSYMS_LOOKUP_NAME, &[name, Arg::Imm(NAME as i64), Arg::Imm(0), to]);
            let at = f.map_value(MapId(0), address);
            let from = f.load(asm::Size::DW, at, 0);
            let code = Arg::MapValue(MapId(0), address + 8);
            f.call(Helper::PROBE_READ_KERNEL, &[code, Arg::Imm(CODE as i64), Arg::Reg(from)]);
        }
        f.ret(0);
    });
    let unassembled = |source| Error::Assemble { target: "sites".into(), source };
    let code = program.assemble(&asm::Options::default()).map_err(unassembled)?;
    let insns = code.relocate(|_| table.as_fd().as_raw_fd()).map_err(unassembled)?;
    let load = Load { sleepable: true, ..Load::new("sites", ProgType::Syscall, &insns) };
    let loaded = bpf::Program::load(&load)?;
    let mut found = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        let mut rows = vec![0u8; AT_ONCE * ROW];
        for (row, name) in rows.chunks_exact_mut(ROW).zip(some) {
            if let Some(room) = row.get_mut(..name.len()).filter(|_| name.len() < NAME) {
                room.copy_from_slice(name.as_bytes());
            }
        }
        table.update(&0u32.to_ne_bytes(), &rows)?;
        loaded.test_run(&TestRun::default())?;
        let rows = table.lookup(&0u32.to_ne_bytes())?.unwrap_or_default();
        found.extend(rows.chunks_exact(ROW).take(some.len()).map(|row| {
            let address =
                row.get(NAME..NAME + 8).and_then(|a| a.try_into().ok()).map_or(0, u64::from_ne_bytes);
            let code = row.get(NAME + 8..).unwrap_or_default();
            match address {
                0 => Site::Absent,
                _ if is_patchable(code) => Site::Patchable(address),
                _ => Site::Fixed(address),
            }
        }));
    }
    Ok(found)
}

/// The same by the lists of ftrace and of the kernel's symbols: of thousands of names, reading both takes a tenth of asking for each.
/// `None` where one of them does not tell addresses.
pub fn listed(names: &[&str]) -> Option<Vec<Site>> {
    let places = places()?;
    let found = symbols::namesakes(names).ok()?;
    if places.is_empty() || found.iter().flatten().all(|s| s.address == 0) {
        return None;
    }
    let is_listed = |address: u64| {
        [0, ENDBR].iter().any(|skip| places.binary_search(&address.wrapping_add(*skip)).is_ok())
    };
    let site = |(name, found): (&&str, Vec<symbols::Symbol>)| {
        let first = found.iter().find(|s| s.module.is_none() && s.name == **name);
        match first.map(|s| s.address) {
            Some(address) if is_listed(address) => Site::Patchable(address),
            Some(address) => Site::Fixed(address),
            None => Site::Absent,
        }
    };
    Some(names.iter().zip(found).map(site).collect())
}

/// Where ftrace can patch functions, by its own list, sorted; none before 6.5.
fn places() -> Option<Vec<u64>> {
    let list = std::fs::read(systems::tracefs()?.join("available_filter_functions_addrs")).ok()?;
    let address = |line: &[u8]| {
        let digits = line.split(u8::is_ascii_whitespace).next()?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut places: Vec<u64> = list.split(|b| *b == b'\n').filter_map(address).collect();
    places.sort_unstable();
    Some(places)
}

/// The functions that ftrace can patch, by its own list.
pub struct Listed {
    names: HashSet<String>,
    /// Places of their calls, where the kernel tells (6.5).
    places: HashSet<u64>,
}

impl Listed {
    /// Reads the list, which takes as long as reading kallsyms: for when code that looks like the room for a call turned out to be
    /// none. `None` where tracefs is not mounted, or not for us to read.
    pub fn read() -> Option<Listed> {
        let folder = systems::tracefs()?;
        let mut listed = Listed { names: HashSet::new(), places: HashSet::new() };
        // `address name [module]`; the name can be anything that the compiler made of it.
        if let Ok(list) = std::fs::read_to_string(folder.join("available_filter_functions_addrs")) {
            let address = |l: &str| u64::from_str_radix(l.split_ascii_whitespace().next()?, 16).ok();
            listed.places = list.lines().filter_map(address).collect();
            let name = |l: &str| Some(l.split_ascii_whitespace().nth(1)?.to_string());
            listed.names = list.lines().filter_map(name).collect();
            return Some(listed);
        }
        let list = std::fs::read_to_string(folder.join("available_filter_functions")).ok()?;
        let name = |l: &str| Some(l.split_ascii_whitespace().next()?.to_string());
        listed.names = list.lines().filter_map(name).collect();
        Some(listed)
    }

    /// Whether a function of that name can be patched.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the function at that address can be patched, its call being its first instruction or after `endbr64`; `None` when
    /// the kernel tells no addresses.
    pub fn has_address(&self, address: u64) -> Option<bool> {
        let is_there = || [0, ENDBR].iter().any(|skip| self.places.contains(&address.wrapping_add(*skip)));
        (!self.places.is_empty()).then(is_there)
    }
}

/// Bytes of `endbr64`.
const ENDBR: u64 = 4;

/// Whether code begins with the room for ftrace's call.
fn is_patchable(code: &[u8]) -> bool {
    /// `endbr64`, and the no-ops that kernels put in its place where no indirect call needs it (`gen_endbr_poison`).
    const HEADS: [[u8; 4]; 4] = [
        [0xf3, 0x0f, 0x1e, 0xfa],
        [0x66, 0x0f, 0x1f, 0x00],
        [0x0f, 0x1f, 0x40, 0xd6],
        [0x0f, 0x1f, 0x40, 0x00],
    ];
    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
    const CALL: u8 = 0xe8;
    let code = HEADS.iter().find_map(|head| code.strip_prefix(head)).unwrap_or(code);
    code.starts_with(&NOP5) || code.first() == Some(&CALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_for_a_call_is_recognised() {
        assert!(is_patchable(&[0x0f, 0x1f, 0x44, 0, 0, 0x55]));
        assert!(is_patchable(&[0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0]));
        assert!(
            is_patchable(&[0xf3, 0x0f, 0x1e, 0xfa, 0xe8, 1, 2, 3, 4]) && is_patchable(&[0xe8, 1, 2, 3, 4])
        );
        assert!(is_patchable(&[0x0f, 0x1f, 0x40, 0xd6, 0x0f, 0x1f, 0x44, 0, 0]));
        assert!(!is_patchable(&[0x55, 0x48, 0x89, 0xe5]) && !is_patchable(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55]));
        assert!(!is_patchable(&[]) && !is_patchable(&[0; 16]));
    }

    /// Works wherever programs of type syscall can be run, this machine's kernel included.
    #[test]
    fn functions_are_found_by_name() {
        match sites(&["vfs_read", "no_such_function", "entry_SYSCALL_64"]) {
            Ok(found) => {
                assert!(
                    matches!(found[..], [Site::Patchable(_), Site::Absent, Site::Fixed(_)]),
                    "{found:x?}"
                );
            }
            Err(error) => println!("SKIP: {error}"),
        }
    }
}
