//! A function's basic blocks: runs of instructions of which, when the first has run, the others run too.
//!
//! A block begins at the function's entry, where a jump within the function or an exception goes, and behind every jump and return. Where an indirect
//! jump goes is not in the code (a jump table's entries are data); such a block is found all the same if anything else makes it
//! one, and what follows a jump or return always is one. An undefined instruction ends none: `WARN()` is one, and goes on behind it.

use crate::faults::Fault;
use disasm::{Arch, Disassembler, Flow, Line, NoSymbols, Syntax, TargetKind};
use std::collections::BTreeSet;

/// A run of code, from an instruction on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it lies.
    pub address: u64,
    /// Its bytes, without padding behind.
    pub bytes: Vec<u8>,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It runs into the next.
    Next,
    /// A conditional jump: to there, or into the next.
    Branch(u64),
    /// A jump: to there, in the function or out of it.
    Jump(u64),
    /// A jump to where the code does not tell.
    Indirect,
    /// To the caller.
    Return,
    /// A trap, or no code: nothing follows.
    Nowhere,
}

/// How one block comes to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// It runs into it.
    Falls,
    /// It jumps there.
    Jumps,
    /// An instruction of it faults. (Where it goes the same way anyhow, that is not told apart.)
    Faults,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first instruction.
    pub start: u64,
    /// Behind its last.
    pub end: u64,
    /// Its last instruction.
    pub last: u64,
    /// That instruction in AT&T's syntax.
    pub text: String,
    /// How it ends.
    pub exit: Exit,
    /// Its instructions that may fault, and go elsewhere than on to the next then.
    pub faults: Vec<Fault>,
    /// Where a probe can tell that it runs, first its beginning; a few at most. What lies behind a call comes to run too, for a call that
    /// never returns has no path to be told, and calls within it have paths of their own.
    pub places: Vec<u64>,
}

/// Instructions of a block that are tried for a probe: of the first ones few are such that none can be there.
const MOST_PLACES: usize = 8;

/// The blocks of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// By address.
    list: Vec<Block>,
    /// Breakpoints that the code comes to, where compilers put none: others' kprobes.
    breakpoints: Vec<u64>,
}

/// What a kprobe puts in an instruction's place, and compilers behind jumps and returns only.
const BREAKPOINT: &str = "int3";

/// An instruction, as far as blocks go.
struct Instruction {
    address: u64,
    end: u64,
    flow: Flow,
    target: Option<u64>,
    /// Where it goes when it faults.
    fixup: Option<u64>,
    filler: bool,
    text: String,
}

impl Blocks {
    /// The blocks of a function's parts. `faults`: instructions that may fault, of any function, by address. `returns`: whether a jump to
    /// there returns to the caller (the kernel's return thunks).
    pub fn of(parts: &[Part], arch: Arch, faults: &[Fault], returns: impl Fn(u64) -> bool) -> Blocks {
        let decoded: Vec<Vec<Instruction>> = parts.iter().map(|part| decode(part, arch, faults)).collect();
        let mut leaders: Vec<u64> = parts.iter().map(|part| part.address).collect();
        for instruction in decoded.iter().flatten() {
            leaders.extend(instruction.target);
            leaders.extend(instruction.fixup);
            if ends(instruction.flow) {
                leaders.push(instruction.end);
            }
        }
        let jumps: BTreeSet<u64> =
            decoded.iter().flatten().flat_map(|i| [i.target, i.fixup]).flatten().collect();
        let leaders: BTreeSet<u64> = leaders.into_iter().collect();
        let mut list: Vec<Block> = Vec::new();
        let mut breakpoints = Vec::new();
        for part in &decoded {
            let begins = |i: &Instruction| leaders.contains(&i.address);
            let mut falls = true;
            for run in part.chunk_by(|_, next| !begins(next)) {
                let is_reached = falls || run.first().is_some_and(|first| jumps.contains(&first.address));
                falls = run.last().is_some_and(|last| last.flow.falls_through());
                // Filler that nothing runs into and no jump goes to is there for the next block's alignment.
                if is_reached || !run.iter().all(|i| i.filler) {
                    list.extend(block(run, &returns));
                }
                if is_reached {
                    breakpoints.extend(run.iter().filter(|i| i.text == BREAKPOINT).map(|i| i.address));
                }
            }
        }
        list.sort_by_key(|block| block.start);
        Blocks { list, breakpoints }
    }

    /// All of them, by address.
    pub fn list(&self) -> &[Block] {
        &self.list
    }

    /// Where somebody's breakpoints are in it, so that what it was made of cannot be read.
    pub fn breakpoints(&self) -> &[u64] {
        &self.breakpoints
    }

    /// The block that an address lies in, by its place in the list.
    pub fn at(&self, address: u64) -> Option<usize> {
        let at = self.list.partition_point(|block| block.start <= address).checked_sub(1)?;
        self.list.get(at).is_some_and(|block| address < block.end).then_some(at)
    }

    /// The block that begins at an address.
    pub fn beginning(&self, address: u64) -> Option<usize> {
        self.list.binary_search_by_key(&address, |block| block.start).ok()
    }

