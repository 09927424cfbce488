//! Typed expressions → instructions.
//!
//! Three things are decided here. *How memory is read*: where the verifier knows a pointer's type and walks to the same member
//! ([`crate::tree::Place::plain`]) by a load, which the kernel guards; else by a probe read, several members of one object by one.
//! *What happens when it cannot be*: a test goes where it does not hold, an output says so in the record. *What is computed once*: what was
//! loaded stays in a register as far as every way from there comes by.
//!
//! Of numbers of 32 bits only the lower half of a register counts until an operation needs all of it, since half of BPF's operations
//! look no further.

mod arithmetic;
mod key;
mod memory;
mod output;
mod tests;
mod text;

use crate::error::Span;
use crate::status::Failure;
use crate::tree::{Base, Expr, Kind, Output, Place, Root, Test};
use crate::types::{IntTy, Ty};
use asm::{Alu, Func, Label, Operand, Reg, Size, Width};
pub(crate) use output::EINVAL;
pub use output::{CUT, Room, text_room};
use std::collections::HashMap;

/// Where a program finds what expressions name.
pub trait Source {
    /// Eight bytes of it, as a plain number: of what is passed by value those at `slot`.
    fn word(&self, f: &mut Func<'_>, root: Root, slot: u32) -> Reg;

    /// Whether the verifier knows its type and lets it be followed by loads: of pointers to structures only.
    fn typed(&self, root: Root) -> bool;

    /// The pointer as the verifier knows it; asked of those alone that are [`Source::typed`].
    fn pointer(&self, f: &mut Func<'_>, root: Root) -> Reg {
        self.word(f, root, 0)
    }

    /// A register that is 0 when the value is not known, if it may be so.
    fn known(&self, _f: &mut Func<'_>, _root: Root) -> Option<Reg> {
        None
    }

    /// Whether [`Source::word`] costs no more than keeping the value.
    fn cheap(&self, _root: Root) -> bool {
        false
    }
}

/// Names what follows, see [`Func::line`].
pub type Mark<'s> = &'s dyn Fn(&mut Func<'_>, &str);

/// Writes the instructions of a probe's expressions, one after another, so that they share what they read.
pub struct Compiler<'s> {
    source: &'s dyn Source,
    mark: Mark<'s>,
    text: String,
    /// What is in registers, as far as control flow goes.
    cache: Vec<(String, Value)>,
    /// What will be read relative to each pointer.
    foreseen: HashMap<String, Vec<Place>>,
}

/// Where a program goes when a value cannot be had.
#[derive(Clone, Copy)]
enum Fail {
    /// It returns this.
    Return(i64),
    /// To the end of this block.
    Leave(Label),
    /// There, after it has told why in the record.
    Record { record: Reg, at: i32, label: Label },
}

/// A number in a register, or a constant.
#[derive(Clone, Copy, Debug)]
struct Value {
    is: Operand,
    /// Only the lower 32 bits count, of which the type is.
    low: bool,
}

impl Value {
    fn full(is: impl Into<Operand>) -> Value {
        Value { is: is.into(), low: false }
    }

    fn low(is: impl Into<Operand>) -> Value {
        Value { is: is.into(), low: true }
    }
}

impl Fail {
    fn leave(self, f: &mut Func<'_>, span: Span) {
        match self {
            Fail::Return(value) => f.ret(value),
            Fail::Leave(label) => f.leave(label),
            Fail::Record { record, at, label } => {
                let word = f.imm(Failure::word(span).cast_signed());
                f.store(Size::DW, record, at, word);
                f.leave(label);
            }
        }
    }

    /// `status` is the negative error that a helper gave.
    fn fault(self, f: &mut Func<'_>, span: Span, status: Reg) {
        if let Fail::Record { record, at, label } = self {
            let errno = f.neg(Width::W64, status);
            let errno = f.alu(Alu::And, Width::W64, errno, 0xfff);
            let errno = f.alu(Alu::Lsh, Width::W64, errno, i64::from(Failure::ERRNO));
            let word = f.imm(Failure::word(span).cast_signed());
            let word = f.alu(Alu::Or, Width::W64, errno, word);
            f.store(Size::DW, record, at, word);
            return f.leave(label);
        }
        self.leave(f, span);
    }
}

impl<'s> Compiler<'s> {
    /// `mark` names what follows, in the verifier's log and in listings.
    pub fn new(source: &'s dyn Source, mark: Mark<'s>) -> Compiler<'s> {
        Compiler { source, mark, text: String::new(), cache: Vec::new(), foreseen: HashMap::new() }
    }

