//! What the caller knows of addresses.

use crate::{Flow, Site};

/// A name for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// How far into it the address is, in bytes.
    pub offset: u64,
    /// The module it belongs to, `bpf` for BPF programs, as kallsyms has it; `None` for the kernel itself.
    pub module: Option<&'a str>,
}

/// A place in the source; several make the chain of functions that were inlined into each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The function it is in; empty when unknown.
    pub function: &'a str,
    /// Its file.
    pub file: &'a str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1; 0 when unknown.
    pub column: u32,
}

/// Answers what is at an address. `None` is always a good answer.
pub trait Symbols {
    /// The symbol that covers an address of code or data: not the last one before it if that has ended. Asked about every direct
    /// target, and about numbers that may be kernel addresses.
    fn symbol(&self, address: u64) -> Option<Symbol<'_>>;

    /// Puts into `chain` (which is empty) the source position of an instruction, first the innermost function's, then
    /// those it was inlined into. Gives back the first address where the answer may be another; it is asked again there.
    fn source<'a>(&'a self, address: u64, chain: &mut Vec<Frame<'a>>) -> u64 {
        let _ = (address, chain);
        u64::MAX
    }

    /// The source position of a jump's or call's target.
    fn location(&self, address: u64) -> Option<Frame<'_>> {
        let _ = address;
        None
    }

    /// What is at an address relative to the CPU's own area, and in the image of it that the kernel's data has.
    fn per_cpu(&self, address: u64) -> Option<Symbol<'_>> {
        self.symbol(address)
    }

    /// What the kernel patches at the instruction at an address, which goes on by `flow` now, when the caller knows better than bytes and
    /// names tell (from the kernel's tables). Asked about what may be such.
    fn site(&self, address: u64, flow: Flow) -> Option<Site<'_>> {
        let _ = (address, flow);
        None
    }
}

/// Knows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn symbol(&self, _: u64) -> Option<Symbol<'_>> {
        None
    }
}
