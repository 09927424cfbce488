//! `/proc/kallsyms`: one symbol a line, `address type name [module]` (kernel/kallsyms.c, `s_show`).

use crate::hidden::Hidden;
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
    #[error("{} shows no addresses ({}): {}", path.display(), why.cause(), why.remedy())]
    Hidden {
        /// The file.
        path: PathBuf,
        /// What hides them.
        why: Hidden,
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
    find_where_in(path, |n| n.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Every symbol of the running kernel with a name that `matches`, in the order of the file.
pub fn find_where(matches: impl Fn(&str) -> bool) -> Result<Vec<Symbol>, Error> {
    find_where_in(Path::new("/proc/kallsyms"), matches)
}

pub(crate) fn find_where_in(path: &Path, matches: impl Fn(&str) -> bool) -> Result<Vec<Symbol>, Error> {
    let io_error = |source| Error::Io { path: path.into(), source };
    let mut reader = open(path)?;
    let mut found = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).map_err(io_error)? == 0 {
            return Ok(found);
        }
        if line.split_ascii_whitespace().nth(2).is_some_and(&matches) {
            found.extend(Symbol::parse(&line));
        }
    }
}

/// All code symbols, sorted by address: 16 bytes for each, and all names in one text.
#[derive(Debug)]
pub struct Table {
    /// Sorted; several names of one address are one, the first in the file.
    entries: Vec<Entry>,
    names: String,
    /// Module names; the first, empty, is the kernel's own.
    modules: Vec<String>,
    /// Where each of [`ANCHORS`] is.
    anchors: Vec<(&'static str, u64)>,
}

/// Symbols of the kernel's own that tell where it lies in memory, rather than where it was linked for, where the code of
/// its start lay, and where its tables of what it patches, and of what may fault, begin and end.
const ANCHORS: [&str; 12] = [
    "_stext",
    "_text",
    "_sinittext",
    "_einittext",
    "__start___jump_table",
    "__stop___jump_table",
    "__start_static_call_sites",
    "__stop_static_call_sites",
    "__start___ex_table",
    "__stop___ex_table",
    "__per_cpu_start",
    "__per_cpu_end",
];

/// What begins at an address: a name in the text, or nothing that has one.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    name: u32,
    len: u16,
    module: u16,
}

/// All that kallsyms tells.
#[derive(Debug)]
pub struct Kallsyms {
    /// Code.
    pub code: Table,
    /// Data, where the kernel names it (CONFIG_KALLSYMS_ALL).
    pub data: Table,
    /// What each CPU has its own of, by its place in a CPU's area, where that begins at 0 (x86 before 6.15); empty where it lies among
    /// the other data.
    pub per_cpu: Table,
}

/// An address as a person reads it: `name+0xoffset [module]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// The symbol that covers the address.
    pub name: &'a str,
    /// Bytes from its start.
    pub offset: u64,
    /// Its module, `bpf` for BPF programs and trampolines; `None` for the kernel itself.
    pub module: Option<&'a str>,
}

/// A symbol's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent<'a> {
    /// Where it begins.
    pub address: u64,
    /// Where the next symbol begins: as far as it can reach, padding included. `None` where nothing follows that tells.
    pub end: Option<u64>,
    /// Its name.
    pub name: &'a str,
    /// Its module, see [`Resolved::module`].
    pub module: Option<&'a str>,
}

/// kallsyms tells no sizes: a symbol ends where the next begins. Before a gap between text and modules, or between
/// modules, there is none; no function is as large as this.
const LARGEST_SYMBOL: u64 = 1 << 20;

/// Kernels without CONFIG_KALLSYMS_ALL name a few dozen places among their data, marks of the linker's most of them: what lies
/// between two of those is neither's.
const LEAST_DATA: usize = 2000;

/// Symbols of the linker that end a section of code: what follows is no code of the kernel's own.
const ENDS: [&[u8]; 2] = [b"_etext", b"_einittext"];

/// Where the data ends that each CPU has its own of.
const PER_CPU_END: &[u8] = b"__per_cpu_end";

impl Kallsyms {
    fn with_room(code: (usize, usize), data: (usize, usize)) -> Kallsyms {
        Kallsyms {
            code: Table::with_room(code.0, code.1),
            data: Table::with_room(data.0, data.1),
            per_cpu: Table::with_room(0, 0),
        }
    }

    fn line(&mut self, line: &[u8], with_data: bool) {
        self.code.line(line, is_code);
        if with_data {
            self.data.line(line, is_data);
            self.per_cpu.line(line, is_per_cpu);
        }
    }

