//! Code for values that found no register.

use crate::alloc::Origin;
use crate::cfg::{Cfg, Inst};
use crate::ir::{Base, Op, Operand, Reg, Size, Slot, SlotInfo};
use std::collections::HashMap;

/// For each register, the operation that makes its value again anywhere: it is written once, by a constant or an address.
pub(crate) fn makeable(cfg: &Cfg) -> Vec<Option<Op>> {
    let mut made: Vec<Option<Op>> = vec![None; cfg.nregs as usize];
    let mut writes = vec![0u32; cfg.nregs as usize];
    for param in &cfg.params {
        writes[param.id as usize] += 1;
    }
    for b in &cfg.order {
        for inst in &cfg.blocks[*b].insts {
            if let Some(dst) = inst.op.def() {
                writes[dst.id as usize] += 1;
                if matches!(inst.op, Op::Addr { .. } | Op::Mov { src: Operand::Imm(_), .. }) {
                    made[dst.id as usize] = Some(inst.op.clone());
                }
            }
        }
    }
    for (op, n) in made.iter_mut().zip(writes) {
        if n != 1 {
            *op = None;
        }
    }
    made
}

/// Takes `spilled` registers out of the function: their values are made or loaded again where they are read. The
/// first time one value serves all readers between two calls; the second time each reader has its own.
pub(crate) fn rewrite(cfg: &mut Cfg, spilled: &[u32], again: &[Option<Op>], origins: &mut Vec<Origin>) {
    let mut spill = Spill { again, origins, homes: HashMap::new(), current: HashMap::new() };
    for v in spilled {
        let home = match (&again[*v as usize], spill.origins[*v as usize].home) {
            (Some(_), _) => None,
            (None, Some(home)) => Some(home),
            (None, None) => {
                let id = cfg.slots.len() as u32;
                cfg.slots.push(SlotInfo { size: 8, align: 8, scope: 0 });
                Some(Slot { func: cfg.func, id })
            }
        };
        spill.homes.insert(*v, home);
    }
    for (i, b) in cfg.order.clone().into_iter().enumerate() {
        let insts = std::mem::take(&mut cfg.blocks[b].insts);
        let mut out = Vec::with_capacity(insts.len());
        spill.current.clear();
        if i == 0 {
            spill.params(cfg, &mut out);
        }
        for inst in insts {
            spill.inst(cfg, inst, &mut out);
        }
        let line = cfg.blocks[b].line;
        let mut term = cfg.blocks[b].term.clone();
        let mut here = HashMap::new();
        term.rename_uses(|r| spill.read(cfg, r, line, &mut here, &mut out));
        cfg.blocks[b].term = term;
        cfg.blocks[b].insts = out;
    }
}

struct Spill<'a> {
    again: &'a [Option<Op>],
    origins: &'a mut Vec<Origin>,
    /// Where each spilled register's value is kept; none if it is made again.
    homes: HashMap<u32, Option<Slot>>,
    /// The register that holds a spilled value just now.
    current: HashMap<u32, Reg>,
}

impl Spill<'_> {
    fn temporary(&mut self, cfg: &mut Cfg, v: u32, home: Option<Slot>) -> Reg {
        let level = (self.origins[v as usize].level + 1).min(2);
        let r = cfg.fresh();
        self.origins.push(Origin { level, home });
        r
    }

    /// A register holding the value of `r`, spilled or not.
    fn read(
        &mut self,
        cfg: &mut Cfg,
        r: Reg,
        line: Option<u32>,
        here: &mut HashMap<u32, Reg>,
        out: &mut Vec<Inst>,
    ) -> Reg {
        let Some(home) = self.homes.get(&r.id).copied() else { return r };
        if let Some(t) = here.get(&r.id).or_else(|| self.current.get(&r.id)) {
            return *t;
        }
        let dst = self.temporary(cfg, r.id, home);
        let op = match (home, &self.again[r.id as usize]) {
            (Some(home), _) => {
                Op::Load { signed: false, size: Size::DW, dst, base: Base::Slot(home), off: 0 }
            }
            (None, Some(op)) => {
                let mut op = op.clone();
                if let Some(d) = op.def_mut() {
                    *d = dst;
                }
                op
            }
            (None, None) => return r,
        };
        out.push(Inst { op, line });
        here.insert(r.id, dst);
        if self.origins[r.id as usize].level == 0 {
            self.current.insert(r.id, dst);
        }
        dst
    }

    /// Spilled parameters are stored as the function begins.
    fn params(&mut self, cfg: &mut Cfg, out: &mut Vec<Inst>) {
        for i in 0..cfg.params.len() {
            let v = cfg.params[i];
            if let Some(Some(home)) = self.homes.get(&v.id).copied() {
                let t = cfg.fresh();
                self.origins.push(Origin { level: 2, home: Some(home) });
                cfg.params[i] = t;
                out.push(keep(home, Operand::Reg(t), None));
            }
        }
    }

    fn inst(&mut self, cfg: &mut Cfg, mut inst: Inst, out: &mut Vec<Inst>) {
        let written = inst.op.def().filter(|d| self.homes.contains_key(&d.id));
        if let Some(v) = written {
            let kept_before = self.origins[v.id as usize].home;
            match self.homes.get(&v.id).copied().flatten() {
                // Made again at each reader.
                None => return,
                // A reload, which each reader now does itself.
                Some(home)
                    if kept_before.is_some()
                        && matches!(inst.op, Op::Load { base: Base::Slot(s), .. } if s == home) =>
                {
                    return;
                }
                Some(_) => {}
            }
        }
        let line = inst.line;
        let mut here = HashMap::new();
        let mut op = inst.op;
        op.rename_uses(|r| self.read(cfg, r, line, &mut here, out));
        if matches!(op, Op::Call { .. }) {
            self.current.clear();
        }
        // What was written for a store at home that follows serves that store only.
        self.current.retain(|v, _| self.origins[*v as usize].level == 0);
        inst.op = op;
        let Some(v) = written else {
            out.push(inst);
            return;
        };
        let home = self.homes.get(&v.id).copied().flatten();
        let kept_before = self.origins[v.id as usize].home.is_some();
        if let (Op::Mov { src, .. }, Some(home), false) = (&inst.op, home, kept_before) {
            let fits = match src {
                Operand::Imm(v) => i32::try_from(*v).is_ok(),
                Operand::Reg(_) => true,
            };
            if fits {
                self.current.remove(&v.id);
                out.push(keep(home, *src, line));
                return;
            }
        }
        let t = self.temporary(cfg, v.id, home);
        if let Some(d) = inst.op.def_mut() {
            *d = t;
        }
        out.push(inst);
        self.current.insert(v.id, t);
        if let (Some(home), false) = (home, kept_before) {
            out.push(keep(home, Operand::Reg(t), line));
        }
    }
}

fn keep(home: Slot, src: Operand, line: Option<u32>) -> Inst {
    Inst { op: Op::Store { size: Size::DW, base: Base::Slot(home), off: 0, src }, line }
}

/// The slot an operation reads or writes as a spill, if `first` is the first of the spill slots.
pub(crate) fn spill_access(op: &Op, first: u32) -> Option<(Slot, bool)> {
    match op {
        Op::Load { base: Base::Slot(s), .. } if s.id >= first => Some((*s, false)),
        Op::Store { base: Base::Slot(s), .. } if s.id >= first => Some((*s, true)),
        _ => None,
    }
}
