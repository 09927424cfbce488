//! A function as basic blocks, and the order they are laid out in.

use crate::ir::{Cmp, Op, Operand, Reg, SlotInfo, Width};
use std::collections::VecDeque;

pub(crate) type BlockId = usize;

/// An operation and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub op: Op,
    pub line: Option<u32>,
}

/// How a block ends.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    Jump(BlockId),
    Cond {
        cmp: Cmp,
        width: Width,
        a: Reg,
        b: Operand,
        yes: BlockId,
        no: BlockId,
        /// Which of the two should follow.
        next: BlockId,
    },
    Ret(Operand),
}

impl Term {
    pub(crate) fn uses(&self, mut f: impl FnMut(Reg)) {
        match self {
            Term::Jump(_) => {}
            Term::Cond { a, b, .. } => {
                f(*a);
                if let Operand::Reg(b) = b {
                    f(*b);
                }
            }
            Term::Ret(Operand::Reg(r)) => f(*r),
            Term::Ret(Operand::Imm(_)) => {}
        }
    }

    pub(crate) fn rename_uses(&mut self, mut f: impl FnMut(Reg) -> Reg) {
        match self {
            Term::Jump(_) => {}
            Term::Cond { a, b, .. } => {
                *a = f(*a);
                if let Operand::Reg(b) = b {
                    *b = f(*b);
                }
            }
            Term::Ret(Operand::Reg(r)) => *r = f(*r),
            Term::Ret(Operand::Imm(_)) => {}
        }
    }

    pub(crate) fn successors(&self) -> impl Iterator<Item = BlockId> {
        let (a, b) = match self {
            Term::Jump(t) => (Some(*t), None),
            Term::Cond { yes, no, .. } => (Some(*yes), Some(*no)),
            Term::Ret(_) => (None, None),
        };
        a.into_iter().chain(b)
    }
}

/// Operations without a jump among them, then a jump.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub insts: Vec<Inst>,
    pub term: Term,
    pub line: Option<u32>,
    /// Loops around it.
    pub depth: u32,
    /// Rarely run.
    pub cold: bool,
}

impl Block {
    /// How often it runs, guessed, once per call of the function being 1.
    pub(crate) fn frequency(&self) -> f32 {
        let often = 8f32.powi(self.depth.min(8).cast_signed());
        if self.cold { often / 4.0 } else { often }
    }
}

/// A function as a graph; block 0 is its entry.
#[derive(Clone, Debug)]
pub(crate) struct Cfg {
    pub name: String,
    pub func: u32,
    pub params: Vec<Reg>,
    pub nregs: u32,
    pub slots: Vec<SlotInfo>,
    pub scopes: Vec<u32>,
    /// Slots from this one on are spills, 8 bytes each, that outlive scopes.
    pub first_spill: u32,
    pub blocks: Vec<Block>,
    /// Reachable blocks in their final order.
    pub order: Vec<BlockId>,
}

impl Cfg {
    pub(crate) fn fresh(&mut self) -> Reg {
        let id = self.nregs;
        self.nregs += 1;
        Reg { func: self.func, id }
    }

    /// Points jumps past empty blocks, and orders the reachable ones so that the likely path falls through.
    pub(crate) fn layout(&mut self) {
        self.thread_jumps();
        let mut placed = vec![false; self.blocks.len()];
        let mut order = Vec::new();
        let (mut later, mut last) = (VecDeque::from([0]), VecDeque::new());
        while let Some(start) = later.pop_front().or_else(|| last.pop_front()) {
            let mut at = Some(start);
            while let Some(b) = at.filter(|b| !placed[*b]) {
                placed[b] = true;
                order.push(b);
                at = match self.blocks[b].term {
                    Term::Ret(_) => None,
                    Term::Jump(t) => Some(t),
                    Term::Cond { cmp, yes, no, next, .. } => {
                        let other = if next == yes { no } else { yes };
                        let swap = self.is_plain_return(next)
                            && !self.is_plain_return(other)
                            && (cmp.inverse().is_some() || other == no)
                            && !placed[other]
                            || placed[next];
                        let (next, other) = if swap { (other, next) } else { (next, other) };
                        if self.blocks[other].cold || self.is_plain_return(other) {
                            last.push_back(other);
                        } else {
                            later.push_back(other);
                        }
                        Some(next)
                    }
                };
            }
        }
        self.order = order;
    }

    fn is_plain_return(&self, b: BlockId) -> bool {
        self.blocks[b].insts.is_empty() && matches!(self.blocks[b].term, Term::Ret(Operand::Imm(_)))
    }

    fn thread_jumps(&mut self) {
        let target: Vec<BlockId> = (0..self.blocks.len())
            .map(|start| {
                let mut b = start;
                for _ in 0..self.blocks.len() {
                    match self.blocks[b].term {
                        Term::Jump(t) if self.blocks[b].insts.is_empty() => b = t,
                        _ => break,
                    }
                }
                b
            })
            .collect();
        for block in &mut self.blocks {
            match &mut block.term {
                Term::Ret(_) => {}
                Term::Jump(t) => *t = target[*t],
                Term::Cond { yes, no, next, .. } => {
                    (*yes, *no, *next) = (target[*yes], target[*no], target[*next]);
                    if yes == no {
                        block.term = Term::Jump(*yes);
                    }
                }
            }
        }
    }
}
