//! Operators of numbers and pointers.

use super::{Checker, Item, fold};
use crate::ast::{BinaryOp, Node, TypeName, UnaryOp};
use crate::error::{Error, Span};
use crate::tree::{Expr, Kind, Test};
use crate::types::{IntTy, Ty};

/// A value brought to a type.
pub(crate) fn convert(value: Expr, ty: Ty) -> Expr {
    let (from, to) = (value.ty.clone(), ty.word().unwrap_or(IntTy::ULONG));
    let span = value.span;
    if let Kind::Const(number) = value.kind {
        let number = if ty == Ty::Bool { u64::from(number != 0) } else { number };
        return Expr::constant(number, ty, span);
    }
    // A byte of a `_Bool` may hold anything, and a test of it tells.
    let same = from.word() == Some(to) && (ty != Ty::Bool || from == Ty::Bool);
    // What has become a pointer to something else is none that the verifier could follow.
    let other = matches!(ty, Ty::Ptr(_)) && from != ty && !matches!(value.kind, Kind::Address(_));
    if same && !other {
        return Expr { ty, spelled: None, ..value };
    }
    Expr { kind: Kind::Convert(Box::new(value)), ty, spelled: None, span }
}

/// The type that an operator sees: of bit-fields what their values fit, else C's promotions.
fn promoted(value: &Expr) -> IntTy {
    if let Kind::Load(place) = &value.kind
        && let (Some(bits), Some(int)) = (place.bits, place.ty.int())
    {
        return match bits.size {
            ..32 => IntTy::INT,
            32 => IntTy { size: 4, signed: int.signed },
            _ => int.promoted(),
        };
    }
    value.word().promoted()
}

/// `a op b` of numbers of one type, computed now if both are constants.
fn arithmetic(op: BinaryOp, a: Expr, b: Expr, ty: IntTy, span: Span) -> Expr {
    if let (Kind::Const(x), Kind::Const(y)) = (&a.kind, &b.kind) {
        return Expr::constant(fold::binary(op, ty, *x, *y), Ty::Int(ty), span);
    }
    Expr { kind: Kind::Binary(op, Box::new(a), Box::new(b)), ty: Ty::Int(ty), spelled: None, span }
}

