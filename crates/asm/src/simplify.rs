//! What can be known before the program runs: constants, copies, slot addresses and dead results.
//!
//! Only registers written once are followed, so that no ordering has to be proved: where one is read, its single
//! writing has happened ([`crate::Error::Unassigned`] is raised before).

use crate::cfg::{Cfg, Term};
use crate::ir::{Addr, Alu, Arg, Base, Cmp, Op, Operand, Order, Reg, Size, SlotInfo, Width};
use crate::thread::thread_known;

/// Folds constants and copies into their readers and drops operations whose results are not read.
pub(crate) fn simplify(cfg: &mut Cfg) {
    // A branch that is decided leaves fewer writings and fewer ways, and so more known.
    for _ in 0..8 {
        let before = cfg.order.len();
        fold_known(cfg);
        cfg.layout();
        let changed = thread_known(cfg);
        cfg.layout();
        drop_unread(cfg);
        cfg.layout();
        if !changed && cfg.order.len() == before {
            break;
        }
    }
}

fn fold_known(cfg: &mut Cfg) {
    let mut facts = Facts::new(cfg);
    let mut slots = std::mem::take(&mut cfg.slots);
    for b in cfg.order.clone() {
        let block = &mut cfg.blocks[b];
        for inst in &mut block.insts {
            facts.rewrite(&mut inst.op, &mut slots);
            facts.learn(&inst.op);
        }
        facts.rewrite_term(&mut block.term);
    }
    cfg.slots = slots;
}

#[derive(Clone, Copy)]
enum Fact {
    Unknown,
    Is(Operand),
    Addr(Addr),
    /// The bits above this size are zero.
    Fits(Size),
}

struct Facts {
    /// Whether the register is written in one place only.
    once: Vec<bool>,
    known: Vec<Fact>,
}

impl Facts {
    fn new(cfg: &Cfg) -> Facts {
        let mut writes = vec![0u32; cfg.nregs as usize];
        for param in &cfg.params {
            writes[param.id as usize] += 1;
        }
        for b in &cfg.order {
            for def in cfg.blocks[*b].insts.iter().filter_map(|inst| inst.op.def()) {
                writes[def.id as usize] += 1;
            }
        }
        let once = writes.iter().map(|n| *n == 1).collect();
        Facts { once, known: vec![Fact::Unknown; cfg.nregs as usize] }
    }

    fn of(&self, r: Reg) -> Fact {
        self.known[r.id as usize]
    }

    fn learn(&mut self, op: &Op) {
        let Some(dst) = op.def().filter(|d| self.once[d.id as usize]) else { return };
        self.known[dst.id as usize] = match *op {
            Op::Mov { src: Operand::Reg(src), .. } if !self.once[src.id as usize] => Fact::Unknown,
            Op::Mov { src, .. } => Fact::Is(src),
            Op::Addr { addr, .. } => Fact::Addr(addr),
            Op::Load { signed: false, size, .. } => Fact::Fits(size),
            Op::Ext { signed: false, size, .. } | Op::Bytes { size, .. } => Fact::Fits(size),
            Op::Alu { width: Width::W32, .. } | Op::Neg { width: Width::W32, .. } => Fact::Fits(Size::W),
            _ => Fact::Unknown,
        };
    }

    /// The register this one is a copy of, or itself.
    fn copy(&self, r: Reg) -> Reg {
        match self.of(r) {
            Fact::Is(Operand::Reg(src)) => src,
            _ => r,
        }
    }

    fn operand(&self, o: Operand) -> Operand {
        match o {
            Operand::Reg(r) => match self.of(r) {
                Fact::Is(value) => value,
                _ => o,
            },
            imm => imm,
        }
    }

    /// As `operand`, but a constant only if an instruction of that width can hold it.
    fn short_operand(&self, o: Operand, width: Width) -> Operand {
        match (o, self.operand(o)) {
            (Operand::Reg(_), Operand::Imm(v)) if width == Width::W64 && i32::try_from(v).is_err() => o,
            (_, new) => new,
        }
    }

