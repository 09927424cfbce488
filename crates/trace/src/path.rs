//! The executed path: which of a function's blocks one call went through, in their order.
//!
//! A kprobe on each block tells the kernel's side (`program/path.rs`) that it runs. What it could not tell is never guessed: here the hits
//! are held against the code, and where one block cannot follow the other, or several ways lead through blocks that no probe could be
//! put on, the step is [`Step::Unknown`].

use crate::blocks::{Block, Blocks, Edge, Exit, Part};
use crate::error::Error;
use crate::faults;
use crate::plan::{Plan, Probe};
use crate::target;
use disasm::Arch;
use std::collections::{BTreeSet, HashMap};
use symbols::{Live, Symbol, Table};

/// Hits that are kept of one call.
pub const HITS: u32 = 512;

/// Blocks that are probed at most, unless asked for otherwise.
pub const MOST_BLOCKS: u32 = 512;

/// Blocks that can be asked for.
pub const MOST_ASKED: u32 = 8192;

/// Bytes that are looked at where nothing tells where a function ends.
const MOST_UNBOUNDED: u64 = 64 << 10;

/// What is asked about paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Blocks that are probed, of all functions together, at most.
    pub most_blocks: u32,
    /// A filter for errors is left to the caller: what calls that succeed go through is wanted as well.
    pub of_all: bool,
    /// The option that asked for them, for what is said of it.
    pub flag: &'static str,
}

/// A function as its paths are told by.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its symbol, which may be that of a copy that the compiler made.
    pub name: String,
    /// Its module.
    pub module: Option<String>,
    /// Where it begins.
    pub address: u64,
    /// Its code: what bears its name, then what the compiler split off (`.cold`).
    pub parts: Vec<Part>,
    /// Its blocks.
    pub blocks: Blocks,
    /// Blocks, by their places in the list, that have no probe, for none was allowed anywhere in them. Filled when attaching.
    pub unprobed: BTreeSet<usize>,
    /// Steps to such blocks, from and to, that a probe on the conditional jump between them tells. Filled when attaching.
    pub told: BTreeSet<(usize, usize)>,
}

/// A conditional jump that must be asked which way it goes, since the blocks behind do not tell: one has no probe, as where there is nothing but
/// a static branch, and runs into the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Its block.
    pub block: usize,
    /// Where it is.
    pub at: u64,
    /// The block without a probe that it jumps to.
    pub taken: Option<usize>,
    /// The block without a probe that it goes on with.
    pub fell: Option<usize>,
}

/// How the call came to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The function was entered.
    Entry,
    /// The block before ran into it.
    Fell,
    /// The block before jumped to it.
    Jumped,
    /// An instruction of the block before faulted.
    Faulted,
    /// From the block before no way leads here, or more than one through blocks without probes: something ran that was not seen.
    Unknown,
}

/// A block of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Visit {
    /// Its place in the list of blocks.
    pub block: usize,
    /// How it was come to.
    pub step: Step,
    /// It has no probe; but no other way leads from the one before to the one behind.
    pub inferred: bool,
}

/// The path of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path {
    /// Blocks in their order.
    pub visits: Vec<Visit>,
    /// Hits that there were no room for, after these.
    pub cut: u32,
}

impl Path {
    /// Whether every step of it is known, from the entry to the return.
    pub fn is_whole(&self, code: &Code) -> bool {
        let ends = |visit: &Visit| code.leaves(visit.block);
        self.cut == 0
            && self.visits.iter().all(|visit| visit.step != Step::Unknown)
            && self.visits.last().is_some_and(ends)
    }
}

impl Code {
    /// The path of a call whose blocks were hit at these offsets from the function's address.
    pub fn path(&self, hits: impl Iterator<Item = i32>, total: u32) -> Path {
        let mut visits: Vec<Visit> = Vec::new();
        let mut kept = 0;
        for hit in hits {
            kept += 1;
            let Some(block) = self.blocks.at(self.address.wrapping_add_signed(hit.into())) else { continue };
            let Some(before) = visits.last().map(|visit| visit.block) else {
                visits.push(Visit { block, step: Step::Entry, inferred: false });
                continue;
            };
            self.join(before, block, &mut visits);
        }
        let cut = total.saturating_sub(kept);
        if cut == 0 {
            self.join_end(&mut visits);
        }
        Path { visits, cut }
    }

