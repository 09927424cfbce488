//! What operators do to numbers. The evaluator computes by it, constants are folded by it, and programs must agree.

use crate::tree::BinaryOp;
use crate::types::IntTy;

/// `a op b`, both wrapped to `ty`; the result is too. Of shifts `b` has any type, and counts modulo the width.
pub(crate) fn binary(op: BinaryOp, ty: IntTy, a: u64, b: u64) -> u64 {
    let (sa, sb) = (a.cast_signed(), b.cast_signed());
    let count = (b & (u64::from(ty.size) * 8 - 1)) as u32;
    let result = match op {
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div if b == 0 => 0,
        BinaryOp::Div if ty.signed => sa.wrapping_div(sb).cast_unsigned(),
        BinaryOp::Div => a / b,
        BinaryOp::Mod if b == 0 => a,
        BinaryOp::Mod if ty.signed => sa.wrapping_rem(sb).cast_unsigned(),
        BinaryOp::Mod => a % b,
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Shl => a << count,
        BinaryOp::Shr if ty.signed => (sa >> count).cast_unsigned(),
        BinaryOp::Shr => a >> count,
        BinaryOp::And => a & b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Or => a | b,
        comparison => u64::from(compare(comparison, ty, a, b)),
    };
    ty.wrap(result)
}

/// Whether `a op b` holds.
pub(crate) fn compare(op: BinaryOp, ty: IntTy, a: u64, b: u64) -> bool {
    let order = if ty.signed { a.cast_signed().cmp(&b.cast_signed()) } else { a.cmp(&b) };
    match op {
        BinaryOp::Lt => order.is_lt(),
        BinaryOp::Le => order.is_le(),
        BinaryOp::Gt => order.is_gt(),
        BinaryOp::Ge => order.is_ge(),
        BinaryOp::Eq => order.is_eq(),
        BinaryOp::Ne => order.is_ne(),
        BinaryOp::LogicalAnd => a != 0 && b != 0,
        BinaryOp::LogicalOr => a != 0 || b != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const I: IntTy = IntTy::INT;
    const MIN: u64 = (i32::MIN as i64) as u64;

    #[test]
    fn edges_are_defined() {
        assert_eq!(binary(BinaryOp::Div, I, MIN, u64::MAX), MIN);
        assert_eq!(binary(BinaryOp::Mod, I, MIN, u64::MAX), 0);
        assert_eq!(binary(BinaryOp::Div, I, 5, 0), 0);
        assert_eq!(binary(BinaryOp::Mod, I, 5, 0), 5);
        assert_eq!(binary(BinaryOp::Div, IntTy::LONG, 1 << 63, u64::MAX), 1 << 63);
        assert_eq!(binary(BinaryOp::Div, I, (-7i64) as u64, 2), (-3i64) as u64);
        assert_eq!(binary(BinaryOp::Mod, I, (-7i64) as u64, 2), u64::MAX);
        assert_eq!(binary(BinaryOp::Shl, I, 1, 33), 2);
        assert_eq!(binary(BinaryOp::Shl, I, 1, 31), MIN);
        assert_eq!(binary(BinaryOp::Shr, I, MIN, 31), u64::MAX);
        assert_eq!(binary(BinaryOp::Shr, IntTy::UINT, 1 << 31, 31), 1);
        assert_eq!(binary(BinaryOp::Add, IntTy::UINT, u32::MAX.into(), 1), 0);
        assert!(compare(BinaryOp::Lt, I, u64::MAX, 0) && !compare(BinaryOp::Lt, IntTy::ULONG, u64::MAX, 0));
    }
}
