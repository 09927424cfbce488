//! `--path-summary`: which blocks of a function ran in many calls, beside its disassembly; and which of them only calls that failed
//! came to.

use crate::disassemble::{Bytes, Finder, Names, Tables};
use crate::origin::{Called, Origin, Origins};
use crate::words;
use disasm::render::{Options, Plain, Text};
use disasm::{Arch, Disassembler, Line, Syntax};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use symbols::lines::{DebugFile, Lines, Source};
use symbols::{Kallsyms, Live, Table};
use trace::path::{Code, Path};
use trace::{Block, Event};

/// What a summary shows.
pub struct Summary {
    functions: Vec<Option<Tally>>,
    only_errors: bool,
    json: bool,
    bytes: bool,
    vmlinux: Option<DebugFile>,
}

/// What came of a function's calls.
struct Tally {
    code: Code,
    /// Calls whose path was kept.
    calls: u64,
    /// Those of them that returned an error.
    failed: u64,
    /// Those that have a step that was not seen, or more hits than are kept.
    partial: u64,
    blocks: Vec<Count>,
    /// The ways of calls that failed, each with how many went so.
    ways: HashMap<Path, u64>,
    /// Failed calls whose way is not kept: there were too many ways.
    other_ways: u64,
    /// Blocks of which it may not be known whether they ran.
    unknowable: BTreeSet<usize>,
}

/// What came of a block.
#[derive(Clone, Copy, Default)]
struct Count {
    /// How often it ran.
    hits: u64,
    /// In how many calls that succeeded.
    good: u64,
    /// In how many that failed.
    bad: u64,
}

/// Different ways of failing calls that are kept.
const MOST_WAYS: usize = 256;

/// Calls that are named of a way, at most.
const MOST_CALLS: usize = 16;

/// Columns of the counts.
const WIDTH: usize = 9;

impl Summary {
    /// Of the probes whose functions these are.
    pub fn new(
        codes: &[Option<Code>],
        only_errors: bool,
        json: bool,
        bytes: bool,
        vmlinux: Option<DebugFile>,
    ) -> Summary {
        let tally = |code: &Code| Tally {
            blocks: vec![Count::default(); code.blocks.list().len()],
            unknowable: code.unknowable(),
            code: code.clone(),
            calls: 0,
            failed: 0,
            partial: 0,
            ways: HashMap::new(),
            other_ways: 0,
        };
        let functions = codes.iter().map(|code| code.as_ref().map(tally)).collect();
        Summary { functions, only_errors, json, bytes, vmlinux }
    }

    /// Takes an event's path; says whether the event is to be printed, as far as a filter for errors goes.
    pub fn event(&mut self, event: &Event<'_>) -> bool {
        let failed = btrace::render::returned_error(event);
        let (Some(Some(tally)), Some(hits)) = (self.functions.get_mut(event.index()), event.hits()) else {
            return failed || !self.only_errors;
        };
        if hits.total > 0 {
            let path = tally.code.path(hits.offsets(), hits.total);
            tally.calls += 1;
            tally.failed += u64::from(failed);
            tally.partial += u64::from(!path.is_whole(&tally.code));
            let mut visited = BTreeSet::new();
            for visit in &path.visits {
                let Some(count) = tally.blocks.get_mut(visit.block) else { continue };
                count.hits += 1;
                if visited.insert(visit.block) {
                    count.good += u64::from(!failed);
                    count.bad += u64::from(failed);
                }
            }
            if failed {
                tally.keep_way(path);
            }
        }
        failed || !self.only_errors
    }

    /// Appends all of it.
    ///
    /// # Errors
    /// The kernel's symbols cannot be read.
    pub fn write(&mut self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let Kallsyms { code, data, per_cpu } = Table::load_all()?;
        let table = Rc::new(code);
        let mut tools = Tools {
            finder: Finder::new(Source::new(Rc::clone(&table), self.vmlinux.take())),
            disassembler: Disassembler::new(Arch::X86_64, Syntax::Att),
            table,
            data,
            per_cpu,
            patched: Tables::default(),
            live: Live::open().ok().map(Bytes::Live),
            bytes: self.bytes,
        };
        for tally in self.functions.iter().flatten() {
            match (self.json, self.only_errors) {
                (true, _) => tally.json(&mut tools, out),
                (false, true) => tally.failures(&mut tools, out),
                (false, false) => tally.coverage(&mut tools, out),
            }
        }
        Ok(())
    }
}

