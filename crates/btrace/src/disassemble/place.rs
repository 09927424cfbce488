//! What `-d -k` names: functions and other code by name, places in them, addresses.

use super::bytes::Names;
use crate::words::count;
use anyhow::{Context, anyhow, bail};
use std::fmt;
use symbols::{Extent, Symbol, Table};
use trace::Pattern;

/// Where something lies that is to be disassembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Every symbol of a name, or that a glob matches.
    Named {
        /// A module's only.
        module: Option<String>,
        /// The name.
        name: Pattern,
        /// So far into it.
        offset: u64,
    },
    /// An address.
    Address(u64),
}

/// A run of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its symbol.
    pub name: String,
    /// Its module; `bpf` for BPF programs and trampolines.
    pub module: Option<String>,
    /// Where the symbol begins.
    pub symbol: u64,
    /// Where the next symbol begins, if one follows.
    pub end: Option<u64>,
    /// Where to begin: at the symbol or in it.
    pub from: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Named { module, name, offset } => {
                if let Some(module) = module {
                    write!(f, "{module}:")?;
                }
                write!(f, "{name}")?;
                if *offset > 0 { write!(f, "+{offset:#x}") } else { Ok(()) }
            }
            Place::Address(address) => write!(f, "{address:#x}"),
        }
    }
}

impl Place {
    /// Reads `NAME`, `MODULE:NAME`, a glob, `NAME+0x40` or `0xffffffff81000000`.
    pub fn parse(text: &str) -> anyhow::Result<Place> {
        if let Some(address) = address(text) {
            return Ok(Place::Address(address?));
        }
        let (name, offset) = match text.rsplit_once('+') {
            Some((name, offset)) => (
                name,
                number(offset).map_err(|_| anyhow!("{text:?}: {offset:?} is no offset; +0x40 is one"))?,
            ),
            None => (text, 0),
        };
        let (module, name) = match name.split_once(':') {
            Some((module, name)) if !module.is_empty() => (Some(module.to_string()), name),
            Some(_) => bail!("{text:?}: no module before the colon"),
            None => (None, name),
        };
        Ok(Place::Named { module, name: Pattern::new(name)?, offset })
    }

    /// Where it lies: at least one place.
    pub fn find(&self, table: &Table, list: &Names) -> anyhow::Result<Vec<Code>> {
        match self {
            Place::Address(address) => {
                let Some(extent) = table.extent(*address) else {
                    bail!(
                        "{address:#x}: no symbol of code covers this address (btrace -d takes those of {})",
                        list.of()
                    );
                };
                Ok(vec![code(&extent, *address)])
            }
            Place::Named { module, name, offset } => {
                let mut found = named(table, list, module.as_deref(), |n| name.matches(n))?;
                if found.is_empty() && !name.is_glob() {
                    // The compiler's copies, and the parts that it split off.
                    let base = name.as_str();
                    found = named(table, list, module.as_deref(), |n| {
                        n.strip_prefix(base).is_some_and(|rest| rest.starts_with('.'))
                    })?;
                }
                if found.is_empty() {
                    bail!("{}", self.unknown(table, list));
                }
                for one in &mut found {
                    let Some(from) =
                        one.symbol.checked_add(*offset).filter(|at| one.end.is_none_or(|end| *at < end))
                    else {
                        let len = one.end.map_or(0, |end| end - one.symbol);
                        bail!("{self}: {} has {} only", one.name, count(len, "byte"));
                    };
                    one.from = from;
                }
                Ok(found)
            }
        }
    }

    fn unknown(&self, table: &Table, list: &Names) -> String {
        let Place::Named { name, .. } = self else { return format!("{self}: nothing is there") };
        if name.is_glob() {
            return format!("{self}: the pattern matches no symbol of code in {}", list.of());
        }
        let hint = trace::near_names(name.as_str(), table.extents().map(|e| e.name));
        format!("{self}: {} has no code of that name{hint}", list.of())
    }
}

/// By each of its names: a table has one of an address only.
fn named(
    table: &Table,
    list: &Names,
    module: Option<&str>,
    matches: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<Code>> {
    let wanted = |symbol: &Symbol| {
        symbol.is_text() && symbol.address != 0 && module.is_none_or(|m| symbol.module.as_deref() == Some(m))
    };
    let mut found: Vec<Code> = Vec::new();
    for symbol in list.find(matches)?.into_iter().filter(wanted) {
        let Some(extent) = table.extent(symbol.address) else { continue };
        let mut one = code(&extent, symbol.address);
        one.name = symbol.name;
        found.push(one);
    }
    // Stable: of several names of one address the first.
    found.sort_by_key(|one| one.symbol);
    found.dedup_by_key(|one| one.symbol);
    Ok(found)
}

fn code(extent: &Extent<'_>, from: u64) -> Code {
    Code {
        name: extent.name.into(),
        module: extent.module.map(str::to_string),
        symbol: extent.address,
        end: extent.end,
        from,
    }
}

/// `0x…`, or sixteen digits as kallsyms and an oops print them; `None` when it is a name. With `+0x40` so far beyond.
fn address(text: &str) -> Option<anyhow::Result<u64>> {
    let (base, offset) = text.split_once('+').map_or((text, "0"), |(base, offset)| (base, offset));
    let digits = match base.strip_prefix("0x") {
        Some(digits) => digits,
        None if base.len() == 16 && base.bytes().all(|b| b.is_ascii_hexdigit()) => base,
        None => return None,
    };
    let sum = u64::from_str_radix(digits, 16).ok().and_then(|base| base.checked_add(number(offset).ok()?));
    Some(sum.with_context(|| format!("{text:?} is no address; 0xffffffff81000000 is one")))
}

fn number(text: &str) -> anyhow::Result<u64> {
    Ok(match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16)?,
        None => text.parse()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(module: Option<&str>, name: &str, offset: u64) -> Place {
        Place::Named {
            module: module.map(str::to_string),
            name: Pattern::new(name).expect("pattern"),
            offset,
        }
    }

    #[test]
    fn places_are_read() {
        let read = |text| Place::parse(text).expect(text);
        assert_eq!(read("vfs_read"), named(None, "vfs_read", 0));
        assert_eq!(read("vfs_read+0x40"), named(None, "vfs_read", 0x40));
        assert_eq!(read("vfs_read+12"), named(None, "vfs_read", 12));
        assert_eq!(read("nf_tables:nft_do_chain.part.0"), named(Some("nf_tables"), "nft_do_chain.part.0", 0));
        assert_eq!(read("0xffffffff81000000"), Place::Address(0xffffffff81000000));
        assert_eq!(read("ffffffff81000000"), Place::Address(0xffffffff81000000));
        assert_eq!(read("0xffffffff81000000+0x40"), Place::Address(0xffffffff81000040));
        assert_eq!(read("tcp_*"), named(None, "tcp_*", 0));
        for text in ["vfs_read", "vfs_read+0x40", "nf_tables:nft_do_chain+0x1", "0xffffffff81000000"] {
            assert_eq!(read(text).to_string(), text);
        }
        for bad in [
            "",
            "0x",
            "0xfffffffffffffffff",
            "vfs_read+",
            "vfs_read+0x",
            "a+b",
            ":x",
            "vfs_read+-1",
            "[",
            "+0x40",
        ] {
            assert!(Place::parse(bad).is_err(), "{bad:?}");
        }
    }
}