    /// Whether the function can be left from a block.
    pub fn leaves(&self, block: usize) -> bool {
        self.blocks.list().get(block).is_some_and(|block| match block.exit {
            Exit::Return | Exit::Indirect => true,
            Exit::Jump(to) | Exit::Branch(to) => self.blocks.at(to).is_none(),
            Exit::Next | Exit::Nowhere => false,
        })
    }

    /// Whether a step can be without anything telling.
    fn is_silent(&self, from: usize, to: usize) -> bool {
        self.unprobed.contains(&to) && !self.told.contains(&(from, to))
    }

    /// The jumps that must be asked which way they go.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        let ask = |(at, block): (usize, &Block)| {
            let Exit::Branch(to) = block.exit else { return None };
            let (taken, fell) = (self.blocks.beginning(to)?, self.blocks.beginning(block.end)?);
            let silent = |to: usize| self.is_silent(at, to).then_some(to);
            let asks = taken != fell && (silent(taken).or(silent(fell)).is_some()) && self.meet(taken, fell);
            asks.then_some(Decision { block: at, at: block.last, taken: silent(taken), fell: silent(fell) })
        };
        self.blocks.list().iter().enumerate().filter_map(ask).collect()
    }

    /// Whether two blocks may lead to the same, as far as probes tell.
    fn meet(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.first_seen(one), self.first_seen(other));
        one.is_none_or(|one| other.is_none_or(|other| !one.is_disjoint(&other)))
    }

    /// The first blocks that tell, from one on, itself included; `None` among them stands for a return, `None` for all for any block.
    fn first_seen(&self, from: usize) -> Option<BTreeSet<Option<usize>>> {
        let mut seen = BTreeSet::new();
        let mut known = BTreeSet::new();
        let mut rest = vec![from];
        while let Some(block) = rest.pop() {
            if !self.unprobed.contains(&block) {
                seen.insert(Some(block));
            } else if known.insert(block) {
                if self.leaves(block) {
                    seen.insert(None);
                }
                rest.extend(self.blocks.after(block)?.into_iter().map(|(next, _)| next));
            }
        }
        Some(seen)
    }

    /// The blocks of which it may not be known whether they ran: they have no probe, and a jump to one of them that must be asked could not be.
    pub fn unknowable(&self) -> BTreeSet<usize> {
        self.decisions().into_iter().flat_map(|decision| [decision.taken, decision.fell]).flatten().collect()
    }

    /// Appends `to` as what comes after `from`, and between them what must have run unseen.
    fn join(&self, from: usize, to: usize, visits: &mut Vec<Visit>) {
        let mut ways = Ways { code: self, found: None, several: false, way: Vec::new() };
        ways.look(from, &|block| block == to);
        match (ways.found, ways.several) {
            (Some(way), false) => visits.extend(way),
            _ => visits.push(Visit { block: to, step: Step::Unknown, inferred: false }),
        }
    }

    /// Appends what must have run unseen before the return.
    fn join_end(&self, visits: &mut Vec<Visit>) {
        let Some(last) = visits.last().map(|visit| visit.block).filter(|last| !self.leaves(*last)) else {
            return;
        };
        let mut ways = Ways { code: self, found: None, several: false, way: Vec::new() };
        let unprobed = |block| self.unprobed.contains(&block) && self.leaves(block);
        ways.look(last, &unprobed);
        if let (Some(way), false) = (ways.found, ways.several) {
            visits.extend(way.into_iter().map(|visit| Visit { inferred: true, ..visit }));
        }
    }
}

/// A search for the one way through blocks without probes.
struct Ways<'a> {
    code: &'a Code,
    found: Option<Vec<Visit>>,
    several: bool,
    way: Vec<Visit>,
}

/// Blocks without probes in a row that are looked through.
const MOST_UNSEEN: usize = 6;

