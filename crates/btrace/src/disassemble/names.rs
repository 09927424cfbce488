//! Names for what code refers to: code and data of the kernel, functions and maps of a BPF program.

use super::lines::Known;
use super::patched::Patched;
use disasm::{BranchTarget, Flow, Frame, Site, StaticBranch, Symbol};
use symbols::lines::Line;
use symbols::{Resolved, Table};

/// Names of one listing.
pub struct Names<'a> {
    /// The kernel's code, its modules', BPF programs'.
    pub code: &'a Table,
    /// The kernel's and its modules' data.
    pub data: &'a Table,
    /// What each CPU has its own of, if that lies apart.
    pub per_cpu: &'a Table,
    /// What the kernel patches by its tables.
    pub patched: &'a Patched,
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

/// How far into what kallsyms has among the code a key may lie: tracepoints are there on some kernels (7.2).
const INTO: u64 = 64;

impl Names<'_> {
    /// The name of a key: of data.
    fn key(&self, address: u64) -> Option<Symbol<'_>> {
        let near = self.code.resolve(address).filter(|found| found.offset < INTO);
        let data = self.data.resolve(address);
        match (near, data) {
            (Some(near), Some(data)) if data.offset < near.offset => Some(symbol(&data)),
            (Some(near), _) => Some(symbol(&near)),
            (None, data) => data.as_ref().map(symbol),
        }
    }
}

impl disasm::Symbols for Names<'_> {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        let at = self.own.partition_point(|own| own.address <= address).checked_sub(1);
        if let Some(own) = at.and_then(|at| self.own.get(at))
            && address - own.address < own.size
        {
            return Some(Symbol { name: &own.name, offset: address - own.address, module: Some(&own.kind) });
        }
        // Whichever begins nearer: of the last function before data, kallsyms does not tell the end.
        let (code, data) = (self.code.resolve(address), self.data.resolve(address));
        let nearer = match (&code, &data) {
            (Some(code), Some(data)) if data.offset < code.offset => data,
            (Some(code), _) => code,
            (None, data) => data.as_ref()?,
        };
        Some(symbol(nearer))
    }

    fn per_cpu(&self, address: u64) -> Option<Symbol<'_>> {
        match self.per_cpu.resolve(address) {
            Some(found) => Some(symbol(&found)),
            None => self.data.resolve(address).as_ref().map(symbol),
        }
    }

    fn site(&self, address: u64, flow: Flow) -> Option<Site<'_>> {
        if let Some(branch) = self.patched.branch(address) {
            let jumps = flow == Flow::Jump;
            let target = BranchTarget { address: branch.target, symbol: self.symbol(branch.target) };
            return Some(Site::StaticBranch(StaticBranch {
                key: self.key(branch.key),
                is_on: jumps != branch.is_likely,
                target: (!jumps).then_some(target),
            }));
        }
        let key = self.patched.call(address)?;
        let name = self.key(key).filter(|key| key.offset == 0).map(|key| key.name);
        Some(Site::StaticCall(name.map(|name| name.strip_prefix("__SCK__").unwrap_or(name))))
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

fn symbol<'a>(found: &Resolved<'a>) -> Symbol<'a> {
    Symbol { name: found.name, offset: found.offset, module: found.module }
}

fn frame(line: &Line) -> Frame<'_> {
    let function = line.function.as_deref().unwrap_or_default();
    Frame { function, file: &line.file, line: line.line, column: line.column }
}
