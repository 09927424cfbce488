//! Which registers are alive where.
//!
//! Every operation and every jump, in layout order, has a number `n`. It reads at point `4n`, clobbers at `4n + 1` (calls
//! take r0-r5 away there) and writes at `4n + 2`. A range is a half-open interval of points.

use crate::cfg::{BlockId, Cfg};
use crate::ir::{Base, Op, Operand, Reg};

/// A set of numbers.
#[derive(Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn new(n: u32) -> Set {
        Set(vec![0; (n as usize).div_ceil(64)])
    }
    fn insert(&mut self, n: u32) {
        self.0[n as usize / 64] |= 1 << (n % 64);
    }
    fn remove(&mut self, n: u32) {
        self.0[n as usize / 64] &= !(1 << (n % 64));
    }
    fn union(&mut self, other: &Set) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }
    fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(i as u32 * 64 + bit)
            })
        })
    }
}

/// The points where one register holds a value that is still read.
#[derive(Clone, Default, Debug)]
pub(crate) struct Range {
    /// Disjoint, in order.
    pub parts: Vec<(u32, u32)>,
    /// How often it is read and written.
    pub weight: f32,
    /// Whether it is read at all.
    pub read: bool,
}

impl Range {
    /// Whether it holds a value while something happens at `point`, one of a sorted list.
    pub(crate) fn covers_any(&self, points: &[u32]) -> bool {
        self.parts.iter().any(|(start, end)| {
            let i = points.partition_point(|p| p < start);
            points.get(i).is_some_and(|p| p < end)
        })
    }

    /// Whether both hold a value at the same time.
    pub(crate) fn meets(&self, other: &Range) -> bool {
        let (mut a, mut b) = (self.parts.iter().peekable(), other.parts.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.0 < y.1 && y.0 < x.1 {
                return true;
            }
            if x.1 <= y.1 {
                a.next();
            } else {
                b.next();
            }
        }
        false
    }

    /// Points covered.
    pub(crate) fn len(&self) -> u32 {
        self.parts.iter().map(|(s, e)| e - s).sum()
    }
}

/// Liveness of a function that has been laid out.
pub(crate) struct Liveness {
    /// By register.
    pub ranges: Vec<Range>,
    /// The points where calls clobber r0-r5, in order.
    pub calls: Vec<u32>,
    /// Registers read on some path from the entry that does not write them, parameters left out.
    pub unassigned: Vec<u32>,
    /// Operations without effect whose results are never read: block, and place in it.
    pub dead: Vec<(BlockId, usize)>,
}

/// Number 0 is the function's entry, where its parameters are written.
pub(crate) fn liveness(cfg: &Cfg) -> Liveness {
    let live_out = live_out(cfg);
    let mut ranges = vec![Range::default(); cfg.nregs as usize];
    let mut calls = Vec::new();
    // Parts are collected backwards, then turned round.
    let mut n = 1 + cfg.order.iter().map(|b| cfg.blocks[*b].insts.len() as u32 + 1).sum::<u32>();
    let mut open = Open { ends: vec![None; cfg.nregs as usize], opened: Vec::new() };
    let mut unassigned = Vec::new();
    let mut dead = Vec::new();
    for (i, b) in cfg.order.iter().enumerate().rev() {
        let block = &cfg.blocks[*b];
        let frequency = block.frequency();
        n -= 1;
        for id in live_out.after(*b) {
            open.until(id, 4 * n + 4);
        }
        block.term.uses(|r| read(&mut open, &mut ranges, r, 4 * n + 1, frequency));
        for (place, inst) in block.insts.iter().enumerate().rev() {
            n -= 1;
            if let Some(r) = inst.op.def() {
                let range = &mut ranges[r.id as usize];
                range.weight += frequency;
                let end = open.ends[r.id as usize].take();
                range.parts.push((4 * n + 2, end.unwrap_or(4 * n + 3)));
                if end.is_none() && inst.op.is_pure() {
                    dead.push((*b, place));
                }
            }
            // An operation that is made of two instructions writes its result before it has read `b`.
            let late = late_read(&inst.op);
            inst.op.uses(|r| {
                let end = if late == Some(r) { 4 * n + 3 } else { 4 * n + 1 };
                read(&mut open, &mut ranges, r, end, frequency);
            });
            if matches!(inst.op, Op::Call { .. }) {
                calls.push(4 * n + 1);
            }
        }
        let start = if i == 0 { 2 } else { 4 * n };
        for id in open.opened.drain(..) {
            if let Some(end) = open.ends[id as usize].take() {
                ranges[id as usize].parts.push((start, end));
                if i == 0 && !cfg.params.iter().any(|p| p.id == id) {
                    unassigned.push(id);
                }
            }
        }
    }
    for param in &cfg.params {
        let range = &mut ranges[param.id as usize];
        range.weight += 1.0;
        if range.parts.last().is_none_or(|(start, _)| *start != 2) {
            range.parts.push((2, 3));
        }
    }
    calls.reverse();
    for range in &mut ranges {
        range.parts.reverse();
        merge(&mut range.parts);
    }
    Liveness { ranges, calls, unassigned, dead }
}

