//! Registers for values.
//!
//! Every register's range of life is exact, holes included, so each of r0-r9 keeps a timetable and a value may sit
//! in the hole of another. Values alive across a call can only have r6-r9. Copies, two-address operations, arguments
//! and results pull values towards the register that saves a move (*affinity*); nothing is coalesced beforehand. A
//! value that finds no place puts lighter ones out, and if it is itself the lightest it is spilled: made again at
//! its readers if it is a constant or an address, else kept in an 8-byte stack slot (aligned, so that the verifier
//! follows pointers through it), and the search starts over.

use crate::cfg::{Cfg, Term};
use crate::error::Error;
use crate::ir::{Arg, Op, Operand, Slot};
use crate::liveness::{Liveness, Range, liveness};
use crate::spill;

/// r0-r9.
const REGS: usize = 10;
/// The first register that calls preserve.
const SAVED: usize = 6;
/// Where a value without wishes looks first.
const ORDER: [u8; REGS] = [1, 2, 3, 4, 5, 0, 6, 7, 8, 9];

/// What is known of a register from earlier rounds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Origin {
    /// 0: written by the user or lowering; 1: holds a spilled value between two calls; 2: for one operation, and
    /// cannot be spilled.
    pub level: u8,
    /// Where the value is kept.
    pub home: Option<Slot>,
}

/// The place of a register whose value is never read.
pub(crate) const NOWHERE: u8 = u8::MAX;

/// Gives each register of the function one of r0-r9, adding spill code to the function as needed. Results and
/// parameters that are never read are [`NOWHERE`].
pub(crate) fn allocate(cfg: &mut Cfg) -> Result<Vec<u8>, Error> {
    let mut origins = vec![Origin::default(); cfg.nregs as usize];
    // Each round lowers the level of what is left to spill; far fewer are needed.
    for _ in 0..64 {
        let live = liveness(cfg);
        let again = spill::makeable(cfg);
        let mut search = Search::new(cfg, &live, &origins, &again);
        search.run()?;
        if search.spilled.is_empty() {
            return Ok(search.place.iter().map(|p| p.unwrap_or(NOWHERE)).collect());
        }
        let spilled = search.spilled;
        spill::rewrite(cfg, &spilled, &again, &mut origins);
    }
    Err(Error::Internal { func: cfg.name.clone(), what: "register allocation does not end".into() })
}

/// Something a value would like to share a register with.
#[derive(Clone, Copy)]
enum Friend {
    Fixed(u8),
    Value(u32),
}

struct Search<'a> {
    name: &'a str,
    ranges: &'a [Range],
    crosses: Vec<bool>,
    weight: Vec<f32>,
    friends: Vec<Vec<(Friend, f32)>>,
    /// How much each value wants each register, through friends of friends.
    wish: Vec<[f32; REGS]>,
    place: Vec<Option<u8>>,
    busy: [Vec<(u32, u32, u32)>; REGS],
    spilled: Vec<u32>,
}

