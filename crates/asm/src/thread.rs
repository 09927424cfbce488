//! Branches whose outcome is known on one way in.
//!
//! A condition computed into a variable (`ok = 0; if … { ok = 1 }; if ok == 0 …`) needs no variable: each way into
//! the last comparison knows where it goes, and jumps there. So does each way that leads there past comparisons
//! that no longer matter (`if tgid == 1 { ok = 1 }; if tgid == 2 { ok = 1 }; …`).

use crate::cfg::{BlockId, Cfg, Term};
use crate::ir::{Op, Operand, Reg};
use crate::simplify::holds;
use std::collections::HashMap;

/// Sends every way whose next blocks only compare known values past them. Gives whether anything changed.
pub(crate) fn thread_known(cfg: &mut Cfg) -> bool {
    let vars = compared_alone(cfg);
    if vars.is_empty() {
        return false;
    }
    let preds = predecessors(cfg);
    let mut known: HashMap<(Reg, i64), Ends> = HashMap::new();
    let mut changed = false;
    for p in cfg.order.clone() {
        for var in &vars {
            let Some(value) = constant_at_end(cfg, &preds, p, *var) else { continue };
            let ends = known.entry((*var, value)).or_insert_with(|| Ends::new(*var, value));
            let mut term = cfg.blocks[p].term.clone();
            match &mut term {
                Term::Ret(_) => {}
                Term::Jump(t) => *t = ends.end(cfg, *t, 0),
                Term::Cond { yes, no, next, .. } => {
                    for edge in [yes, no, next] {
                        *edge = ends.end(cfg, *edge, 0);
                    }
                }
            }
            changed |= term.successors().ne(cfg.blocks[p].term.successors());
            cfg.blocks[p].term = term;
        }
    }
    changed
}

/// The registers that some block does nothing but compare with a constant.
fn compared_alone(cfg: &Cfg) -> Vec<Reg> {
    let mut vars: Vec<Reg> = cfg
        .order
        .iter()
        .filter_map(|b| match cfg.blocks[*b].term {
            Term::Cond { a, b: Operand::Imm(_), .. } if cfg.blocks[*b].insts.is_empty() => Some(a),
            _ => None,
        })
        .collect();
    vars.sort_unstable();
    vars.dedup();
    vars
}

/// Where ways end that set out with a variable at a known value.
struct Ends {
    var: Reg,
    value: i64,
    found: HashMap<BlockId, BlockId>,
}

/// Blocks looked through in a row.
const DEPTH: u32 = 64;

impl Ends {
    fn new(var: Reg, value: i64) -> Ends {
        Ends { var, value, found: HashMap::new() }
    }

    /// The first block after `b`, or `b` itself, where there is something to do: the blocks before change nothing, and
    /// whichever way their comparisons go leads there.
    fn end(&mut self, cfg: &Cfg, b: BlockId, depth: u32) -> BlockId {
        if let Some(end) = self.found.get(&b) {
            return *end;
        }
        let idle = cfg.blocks[b].insts.iter().all(|inst| {
            matches!(inst.op, Op::Mov { dst, src: Operand::Imm(v) } if dst == self.var && v == self.value)
        });
        if !idle || depth == DEPTH {
            return b;
        }
        // A way that comes back here ends here.
        self.found.insert(b, b);
        let end = match cfg.blocks[b].term {
            Term::Ret(_) => b,
            Term::Jump(t) => self.end(cfg, t, depth + 1),
            Term::Cond { cmp, width, a, b: Operand::Imm(with), yes, no, .. } if a == self.var => {
                let to = if holds(cmp, width, self.value, with) { yes } else { no };
                self.end(cfg, to, depth + 1)
            }
            Term::Cond { yes, no, .. } => {
                let (yes, no) = (self.end(cfg, yes, depth + 1), self.end(cfg, no, depth + 1));
                if yes == no { yes } else { b }
            }
        };
        self.found.insert(b, end);
        end
    }
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
///
/// Ways that were sent elsewhere meanwhile do no harm: what they now skip wrote nothing else than what they know.
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
