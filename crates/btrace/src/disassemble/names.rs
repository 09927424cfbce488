//! Names for what code refers to: code and data of the kernel, functions and maps of a BPF program.

use super::lines::Known;
use disasm::{Frame, Symbol};
use symbols::Table;
use symbols::lines::Line;

/// Names of one listing.
pub struct Names<'a> {
    /// The kernel's code, its modules', BPF programs'.
    pub code: &'a Table,
    /// The kernel's and its modules' data.
    pub data: &'a Table,
    /// Addresses with names of their own: functions of the program that is shown, its maps. Sorted by address.
    pub own: &'a [Own],
    /// Source lines.
    pub lines: &'a Known,
}

/// A name of a program's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Where it begins.
    pub address: u64,
    /// Bytes that it has.
    pub size: u64,
    /// Its name.
    pub name: String,
    /// What it is: `bpf` of functions, `map 12` of maps.
    pub kind: String,
}

impl disasm::Symbols for Names<'_> {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        let at = self.own.partition_point(|own| own.address <= address).checked_sub(1);
        if let Some(own) = at.and_then(|at| self.own.get(at))
            && address - own.address < own.size
        {
            return Some(Symbol { name: &own.name, offset: address - own.address, module: Some(&own.kind) });
        }
        let found = self.code.resolve(address).or_else(|| self.data.resolve(address))?;
        Some(Symbol { name: found.name, offset: found.offset, module: found.module })
    }

    fn source<'a>(&'a self, address: u64, chain: &mut Vec<Frame<'a>>) -> u64 {
        if self.lines.is_empty() {
            return u64::MAX;
        }
        if let Some(lines) = self.lines.get(&address) {
            chain.extend(lines.chain.iter().map(frame));
        }
        // Of every instruction the line was looked up.
        address.saturating_add(1)
    }

    fn location(&self, address: u64) -> Option<Frame<'_>> {
        self.lines.get(&address)?.chain.first().map(frame)
    }
}

fn frame(line: &Line) -> Frame<'_> {
    let function = line.function.as_deref().unwrap_or_default();
    Frame { function, file: &line.file, line: line.line, column: line.column }
}
