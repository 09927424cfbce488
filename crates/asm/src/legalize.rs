//! Operations → operations that the instruction set has.
//!
//! `Documentation/bpf/standardization/instruction-set.rst`: immediates and offsets are 32 and 16 bits; before version 4 of
//! the set there is no sign-extending move or load. The verifier refuses constant shift counts beyond the width and
//! constant zero divisors (`check_alu_op` in `kernel/bpf/verifier.c`).

use crate::cfg::{Cfg, Inst, Term};
use crate::ir::{Alu, Base, Op, Operand, Order, Reg, Size, Width};
use crate::{Cpu, Options};

/// Rewrites what no single instruction can do.
pub(crate) fn legalize(cfg: &mut Cfg, options: &Options) {
    for b in cfg.order.clone() {
        let insts = std::mem::take(&mut cfg.blocks[b].insts);
        let mut out = Out { cfg, cpu: options.cpu, insts: Vec::with_capacity(insts.len()), line: None };
        for inst in insts {
            out.line = inst.line;
            out.op(inst.op);
        }
        out.line = out.cfg.blocks[b].line;
        let mut term = out.cfg.blocks[b].term.clone();
        if let Term::Cond { b: v @ Operand::Imm(_), width, .. } = &mut term {
            *v = out.short(*v, *width);
        }
        let insts = out.insts;
        cfg.blocks[b].term = term;
        cfg.blocks[b].insts = insts;
    }
}

struct Out<'a> {
    cfg: &'a mut Cfg,
    cpu: Cpu,
    insts: Vec<Inst>,
    line: Option<u32>,
}

impl Out<'_> {
    fn push(&mut self, op: Op) {
        let line = self.line;
        self.insts.push(Inst { op, line });
    }

    fn in_reg(&mut self, o: Operand) -> Reg {
        match o {
            Operand::Reg(r) => r,
            imm => {
                let dst = self.cfg.fresh();
                self.push(Op::Mov { dst, src: imm });
                dst
            }
        }
    }

    /// The operand, in a register if it is a constant that does not fit an instruction.
    fn short(&mut self, o: Operand, width: Width) -> Operand {
        match o {
            Operand::Imm(v) if width == Width::W64 && i32::try_from(v).is_err() => {
                Operand::Reg(self.in_reg(o))
            }
            Operand::Imm(v) if width == Width::W32 => Operand::Imm(i64::from(v as i32)),
            o => o,
        }
    }

    fn shift(&mut self, op: Alu, a: Reg, by: u32) -> Reg {
        let dst = self.cfg.fresh();
        self.shift_to(op, dst, a, by);
        dst
    }

    fn shift_to(&mut self, op: Alu, dst: Reg, a: Reg, by: u32) {
        let (a, b) = (Operand::Reg(a), Operand::Imm(by.into()));
        self.push(Op::Alu { op, width: Width::W64, dst, a, b });
    }

    /// Brings an offset into 16 bits.
    fn address(&mut self, base: Base, off: i32) -> (Base, i32) {
        match base {
            Base::Reg(r) if i16::try_from(off).is_err() => {
                let dst = self.cfg.fresh();
                let (a, b) = (Operand::Reg(r), Operand::Imm(off.into()));
                self.push(Op::Alu { op: Alu::Add, width: Width::W64, dst, a, b });
                (Base::Reg(dst), 0)
            }
            _ => (base, off),
        }
    }

    fn extend(&mut self, signed: bool, size: Size, dst: Reg, a: Reg) {
        match (signed, size) {
            (_, Size::DW) => self.push(Op::Mov { dst, src: Operand::Reg(a) }),
            (false, Size::B | Size::H) => {
                let (a, b) = (Operand::Reg(a), Operand::Imm((1 << size.bits()) - 1));
                self.push(Op::Alu { op: Alu::And, width: Width::W64, dst, a, b });
            }
            (true, _) if self.cpu < Cpu::V4 => {
                let by = 64 - size.bits();
                let high = self.shift(Alu::Lsh, a, by);
                self.shift_to(Alu::Arsh, dst, high, by);
            }
            _ => self.push(Op::Ext { signed, size, dst, a }),
        }
    }

    fn op(&mut self, op: Op) {
        match op {
            Op::Alu { op, width, dst, a, b } => self.alu(op, width, dst, a, b),
            Op::Ext { signed, size, dst, a } => self.extend(signed, size, dst, a),
            Op::Bytes { order, size, dst, a } => {
                if size == Size::B || order == Order::Big && cfg!(target_endian = "big") {
                    self.extend(false, size, dst, a);
                } else {
                    self.push(op);
                }
            }
            Op::Load { signed, size, dst, base, off } => {
                let (base, off) = self.address(base, off);
                if signed && size != Size::DW && self.cpu < Cpu::V4 {
                    let raw = self.cfg.fresh();
                    self.push(Op::Load { signed: false, size, dst: raw, base, off });
                    self.extend(true, size, dst, raw);
                } else {
                    self.push(Op::Load { signed: signed && size != Size::DW, size, dst, base, off });
                }
            }
            Op::Store { size, base, off, src } => {
                let (base, off) = self.address(base, off);
                let width = if size == Size::DW { Width::W64 } else { Width::W32 };
                let src = self.short(src, width);
                self.push(Op::Store { size, base, off, src });
            }
            Op::AtomicAdd { size, base, off, src } => {
                let (base, off) = self.address(base, off);
                let src = Operand::Reg(self.in_reg(src));
                self.push(Op::AtomicAdd { size, base, off, src });
            }
            Op::FetchAdd { size, dst, base, off, src } => {
                let (base, off) = self.address(base, off);
                let src = Operand::Reg(self.in_reg(src));
                self.push(Op::FetchAdd { size, dst, base, off, src });
            }
            Op::Mov { .. } | Op::Neg { .. } | Op::Addr { .. } | Op::Call { .. } => self.push(op),
        }
    }

    fn alu(&mut self, op: Alu, width: Width, dst: Reg, a: Operand, b: Operand) {
        if b == Operand::Imm(0) && matches!(op, Alu::Div | Alu::Mod)
            || matches!(b, Operand::Imm(v) if width == Width::W32 && v as u32 == 0)
                && matches!(op, Alu::Div | Alu::Mod)
        {
            return match (op, width) {
                (Alu::Div, _) => self.push(Op::Mov { dst, src: Operand::Imm(0) }),
                (_, Width::W64) => self.push(Op::Mov { dst, src: a }),
                (_, Width::W32) => {
                    let a = self.in_reg(a);
                    self.extend(false, Size::W, dst, a);
                }
            };
        }
        let (a, b) = if op.commutes() && matches!(a, Operand::Imm(_)) { (b, a) } else { (a, b) };
        let a = self.in_reg(a);
        let b = match b {
            Operand::Imm(v) if op.is_shift() => Operand::Imm(v & if width == Width::W32 { 31 } else { 63 }),
            // The result would overwrite `b` before it is read.
            Operand::Reg(r) if r == dst && a != dst && !op.commutes() => {
                let copy = self.cfg.fresh();
                self.push(Op::Mov { dst: copy, src: b });
                Operand::Reg(copy)
            }
            b => self.short(b, width),
        };
        self.push(Op::Alu { op, width, dst, a: Operand::Reg(a), b });
    }
}
