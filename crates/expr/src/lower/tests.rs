//! Tests as jumps.

use super::{Compiler, Fail};
use crate::error::Span;
use crate::tree::{BinaryOp, Expr, Kind, Test};
use crate::types::IntTy;
use asm::{Cmp, Func, Operand, Width};

impl Compiler<'_> {
    /// Goes on where the test holds, and to `no` where it does not.
    pub(super) fn unless(&mut self, f: &mut Func<'_>, test: &Test, no: Fail) {
        match test {
            Test::Compare(op, a, b) => self.compare(f, *op, a, b, no, no, false),
            Test::Truth(value) => self.truth(f, value, no, no, false),
            Test::In(value, list) => self.any_of(f, value, list, no),
            Test::Text { text, any_of, negated } => self.text_is(f, text, any_of, *negated, no),
            Test::Bytes { pointer, wanted, negated } => self.bytes_are(f, pointer, wanted, *negated, no),
            Test::Not(test) => self.when(f, test, no),
            Test::And(a, b) => {
                self.unless(f, a, no);
                self.unless(f, b, no);
            }
            Test::Or(a, b) => self.block(f, |this, f, done| {
                this.block(f, |this, f, next| {
                    this.unless(f, a, Fail::Leave(next));
                    f.leave(done);
                });
                this.unless(f, b, no);
            }),
        }
    }

    /// Goes to `yes` where the test holds, and on where it does not.
    fn when(&mut self, f: &mut Func<'_>, test: &Test, yes: Fail) {
        match test {
            Test::Compare(op, a, b) => self.block(f, |this, f, on| {
                this.compare(f, *op, a, b, yes, Fail::Leave(on), true);
            }),
            Test::Truth(value) => self.block(f, |this, f, on| {
                this.truth(f, value, yes, Fail::Leave(on), true);
            }),
            Test::Not(test) => self.unless(f, test, yes),
            Test::Or(a, b) => {
                self.when(f, a, yes);
                self.when(f, b, yes);
            }
            test => self.block(f, |this, f, on| {
                this.unless(f, test, Fail::Leave(on));
                yes.leave(f, Span::default());
            }),
        }
    }

    /// Goes to `to` where the comparison holds (`when`) or does not; to `fail` where it cannot be made.
    #[allow(clippy::too_many_arguments)]
    fn compare(
        &mut self,
        f: &mut Func<'_>,
        op: BinaryOp,
        a: &Expr,
        b: &Expr,
        to: Fail,
        fail: Fail,
        when: bool,
    ) {
        let ty = a.word();
        // Whether a pointer is NULL can be asked of one that the verifier follows.
        if let (BinaryOp::Eq | BinaryOp::Ne, Kind::Const(0)) = (op, &b.kind)
            && self.is_typed(a)
        {
            return self.truth(f, a, to, fail, when == (op == BinaryOp::Ne));
        }
        self.note(f, a.span.to(b.span));
        let (left, right) = (self.value(f, a, fail), self.value(f, b, fail));
        let op = comparison(op, ty);
        // The constant second.
        let (op, (left, x), (right, y)) = match left.is {
            Operand::Imm(_) => (mirrored(op), (right, b), (left, a)),
            Operand::Reg(_) => (op, (left, a), (right, b)),
        };
        let (reg, width) = self.comparable(f, left, x.word());
        let other = if width == Width::W64 { self.widen(f, right, y.word()) } else { right.is };
        let op = if when { op } else { inverse(op) };
        f.if_(op, width, reg, other, |f| to.leave(f, Span::default()));
    }

    /// Goes to `to` where the value is not 0 (`when`) or is; to `fail` where it cannot be had.
    fn truth(&mut self, f: &mut Func<'_>, e: &Expr, to: Fail, fail: Fail, when: bool) {
        self.note(f, e.span);
        let (reg, width) = if self.is_typed(e) {
            (self.typed_pointer(f, e, fail), Width::W64)
        } else {
            let value = self.value(f, e, fail);
            self.comparable(f, value, e.word())
        };
        let op = if when { Cmp::Ne } else { Cmp::Eq };
        f.if_(op, width, reg, 0, |f| to.leave(f, Span::default()));
    }

    fn any_of(&mut self, f: &mut Func<'_>, value: &Expr, list: &[Expr], no: Fail) {
        self.note(f, value.span);
        let ty = value.word();
        let value = self.value(f, value, no);
        let (reg, width) = self.comparable(f, value, ty);
        self.block(f, |this, f, found| {
            for item in list {
                // One that cannot be had is not it; the next may be.
                this.block(f, |this, f, next| {
                    let other = this.value(f, item, Fail::Leave(next));
                    let other =
                        if width == Width::W64 { this.widen(f, other, item.word()) } else { other.is };
                    f.if_(Cmp::Eq, width, reg, other, |f| f.leave(found));
                });
            }
            no.leave(f, Span::default());
        });
    }
}

fn comparison(op: BinaryOp, ty: IntTy) -> Cmp {
    match (op, ty.signed) {
        (BinaryOp::Lt, true) => Cmp::SLt,
        (BinaryOp::Lt, false) => Cmp::Lt,
        (BinaryOp::Le, true) => Cmp::SLe,
        (BinaryOp::Le, false) => Cmp::Le,
        (BinaryOp::Gt, true) => Cmp::SGt,
        (BinaryOp::Gt, false) => Cmp::Gt,
        (BinaryOp::Ge, true) => Cmp::SGe,
        (BinaryOp::Ge, false) => Cmp::Ge,
        (BinaryOp::Ne, _) => Cmp::Ne,
        _ => Cmp::Eq,
    }
}

/// What holds of `b, a` when this holds of `a, b`.
fn mirrored(op: Cmp) -> Cmp {
    match op {
        Cmp::SLt => Cmp::SGt,
        Cmp::Lt => Cmp::Gt,
        Cmp::SLe => Cmp::SGe,
        Cmp::Le => Cmp::Ge,
        Cmp::SGt => Cmp::SLt,
        Cmp::Gt => Cmp::Lt,
        Cmp::SGe => Cmp::SLe,
        Cmp::Ge => Cmp::Le,
        same => same,
    }
}

/// What holds when this does not.
fn inverse(op: Cmp) -> Cmp {
    match op {
        Cmp::Eq => Cmp::Ne,
        Cmp::Ne => Cmp::Eq,
        Cmp::SLt => Cmp::SGe,
        Cmp::Lt => Cmp::Ge,
        Cmp::SLe => Cmp::SGt,
        Cmp::Le => Cmp::Gt,
        Cmp::SGt => Cmp::SLe,
        Cmp::Gt => Cmp::Le,
        Cmp::SGe => Cmp::SLt,
        Cmp::Ge => Cmp::Lt,
        Cmp::Set => Cmp::Set,
    }
}
