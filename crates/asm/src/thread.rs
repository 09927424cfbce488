//! Branches whose outcome is known on one way in.
//!
//! A condition computed into a variable (`ok = 0; if … { ok = 1 }; if ok == 0 …`) needs no variable: each way into
//! the last comparison knows where it goes, and jumps there.

use crate::cfg::{BlockId, Cfg, Term};
use crate::ir::{Op, Operand, Reg};
use crate::simplify::holds;

/// Sends every way into a lone comparison of a known value past it. Gives whether anything changed.
pub(crate) fn thread_known(cfg: &mut Cfg) -> bool {
    let preds = predecessors(cfg);
    let mut changed = false;
    for b in cfg.order.clone() {
        if !cfg.blocks[b].insts.is_empty() {
            continue;
        }
        let Term::Cond { cmp, width, a, b: Operand::Imm(with), yes, no, .. } = cfg.blocks[b].term else {
            continue;
        };
        for p in &preds[b] {
            let Some(value) = constant_at_end(cfg, &preds, *p, a) else { continue };
            let to = if holds(cmp, width, value, with) { yes } else { no };
            if to == b {
                continue;
            }
            match &mut cfg.blocks[*p].term {
                Term::Ret(_) => {}
                Term::Jump(t) => *t = to,
                Term::Cond { yes, no, next, .. } => {
                    for edge in [yes, no, next] {
                        if *edge == b {
                            *edge = to;
                        }
                    }
                }
            }
            changed = true;
        }
    }
    changed
}

/// Reachable blocks that jump to each block.
fn predecessors(cfg: &Cfg) -> Vec<Vec<BlockId>> {
    let mut preds = vec![Vec::new(); cfg.blocks.len()];
    for b in &cfg.order {
        for s in cfg.blocks[*b].term.successors() {
            preds[s].push(*b);
        }
    }
    preds
}

/// The constant that a register holds at the end of a block, looked for up to where ways join.
fn constant_at_end(cfg: &Cfg, preds: &[Vec<BlockId>], b: BlockId, r: Reg) -> Option<i64> {
    let mut at = b;
    for _ in 0..cfg.order.len() {
        if let Some(inst) = cfg.blocks[at].insts.iter().rev().find(|inst| inst.op.def() == Some(r)) {
            return match inst.op {
                Op::Mov { src: Operand::Imm(v), .. } => Some(v),
                _ => None,
            };
        }
        match preds[at][..] {
            [one] if at != 0 => at = one,
            _ => return None,
        }
    }
    None
}