impl<'a> Search<'a> {
    fn new(cfg: &'a Cfg, live: &'a Liveness, origins: &[Origin], again: &[Option<Op>]) -> Search<'a> {
        let n = cfg.nregs as usize;
        let crosses: Vec<bool> = live.ranges.iter().map(|r| r.covers_any(&live.calls)).collect();
        let weight = (0..n)
            .map(|v| {
                let range = &live.ranges[v];
                let density = range.weight / (range.len() + 8) as f32;
                match origins[v].level {
                    2 => f32::INFINITY,
                    _ if again[v].is_some() => density / 4.0,
                    _ => density,
                }
            })
            .collect();
        let friends = friends(cfg, &live.ranges);
        let wish = wishes(&friends, &crosses);
        Search {
            name: &cfg.name,
            ranges: &live.ranges,
            crosses,
            weight,
            friends,
            wish,
            place: vec![None; n],
            busy: Default::default(),
            spilled: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), Error> {
        let mut queue: Vec<u32> =
            (0..self.ranges.len() as u32).filter(|v| self.ranges[*v as usize].read).collect();
        // Popped from the end: first what only r6-r9 can hold, heaviest first; then what has a wish; then the
        // rest. Ends of chains come first, so that what feeds them follows.
        let class = |v: u32| match (self.crosses[v as usize], self.wish[v as usize].iter().any(|w| *w >= 0.5))
        {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        let start = |v: u32| self.ranges[v as usize].parts.first().map_or(0, |p| p.0);
        queue.sort_by(|a, b| {
            let by_weight = self.weight[*a as usize].total_cmp(&self.weight[*b as usize]);
            class(*a)
                .cmp(&class(*b))
                .then_with(|| if class(*a) == 2 { by_weight } else { start(*a).cmp(&start(*b)) })
        });
        while let Some(v) = queue.pop() {
            if let Some(p) = self.best_free(v) {
                self.occupy(v, p);
            } else if let Some((p, out)) = self.cheapest(v) {
                for other in out {
                    self.vacate(other);
                    queue.push(other);
                }
                self.occupy(v, p);
            } else if self.weight[v as usize] == f32::INFINITY {
                let what = format!("no register for %{v}");
                return Err(Error::Internal { func: self.name.into(), what });
            } else {
                self.spilled.push(v);
            }
        }
        Ok(())
    }

    fn allowed(&self, v: u32) -> impl Iterator<Item = u8> + use<> {
        let first = if self.crosses[v as usize] { SAVED } else { 0 };
        ORDER.into_iter().filter(move |p| usize::from(*p) >= first)
    }

    /// The values that hold `p` while `v` is alive.
    fn in_the_way(&self, v: u32, p: u8) -> Vec<u32> {
        let busy = &self.busy[usize::from(p)];
        let mut found = Vec::new();
        for (start, end) in &self.ranges[v as usize].parts {
            let from = busy.partition_point(|b| b.1 <= *start);
            found.extend(busy[from..].iter().take_while(|b| b.0 < *end).map(|b| b.2));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn score(&self, v: u32, p: u8) -> f32 {
        self.friends[v as usize]
            .iter()
            .map(|(friend, w)| match *friend {
                Friend::Fixed(f) => {
                    if f == p {
                        *w
                    } else {
                        0.0
                    }
                }
                Friend::Value(u) => match self.place[u as usize] {
                    Some(q) => {
                        if q == p {
                            *w
                        } else {
                            0.0
                        }
                    }
                    None => w.min(self.wish[u as usize][usize::from(p)]) / 2.0,
                },
            })
            .sum()
    }

    fn best_free(&self, v: u32) -> Option<u8> {
        let mut best: Option<(u8, f32)> = None;
        for p in self.allowed(v) {
            if best.is_some_and(|(_, s)| s >= self.score(v, p)) || !self.in_the_way(v, p).is_empty() {
                continue;
            }
            best = Some((p, self.score(v, p)));
        }
        best.map(|(p, _)| p)
    }

    /// The register whose holders together weigh least, if less than `v`.
    fn cheapest(&self, v: u32) -> Option<(u8, Vec<u32>)> {
        let mut best: Option<(f32, u8, Vec<u32>)> = None;
        for p in self.allowed(v) {
            let out = self.in_the_way(v, p);
            let sum = out.iter().map(|o| self.weight[*o as usize]).sum::<f32>();
            if sum < self.weight[v as usize] && best.as_ref().is_none_or(|(s, ..)| sum < *s) {
                best = Some((sum, p, out));
            }
        }
        best.map(|(_, p, out)| (p, out))
    }

    fn occupy(&mut self, v: u32, p: u8) {
        let busy = &mut self.busy[usize::from(p)];
        for (start, end) in &self.ranges[v as usize].parts {
            let at = busy.partition_point(|b| b.0 < *start);
            busy.insert(at, (*start, *end, v));
        }
        self.place[v as usize] = Some(p);
    }

    fn vacate(&mut self, v: u32) {
        if let Some(p) = self.place[v as usize].take() {
            self.busy[usize::from(p)].retain(|b| b.2 != v);
        }
    }
}

/// Who would save a move by sharing a register with whom. Values alive at the same time cannot.
fn friends(cfg: &Cfg, ranges: &[Range]) -> Vec<Vec<(Friend, f32)>> {
    let mut friends = vec![Vec::new(); cfg.nregs as usize];
    let fixed = |friends: &mut Vec<Vec<_>>, v: u32, p: usize, w: f32| {
        friends[v as usize].push((Friend::Fixed(p as u8), w));
    };
    let pair = |friends: &mut Vec<Vec<_>>, a: u32, b: u32, w: f32| {
        if a != b && !ranges[a as usize].meets(&ranges[b as usize]) {
            friends[a as usize].push((Friend::Value(b), w));
            friends[b as usize].push((Friend::Value(a), w));
        }
    };
    for (i, param) in cfg.params.iter().enumerate() {
        fixed(&mut friends, param.id, i + 1, 1.0);
    }
    for b in &cfg.order {
        let block = &cfg.blocks[*b];
        let w = block.frequency();
        for inst in &block.insts {
            match &inst.op {
                Op::Mov { dst, src: Operand::Reg(src) } => pair(&mut friends, dst.id, src.id, w),
                Op::Neg { dst, a, .. } | Op::Bytes { dst, a, .. } => pair(&mut friends, dst.id, a.id, w),
                Op::FetchAdd { dst, src: Operand::Reg(src), .. } => pair(&mut friends, dst.id, src.id, w),
                Op::Alu { op, dst, a, b, .. } => {
                    if let Operand::Reg(a) = a {
                        pair(&mut friends, dst.id, a.id, w);
                    }
                    if let Operand::Reg(b) = b
                        && op.commutes()
                    {
                        pair(&mut friends, dst.id, b.id, w * 0.75);
                    }
                }
                Op::Call { dst, args, .. } => {
                    fixed(&mut friends, dst.id, 0, w);
                    for (i, arg) in args.iter().enumerate() {
                        if let Arg::Reg(r) | Arg::Offset(r, _) = arg {
                            fixed(&mut friends, r.id, i + 1, w);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Term::Ret(Operand::Reg(r)) = &block.term {
            fixed(&mut friends, r.id, 0, w);
        }
    }
    friends
}

fn wishes(friends: &[Vec<(Friend, f32)>], crosses: &[bool]) -> Vec<[f32; REGS]> {
    let mut wish = vec![[0f32; REGS]; friends.len()];
    for _ in 0..4 {
        let before = wish.clone();
        for (v, list) in friends.iter().enumerate() {
            let mut new = [0f32; REGS];
            for (friend, w) in list {
                match *friend {
                    Friend::Fixed(p) => new[usize::from(p)] += w,
                    Friend::Value(u) => {
                        for (p, sum) in new.iter_mut().enumerate() {
                            *sum += w.min(before[u as usize][p]) * 0.5;
                        }
                    }
                }
            }
            if crosses[v] {
                new[..SAVED].fill(0.0);
            }
            wish[v] = new;
        }
    }
    wish
}
