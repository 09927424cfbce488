//! Structured statements → basic blocks. Operations stay as they were written.

use crate::cfg::{Block, BlockId, Cfg, Inst, Term};
use crate::ir::{Alu, Cmp, FuncIr, Likely, Node, Op, Operand, Width};
use std::collections::HashMap;

/// Turns a function into blocks. What follows a `ret`, `break` or `continue` in its block is dropped.
pub(crate) fn lower(ir: &FuncIr) -> Cfg {
    let cfg = Cfg {
        name: ir.name.clone(),
        func: ir.id,
        params: ir.params.clone(),
        nregs: ir.nregs,
        first_spill: ir.slots.len() as u32,
        slots: ir.slots.clone(),
        scopes: ir.scopes.clone(),
        blocks: Vec::new(),
        order: Vec::new(),
    };
    let mut lower = Lower {
        cfg,
        loops: Vec::new(),
        labels: HashMap::new(),
        returns: HashMap::new(),
        line: None,
        depth: 0,
        cold: false,
    };
    let entry = lower.block();
    if let Some(end) = lower.nodes(&ir.body, entry) {
        lower.ret(end, Operand::Imm(0));
    }
    lower.cfg
}

struct Lower {
    cfg: Cfg,
    /// Where `break` and `continue` go, innermost loop last.
    loops: Vec<(BlockId, BlockId)>,
    /// Where labelled blocks end.
    labels: HashMap<u32, BlockId>,
    /// One shared block for each constant returned.
    returns: HashMap<i64, BlockId>,
    line: Option<u32>,
    depth: u32,
    cold: bool,
}

impl Lower {
    fn block(&mut self) -> BlockId {
        self.cfg.blocks.push(Block {
            insts: Vec::new(),
            term: Term::Ret(Operand::Imm(0)),
            line: None,
            depth: self.depth,
            cold: self.cold,
        });
        self.cfg.blocks.len() - 1
    }

    fn end(&mut self, b: BlockId, term: Term) {
        self.cfg.blocks[b].term = term;
        self.cfg.blocks[b].line = self.line;
    }

    fn push(&mut self, b: BlockId, op: Op) {
        let line = self.line;
        self.cfg.blocks[b].insts.push(Inst { op, line });
    }

    fn ret(&mut self, b: BlockId, v: Operand) {
        let Operand::Imm(constant) = v else {
            return self.end(b, Term::Ret(v));
        };
        let shared = match self.returns.get(&constant) {
            Some(shared) => *shared,
            None => {
                let shared = self.block();
                self.cfg.blocks[shared] =
                    Block { insts: Vec::new(), term: Term::Ret(v), line: None, depth: 0, cold: false };
                self.returns.insert(constant, shared);
                shared
            }
        };
        self.end(b, Term::Jump(shared));
    }

    /// Writes statements into block `at`; gives the block they end in, unless they never get there.
    fn nodes(&mut self, nodes: &[Node], at: BlockId) -> Option<BlockId> {
        let mut at = at;
        for node in nodes {
            match node {
                Node::Scope(_) => {}
                Node::Line(n) => self.line = Some(*n),
                Node::Op(op) => self.push(at, op.clone()),
                Node::Ret(v) => {
                    self.ret(at, *v);
                    return None;
                }
                Node::Break | Node::Continue => {
                    if let Some((after, again)) = self.loops.last().copied() {
                        self.end(at, Term::Jump(if *node == Node::Break { after } else { again }));
                    }
                    return None;
                }
                Node::Leave(label) => {
                    if let Some(after) = self.labels.get(label).copied() {
                        self.end(at, Term::Jump(after));
                    }
                    return None;
                }
                Node::Block { label, body } => {
                    let line = self.line;
                    let after = self.block();
                    self.labels.insert(*label, after);
                    let end = self.nodes(body, at);
                    self.line = line;
                    if let Some(end) = end {
                        self.end(end, Term::Jump(after));
                    }
                    at = after;
                }
                Node::Loop { max: 0, .. } => {}
                Node::Loop { max, index, body, .. } => {
                    let line = self.line;
                    self.push(at, Op::Mov { dst: *index, src: Operand::Imm(0) });
                    let after = self.block();
                    self.depth += 1;
                    let top = self.block();
                    let again = self.block();
                    self.depth -= 1;
                    self.end(at, Term::Jump(top));
                    if *max == 1 {
                        self.end(again, Term::Jump(after));
                    } else {
                        let (dst, a, b) = (*index, Operand::Reg(*index), Operand::Imm(1));
                        self.push(again, Op::Alu { op: Alu::Add, width: Width::W64, dst, a, b });
                        let width = if i32::try_from(*max).is_ok() { Width::W64 } else { Width::W32 };
                        let b = Operand::Imm((*max).into());
                        let term =
                            Term::Cond { cmp: Cmp::Lt, width, a: dst, b, yes: top, no: after, next: after };
                        self.end(again, term);
                    }
                    self.loops.push((after, again));
                    self.depth += 1;
                    let end = self.nodes(body, top);
                    self.depth -= 1;
                    self.loops.pop();
                    self.line = line;
                    if let Some(end) = end {
                        self.end(end, Term::Jump(again));
                    }
                    at = after;
                }
                Node::If { cmp, width, a, b, likely, then, els } => {
                    at = self.branch((*cmp, *width, *a, *b), *likely, then, els, at)?;
                }
            }
        }
        Some(at)
    }

    fn branch(
        &mut self,
        (cmp, width, a, b): (Cmp, Width, crate::ir::Reg, Operand),
        likely: Likely,
        then: &[Node],
        els: &[Node],
        at: BlockId,
    ) -> Option<BlockId> {
        let (line, was_cold) = (self.line, self.cold);
        self.cold |= likely == Likely::No || leaves(then) && !leaves(els);
        let yes = self.block();
        let yes_end = self.nodes(then, yes);
        self.cold = was_cold || leaves(els) && !leaves(then);
        self.line = line;
        let no = self.block();
        let no_end = self.nodes(els, no);
        self.cold = was_cold;
        self.line = line;
        let unlikely = likely == Likely::No || yes_end.is_none() || cmp.inverse().is_none();
        let next = if unlikely && (no_end.is_some() || yes_end.is_none()) { no } else { yes };
        self.end(at, Term::Cond { cmp, width, a, b, yes, no, next });
        if yes_end.is_none() && no_end.is_none() {
            return None;
        }
        let join = self.block();
        for end in [yes_end, no_end].into_iter().flatten() {
            self.end(end, Term::Jump(join));
        }
        Some(join)
    }
}

/// Whether a block never reaches its end, as far as its own statements say.
fn leaves(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Ret(_) | Node::Break | Node::Continue | Node::Leave(_) => true,
        Node::If { then, els, .. } => leaves(then) && leaves(els),
        _ => false,
    })
}