    /// The blocks that may come after one, each with how; `None` behind an indirect jump, when any may.
    pub fn after(&self, index: usize) -> Option<Vec<(usize, Edge)>> {
        let Some(block) = self.list.get(index) else { return Some(Vec::new()) };
        let next = || self.beginning(block.end).map(|next| (next, Edge::Falls));
        let there = |to| self.beginning(to).map(|there| (there, Edge::Jumps));
        let mut all: Vec<(usize, Edge)> = match block.exit {
            Exit::Next => next().into_iter().collect(),
            Exit::Branch(to) => there(to).into_iter().chain(next()).collect(),
            Exit::Jump(to) => there(to).into_iter().collect(),
            Exit::Indirect => return None,
            Exit::Return | Exit::Nowhere => Vec::new(),
        };
        for fixup in block.faults.iter().filter_map(|fault| self.beginning(fault.to)) {
            if all.iter().all(|(known, _)| *known != fixup) {
                all.push((fixup, Edge::Faults));
            }
        }
        Some(all)
    }
}

/// Whether a block ends behind such an instruction.
fn ends(flow: Flow) -> bool {
    matches!(flow, Flow::Jump | Flow::Branch | Flow::IndirectJump | Flow::Return | Flow::Invalid)
}

fn decode(part: &Part, arch: Arch, faults: &[Fault]) -> Vec<Instruction> {
    let mut disassembler = Disassembler::new(arch, Syntax::Att);
    let mut lines = disassembler.decode(&part.bytes, part.address, &NoSymbols);
    let mut all = Vec::new();
    while let Some(line) = lines.next_line() {
        let Line::Instruction(i) = line else { continue };
        let jump = i.targets.iter().find(|target| target.kind == TargetKind::Jump);
        let keeps = ends(i.flow) || i.text == BREAKPOINT;
        let end = i.address.saturating_add(i.bytes.len() as u64);
        let fault =
            faults.binary_search_by_key(&i.address, |fault| fault.at).ok().and_then(|at| faults.get(at));
        all.push(Instruction {
            address: i.address,
            end,
            // Most go on behind it.
            fixup: fault.map(|fault| fault.to).filter(|to| *to != end),
            flow: i.flow,
            target: jump.map(|target| target.address),
            filler: i.mnemonic().contains("nop") || matches!(i.text, BREAKPOINT | "xchg %ax,%ax"),
            text: if keeps { i.text.to_string() } else { String::new() },
        });
    }
    all
}