impl Checker<'_> {
    /// An integer, for operators that take no pointer.
    pub(super) fn integer(&self, node: &Node) -> Result<Expr, Error> {
        let value = self.value(node)?;
        match value.ty.int() {
            Some(_) => Ok(value),
            None => {
                let what = self.a(&value.ty);
                Err(Error::new(node.span, format!("an integer is expected; this is {what}")))
            }
        }
    }

    pub(super) fn unary(&self, op: UnaryOp, of: &Node, span: Span) -> Result<Item, Error> {
        let value = self.integer(of)?;
        let ty = promoted(&value);
        let value = convert(value, Ty::Int(ty));
        let kind = match (op, &value.kind) {
            (UnaryOp::Plus, _) => return Ok(Item::Value(Expr { span, ..value })),
            (UnaryOp::Neg, Kind::Const(n)) => {
                return Ok(Item::Value(Expr::constant(n.wrapping_neg(), Ty::Int(ty), span)));
            }
            (UnaryOp::BitNot, Kind::Const(n)) => {
                return Ok(Item::Value(Expr::constant(!n, Ty::Int(ty), span)));
            }
            (UnaryOp::Neg, _) => Kind::Neg(Box::new(value)),
            _ => Kind::BitNot(Box::new(value)),
        };
        Ok(Item::Value(Expr { kind, ty: Ty::Int(ty), spelled: None, span }))
    }

    pub(super) fn binary(&self, op: BinaryOp, a: &Node, b: &Node, span: Span) -> Result<Item, Error> {
        let (left, right) = if matches!(op, BinaryOp::Add | BinaryOp::Sub) {
            let (left, right) = (self.value(a)?, self.value(b)?);
            if matches!(left.ty, Ty::Ptr(_)) || matches!(right.ty, Ty::Ptr(_)) {
                return self.pointer_arithmetic(op, left, right, span).map(Item::Value);
            }
            (left, right)
        } else {
            (self.integer(a)?, self.integer(b)?)
        };
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) {
            let (ty, count) = (promoted(&left), promoted(&right));
            let (left, right) = (convert(left, Ty::Int(ty)), convert(right, Ty::Int(count)));
            return Ok(Item::Value(arithmetic(op, left, right, ty, span)));
        }
        let ty = promoted(&left).common(promoted(&right));
        let (left, right) = (convert(left, Ty::Int(ty)), convert(right, Ty::Int(ty)));
        Ok(Item::Value(arithmetic(op, left, right, ty, span)))
    }

    /// `p + i`, `i + p`, `p - i`, `p - q`.
    fn pointer_arithmetic(&self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Result<Expr, Error> {
        let add = op == BinaryOp::Add;
        match (&a.ty, &b.ty) {
            (Ty::Ptr(to), Ty::Ptr(of)) if !add => {
                if to != of {
                    let (to, of) = (self.a(&a.ty), self.a(&b.ty));
                    let message = format!("{of} is subtracted from {to}: cast one to the other's type");
                    return Err(Error::new(span, message));
                }
                let size = self.stride(&a.ty, a.span)?;
                let kind = Kind::PtrDiff { a: Box::new(a), b: Box::new(b), size };
                Ok(Expr { kind, ty: Ty::Int(IntTy::LONG), spelled: None, span })
            }
            (Ty::Ptr(_), Ty::Ptr(_)) => Err(Error::new(span, "two pointers cannot be added")),
            (Ty::Ptr(_), _) => self.offset(a, b, !add, span),
            _ if add => self.offset(b, a, false, span),
            _ => Err(Error::new(span, "a pointer cannot be subtracted from a number")),
        }
    }

    /// Bytes from what a pointer points to to the next; of `void *` 1, as gcc has it.
    fn stride(&self, ty: &Ty, span: Span) -> Result<u64, Error> {
        let Ty::Ptr(to) = ty else { return Ok(1) };
        match (&**to, self.scope.types.size(to)) {
            (Ty::Void | Ty::Func(_), _) => Ok(1),
            (_, Some(size)) => Ok(size),
            (_, None) => Err(Error::new(span, format!("{} has no size", self.name_of(to)))),
        }
    }

    /// A pointer moved by an index.
    pub(super) fn offset(&self, pointer: Expr, index: Expr, minus: bool, span: Span) -> Result<Expr, Error> {
        let size = self.stride(&pointer.ty, pointer.span)?;
        if index.ty.int().is_none() {
            return Err(Error::new(index.span, "an index is an integer"));
        }
        let (ty, wide) = (pointer.ty.clone(), IntTy { size: 8, signed: promoted(&index).signed });
        let index = convert(index, Ty::Int(wide));
        if let (Kind::Const(base), Kind::Const(n)) = (&pointer.kind, &index.kind) {
            let by = n.wrapping_mul(size);
            let moved = if minus { base.wrapping_sub(by) } else { base.wrapping_add(by) };
            return Ok(Expr::constant(moved, ty, span));
        }
        let kind = Kind::PtrAdd { pointer: Box::new(pointer), index: Box::new(index), size, minus };
        Ok(Expr { kind, ty, spelled: None, span })
    }

    pub(super) fn comparison(&self, op: BinaryOp, a: &Node, b: &Node, span: Span) -> Result<Test, Error> {
        if let Some(test) = self.text_comparison(op, a, b, span)? {
            return Ok(test);
        }
        let (left, right) = (self.value(a)?, self.value(b)?);
        self.never_the_number(&left, &right)?;
        let ty = match (&left.ty, &right.ty) {
            (Ty::Ptr(_), _) | (_, Ty::Ptr(_)) => IntTy::ULONG,
            _ => promoted(&left).common(promoted(&right)),
        };
        Ok(Test::Compare(op, convert(left, Ty::Int(ty)), convert(right, Ty::Int(ty))))
    }

    /// Refuses a text and a number side by side: where a text lies is never at such a number.
    fn never_the_number(&self, a: &Expr, b: &Expr) -> Result<(), Error> {
        /// Nothing is mapped below (a page at least).
        const LEAST_ADDRESS: u64 = 4096;
        for (text, number) in [(a, b), (b, a)] {
            if !self.is_text(text) || number.ty.int().is_none() {
                continue;
            }
            let never = match (&text.kind, &number.kind) {
                // A cast of a number.
                (Kind::Const(_), _) => false,
                // An array is nowhere at NULL either, and no narrow number is an address.
                (Kind::Address(_), Kind::Const(n)) => *n < LEAST_ADDRESS,
                (Kind::Address(_), _) => number.word().size < 8,
                (_, Kind::Const(n)) => (1..LEAST_ADDRESS).contains(n),
                _ => false,
            };
            if never {
                let message = "this is a number, and what it is compared with a text: put it in quotes, or cast the text to \
                               (long), where it lies";
                return Err(Error::new(number.span, message));
            }
        }
        Ok(())
    }

    /// `value in (a, b)`: all of them are brought to one type.
    pub(super) fn in_list(&self, value: &Node, list: &[Node]) -> Result<Test, Error> {
        if let Some(test) = self.text_in_list(value, list)? {
            return Ok(test);
        }
        let value = self.value(value)?;
        let list: Vec<Expr> = list.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?;
        for item in &list {
            self.never_the_number(&value, item)?;
        }
        let all = || std::iter::once(&value).chain(&list);
        let ty = if all().any(|e| e.ty.int().is_none()) {
            IntTy::ULONG
        } else {
            all().map(promoted).fold(IntTy::INT, IntTy::common)
        };
        let list = list.into_iter().map(|item| convert(item, Ty::Int(ty))).collect();
        Ok(Test::In(convert(value, Ty::Int(ty)), list))
    }

    pub(super) fn cond(&self, test: &Node, a: &Node, b: &Node, span: Span) -> Result<Item, Error> {
        let test = self.test(test)?;
        let (a, b) = (self.value(a)?, self.value(b)?);
        let ty = match (&a.ty, &b.ty) {
            (x, y) if x == y && matches!(x, Ty::Ptr(_)) => x.clone(),
            (x @ Ty::Ptr(_), _) if is_null(&b) => x.clone(),
            (_, y @ Ty::Ptr(_)) if is_null(&a) => y.clone(),
            (Ty::Ptr(to), Ty::Ptr(of)) if **to == Ty::Void || **of == Ty::Void => Ty::Void.pointer(),
            (Ty::Ptr(_), _) | (_, Ty::Ptr(_)) => {
                let (x, y) = (self.a(&a.ty), self.a(&b.ty));
                return Err(Error::new(span, format!("one side is {x}, the other {y}")));
            }
            _ => Ty::Int(promoted(&a).common(promoted(&b))),
        };
        let (a, b) = (Box::new(convert(a, ty.clone())), Box::new(convert(b, ty.clone())));
        Ok(Item::Value(Expr { kind: Kind::Cond(Box::new(test), a, b), ty, spelled: None, span }))
    }

    pub(super) fn cast(&self, name: &TypeName, of: &Node, span: Span) -> Result<Item, Error> {
        let ty = self.type_of(name)?;
        if !ty.is_scalar() {
            let what = self.name_of(&ty);
            let hint = if matches!(ty, Ty::Composite(_)) {
                format!("; did you mean '{what} *'?")
            } else {
                String::new()
            };
            return Err(Error::new(name.span, format!("nothing can be cast to '{what}'{hint}")));
        }
        let mut cast = convert(self.value(of)?, ty);
        // Of a bit-field only the declared type is left: what its bits fit does not count any more.
        if matches!(&cast.kind, Kind::Load(place) if place.bits.is_some()) {
            let ty = cast.ty.clone();
            cast = Expr { kind: Kind::Convert(Box::new(cast)), ty, spelled: None, span };
        }
        Ok(Item::Value(Expr { span, ..cast }))
    }
}

fn is_null(value: &Expr) -> bool {
    matches!(value.kind, Kind::Const(0))
}
