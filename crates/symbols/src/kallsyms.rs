//! `/proc/kallsyms`: one symbol a line, `address type name [module]` (kernel/kallsyms.c, `s_show`).

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Why kallsyms could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Every address is zero.
    #[error("{} shows no addresses: sysctl kernel.kptr_restrict=0 (or 1, with CAP_SYSLOG) brings them back", path.display())]
    Hidden {
        /// The file.
        path: PathBuf,
    },
}

/// A kernel symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Address; 0 when the kernel hides it.
    pub address: u64,
    /// nm(1)'s letter: `T` and `t` are code.
    pub kind: char,
    /// Name.
    pub name: String,
    /// Module, `bpf` for BPF programs; `None` for the kernel itself.
    pub module: Option<String>,
}

impl Symbol {
    fn parse(line: &str) -> Option<Symbol> {
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        let kind = fields.next()?.chars().next()?;
        let name = fields.next()?.to_string();
        let module = fields.next().map(|m| m.trim_start_matches('[').trim_end_matches(']').to_string());
        Some(Symbol { address, kind, name, module })
    }

    /// Whether it names code. Mapping symbols (`$x`, `$d`: what the assembler notes of its own) do not.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, 't' | 'T' | 'w' | 'W') && !self.name.starts_with('$')
    }
}

fn open(path: &Path) -> Result<BufReader<std::fs::File>, Error> {
    std::fs::File::open(path)
        .map(|f| BufReader::with_capacity(64 << 10, f))
        .map_err(|source| Error::Io { path: path.into(), source })
}

/// Every symbol of the running kernel with that very name, or with it as its base name (`name.isra.0`).
pub fn find(name: &str) -> Result<Vec<Symbol>, Error> {
    find_in(Path::new("/proc/kallsyms"), name)
}

/// The same in a file of that format.
pub fn find_in(path: &Path, name: &str) -> Result<Vec<Symbol>, Error> {
    let io_error = |source| Error::Io { path: path.into(), source };
    let mut reader = open(path)?;
    let mut found = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).map_err(io_error)? == 0 {
            return Ok(found);
        }
        let Some(rest) = line.split_ascii_whitespace().nth(2).and_then(|n| n.strip_prefix(name)) else {
            continue;
        };
        if rest.is_empty() || rest.starts_with('.') {
            found.extend(Symbol::parse(&line));
        }
    }
}

/// All code symbols, sorted by address.
#[derive(Debug)]
pub struct Table {
    symbols: Vec<Symbol>,
}

/// An address as a person reads it: `name+0xoffset [module]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// The symbol that covers the address.
    pub symbol: &'a Symbol,
    /// Bytes from its start.
    pub offset: u64,
}

/// The last symbol has no successor to end it; code beyond this distance is not its own.
const LAST_SYMBOL_SPAN: u64 = 1 << 20;

impl Table {
    /// Reads the running kernel's.
    pub fn load() -> Result<Table, Error> {
        Table::load_from(Path::new("/proc/kallsyms"))
    }

    /// Reads a file of that format.
    pub fn load_from(path: &Path) -> Result<Table, Error> {
        let mut symbols = Vec::new();
        let mut lines = 0usize;
        for line in open(path)?.lines() {
            let line = line.map_err(|source| Error::Io { path: path.into(), source })?;
            lines += 1;
            symbols.extend(Symbol::parse(&line).filter(|s| s.is_text() && s.address != 0));
        }
        if symbols.is_empty() && lines > 0 {
            return Err(Error::Hidden { path: path.into() });
        }
        symbols.sort_by_key(|s| s.address);
        Ok(Table { symbols })
    }

    /// The symbol that covers `address`; `None` before the first and well beyond the last.
    pub fn resolve(&self, address: u64) -> Option<Resolved<'_>> {
        let after = self.symbols.partition_point(|s| s.address <= address);
        let last = self.symbols.get(after.checked_sub(1)?)?;
        // Of several names for one address, the first in the file is the one the compiler gave.
        let first = self.symbols.partition_point(|s| s.address < last.address);
        let symbol = self.symbols.get(first)?;
        let offset = address - symbol.address;
        (after < self.symbols.len() || offset < LAST_SYMBOL_SPAN).then_some(Resolved { symbol, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut f = tempfile::NamedTempFile::new().expect("temporary file");
        f.write_all(text.as_bytes()).expect("write");
        f
    }

    const SAMPLE: &str = "ffffffff81000000 T _text\nffffffff81000100 t foo.isra.0\nffffffff81000200 T bar\n\
        ffffffff81000200 T bar_alias\nffffffff81000280 D data\nffffffff81000290 t $x\nffffffffc0000000 t s_next\t[nf_tables]\n";

    #[test]
    fn resolves_within_bounds_only() {
        let f = file(SAMPLE);
        let table = Table::load_from(f.path()).expect("load");
        assert_eq!(table.resolve(0xffffffff80ffffff), None);
        let at = |a| table.resolve(a).map(|r| (r.symbol.name.as_str(), r.offset));
        assert_eq!(at(0xffffffff81000000), Some(("_text", 0)));
        assert_eq!(at(0xffffffff81000150), Some(("foo.isra.0", 0x50)));
        assert_eq!(at(0xffffffff81000201), Some(("bar", 1)));
        assert_eq!(at(0xffffffff81000291), Some(("bar", 0x91)), "neither data nor mapping symbols name code");
        assert_eq!(at(0xffffffffc0000010), Some(("s_next", 0x10)));
        assert_eq!(at(0xffffffffd0000000), None, "far beyond the last symbol");
    }

    #[test]
    fn finds_by_base_name() {
        let f = file(SAMPLE);
        let found = find_in(f.path(), "foo").expect("find");
        assert_eq!(found.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["foo.isra.0"]);
        assert_eq!(find_in(f.path(), "s_next").expect("find")[0].module.as_deref(), Some("nf_tables"));
        assert!(find_in(f.path(), "fo").expect("find").is_empty());
    }

    #[test]
    fn hidden_addresses_are_told_apart_from_none() {
        let f = file("0000000000000000 T _text\n0000000000000000 T foo\n");
        assert!(matches!(Table::load_from(f.path()), Err(Error::Hidden { .. })));
        assert_eq!(find_in(f.path(), "foo").expect("names are still there").len(), 1);
    }

    #[test]
    fn rubbish_is_skipped() {
        let f = file("\n\nxyz\nffffffff81000000\nffffffff81000000 T\nffffffff81000000 T ok\n");
        assert_eq!(Table::load_from(f.path()).expect("load").symbols.len(), 1);
    }
}
