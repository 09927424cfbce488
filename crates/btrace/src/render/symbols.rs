//! The kernel's symbols, read once for stacks and for pointers to functions.

use super::hexadecimal;
use crate::logging::say;
use std::rc::Rc;
use symbols::lines::{DebugFile, Source};
use symbols::{Resolved, Table};

/// Symbols by address; clones share them.
#[derive(Clone)]
pub struct Symbols {
    /// None where the kernel hides its symbols.
    table: Option<Rc<Table>>,
}

impl Symbols {
    /// Reads the kernel's symbols, which should have our own programs among them by now. Without symbols it goes on,
    /// having said why.
    pub fn load() -> Symbols {
        Symbols::of(Table::load())
    }

    /// What came of reading them, elsewhere perhaps.
    pub fn of(table: Result<Table, symbols::Error>) -> Symbols {
        let table = match table {
            Ok(table) => {
                log::debug!("{} symbols read, {} KiB", table.len(), table.memory() >> 10);
                Some(Rc::new(table))
            }
            Err(error) => {
                say(format_args!("btrace: addresses are shown without names: {error}"));
                None
            }
        };
        Symbols { table }
    }

    /// Whether there are any.
    pub fn are_known(&self) -> bool {
        self.table.is_some()
    }

    /// The source lines of their addresses, from `vmlinux` or from where they are found; `None` where there are no symbols.
    /// Nothing is opened yet.
    pub fn lines(&self, vmlinux: Option<DebugFile>) -> Option<Source> {
        Some(Source::new(Rc::clone(self.table.as_ref()?), vmlinux))
    }

    /// The symbol that covers an address.
    pub fn resolve(&self, address: u64) -> Option<Resolved<'_>> {
        self.table.as_ref()?.resolve(address)
    }
}

impl From<Table> for Symbols {
    fn from(table: Table) -> Symbols {
        Symbols { table: Some(Rc::new(table)) }
    }
}

/// Appends `symbol`, with `+0xoff` when not at its start, ` [module]` when it is a module's.
pub fn function(symbol: &Resolved<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(symbol.name.as_bytes());
    if symbol.offset > 0 {
        out.push(b'+');
        hexadecimal(symbol.offset, out);
    }
    module(symbol, out);
}

/// Appends a value by its type, pointers to functions in it with their symbols.
pub fn named(shape: &btf::Shape, bytes: &[u8], symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    let Some(symbols) = symbols else { return shape.text(bytes, out) };
    let name = |address: u64, out: &mut Vec<u8>| {
        if let Some(symbol) = symbols.resolve(address) {
            out.push(b'(');
            function(&symbol, out);
            out.push(b')');
        }
    };
    shape.text_with(bytes, &name, out);
}

/// Appends ` [module]` when the symbol is a module's.
pub fn module(symbol: &Resolved<'_>, out: &mut Vec<u8>) {
    if let Some(module) = symbol.module {
        out.extend_from_slice(b" [");
        out.extend_from_slice(module.as_bytes());
        out.push(b']');
    }
}