    fn base(&self, base: &mut Base, off: &mut i32, size: Size, slots: &mut [SlotInfo]) {
        let Base::Reg(r) = *base else { return };
        match self.of(r) {
            Fact::Is(Operand::Reg(src)) => *base = Base::Reg(src),
            Fact::Addr(Addr::Slot(slot, at)) => {
                let info = &mut slots[slot.id as usize];
                let (Some(sum), bytes) = (at.checked_add(*off), size.bytes()) else { return };
                let inside = u32::try_from(sum)
                    .is_ok_and(|o| o.is_multiple_of(bytes) && o.saturating_add(bytes) <= info.size);
                if inside {
                    info.align = info.align.max(bytes);
                    (*base, *off) = (Base::Slot(slot), sum);
                }
            }
            _ => {}
        }
    }

    fn rewrite(&self, op: &mut Op, slots: &mut [SlotInfo]) {
        match op {
            Op::Mov { dst, src } => {
                *src = self.operand(*src);
                if let Operand::Reg(r) = *src
                    && let Fact::Addr(addr) = self.of(r)
                {
                    *op = Op::Addr { dst: *dst, addr };
                }
            }
            Op::Alu { op: alu, width, dst, a, b } => {
                let folded = self.alu(*alu, *width, *dst, a, b);
                if let Some(folded) = folded {
                    *op = folded;
                }
            }
            Op::Neg { width, dst, a } => {
                *a = self.copy(*a);
                if let Operand::Imm(v) = self.operand(Operand::Reg(*a)) {
                    let v = fold(Alu::Sub, *width, 0, v);
                    *op = Op::Mov { dst: *dst, src: Operand::Imm(v) };
                }
            }
            Op::Ext { signed, size, dst, a } => {
                *a = self.copy(*a);
                let src = match (self.operand(Operand::Reg(*a)), self.of(*a)) {
                    (Operand::Imm(v), _) => Some(Operand::Imm(extend(v, *signed, *size))),
                    (same, Fact::Fits(s)) if s < *size || s == *size && !*signed => Some(same),
                    (same, _) if *size == Size::DW => Some(same),
                    _ => None,
                };
                if let Some(src) = src {
                    *op = Op::Mov { dst: *dst, src };
                }
            }
            Op::Bytes { order, size, dst, a } => {
                *a = self.copy(*a);
                if let Operand::Imm(v) = self.operand(Operand::Reg(*a)) {
                    let src = Operand::Imm(reorder(v, *order, *size));
                    *op = Op::Mov { dst: *dst, src };
                }
            }
            Op::Load { base, off, size, .. } => self.base(base, off, *size, slots),
            Op::Store { base, off, size, src } => {
                self.base(base, off, *size, slots);
                let width = if *size == Size::DW { Width::W64 } else { Width::W32 };
                *src = self.short_operand(*src, width);
            }
            Op::AtomicAdd { base, off, size, src } | Op::FetchAdd { base, off, size, src, .. } => {
                self.base(base, off, *size, slots);
                if let Operand::Reg(r) = src {
                    *r = self.copy(*r);
                }
            }
            Op::Addr { .. } => {}
            Op::Call { args, .. } => args.iter_mut().for_each(|arg| self.arg(arg)),
        }
    }

    fn arg(&self, arg: &mut Arg) {
        let (r, off) = match *arg {
            Arg::Reg(r) => (r, 0),
            Arg::Offset(r, off) => (r, off),
            _ => return,
        };
        match self.of(r) {
            Fact::Is(Operand::Imm(v)) => *arg = Arg::Imm(v.wrapping_add(off.into())),
            Fact::Is(Operand::Reg(r)) if off == 0 => *arg = Arg::Reg(r),
            Fact::Is(Operand::Reg(r)) => *arg = Arg::Offset(r, off),
            Fact::Addr(Addr::Slot(slot, at)) => {
                if let Some(off) = at.checked_add(off) {
                    *arg = Arg::SlotAddr(slot, off);
                }
            }
            Fact::Addr(Addr::MapValue(map, at)) => {
                if let Some(at) = at.checked_add_signed(off) {
                    *arg = Arg::MapValue(map, at);
                }
            }
            Fact::Addr(Addr::Map(map)) if off == 0 => *arg = Arg::Map(map),
            Fact::Addr(Addr::Sub(sub)) if off == 0 => *arg = Arg::Sub(sub),
            _ => {}
        }
    }

