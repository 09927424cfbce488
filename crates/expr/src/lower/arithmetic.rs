//! Operators of numbers.

use super::{Compiler, Fail, Value};
use crate::tree::{BinaryOp, Expr};
use crate::types::{IntTy, Ty};
use asm::{Alu, Cmp, Func, Operand, Reg, Size, Width};

impl Compiler<'_> {
    pub(super) fn binary(
        &mut self,
        f: &mut Func<'_>,
        op: BinaryOp,
        a: &Expr,
        b: &Expr,
        ty: IntTy,
        fail: Fail,
    ) -> Value {
        if ty.signed && matches!(op, BinaryOp::Div | BinaryOp::Mod) {
            let a = self.number(f, a, fail);
            let b = self.number(f, b, fail);
            let result = self.signed_division(f, a, b, op == BinaryOp::Mod);
            return if ty.size == 8 { Value::full(result) } else { Value::low(result) };
        }
        let (a, b) = (self.value(f, a, fail), self.value(f, b, fail));
        let op = match op {
            BinaryOp::Mul => Alu::Mul,
            BinaryOp::Div => Alu::Div,
            BinaryOp::Mod => Alu::Mod,
            BinaryOp::Add => Alu::Add,
            BinaryOp::Sub => Alu::Sub,
            BinaryOp::Shl => Alu::Lsh,
            BinaryOp::Shr if ty.signed => Alu::Arsh,
            BinaryOp::Shr => Alu::Rsh,
            BinaryOp::And => Alu::And,
            BinaryOp::Xor => Alu::Xor,
            _ => Alu::Or,
        };
        let shift = matches!(op, Alu::Lsh | Alu::Arsh | Alu::Rsh);
        self.of_width(ty, |width| {
            let b = if shift { count(f, b.is, width) } else { b.is };
            f.alu(op, width, a.is, b)
        })
    }

    /// `a / b` or `a % b` of numbers extended to 64 bits, by what BPF has had from its beginnings: division without signs.
    pub(super) fn signed_division(&self, f: &mut Func<'_>, a: Operand, b: Operand, rest: bool) -> Reg {
        let magnitude = |f: &mut Func<'_>, v: Operand| match v {
            Operand::Imm(n) => Operand::Imm(n.unsigned_abs().cast_signed()),
            Operand::Reg(reg) => {
                let size = f.var();
                f.assign(size, reg);
                f.if_(Cmp::SLt, Width::W64, reg, 0, |f| {
                    let minus = f.neg(Width::W64, reg);
                    f.assign(size, minus);
                });
                size.into()
            }
        };
        let (x, y) = (magnitude(f, a), magnitude(f, b));
        let result = f.var();
        let unsigned = f.alu(if rest { Alu::Mod } else { Alu::Div }, Width::W64, x, y);
        f.assign(result, unsigned);
        // A remainder has the sign of what was divided.
        let sign = match (rest, b) {
            (true, _) => a,
            (false, Operand::Imm(n)) if n >= 0 => a,
            (false, _) => f.alu(Alu::Xor, Width::W64, a, b).into(),
        };
        let sign = self.register(f, sign);
        f.if_(Cmp::SLt, Width::W64, sign, 0, |f| {
            let minus = f.neg(Width::W64, result);
            f.assign(result, minus);
        });
        result
    }

    /// A number of 64 bits times the size of something.
    pub(super) fn times(&self, f: &mut Func<'_>, index: Operand, size: u64) -> Operand {
        match (index, size) {
            (_, 1) => index,
            (Operand::Imm(n), _) => Operand::Imm(n.wrapping_mul(size.cast_signed())),
            _ if size.is_power_of_two() => {
                f.alu(Alu::Lsh, Width::W64, index, i64::from(size.trailing_zeros())).into()
            }
            _ => f.alu(Alu::Mul, Width::W64, index, size.cast_signed()).into(),
        }
    }

    pub(super) fn convert(&mut self, f: &mut Func<'_>, of: &Expr, to: &Ty, fail: Fail) -> Value {
        let value = self.value(f, of, fail);
        let (from, int) = (of.word(), to.word().unwrap_or(IntTy::ULONG));
        if *to == Ty::Bool {
            let result = f.var();
            f.assign(result, 0);
            let (reg, width) = self.comparable(f, value, from);
            f.if_(Cmp::Ne, width, reg, 0, |f| f.assign(result, 1));
            return Value::full(result);
        }
        match (int.size, value.is) {
            // Wrapped by its maker.
            (_, Operand::Imm(_)) => value,
            (8, _) => Value::full(self.widen(f, value, from)),
            (4, _) => Value { low: true, ..value },
            (size, Operand::Reg(reg)) => {
                let size = Size::of_bytes(size.into()).unwrap_or(Size::DW);
                Value::full(if int.signed { f.sext(reg, size) } else { f.zext(reg, size) })
            }
        }
    }

    /// A register and the width in which it can be compared.
    pub(super) fn comparable(&self, f: &mut Func<'_>, value: Value, ty: IntTy) -> (Reg, Width) {
        // Where the lower half alone is of the type, it is all that is looked at.
        let width = if value.low || ty.size == 4 { Width::W32 } else { Width::W64 };
        (self.register(f, value.is), width)
    }
}

/// A shift's count, modulo the width: of constants here, since the kernel refuses those that are too large.
fn count(f: &mut Func<'_>, count: Operand, width: Width) -> Operand {
    let bits = if width == Width::W64 { 63 } else { 31 };
    match count {
        Operand::Imm(n) => Operand::Imm(n & bits),
        Operand::Reg(reg) => f.alu(Alu::And, Width::W64, reg, bits).into(),
    }
}