    fn sort(&mut self) {
        for table in [&mut self.code, &mut self.data, &mut self.per_cpu] {
            table.sort();
        }
        if self.data.len() < LEAST_DATA {
            self.data.entries.clear();
        }
        // Other absolute symbols there are too, and where everything lies at its own address, those alone.
        let begins_at_zero = self.code.anchor("__per_cpu_start") == Some(0);
        match self.code.anchor("__per_cpu_end").filter(|end| begins_at_zero && *end > 0) {
            Some(end) => self.per_cpu.entries.retain(|e| e.address <= end),
            None => self.per_cpu.entries.clear(),
        }
    }
}

impl Table {
    /// Reads the running kernel's.
    pub fn load() -> Result<Table, Error> {
        Table::load_from(Path::new("/proc/kallsyms"))
    }

    /// Reads a file of that format.
    pub fn load_from(path: &Path) -> Result<Table, Error> {
        Table::load_kinds(path, false).map(|all| all.code)
    }

    /// The running kernel's code and data, each in a table of its own.
    pub fn load_all() -> Result<Kallsyms, Error> {
        Table::load_kinds(Path::new("/proc/kallsyms"), true)
    }

    /// Tables made of symbols that are not the running kernel's own words.
    pub(crate) fn of_symbols(symbols: &[Symbol]) -> Kallsyms {
        let mut all = Kallsyms::with_room((0, 0), (0, 0));
        for symbol in symbols {
            let line = format!("{:016x} {} {}", symbol.address, symbol.kind, symbol.name);
            all.line(line.as_bytes(), true);
        }
        all.sort();
        all
    }

    fn with_room(symbols: usize, names: usize) -> Table {
        Table {
            entries: Vec::with_capacity(symbols),
            names: String::with_capacity(names),
            modules: vec![String::new()],
            anchors: Vec::new(),
        }
    }