impl Ways<'_> {
    fn look(&mut self, from: usize, is_end: &dyn Fn(usize) -> bool) {
        if self.several || self.way.len() > MOST_UNSEEN {
            self.several = true;
            return;
        }
        let Some(after) = self.code.blocks.after(from) else {
            // An indirect jump: to any block, so to the one that was seen, if it can be told from what may lie between.
            let all = 0..self.code.blocks.list().len();
            for block in all.filter(|block| is_end(*block)) {
                self.arrive(Visit { block, step: Step::Jumped, inferred: false });
            }
            return;
        };
        for (block, way) in after {
            let step = match way {
                Edge::Falls => Step::Fell,
                Edge::Jumps => Step::Jumped,
                Edge::Faults => Step::Faulted,
            };
            if is_end(block) {
                self.arrive(Visit { block, step, inferred: false });
            } else if self.way.iter().any(|visit| visit.block == block) {
                // Round and round, who knows how often.
                self.several = true;
            } else if self.code.is_silent(from, block) {
                self.way.push(Visit { block, step, inferred: true });
                self.look(block, is_end);
                self.way.pop();
            }
        }
    }

    fn arrive(&mut self, last: Visit) {
        self.several |= self.found.is_some();
        let mut way = self.way.clone();
        way.push(last);
        self.found.get_or_insert(way);
    }
}

/// Whether executed paths can be told on this machine; if not, why.
pub fn can_be_had() -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("it is for x86-64 yet".into());
    }
    bpf::kprobes_exist().map_err(|error| format!("it takes kprobes, and this kernel has none ({error})"))
}