    /// Simplifies the operands, and gives what the operation comes down to if it is less than an operation.
    fn alu(&self, op: Alu, width: Width, dst: Reg, a: &mut Operand, b: &mut Operand) -> Option<Op> {
        let (full_a, full_b) = (self.operand(*a), self.operand(*b));
        if let (Operand::Imm(x), Operand::Imm(y)) = (full_a, full_b) {
            return Some(Op::Mov { dst, src: Operand::Imm(fold(op, width, x, y)) });
        }
        *a = self.short_operand(*a, width);
        *b = self.short_operand(*b, width);
        if matches!(a, Operand::Imm(_)) && op.commutes() {
            std::mem::swap(a, b);
        }
        // A slot's address plus a constant is another address.
        if let (Operand::Reg(r), Operand::Imm(v)) = (*a, *b)
            && width == Width::W64
            && matches!(op, Alu::Add | Alu::Sub)
            && let Fact::Addr(addr) = self.of(r)
            && let Ok(v) = i32::try_from(if op == Alu::Add { v } else { v.wrapping_neg() })
        {
            let moved = match addr {
                Addr::Slot(slot, at) => at.checked_add(v).map(|at| Addr::Slot(slot, at)),
                Addr::MapValue(map, at) => at.checked_add_signed(v).map(|at| Addr::MapValue(map, at)),
                _ => None,
            };
            if let Some(addr) = moved {
                return Some(Op::Addr { dst, addr });
            }
        }
        let Operand::Imm(y) = *b else { return None };
        if width == Width::W64 {
            let nothing = match op {
                Alu::Add | Alu::Sub | Alu::Or | Alu::Xor => y == 0,
                Alu::Lsh | Alu::Rsh | Alu::Arsh => y & 63 == 0,
                Alu::Mul | Alu::Div => y == 1,
                Alu::And => y == -1,
                Alu::Mod => y == 0,
            };
            if nothing {
                return Some(Op::Mov { dst, src: *a });
            }
        }
        let y = if width == Width::W32 { y.cast_unsigned() & 0xffff_ffff } else { y.cast_unsigned() };
        if y.is_power_of_two() {
            let log = Operand::Imm(y.trailing_zeros().into());
            let mask = Operand::Imm((y - 1).cast_signed());
            let (op, b) = match op {
                Alu::Mul => (Alu::Lsh, log),
                Alu::Div => (Alu::Rsh, log),
                Alu::Mod if width == Width::W32 || i32::try_from(y - 1).is_ok() => (Alu::And, mask),
                _ => return None,
            };
            return Some(Op::Alu { op, width, dst, a: *a, b });
        }
        None
    }

    fn rewrite_term(&self, term: &mut Term) {
        match term {
            Term::Jump(_) => {}
            Term::Ret(v) => *v = self.operand(*v),
            Term::Cond { cmp, width, a, b, yes, no, .. } => {
                let (full_a, full_b) = (self.operand(Operand::Reg(*a)), self.operand(*b));
                match (full_a, full_b) {
                    (Operand::Imm(x), Operand::Imm(y)) => {
                        *term = Term::Jump(if holds(*cmp, *width, x, y) { *yes } else { *no });
                        return;
                    }
                    (Operand::Imm(_), Operand::Reg(r)) => {
                        *cmp = cmp.mirror();
                        (*a, *b) = (r, Operand::Reg(*a));
                    }
                    (Operand::Reg(r), full) => {
                        *a = r;
                        if full == full_a && *cmp != Cmp::Set {
                            *term = Term::Jump(if holds(*cmp, *width, 0, 0) { *yes } else { *no });
                            return;
                        }
                    }
                }
                *b = self.short_operand(*b, *width);
            }
        }
    }
}