/// What a listing takes.
struct Tools {
    table: Rc<Table>,
    data: Table,
    per_cpu: Table,
    patched: Tables,
    live: Option<Bytes>,
    finder: Finder,
    disassembler: Disassembler,
    bytes: bool,
}

/// Where failing calls had their error from.
struct Blame {
    origin: Origin,
    calls: u64,
    /// The calls that were made on one of these ways, where the origin is not known.
    called: Vec<Called>,
}

impl Tally {
    fn keep_way(&mut self, path: Path) {
        if let Some(calls) = self.ways.get_mut(&path) {
            *calls += 1;
        } else if self.ways.len() < MOST_WAYS {
            self.ways.insert(path, 1);
        } else {
            self.other_ways += 1;
        }
    }

    /// Where failing calls had their error from, most calls first.
    fn blames(&self, origins: &Origins) -> Vec<Blame> {
        let mut all: BTreeMap<Origin, Blame> = BTreeMap::new();
        // The most frequent way first, so that it is the one whose calls are named; in the end by what it is made of, for the same words each time.
        let mut ways: Vec<(&Path, &u64)> = self.ways.iter().collect();
        let blocks = |path: &Path| path.visits.iter().map(|visit| visit.block).collect::<Vec<_>>();
        ways.sort_by_cached_key(|(path, calls)| (std::cmp::Reverse(**calls), blocks(path)));
        for (path, calls) in ways {
            let origin = origins.returned(&self.code, path);
            let blame = all.entry(origin).or_insert_with(|| Blame {
                origin,
                calls: 0,
                called: if origin == Origin::Unknown { origins.calls(path) } else { Vec::new() },
            });
            blame.calls += calls;
        }
        let mut all: Vec<Blame> = all.into_values().collect();
        all.sort_by_key(|blame| std::cmp::Reverse(blame.calls));
        all
    }

    /// Says where the error of failing calls came from, a line for each origin.
    fn tell_blames(&self, tools: &mut Tools, out: &mut Vec<u8>) {
        let origins = tools.origins(&self.code);
        for Blame { origin, calls, called } in self.blames(&origins) {
            let at =
                |tools: &mut Tools, at| format!("{}{}", place(tools, at), source(&tools.finder.lines_at(at)));
            let what = match origin {
                Origin::Call(call) => {
                    let to = origins.call(call).and_then(|call| call.to);
                    format!("returned what {} returned, called at {}", callee(tools, to), at(tools, call))
                }
                Origin::Made(by) => {
                    let made = format!("had the error from {}: {}", at(tools, by), origins.text(by));
                    made.trim_end().to_string()
                }
                Origin::Unknown => {
                    let names: Vec<String> =
                        called.iter().take(MOST_CALLS).map(|call| callee(tools, call.to)).collect();
                    let more = if called.len() > MOST_CALLS { ", …" } else { "" };
                    let calls = match names.as_slice() {
                        [] => "no call was made on the way, so it is a value that was read".into(),
                        names => format!(
                            "out of a callee or a value; called on the way: {}{more}",
                            names.join(", ")
                        ),
                    };
                    format!("had the error from where the code does not tell: {calls}")
                }
            };
            out.extend_from_slice(format!("; {calls} of {} failing calls {what}\n", self.failed).as_bytes());
        }
        if self.other_ways > 0 {
            out.extend_from_slice(
                format!(
                    "; of {} of {} failing calls the way was not kept: there were more than {MOST_WAYS} ways\n",
                    self.other_ways, self.failed
                )
                .as_bytes(),
            );
        }
    }

    /// What is said of all calls.
    fn head(&self, out: &mut Vec<u8>) {
        let ran = self.blocks.iter().filter(|count| count.hits > 0).count();
        let mut line = format!(
            "; {}: {}, {} of them failed; {ran} of {} ran",
            self.code.name,
            words::count(self.calls, "call"),
            self.failed,
            words::count(self.blocks.len() as u64, "block")
        );
        let unknowable = self.unknowable.len();
        if unknowable > 0 {
            line += &format!(", {unknowable} cannot be probed (?)");
        }
        if self.partial > 0 {
            let were = if self.partial == 1 { "was" } else { "were" };
            let calls = words::count(self.partial, "call");
            line += &format!("; {calls} {were} not seen whole, and more may have run");
        }
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }

    /// The whole function, with how often each block ran.
    fn coverage(&self, tools: &mut Tools, out: &mut Vec<u8>) {
        self.head(out);
        for part in &self.code.parts {
            self.listing(tools, part.address, &part.bytes, out);
        }
        out.push(b'\n');
    }

    /// The blocks that only failing calls came to, most calls first.
    fn failures(&self, tools: &mut Tools, out: &mut Vec<u8>) {
        self.head(out);
        let only: Vec<(&Block, Count)> = self
            .code
            .blocks
            .list()
            .iter()
            .zip(&self.blocks)
            .filter(|(_, count)| count.bad > 0 && count.good == 0)
            .map(|(block, count)| (block, *count))
            .collect();
        // What lies side by side and as many calls came to is one.
        let joins = |a: &(&Block, Count), b: &(&Block, Count)| a.0.end == b.0.start && a.1.bad == b.1.bad;
        let mut runs: Vec<&[(&Block, Count)]> = only.chunk_by(joins).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.first().map(|(_, count)| count.bad)));
        if self.failed == 0 {
            out.extend_from_slice(b"; no call failed\n\n");
            return;
        }
        if self.failed == self.calls {
            out.extend_from_slice(
                b"; no call succeeded, so that there is nothing to tell the failing ones apart from\n",
            );
        } else if only.is_empty() {
            out.extend_from_slice(
                b"; calls that succeeded came through each block that failing ones came through\n",
            );
        }
        self.tell_blames(tools, out);
        for run in runs {
            let (Some((block, count)), Some((last, _))) = (run.first(), run.last()) else { continue };
            let bytes = self.code.bytes(block.start, last.end);
            out.extend_from_slice(
                format!(
                    "; {} of {} failing calls, and no other, came to {}{}\n",
                    count.bad,
                    self.failed,
                    place(tools, block.start),
                    source(&tools.finder.lines_at(block.start))
                )
                .as_bytes(),
            );
            self.listing(tools, block.start, bytes, out);
        }
        out.push(b'\n');
    }

    /// Instructions, each block's first with how often it ran.
    fn listing(&self, tools: &mut Tools, address: u64, bytes: &[u8], out: &mut Vec<u8>) {
        let module = self.code.module.as_deref();
        let known = tools.finder.of_code(&mut tools.disassembler, bytes, address, module);
        let live = tools.live.as_mut();
        let patched = live.map(|live| tools.patched.of(module, &tools.table, live)).unwrap_or_default();
        let names = Names {
            code: &tools.table,
            data: &tools.data,
            per_cpu: &tools.per_cpu,
            patched: &patched,
            own: &[],
            lines: &known,
        };
        let text = Text::<Plain>::new(Options { bytes: tools.bytes, ..Options::default() });
        let mut lines = tools.disassembler.decode(bytes, address, &names);
        while let Some(line) = lines.next_line() {
            let count = match &line {
                Line::Source(source) if source.chain.is_empty() => continue,
                Line::Instruction(instruction) => self.count(instruction.address),
                Line::Source(_) | Line::Label { .. } => String::new(),
            };
            out.extend_from_slice(format!("{count:>WIDTH$} | ").as_bytes());
            text.write(&line, out);
        }
    }

    /// How often the block that begins there ran.
    fn count(&self, address: u64) -> String {
        let Some(at) = self.code.blocks.beginning(address) else { return String::new() };
        let hits = self.blocks.get(at).map_or(0, |count| count.hits);
        match (hits, self.unknowable.contains(&at)) {
            (0, true) => "?".into(),
            (0, false) => "-".into(),
            (hits, _) => hits.to_string(),
        }
    }

    fn json_blames(&self, tools: &Tools) -> Vec<Value> {
        let origins = tools.origins(&self.code);
        let call = |call: &Called| {
            let to = call.to.and_then(|to| tools.table.resolve(to)).map(|symbol| symbol.name);
            json!({ "at": format!("{:#x}", call.at), "to": to })
        };
        let one = |blame: &Blame| match blame.origin {
            Origin::Call(at) => {
                json!({ "from": "call", "calls": blame.calls, "call": origins.call(at).map(call) })
            }
            Origin::Made(at) => json!({
                "from": "instruction", "calls": blame.calls, "at": format!("{at:#x}"), "instruction": origins.text(at).trim_end(),
            }),
            Origin::Unknown => {
                let called: Vec<Value> = blame.called.iter().map(call).collect();
                json!({ "from": "unknown", "calls": blame.calls, "called": called })
            }
        };
        self.blames(&origins).iter().map(one).collect()
    }

    fn json(&self, tools: &mut Tools, out: &mut Vec<u8>) {
        let blocks: Vec<Value> = self
            .code
            .blocks
            .list()
            .iter()
            .zip(&self.blocks)
            .enumerate()
            .map(|(at, (block, count))| {
                let symbol = tools.table.resolve(block.start);
                let lines = tools.finder.lines_at(block.start);
                let chain: Vec<Value> = lines
                    .chain
                    .iter()
                    .map(|line| json!({"function": line.function, "file": line.file, "line": line.line}))
                    .collect();
                let mut one = json!({
                    "address": format!("{:#x}", block.start),
                    "symbol": symbol.map(|s| s.name),
                    "offset": symbol.map(|s| s.offset),
                    "size": block.end - block.start,
                    "hits": count.hits,
                    "calls": count.good + count.bad,
                    "failed": count.bad,
                    "probed": !self.unknowable.contains(&at),
                });
                if let (false, Some(object)) = (chain.is_empty(), one.as_object_mut()) {
                    object.insert("source".into(), Value::Array(chain));
                }
                one
            })
            .collect();
        let errors: Vec<Value> = if self.failed > 0 { self.json_blames(tools) } else { Vec::new() };
        let object = json!({
            "path_summary": self.code.name,
            "module": self.code.module,
            "address": format!("{:#x}", self.code.address),
            "calls": self.calls,
            "failed": self.failed,
            "partial": self.partial,
            "errors": errors,
            "blocks": blocks,
        });
        out.extend_from_slice(object.to_string().as_bytes());
        out.push(b'\n');
    }
}