/// Finds the code of every function whose paths are wanted, its blocks, and refuses what has too many or cannot be read.
///
/// # Errors
/// No function is left; or what it takes is not there: kprobes, addresses of symbols, the kernel's code.
pub(crate) fn find_code(plan: &mut Plan, wanted: Wanted) -> Result<(), Error> {
    let Wanted { flag, most_blocks, .. } = wanted;
    let lacking = |reason: String| Error::Path { flag, reason };
    can_be_had().map_err(lacking)?;
    let table = Table::load().map_err(|error| lacking(error.to_string()))?;
    let live = Live::open().map_err(|error| lacking(error.to_string()))?;
    // In one pass: reading kallsyms takes long.
    let wanted = plan.probes.iter().filter(|probe| probe.layout.path.is_some());
    let names: BTreeSet<&str> = wanted.map(|probe| probe.target.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let found = symbols::namesakes(&names).map_err(|error| lacking(error.to_string()))?;
    let named: HashMap<&str, Vec<Symbol>> = names.into_iter().zip(found).collect();
    let mut tables = faults::Tables::default();
    let mut left = most_blocks as usize;
    let mut refused = Vec::new();
    // What needs more blocks than are left: its place among the refused, and how many it has.
    let mut larger: Vec<(usize, usize)> = Vec::new();
    let mut codes = Vec::with_capacity(plan.probes.len());
    for probe in &plan.probes {
        if probe.layout.path.is_none() {
            codes.push(None);
            continue;
        }
        match code_of(probe, &named, &table, &live, &mut tables) {
            Ok(code) if code.blocks.list().len() > left => {
                larger.push((refused.len(), code.blocks.list().len()));
                refused.push((probe.target.label(), String::new()));
                codes.push(None);
            }
            Ok(code) => {
                left -= code.blocks.list().len();
                codes.push(Some(code));
            }
            Err(reason) => {
                refused.push((probe.target.label(), reason));
                codes.push(None);
            }
        }
    }
    let used = most_blocks as usize - left;
    let reason = too_large(&larger.iter().map(|(_, count)| *count).collect::<Vec<_>>(), used, most_blocks);
    for (at, count) in larger {
        let Some((target, said)) = refused.get_mut(at) else { continue };
        log::debug!("{target}: it has {count} blocks");
        said.clone_from(&reason);
    }
    if codes.iter().all(Option::is_none)
        && let Some((target, reason)) = refused.first()
    {
        let reason = format!("{flag}: {reason}");
        return Err(match refused.len() {
            1 => Error::Target { target: target.clone(), reason },
            count => Error::AllFailed { count, first: format!("{target}: {reason}") },
        });
    }
    keep_coded(plan, codes);
    plan.refused.extend(refused);
    Ok(())
}

/// Why functions of so many blocks are not probed, beside those that take `used`: the same words for each of them, so that many are told
/// of in one line.
fn too_large(counts: &[usize], used: usize, most_blocks: u32) -> String {
    let beside = if used > 0 { format!(" beside the {used} of others") } else { String::new() };
    let all = used + counts.iter().sum::<usize>();
    let (what, which) = match counts {
        [one] => (format!("it has {one} blocks{beside}, and at most {most_blocks} are probed"), "it"),
        _ => (format!("it takes more blocks than are left of {most_blocks}{beside}"), "all"),
    };
    match all <= MOST_ASKED as usize {
        true => format!("{what} (--path-blocks {all} probes {which})"),
        false => {
            format!("{what} (all have {all}, and --path-blocks can be {MOST_ASKED}: name fewer functions)")
        }
    }
}

/// Takes out of a plan the probes whose paths are wanted and whose code was refused, with what they are paired with.
fn keep_coded(plan: &mut Plan, codes: Vec<Option<Code>>) {
    let has = |probe: &Probe, code: Option<&Option<Code>>| {
        probe.layout.path.is_none() || code.is_some_and(Option::is_some)
    };
    let own: Vec<bool> = plan.probes.iter().enumerate().map(|(i, p)| has(p, codes.get(i))).collect();
    let stays = |at: u32| own.get(at as usize).copied().unwrap_or_default();
    let stay: Vec<bool> =
        plan.probes.iter().zip(&own).map(|(p, own)| *own && p.pair.is_none_or(stays)).collect();
    // The pair's new place: before it are those that stay.
    let place =
        |at: u32| stay.get(..at as usize).map(|before| before.iter().filter(|stays| **stays).count() as u32);
    let probes = std::mem::take(&mut plan.probes);
    for ((mut probe, code), _) in probes.into_iter().zip(codes).zip(&stay).filter(|(_, stays)| **stays) {
        probe.pair = probe.pair.and_then(place);
        plan.probes.push(probe);
        plan.codes.push(code);
    }
}

/// The code of one function.
fn code_of(
    probe: &Probe,
    named: &HashMap<&str, Vec<Symbol>>,
    table: &Table,
    live: &Live,
    tables: &mut faults::Tables,
) -> Result<Code, String> {
    let target = &probe.target;
    let found = named.get(target.name.as_str()).cloned().unwrap_or_default();
    let (name, address) = match target.address {
        Some(address) => (target.name.clone(), address),
        None => match target::places_among(target, found).as_slice() {
            [] => {
                return Err("/proc/kallsyms has no function of that name (it was inlined everywhere)".into());
            }
            [one] => (one.name.clone(), one.address),
            several => {
                let all: Vec<String> =
                    several.iter().map(|s| format!("{} at {:#x}", s.name, s.address)).collect();
                return Err(format!(
                    "{} functions have this name, and a path is one function's: {}",
                    all.len(),
                    all.join(", ")
                ));
            }
        },
    };
    let read = |address: u64| {
        let extent = table.extent(address)?;
        let end = extent.end.unwrap_or(extent.address.saturating_add(MOST_UNBOUNDED));
        let bytes = live.read(extent.address, usize::try_from(end - extent.address).ok()?).ok()?;
        let bytes = disasm::trim_padding(&bytes, Arch::X86_64).to_vec();
        (!bytes.is_empty()).then_some(Part { address: extent.address, bytes })
    };
    let unreadable = || format!("its code at {address:#x} cannot be read");
    let mut parts = vec![read(address).ok_or_else(unreadable)?];
    let returns =
        |to: u64| table.resolve(to).is_some_and(|s| s.offset == 0 && s.name.ends_with("return_thunk"));
    let faults = tables.of(target.module.as_deref(), table, live);
    let first = Blocks::of(&parts, Arch::X86_64, &faults, returns);
    // What the compiler split off is jumped to.
    let goes = first.list().iter().flat_map(|block| {
        let jump = match block.exit {
            Exit::Jump(to) | Exit::Branch(to) => Some(to),
            _ => None,
        };
        jump.into_iter().chain(block.faults.iter().map(|fault| fault.to))
    });
    for to in goes.filter(|to| first.at(*to).is_none()) {
        let Some(symbol) = table.resolve(to) else { continue };
        let rest = symbol.name.strip_prefix(name.as_str());
        let known = parts.iter().any(|part| part.address == to - symbol.offset);
        if rest.is_some_and(|rest| rest.starts_with(".cold")) && !known {
            parts.extend(read(to));
        }
    }
    let blocks = Blocks::of(&parts, Arch::X86_64, &faults, returns);
    // An optimised kprobe is a jump to a page of the kernel's for such.
    let is_optimised = |block: &&Block| match block.exit {
        Exit::Jump(to) => table.resolve(to).is_some_and(|symbol| symbol.module == Some("__builtin__kprobes")),
        _ => false,
    };
    let optimised = blocks.list().iter().find(is_optimised).map(|block| block.last);
    if let Some(at) = blocks.breakpoints().first().copied().or(optimised) {
        return Err(format!(
            "there is a kprobe at {name}{} already, another tracer's, and what its breakpoint stands for cannot be read",
            offset(at, address)
        ));
    }
    let module = target.module.clone();
    let code =
        Code { name, module, address, parts, blocks, unprobed: BTreeSet::new(), told: BTreeSet::new() };
    if !(0..code.blocks.list().len()).any(|block| code.leaves(block)) {
        return Err(
            "it never returns (there is no return in its code), and a path is shown at the return".into()
        );
    }
    Ok(code)
}

/// Where something lies in a function, or before it, where the compiler's `.cold` parts are.
pub fn offset(address: u64, function: u64) -> String {
    match address.checked_sub(function) {
        Some(offset) => format!("+{offset:#x}"),
        None => format!("-{:#x}", function.wrapping_sub(address)),
    }
}

impl Code {
    /// The bytes from one address to another; nothing when they are not all of one part.
    pub fn bytes(&self, from: u64, to: u64) -> &[u8] {
        let covers = |part: &&Part| from >= part.address && from - part.address < part.bytes.len() as u64;
        let bytes = self.parts.iter().find(covers).and_then(|part| {
            let from = usize::try_from(from - part.address).ok()?;
            let to = usize::try_from(to.checked_sub(part.address)?).ok()?;
            part.bytes.get(from..to)
        });
        bytes.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ffff_8100_0000;

    /// test edi,edi; jne W; L: dec esi; jne L; ret; W: ud2; jmp L
    const CODE: [u8; 13] = [0x85, 0xff, 0x75, 0x05, 0xff, 0xce, 0x75, 0xfc, 0xc3, 0x0f, 0x0b, 0xeb, 0xf7];
    /// Where its blocks begin.
    const ENTRY: i32 = 0;
    const LOOP: i32 = 4;
    const RETURN: i32 = 8;
    const WARNING: i32 = 9;

    fn code(bytes: &[u8], unprobed: &[usize]) -> Code {
        let parts = vec![Part { address: BASE, bytes: bytes.to_vec() }];
        let blocks = Blocks::of(&parts, Arch::X86_64, &[], |_| false);
        let unprobed = unprobed.iter().copied().collect();
        Code { name: "f".into(), module: None, address: BASE, parts, blocks, unprobed, told: BTreeSet::new() }
    }

    fn path(code: &Code, hits: &[i32]) -> Vec<(u64, Step, bool)> {
        let path = code.path(hits.iter().copied(), hits.len() as u32);
        let start = |visit: &Visit| code.blocks.list()[visit.block].start - BASE;
        path.visits.iter().map(|visit| (start(visit), visit.step, visit.inferred)).collect()
    }

    #[test]
    fn steps_are_told_by_the_code() {
        let code = code(&CODE, &[]);
        assert_eq!(code.blocks.list().len(), 4);
        assert_eq!(
            path(&code, &[ENTRY, LOOP, LOOP, RETURN]),
            [
                (0, Step::Entry, false),
                (4, Step::Fell, false),
                (4, Step::Jumped, false),
                (8, Step::Fell, false)
            ]
        );
        // A probe behind a block's beginning is that block's.
        assert_eq!(path(&code, &[ENTRY, WARNING + 2, LOOP, RETURN])[1], (9, Step::Jumped, false));
        assert!(code.path([ENTRY, LOOP, RETURN].into_iter(), 3).is_whole(&code));
    }

    #[test]
    fn what_cannot_follow_is_not_made_to() {
        let code = code(&CODE, &[]);
        assert_eq!(path(&code, &[ENTRY, RETURN])[1], (8, Step::Unknown, false));
        assert!(!code.path([ENTRY, RETURN].into_iter(), 2).is_whole(&code));
        assert!(!code.path([ENTRY, LOOP].into_iter(), 2).is_whole(&code), "it returned from elsewhere");
        assert!(code.path([ENTRY, 1000, -1000].into_iter(), 3).visits.len() == 1, "hits of other code");
        let cut = code.path([ENTRY, LOOP].into_iter(), 9);
        assert_eq!((cut.cut, cut.is_whole(&code)), (7, false));
        assert_eq!(code.path(std::iter::empty(), 0), Path::default());
    }

    #[test]
    fn a_block_without_probe_is_told_where_no_other_way_leads() {
        // The return has none: it is behind the loop in any case.
        let unseen = code(&CODE, &[2]);
        assert_eq!(path(&unseen, &[ENTRY, LOOP]).last(), Some(&(8, Step::Fell, true)));
        // The warning has none, and the loop may be come to with and without it.
        let unseen = code(&CODE, &[3]);
        assert_eq!(path(&unseen, &[ENTRY, LOOP, RETURN])[1], (4, Step::Unknown, false));
        // The loop has none, and may have run any number of times.
        let unseen = code(&CODE, &[1]);
        assert_eq!(path(&unseen, &[ENTRY, RETURN])[1], (8, Step::Unknown, false));
    }

    #[test]
    fn what_has_too_many_blocks_is_told_in_the_same_words() {
        assert_eq!(
            too_large(&[250], 0, 5),
            "it has 250 blocks, and at most 5 are probed (--path-blocks 250 probes it)"
        );
        assert_eq!(
            too_large(&[250, 300], 500, 512),
            "it takes more blocks than are left of 512 beside the 500 of others (--path-blocks 1050 probes all)"
        );
        assert!(
            too_large(&[5000, 5000], 0, 512).ends_with("--path-blocks can be 8192: name fewer functions)")
        );
    }

    #[test]
    fn a_jump_is_asked_where_the_blocks_do_not_tell() {
        // test edi,edi; jne L; nop (a static branch that is off); L: xor eax,eax; ret
        let mut code = code(&[0x85, 0xff, 0x75, 0x02, 0x66, 0x90, 0x31, 0xc0, 0xc3], &[1]);
        assert_eq!(path(&code, &[0, 6])[1], (6, Step::Unknown, false), "either way");
        assert_eq!(code.decisions(), [Decision { block: 0, at: BASE + 2, taken: None, fell: Some(1) }]);
        assert_eq!(code.unknowable(), BTreeSet::from([1]));
        code.told.insert((0, 1));
        assert_eq!(path(&code, &[0, 6])[1], (6, Step::Jumped, false));
        assert_eq!(path(&code, &[0, 4, 6])[1..], [(4, Step::Fell, false), (6, Step::Fell, false)]);
        assert_eq!((code.decisions(), code.unknowable().len()), (Vec::new(), 0));
    }

    #[test]
    fn a_jump_is_not_asked_where_one_way_is_left() {
        // The warning jumps back to the loop, where its other way goes.
        assert_eq!(code(&CODE, &[3]).decisions().len(), 1);
        // Of what cannot be probed the return is behind the loop in any case.
        assert_eq!(code(&CODE, &[2]).decisions(), []);
        assert_eq!(code(&CODE, &[]).decisions(), []);
    }
}
