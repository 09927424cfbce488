//! Which machine code each instruction of a BPF program became.
//!
//! The kernel tells where each source line's code begins, not each instruction's. Its compiler goes through the instructions in
//! order, so that within a line one follows the other: known is what each may become (`x86/jit.rs`), and a line is taken apart only if
//! there is exactly one way to do so that uses up all of its bytes, and jumps go to where the instructions are that they go to.

use crate::Arch;
use crate::x86::{Machine, jit};

/// Where a run of instructions and its code begin: as a rule a source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first instruction in the function's own.
    pub insn: usize,
    /// Its code's offset in the function's.
    pub offset: usize,
}

/// Ways to take a run apart that are followed at a time: more than a few there are only where nothing is known.
const MOST_WAYS: usize = 16;

/// Where in the machine code `code` at `address` each of a function's instructions `insns` (`struct bpf_insn`, after verification) has
/// its own: `None` where that is not sure, and for the second half of a wide one. `runs` are in order; what is before the first one's
/// instruction, or all where there is none, is a run too. Code is as the compiler left it, nothing attached.
pub fn align(arch: Arch, insns: &[u64], code: &[u8], address: u64, runs: &[Run]) -> Vec<Option<usize>> {
    let mut found = vec![None; insns.len()];
    if arch != Arch::X86_64 {
        return found;
    }
    let machine = Machine::decode(code, address);
    let mut bounds: Vec<Run> = vec![Run { insn: 0, offset: 0 }];
    // Of several lines for one instruction the first.
    for run in runs {
        let last = bounds.last().map_or(0, |last| last.insn);
        if run.insn > last && run.insn < insns.len() {
            bounds.push(*run);
        }
    }
    bounds.push(Run { insn: insns.len(), offset: code.len() });
    let mut aligned = Vec::new();
    for pair in bounds.windows(2) {
        let [from, to] = pair else { continue };
        let offsets = of_run(insns, &machine, *from, *to);
        if let Some(offsets) = &offsets {
            for (at, offset) in offsets {
                if let Some(place) = found.get_mut(*at) {
                    *place = Some(*offset);
                }
            }
        }
        aligned.push((*from, *to, offsets.is_some()));
    }
    // What was found of one run says whether the jumps of another are right.
    let known = |at: usize, found: &[Option<usize>]| {
        let begins = bounds.iter().find(|run| run.insn == at && at != 0).map(|run| run.offset);
        found.get(at).copied().flatten().or(begins)
    };
    let all = found.clone();
    for (from, to, _) in aligned.iter().filter(|(_, _, done)| *done) {
        let right = (from.insn..to.insn).all(|at| {
            let Some(begin) = all.get(at).copied().flatten() else { return true };
            let (Some(bpf), Some(target)) = (bpf_at(insns, at), target_of(insns, at)) else { return true };
            let end =
                (at + 1..to.insn).find_map(|next| all.get(next).copied().flatten()).unwrap_or(to.offset);
            let there = known(target, &all);
            match machine.jump_in(begin, end) {
                Some(goes) => there.is_none_or(|there| goes == address.wrapping_add(there as u64)),
                // No jump is left of one to what follows.
                None => bpf.distance().is_none() || there.is_none_or(|there| there == end),
            }
        });
        if !right && let Some(own) = found.get_mut(from.insn..to.insn) {
            own.fill(None);
        }
    }
    found
}

fn bpf_at(insns: &[u64], at: usize) -> Option<jit::Bpf> {
    Some(jit::Bpf::new(*insns.get(at)?, insns.get(at + 1).copied().unwrap_or(0)))
}

/// The instruction that a jump goes to.
fn target_of(insns: &[u64], at: usize) -> Option<usize> {
    let distance = bpf_at(insns, at)?.distance()?;
    at.checked_add(1)?.checked_add_signed(isize::try_from(distance).ok()?)
}

/// The only way to take a run apart: each of its instructions with the offset of its code.
fn of_run(insns: &[u64], machine: &Machine, from: Run, to: Run) -> Option<Vec<(usize, usize)>> {
    // How many ways lead to a place, and by which one was come there.
    struct State {
        at: usize,
        ways: usize,
        before: usize,
    }
    let (first, last) = (machine.index(from.offset)?, machine.index(to.offset)?);
    let code = machine.instructions.get(first..last)?;
    let starts = if from.offset == 0 { jit::prologues(code) } else { vec![0] };
    let mut steps: Vec<Vec<State>> =
        vec![starts.into_iter().map(|at| State { at, ways: 1, before: 0 }).collect()];
    let mut numbers = Vec::new();
    let mut at = from.insn;
    while at < to.insn {
        let bpf = bpf_at(insns, at)?;
        let mut next: Vec<State> = Vec::new();
        for (before, state) in steps.last()?.iter().enumerate() {
            for length in jit::shapes(bpf, code.get(state.at..)?) {
                let place = state.at + length;
                match next.iter_mut().find(|s| s.at == place) {
                    Some(known) => known.ways += state.ways,
                    None => next.push(State { at: place, ways: state.ways, before }),
                }
            }
        }
        if next.is_empty() || next.len() > MOST_WAYS {
            return None;
        }
        next.iter_mut().for_each(|s| s.ways = s.ways.min(2));
        steps.push(next);
        numbers.push(at);
        at += if bpf.is_wide() { 2 } else { 1 };
    }
    let mut place = steps.last()?.iter().position(|s| s.at == code.len() && s.ways == 1)?;
    let mut offsets = Vec::new();
    for (step, number) in steps.windows(2).zip(&numbers).rev() {
        let [earlier, later] = step else { continue };
        place = later.get(place)?.before;
        offsets.push((*number, machine.offset(first + earlier.get(place)?.at)?));
    }
    offsets.reverse();
    Some(offsets)
}