/// Drops operations whose results are never read.
pub(crate) fn drop_dead(cfg: &mut Cfg) {
    loop {
        // From the last of a block to its first, so that places stay what they were.
        let dead = liveness(cfg).dead;
        if dead.is_empty() {
            return;
        }
        for (block, place) in dead {
            cfg.blocks[block].insts.remove(place);
        }
        // A branch that has become empty reads nothing any more.
        cfg.layout();
    }
}

/// The registers alive while a block is walked backwards, and until when.
struct Open {
    ends: Vec<Option<u32>>,
    /// Every register that has an end, and some that had.
    opened: Vec<u32>,
}

impl Open {
    fn until(&mut self, id: u32, end: u32) {
        let slot = &mut self.ends[id as usize];
        match slot {
            Some(e) => *e = end.max(*e),
            None => {
                *slot = Some(end);
                self.opened.push(id);
            }
        }
    }
}

fn read(open: &mut Open, ranges: &mut [Range], r: Reg, end: u32, frequency: f32) {
    ranges[r.id as usize].weight += frequency;
    ranges[r.id as usize].read = true;
    open.until(r.id, end);
}

/// The operand that must not share a register with the result.
fn late_read(op: &Op) -> Option<Reg> {
    match *op {
        Op::Alu { op, dst, a, b: Operand::Reg(b), .. }
            if !op.commutes() && a != Operand::Reg(dst) && a != Operand::Reg(b) =>
        {
            Some(b)
        }
        // The register that is added becomes the result.
        Op::FetchAdd { base: Base::Reg(base), .. } => Some(base),
        _ => None,
    }
}

fn merge(parts: &mut Vec<(u32, u32)>) {
    let mut out: Vec<(u32, u32)> = Vec::with_capacity(parts.len());
    for part in parts.drain(..) {
        match out.last_mut() {
            Some(last) if part.0 <= last.1 => last.1 = last.1.max(part.1),
            _ => out.push(part),
        }
    }
    *parts = out;
}

/// The registers alive at the end of each block. Most are read in the block that writes them and nowhere else: the sets are
/// of the others only, which keeps them short in long programs.
struct LiveOut {
    /// By block, numbers of `across`.
    sets: Vec<Set>,
    /// Registers that some block reads before it writes them.
    across: Vec<u32>,
}

impl LiveOut {
    fn after(&self, b: BlockId) -> impl Iterator<Item = u32> {
        self.sets[b].iter().map(|n| self.across[n as usize])
    }
}

/// The number of a register that lives in one block only.
const LOCAL: u32 = u32::MAX;

fn live_out(cfg: &Cfg) -> LiveOut {
    let mut numbers = vec![LOCAL; cfg.nregs as usize];
    let mut across = Vec::new();
    let mut written_in: Vec<Option<BlockId>> = vec![None; cfg.nregs as usize];
    for b in &cfg.order {
        let mut read = |r: Reg, written_in: &[Option<BlockId>]| {
            let number = &mut numbers[r.id as usize];
            if *number == LOCAL && written_in[r.id as usize] != Some(*b) {
                *number = across.len() as u32;
                across.push(r.id);
            }
        };
        for inst in &cfg.blocks[*b].insts {
            inst.op.uses(|r| read(r, &written_in));
            if let Some(r) = inst.op.def() {
                written_in[r.id as usize] = Some(*b);
            }
        }
        cfg.blocks[*b].term.uses(|r| read(r, &written_in));
    }
    let number = |r: Reg| Some(numbers[r.id as usize]).filter(|n| *n != LOCAL);
    let n = across.len() as u32;
    let mut live_in = vec![Set::new(n); cfg.blocks.len()];
    let mut live_out = vec![Set::new(n); cfg.blocks.len()];
    // What each block reads before writing, and writes.
    let mut gens = vec![Set::new(n); cfg.blocks.len()];
    let mut kills = vec![Set::new(n); cfg.blocks.len()];
    for b in &cfg.order {
        let (reads, writes) = (&mut gens[*b], &mut kills[*b]);
        cfg.blocks[*b].term.uses(|r| {
            if let Some(r) = number(r) {
                reads.insert(r);
            }
        });
        for inst in cfg.blocks[*b].insts.iter().rev() {
            if let Some(r) = inst.op.def().and_then(number) {
                writes.insert(r);
                reads.remove(r);
            }
            inst.op.uses(|r| {
                if let Some(r) = number(r) {
                    reads.insert(r);
                }
            });
        }
    }
    let mut out = Set::new(n);
    let mut changed = true;
    while changed {
        changed = false;
        for b in cfg.order.iter().rev() {
            out.0.fill(0);
            for s in cfg.blocks[*b].term.successors() {
                out.union(&live_in[s]);
            }
            let into = &mut live_in[*b];
            for (i, word) in into.0.iter_mut().enumerate() {
                let new = out.0[i] & !kills[*b].0[i] | gens[*b].0[i];
                changed |= new != *word;
                *word = new;
            }
            live_out[*b].0.copy_from_slice(&out.0);
        }
    }
    LiveOut { sets: live_out, across }
}