fn block(run: &[Instruction], returns: &impl Fn(u64) -> bool) -> Option<Block> {
    let (first, last) = (run.first()?, run.last()?);
    let exit = match (last.flow, last.target) {
        (Flow::Branch, Some(to)) => Exit::Branch(to),
        (Flow::Jump, Some(to)) if returns(to) => Exit::Return,
        (Flow::Jump, Some(to)) => Exit::Jump(to),
        (Flow::IndirectJump, _) => Exit::Indirect,
        (Flow::Return, _) => Exit::Return,
        (Flow::Trap | Flow::Invalid | Flow::Jump, _) => Exit::Nowhere,
        (Flow::Next | Flow::Call | Flow::IndirectCall | Flow::Branch, _) => Exit::Next,
    };
    let places = run.iter().take(MOST_PLACES).map(|i| i.address).collect();
    Some(Block {
        start: first.address,
        end: last.end,
        last: last.address,
        text: last.text.clone(),
        exit,
        faults: run.iter().filter_map(|i| Some(Fault { at: i.address, to: i.fixup? })).collect(),
        places,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ffff_8100_0000;

    fn blocks(bytes: &[u8]) -> Blocks {
        let part = Part { address: BASE, bytes: bytes.to_vec() };
        Blocks::of(&[part], Arch::X86_64, &[], |to| to == BASE + 0x100)
    }

    fn shown(blocks: &Blocks) -> Vec<(u64, u64, Exit)> {
        blocks.list().iter().map(|b| (b.start - BASE, b.end - BASE, b.exit)).collect()
    }

    #[test]
    fn a_loop_has_three_blocks() {
        // xor eax,eax; L: inc eax; dec rsi; jne L; jmp return thunk
        let blocks = blocks(&[
            0x31, 0xc0, 0xff, 0xc0, 0x48, 0xff, 0xce, 0x75, 0xf9, 0xe9, 0xf2, 0x00, 0x00, 0x00, 0xcc, 0xcc,
        ]);
        assert_eq!(
            shown(&blocks),
            [(0, 2, Exit::Next), (2, 9, Exit::Branch(BASE + 2)), (9, 14, Exit::Return)]
        );
        assert_eq!(blocks.after(0), Some(vec![(1, Edge::Falls)]));
        assert_eq!(blocks.after(1), Some(vec![(1, Edge::Jumps), (2, Edge::Falls)]));
        assert_eq!(blocks.after(2), Some(vec![]));
        assert_eq!(blocks.at(BASE + 8), Some(1));
        assert_eq!((blocks.at(BASE + 14), blocks.at(BASE - 1)), (None, None), "padding, and before");
        assert_eq!(blocks.beginning(BASE + 3), None);
        assert!(blocks.list()[1].text.starts_with("jne"), "{}", blocks.list()[1].text);
    }

    #[test]
    fn a_warning_goes_on_and_can_be_probed_behind_it() {
        // test edi,edi; jne W; ret; W: ud2; jmp back to ret
        let blocks = blocks(&[0x85, 0xff, 0x75, 0x01, 0xc3, 0x0f, 0x0b, 0xeb, 0xfb]);
        assert_eq!(
            shown(&blocks),
            [(0, 4, Exit::Branch(BASE + 5)), (4, 5, Exit::Return), (5, 9, Exit::Jump(BASE + 4))]
        );
        assert_eq!(blocks.list()[2].places, [BASE + 5, BASE + 7]);
    }

    #[test]
    fn a_static_call_can_be_probed_behind_it() {
        // call preempt_schedule, which the kernel patches; jmp back
        let blocks = blocks(&[0xe8, 0, 0, 0, 0, 0xeb, 0xf9]);
        assert_eq!(blocks.list()[0].places, [BASE, BASE + 5]);
    }

    #[test]
    fn what_follows_an_indirect_jump_is_a_block_and_filler_is_none() {
        // jmp *rax; nopw; inc eax; ret; int3; jmp $
        let code = [0xff, 0xe0, 0x66, 0x90, 0xff, 0xc0, 0xc3, 0xcc, 0xeb, 0xfe];
        let blocks = blocks(&code);
        // The filler runs into what may be jumped to: one block.
        assert_eq!(
            shown(&blocks),
            [(0, 2, Exit::Indirect), (2, 7, Exit::Return), (8, 10, Exit::Jump(BASE + 8))]
        );
        assert_eq!(blocks.after(0), None);
    }

    #[test]
    fn an_exception_goes_to_a_block_of_its_own() {
        // stac; mov (rdi),eax; clac; ret; L: mov $-14,eax; ret; where the read faults, to L; another goes on behind it.
        let bytes = vec![
            0x0f, 0x01, 0xcb, 0x8b, 0x07, 0x0f, 0x01, 0xca, 0x31, 0xd2, 0xb8, 0xf2, 0xff, 0xff, 0xff, 0xc3,
        ];
        let part = Part { address: BASE, bytes };
        let faults = [Fault { at: BASE + 3, to: BASE + 10 }, Fault { at: BASE + 8, to: BASE + 10 }];
        let blocks = Blocks::of(&[part], Arch::X86_64, &faults, |_| false);
        assert_eq!(shown(&blocks), [(0, 10, Exit::Next), (10, 16, Exit::Return)]);
        assert_eq!(blocks.after(0), Some(vec![(1, Edge::Falls)]), "it goes there anyhow");
        assert_eq!(blocks.list()[0].faults, [faults[0]]);
        // jmp behind it; then nothing else leads there.
        let part = Part { address: BASE, bytes: vec![0x8b, 0x07, 0xeb, 0x02, 0x8b, 0x07, 0x31, 0xd2, 0xc3] };
        let faults = [Fault { at: BASE, to: BASE + 4 }];
        let blocks = Blocks::of(&[part], Arch::X86_64, &faults, |_| false);
        assert_eq!(blocks.after(0), Some(vec![(2, Edge::Jumps), (1, Edge::Faults)]));
    }

    #[test]
    fn a_breakpoint_in_the_way_is_somebody_elses() {
        // test edi,edi, whose first byte a kprobe has taken, so that the rest reads otherwise (inc ebx); ret; int3, for no speculation to go on
        let probed = blocks(&[0x90, 0xcc, 0xff, 0xc3, 0xc3, 0xcc]);
        assert_eq!(probed.breakpoints(), [BASE + 1]);
        let plain = blocks(&[0x90, 0x85, 0xff, 0xc3, 0xcc, 0x90, 0xeb, 0xfe, 0xcc]);
        assert_eq!(plain.breakpoints(), [0; 0]);
    }

    #[test]
    fn the_cold_part_belongs_to_it() {
        let hot = Part { address: BASE, bytes: vec![0x75, 0x7e, 0xc3] };
        let cold = Part { address: BASE + 0x80, bytes: vec![0x90, 0xe9, 0x7c, 0xff, 0xff, 0xff] };
        let blocks = Blocks::of(&[hot, cold], Arch::X86_64, &[], |_| false);
        assert_eq!(
            shown(&blocks),
            [(0, 2, Exit::Branch(BASE + 0x80)), (2, 3, Exit::Return), (0x80, 0x86, Exit::Jump(BASE + 2))]
        );
        assert_eq!(blocks.after(0), Some(vec![(2, Edge::Jumps), (1, Edge::Falls)]));
    }

    #[test]
    fn any_bytes_have_blocks_that_follow_each_other() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..200 {
            let bytes: Vec<u8> = (0..64)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    seed as u8
                })
                .collect();
            let blocks = blocks(&bytes);
            assert!(blocks.list().windows(2).all(|w| w[0].end <= w[1].start), "{bytes:x?}");
            assert!(blocks.list().iter().all(|b| b.start < b.end && (b.start..b.end).contains(&b.last)));
        }
    }
}