impl Tools {
    /// A function, so that it can be told where its values came from.
    fn origins(&self, code: &Code) -> Origins {
        Origins::of(code, &|to| self.table.resolve(to).is_some_and(|symbol| keeps_registers(symbol.name)))
    }
}

/// Whether a function keeps all registers: such are called amid any code, and say nothing to it (arch/x86/entry/thunk.S).
fn keeps_registers(name: &str) -> bool {
    ["preempt_schedule_thunk", "preempt_schedule_notrace_thunk", "__SCT__preempt_schedule", "__fentry__"]
        .iter()
        .any(|known| name.starts_with(known))
}

/// What is called there, by name.
fn callee(tools: &Tools, to: Option<u64>) -> String {
    let symbol = to.and_then(|to| tools.table.resolve(to));
    match symbol {
        Some(symbol) if symbol.name.starts_with("__x86_indirect_thunk") => "a function by pointer".into(),
        Some(symbol) if symbol.offset == 0 => symbol.name.to_string(),
        Some(symbol) => format!("{}+{:#x}", symbol.name, symbol.offset),
        None => "a function by pointer".into(),
    }
}

fn place(tools: &Tools, address: u64) -> String {
    match tools.table.resolve(address) {
        Some(symbol) => format!("{}+{:#x}", symbol.name, symbol.offset),
        None => format!("{address:#x}"),
    }
}

/// ` (file:line)`, with the functions that are inlined there.
fn source(lines: &Lines) -> String {
    let Some(first) = lines.chain.first() else { return String::new() };
    let inlined: Vec<&str> = lines.inlined().iter().filter_map(|line| line.function.as_deref()).collect();
    let inlined =
        if inlined.is_empty() { String::new() } else { format!(", inlined {}", inlined.join(" in ")) };
    format!(" ({}:{}{inlined})", first.file, first.line)
}