/// Drops operations without effect whose results nobody reads anywhere, and moves of a register to itself.
fn drop_unread(cfg: &mut Cfg) {
    let mut reads = vec![0u32; cfg.nregs as usize];
    for b in &cfg.order {
        cfg.blocks[*b].term.uses(|r| reads[r.id as usize] += 1);
        for inst in &cfg.blocks[*b].insts {
            inst.op.uses(|r| reads[r.id as usize] += 1);
        }
    }
    let mut changed = true;
    while changed {
        changed = false;
        for b in cfg.order.iter().rev() {
            let insts = std::mem::take(&mut cfg.blocks[*b].insts);
            let mut kept = Vec::with_capacity(insts.len());
            for inst in insts.into_iter().rev() {
                let dead = inst.op.is_pure() && inst.op.def().is_some_and(|d| reads[d.id as usize] == 0)
                    || matches!(inst.op, Op::Mov { dst, src: Operand::Reg(src) } if dst == src);
                if dead {
                    inst.op.uses(|r| reads[r.id as usize] -= 1);
                    changed = true;
                } else {
                    kept.push(inst);
                }
            }
            kept.reverse();
            cfg.blocks[*b].insts = kept;
        }
    }
}

/// An operation on constants.
fn fold(op: Alu, width: Width, a: i64, b: i64) -> i64 {
    match width {
        Width::W64 => {
            let (x, y) = (a.cast_unsigned(), b.cast_unsigned());
            let v = match op {
                Alu::Add => x.wrapping_add(y),
                Alu::Sub => x.wrapping_sub(y),
                Alu::Mul => x.wrapping_mul(y),
                Alu::Div => x.checked_div(y).unwrap_or(0),
                Alu::Mod => x.checked_rem(y).unwrap_or(x),
                Alu::Or => x | y,
                Alu::And => x & y,
                Alu::Xor => x ^ y,
                Alu::Lsh => x.wrapping_shl(y as u32),
                Alu::Rsh => x.wrapping_shr(y as u32),
                Alu::Arsh => a.wrapping_shr(y as u32).cast_unsigned(),
            };
            v.cast_signed()
        }
        Width::W32 => {
            let (x, y) = (a as u32, b as u32);
            let v = match op {
                Alu::Add => x.wrapping_add(y),
                Alu::Sub => x.wrapping_sub(y),
                Alu::Mul => x.wrapping_mul(y),
                Alu::Div => x.checked_div(y).unwrap_or(0),
                Alu::Mod => x.checked_rem(y).unwrap_or(x),
                Alu::Or => x | y,
                Alu::And => x & y,
                Alu::Xor => x ^ y,
                Alu::Lsh => x.wrapping_shl(y),
                Alu::Rsh => x.wrapping_shr(y),
                Alu::Arsh => x.cast_signed().wrapping_shr(y).cast_unsigned(),
            };
            v.into()
        }
    }
}

fn extend(v: i64, signed: bool, size: Size) -> i64 {
    let unused = 64 - size.bits();
    if signed { v << unused >> unused } else { (v.cast_unsigned() << unused >> unused).cast_signed() }
}

fn reorder(v: i64, order: Order, size: Size) -> i64 {
    let low = extend(v, false, size).cast_unsigned();
    if order == Order::Big && cfg!(target_endian = "big") {
        return low.cast_signed();
    }
    (low.swap_bytes() >> (64 - size.bits())).cast_signed()
}

pub(crate) fn holds(cmp: Cmp, width: Width, a: i64, b: i64) -> bool {
    let (a, b) = match width {
        Width::W64 => (a, b),
        Width::W32 => (i64::from(a as i32), i64::from(b as i32)),
    };
    // Sign extension keeps the unsigned order of 32-bit numbers.
    let (x, y) = (a.cast_unsigned(), b.cast_unsigned());
    match cmp {
        Cmp::Eq => x == y,
        Cmp::Ne => x != y,
        Cmp::Gt => x > y,
        Cmp::Ge => x >= y,
        Cmp::Lt => x < y,
        Cmp::Le => x <= y,
        Cmp::SGt => a > b,
        Cmp::SGe => a >= b,
        Cmp::SLt => a < b,
        Cmp::SLe => a <= b,
        Cmp::Set => x & y != 0,
    }
}