    /// Tells what will be compiled, so that what lies close together is read at once.
    pub fn foresee<'e>(
        &mut self,
        tests: impl IntoIterator<Item = &'e Test>,
        outputs: impl IntoIterator<Item = &'e Output>,
    ) {
        let foreseen = &mut self.foreseen;
        let mut each = |pointer: &Expr, place: &Place| {
            let places = foreseen.entry(key::of(pointer)).or_default();
            if !places.contains(place) {
                places.push(place.clone());
            }
        };
        for test in tests {
            key::loads_of_test(test, &mut each);
        }
        for output in outputs {
            key::loads_of_output(output, &mut each);
        }
    }

    /// Goes on only where all tests hold; else the program returns `otherwise`. `text` is what they were written as.
    pub fn require(&mut self, f: &mut Func<'_>, tests: &[Test], text: &str, otherwise: i64) {
        self.text = text.into();
        for test in tests {
            self.unless(f, test, Fail::Return(otherwise));
        }
    }

    /// The value, all 64 bits of it; goes to the end of the block where it cannot be had.
    pub fn value_or_leave(&mut self, f: &mut Func<'_>, value: &Expr, text: &str, label: Label) -> Operand {
        self.text = text.into();
        self.number(f, value, Fail::Leave(label))
    }

    /// Writes a block that what cannot be had leads to the end of. What is read there is not known behind it.
    pub fn attempt(&mut self, f: &mut Func<'_>, body: impl FnOnce(&mut Self, &mut Func<'_>, Label)) {
        self.block(f, body);
    }

    fn note(&self, f: &mut Func<'_>, span: Span) {
        (self.mark)(f, span.of(&self.text));
    }

    /// Writes a block of its own. What is loaded there is not known behind it.
    fn block(&mut self, f: &mut Func<'_>, body: impl FnOnce(&mut Self, &mut Func<'_>, Label)) {
        let known = self.cache.len();
        f.labelled(|f, label| body(self, f, label));
        self.cache.truncate(known);
    }

    fn cached(&self, key: &str) -> Option<Value> {
        self.cache.iter().rev().find(|(k, _)| k == key).map(|(_, value)| *value)
    }

    /// A number of 64 bits, extended from its type.
    fn number(&mut self, f: &mut Func<'_>, e: &Expr, fail: Fail) -> Operand {
        let value = self.value(f, e, fail);
        self.widen(f, value, e.word())
    }

    fn widen(&self, f: &mut Func<'_>, value: Value, ty: IntTy) -> Operand {
        match value {
            Value { is: Operand::Reg(reg), low: true } if ty.signed => f.sext(reg, Size::W).into(),
            Value { is: Operand::Reg(reg), low: true } => f.zext(reg, Size::W).into(),
            Value { is, .. } => is,
        }
    }

    fn register(&self, f: &mut Func<'_>, value: Operand) -> Reg {
        match value {
            Operand::Reg(reg) => reg,
            Operand::Imm(n) => f.imm(n),
        }
    }

    /// A number, of which the lower half alone may count.
    fn value(&mut self, f: &mut Func<'_>, e: &Expr, fail: Fail) -> Value {
        match &e.kind {
            Kind::Const(n) => Value::full(n.cast_signed()),
            Kind::Root(root) => self.root(f, *root, e, fail),
            Kind::Load(place) => self.load(f, place, fail),
            Kind::Address(place) => Value::full(self.address(f, place, fail)),
            Kind::Convert(of) => self.convert(f, of, &e.ty, fail),
            Kind::Neg(of) => {
                let value = self.value(f, of, fail);
                let reg = self.register(f, value.is);
                self.of_width(e.word(), |width| f.neg(width, reg))
            }
            Kind::BitNot(of) => {
                let value = self.value(f, of, fail);
                let reg = self.register(f, value.is);
                self.of_width(e.word(), |width| f.not(width, reg))
            }
            Kind::Binary(op, a, b) => self.binary(f, *op, a, b, e.word(), fail),
            Kind::PtrAdd { pointer, index, size, minus } => {
                let pointer = self.number(f, pointer, fail);
                let index = self.number(f, index, fail);
                let by = self.times(f, index, *size);
                let op = if *minus { Alu::Sub } else { Alu::Add };
                Value::full(f.alu(op, Width::W64, pointer, by))
            }
            Kind::PtrDiff { a, b, size } => {
                let a = self.number(f, a, fail);
                let b = self.number(f, b, fail);
                let bytes = f.alu(Alu::Sub, Width::W64, a, b);
                let size = Operand::Imm(size.cast_signed());
                Value::full(self.signed_division(f, bytes.into(), size, false))
            }
            Kind::Swap(bytes, of) => {
                let value = self.value(f, of, fail);
                let reg = self.register(f, value.is);
                Value::full(f.to_be(reg, Size::of_bytes((*bytes).into()).unwrap_or(Size::DW)))
            }
            Kind::Test(test) => {
                let result = f.var();
                f.assign(result, 0);
                self.block(f, |this, f, no| {
                    this.unless(f, test, Fail::Leave(no));
                    f.assign(result, 1);
                });
                Value::full(result)
            }
            Kind::Cond(test, a, b) => {
                let result = f.var();
                self.block(f, |this, f, done| {
                    this.block(f, |this, f, no| {
                        this.unless(f, test, Fail::Leave(no));
                        let value = this.number(f, a, fail);
                        f.assign(result, value);
                        f.leave(done);
                    });
                    let value = this.number(f, b, fail);
                    f.assign(result, value);
                });
                Value::full(result)
            }
        }
    }

    /// What an operation of a type's width gives: of 32 bits the lower half counts.
    fn of_width(&self, ty: IntTy, operation: impl FnOnce(Width) -> Reg) -> Value {
        if ty.size == 8 { Value::full(operation(Width::W64)) } else { Value::low(operation(Width::W32)) }
    }

    fn root(&mut self, f: &mut Func<'_>, root: Root, e: &Expr, fail: Fail) -> Value {
        let key = key::of_root(root);
        if let Some(value) = self.cached(&key) {
            return value;
        }
        if let Some(known) = self.source.known(f, root) {
            f.if_unlikely(asm::Cmp::Eq, Width::W64, known, 0, |f| fail.leave(f, e.span));
        }
        let word = self.source.word(f, root, 0);
        // A register may hold anything above its argument.
        let value = self.trimmed(f, word, &e.ty);
        if !self.source.cheap(root) {
            self.cache.push((key, value));
        }
        value
    }

    /// The lower bytes of a register as a number of a type.
    fn trimmed(&self, f: &mut Func<'_>, word: Reg, ty: &Ty) -> Value {
        let int = ty.word().unwrap_or(IntTy::ULONG);
        match (int.size, int.signed) {
            (8, _) => Value::full(word),
            (4, _) => Value::low(word),
            (size, signed) => {
                let size = Size::of_bytes(size.into()).unwrap_or(Size::DW);
                Value::full(if signed { f.sext(word, size) } else { f.zext(word, size) })
            }
        }
    }

    /// A pointer that the verifier can follow.
    fn is_typed(&self, e: &Expr) -> bool {
        let to_struct = |ty: &Ty| matches!(ty, Ty::Ptr(to) if matches!(**to, Ty::Composite(_)));
        match &e.kind {
            Kind::Root(root) => to_struct(&e.ty) && self.source.typed(*root),
            Kind::Load(place) => to_struct(&place.ty) && self.is_plain(place),
            _ => false,
        }
    }

    /// Whether a load can read what lies there.
    fn is_plain(&self, place: &Place) -> bool {
        let Base::Memory(pointer) = &place.base else { return false };
        place.plain
            && i16::try_from(place.offset).is_ok()
            && place.bits.is_none_or(|b| b.bytes() <= 8)
            && self.is_typed(pointer)
    }
}