    fn load_kinds(path: &Path, with_data: bool) -> Result<Kallsyms, Error> {
        let io_error = |source| Error::Io { path: path.into(), source };
        let mut reader = open(path)?;
        // Room for the largest kernels: pages that are not touched cost nothing, and growing would copy.
        let data_room = if with_data { (1 << 17, 4 << 20) } else { (0, 0) };
        let mut all = Kallsyms::with_room((1 << 18, 8 << 20), data_room);
        let mut line = Vec::with_capacity(256);
        let mut lines = 0usize;
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(io_error)? == 0 {
                break;
            }
            lines += 1;
            all.line(&line, with_data);
        }
        if all.code.is_empty() && lines > 0 {
            return Err(Error::Hidden { path: path.into(), why: Hidden::here() });
        }
        all.sort();
        Ok(all)
    }

    fn sort(&mut self) {
        // In place, and of several names for one address the first in the file first: it is the one that the compiler
        // gave. Names lie in the order of the file.
        let names = &self.names;
        // What may run before the kernel is mapped where it belongs has a second name (`__pi_`, arch/*/boot/startup), and
        // the first of many thunks that of all.
        let second = |e: &Entry| {
            let name = names.get(e.name as usize..).unwrap_or_default();
            ["__pi_", "__x86_indirect_thunk_array", "__per_cpu_start"]
                .iter()
                .any(|second| name.starts_with(second))
        };
        self.entries.sort_unstable_by_key(|e| (e.address, second(e), e.name));
        self.entries.dedup_by_key(|e| e.address);
        self.entries.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// Takes a line, if it names what is `wanted`, or where code ends, and tells where.
    fn line(&mut self, line: &[u8], wanted: fn(&[u8]) -> bool) {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
        let (Some(address), Some(kind), Some(name)) =
            (fields.next().and_then(hex), fields.next(), fields.next())
        else {
            return;
        };
        let module = fields.next();
        if name.first() == Some(&b'_')
            && module.is_none()
            && let Some(anchor) = ANCHORS.iter().find(|anchor| anchor.as_bytes() == name)
        {
            self.anchors.push((anchor, address));
        }
        // What follows a module's code, with no gap before kernel 6.4: pointers there are no functions.
        let data = module.is_some() && is_data(kind) && !wanted(kind);
        let end = data || ENDS.contains(&name);
        if (address == 0 && kind != b"A") || !(wanted(kind) || end) || name.starts_with(b"$") {
            return;
        }
        // Padding before a function, not the function: nothing returns there.
        let nameless = end || name.starts_with(b"__pfx_") || name == PER_CPU_END;
        let Ok(name) = std::str::from_utf8(if nameless { b"" } else { name }) else { return };
        let module = module.map_or("", |m| {
            std::str::from_utf8(m).unwrap_or("?").trim_start_matches('[').trim_end_matches(']')
        });
        let module = self.module(module);
        let (Ok(at), Ok(len)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else { return };
        self.entries.push(Entry { address, name: at, len, module });
        self.names.push_str(name);
    }

    fn module(&mut self, name: &str) -> u16 {
        // The symbols of a module stand together.
        let at = self.modules.iter().rposition(|m| m == name).unwrap_or_else(|| {
            self.modules.push(name.into());
            self.modules.len() - 1
        });
        at.try_into().unwrap_or(u16::MAX)
    }

    /// The symbol that covers `address`; `None` before the first, and in the gaps after the kernel's and each module's
    /// code.
    pub fn resolve(&self, address: u64) -> Option<Resolved<'_>> {
        let at = self.entries.partition_point(|e| e.address <= address).checked_sub(1)?;
        let entry = self.entries.get(at)?;
        let offset = address - entry.address;
        if entry.len == 0 || offset >= LARGEST_SYMBOL {
            return None;
        }
        let name = entry.name as usize;
        let name = self.names.get(name..name + usize::from(entry.len))?;
        let module =
            self.modules.get(usize::from(entry.module)).map(String::as_str).filter(|m| !m.is_empty());
        Some(Resolved { name, offset, module })
    }

    /// The bytes of the symbol that covers `address`, if any does as by [`Table::resolve`].
    pub fn extent(&self, address: u64) -> Option<Extent<'_>> {
        let at = self.entries.partition_point(|e| e.address <= address).checked_sub(1)?;
        let extent = self.extent_at(at)?;
        (address - extent.address < LARGEST_SYMBOL).then_some(extent)
    }

    /// Where the code lay that the kernel runs at boot alone and frees then (`__init`), if its bounds are named.
    pub fn init_text(&self) -> Option<std::ops::Range<u64>> {
        Some(self.anchor("_sinittext")?..self.anchor("_einittext")?)
    }

    /// Where the next symbol that has a name begins; ends of code, and padding before functions, have none.
    pub fn named_after(&self, address: u64) -> Option<u64> {
        let after = self.entries.partition_point(|e| e.address <= address);
        self.entries.get(after..)?.iter().find(|e| e.len > 0).map(|e| e.address)
    }

    /// Every symbol with its bytes, by address.
    pub fn extents(&self) -> impl Iterator<Item = Extent<'_>> {
        (0..self.entries.len()).filter_map(|at| self.extent_at(at))
    }

    fn extent_at(&self, at: usize) -> Option<Extent<'_>> {
        let entry = self.entries.get(at)?;
        let name = entry.name as usize;
        let name = self.names.get(name..name + usize::from(entry.len)).filter(|n| !n.is_empty())?;
        let module = self.modules.get(usize::from(entry.module)).map(String::as_str);
        let end = self.entries.get(at + 1).map(|next| next.address);
        Some(Extent {
            address: entry.address,
            end: end.filter(|end| end - entry.address < LARGEST_SYMBOL),
            name,
            module: module.filter(|m| !m.is_empty()),
        })
    }

    /// Where a mark of the linker's is, of those that are kept: bounds of the kernel's code, per-CPU data and tables.
    pub fn anchor(&self, name: &str) -> Option<u64> {
        self.anchors.iter().find(|(anchor, _)| *anchor == name).map(|(_, at)| *at)
    }

    /// Symbols of the kernel's own that tell where it lies (`_stext`, `_text`), with their addresses.
    pub(crate) fn anchors(&self) -> Vec<(&'static str, u64)> {
        self.anchors.iter().filter(|(name, _)| matches!(*name, "_stext" | "_text")).copied().collect()
    }

    /// Symbols that it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.names.capacity()
    }
}

fn is_code(kind: &[u8]) -> bool {
    matches!(kind, b"t" | b"T" | b"w" | b"W")
}

/// Initialised, zeroed, read-only, small, weak, unique: all but code, absolute and undefined ones (nm(1)).
fn is_data(kind: &[u8]) -> bool {
    matches!(kind, b"d" | b"D" | b"b" | b"B" | b"r" | b"R" | b"g" | b"G" | b"s" | b"S" | b"v" | b"V" | b"u")
}

/// Absolute symbols, which are per-CPU ones as a rule (scripts/kallsyms.c), but for the mark where they begin.
fn is_per_cpu(kind: &[u8]) -> bool {
    kind == b"A"
}

fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |n, d| Some(n << 4 | u64::from((*d as char).to_digit(16)?)))
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

    const SAMPLE: &str = "0000000000014000 A percpu\nffffffff81000000 T _text\nffffffff81000100 t foo.isra.0\nffffffff81000200 T __pi_bar\nffffffff81000200 T bar\n\
        ffffffff81000200 T bar_alias\nffffffff81000280 D data\nffffffff81000290 t $x\nffffffff810002a0 t $d\nffffffff81001000 D _etext\n\
        ffffffff81002000 D jiffies\nffffffff81003000 T _sinittext\nffffffff81004000 T _einittext\nffffffff81004100 b input_pool\n\
        ffffffffc0200000 t bpf_prog_6deef7357e7b4530_en_bar\t[bpf]\nffffffffc0000000 t s_next\t[nf_tables]\n\
        ffffffffc0000100 t $d.1\t[nf_tables]\nffffffffc0001000 r table.3\t[nf_tables]\nffffffffc0002000 d state\t[nf_tables]\n";

    #[test]
    fn case_3_resolves_within_bounds_only() {
        let f = file(SAMPLE);
        let table = Table::load_from(f.path()).expect("load");
        assert_eq!(table.resolve(0), None, "below every symbol");
        assert_eq!(table.resolve(0x14008), None, "what each CPU has its own of lies at no address");
        assert_eq!(table.resolve(0xffffffff80ffffff), None);
        let at = |a| table.resolve(a).map(|r| (r.name, r.offset));
        assert_eq!(at(0xffffffff81000000), Some(("_text", 0)));
        assert_eq!(at(0xffffffff81000150), Some(("foo.isra.0", 0x50)));
        assert_eq!(at(0xffffffff81000201), Some(("bar", 1)));
        for inside in [0x280, 0x290, 0x291, 0x2a0, 0xfff] {
            let named = at(0xffffffff81000000 + inside);
            assert_eq!(named, Some(("bar", inside - 0x200)), "neither data nor mapping symbols name code");
        }
        assert_eq!(at(0xffffffff81001000), None, "the end of the kernel's code is no function");
        assert_eq!(at(0xffffffff81001234), None, "nor is what follows it");
        assert_eq!(at(0xffffffff81002000), None, "a data symbol is no function");
        assert_eq!(at(0xffffffff81003010), Some(("_sinittext", 0x10)));
        assert_eq!(at(0xffffffff81004108), None, "data after the code of the start");
        assert_eq!(at(0xffffffffc0000010), Some(("s_next", 0x10)));
        assert_eq!(at(0xffffffffc0000104), Some(("s_next", 0x104)), "a module's mapping symbol");
        assert_eq!(table.resolve(0xffffffffc0000010).and_then(|r| r.module), Some("nf_tables"));
        assert_eq!(table.resolve(0xffffffff81000201).and_then(|r| r.module), None);
        for data in [0x1000, 0x1fff, 0x2000, 0x2010] {
            assert_eq!(at(0xffffffffc0000000 + data), None, "a module's data, right behind its code");
        }
        assert_eq!(
            at(0xffffffffc0100000),
            None,
            "a module's last function does not reach to the next module"
        );
        assert_eq!(at(0xffffffffc0200001), Some(("bpf_prog_6deef7357e7b4530_en_bar", 1)));
        assert_eq!(at(0xffffffffc0200000 + LARGEST_SYMBOL - 1).map(|r| r.1), Some(LARGEST_SYMBOL - 1));
        assert_eq!(at(0xffffffffc0200000 + LARGEST_SYMBOL), None, "beyond the last symbol");
        assert_eq!(at(0xffffffffd0000000), None, "far beyond it");
        assert_eq!(at(u64::MAX), None);
    }

    #[test]
    fn case_3_mapping_and_data_symbols_are_no_functions_of_their_names() {
        let f = file(SAMPLE);
        for (name, text) in
            [("$x", false), ("$d", false), ("state", false), ("jiffies", false), ("bar", true)]
        {
            let found = find_in(f.path(), name).expect("find");
            assert_eq!(found.iter().map(Symbol::is_text).collect::<Vec<_>>()[..1], [text], "{name}");
        }
    }

    #[test]
    fn a_large_kernel_fits_in_little_memory() {
        let mut text = String::new();
        for n in 0..100_000u64 {
            text += &format!("{:016x} t some_function_of_a_kernel_{n}\n", 0xffffffff81000000 + n * 96);
        }
        let f = file(&text);
        let table = Table::load_from(f.path()).expect("load");
        assert_eq!(table.len(), 100_000);
        assert!(table.memory() < 6 << 20, "{} bytes", table.memory());
        let last = table.resolve(0xffffffff81000000 + 99_999 * 96 + 7).expect("the last");
        assert_eq!((last.name, last.offset), ("some_function_of_a_kernel_99999", 7));
    }

    #[test]
    fn a_symbol_reaches_to_the_next_and_data_is_apart() {
        let f = file(SAMPLE);
        let Kallsyms { code, data: few, .. } = Table::load_kinds(f.path(), true).expect("load");
        assert!(few.is_empty(), "names of a few places say nothing of what is between");
        let more: String = (0..LEAST_DATA as u64)
            .map(|n| format!("{:016x} d item_{n}\n", 0xffffffff82000000u64 + n * 8))
            .collect();
        let f = file(&format!("{SAMPLE}{more}"));
        let data = Table::load_kinds(f.path(), true).expect("load").data;
        let extent = |a| code.extent(a).map(|e| (e.name, e.address, e.end));
        assert_eq!(
            extent(0xffffffff81000150),
            Some(("foo.isra.0", 0xffffffff81000100, Some(0xffffffff81000200)))
        );
        assert_eq!(extent(0xffffffff81000fff), Some(("bar", 0xffffffff81000200, Some(0xffffffff81001000))));
        assert_eq!(extent(0xffffffff81001000), None, "the end of the kernel's code is none");
        assert_eq!(
            extent(0xffffffffc0000000),
            Some(("s_next", 0xffffffffc0000000, Some(0xffffffffc0001000))),
            "to the module's data"
        );
        let last = "bpf_prog_6deef7357e7b4530_en_bar";
        assert_eq!(extent(0xffffffffc0200000), Some((last, 0xffffffffc0200000, None)), "nothing follows");
        assert_eq!(code.named_after(0xffffffff81000200), Some(0xffffffff81003000), "past the end of code");
        assert_eq!(code.named_after(0xffffffffc0200000), None);
        let names: Vec<&str> = code.extents().map(|e| e.name).collect();
        assert_eq!(
            names,
            ["_text", "foo.isra.0", "bar", "_sinittext", "s_next", "bpf_prog_6deef7357e7b4530_en_bar"]
        );
        let at = |a| data.resolve(a).map(|r| (r.name, r.offset));
        assert_eq!(at(0xffffffff81000284), Some(("data", 4)));
        assert_eq!(at(0xffffffff81000200), None, "code is not data");
    }

    #[test]
    fn what_each_cpu_has_lies_where_its_area_begins_at_zero() {
        let percpu = "0000000000000000 A __per_cpu_start\n0000000000000000 A fixed_percpu_data\n0000000000001000 A cpu_debug_store\n\
            000000000001f000 A current_task\n0000000000030000 A __per_cpu_end\n0000000000700000 A _entry_trampoline\n";
        let f = file(&format!("{percpu}{SAMPLE}"));
        let all = Table::load_kinds(f.path(), true).expect("load");
        let at = |a| all.per_cpu.resolve(a).map(|r| (r.name, r.offset));
        assert_eq!(at(0x28), Some(("fixed_percpu_data", 0x28)), "the stack protector's");
        assert_eq!(at(0x1f008), Some(("current_task", 8)));
        assert_eq!((at(0x30000), at(0x700000), at(0xffffffff81000000)), (None, None, None));
        assert_eq!((all.code.resolve(0x1f000), all.data.resolve(0x1f000)), (None, None));
        // Where it lies among the data there is no such table.
        let late = percpu.replace("0000000000000000 A", "ffffffff83000000 D");
        let f = file(&format!("{SAMPLE}{late}"));
        assert!(Table::load_kinds(f.path(), true).expect("load").per_cpu.is_empty());
    }

    #[test]
    fn the_tables_of_patched_places_have_bounds() {
        let f = file(&format!(
            "{SAMPLE}ffffffff82880b10 D __start___jump_table\nffffffff8289d900 D __stop___jump_table\n"
        ));
        let table = Table::load_from(f.path()).expect("load");
        assert_eq!(table.anchor("__start___jump_table"), Some(0xffffffff82880b10));
        assert_eq!(table.anchor("__stop___jump_table"), Some(0xffffffff8289d900));
        assert_eq!(table.anchor("__start_static_call_sites"), None);
        assert_eq!(table.resolve(0xffffffff82880b10), None);
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
        assert_eq!(Table::load_from(f.path()).expect("load").len(), 1);
    }
}
