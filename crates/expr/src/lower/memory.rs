//! What lies in memory.

use super::{Compiler, Fail, Value, key};
use crate::error::Span;
use crate::tree::{Base, Expr, Kind, Place, Root};
use crate::types::{IntTy, Ty};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Reg, Size, Slot, Width};

/// Bytes that one probe read fetches for several members: a cache line's worth.
const WINDOW: i64 = 64;

/// Most of them.
const MOST_AT_ONCE: usize = 8;

/// What a read of memory that is not there fails with.
const EFAULT: i64 = 14;

/// Where memory is read from.
#[derive(Clone, Copy)]
pub(super) struct From {
    /// The pointer.
    pub base: Reg,
    /// Bytes from there.
    pub offset: i32,
    /// It may lie in user memory.
    pub user: bool,
}

impl Compiler<'_> {
    /// The number that lies at a place.
    pub(super) fn load(&mut self, f: &mut Func<'_>, place: &Place, fail: Fail) -> Value {
        let key = key::of_load(place);
        if let Some(value) = self.cached(&key) {
            return value;
        }
        self.note(f, place.span);
        let value = match &place.base {
            Base::Value(root) => self.part(f, *root, place),
            // A pointer to a structure would be the verifier's own, and no number.
            Base::Memory(pointer) if self.is_plain(place) && !points_to_struct(place) => {
                self.plain_load(f, pointer, place, fail)
            }
            Base::Memory(pointer) => return self.probe_load(f, pointer, place, fail),
        };
        self.cache.push((key, value));
        value
    }

    /// The pointer to a structure that lies at a place, or that is brought, as the verifier knows it.
    pub(super) fn typed_pointer(&mut self, f: &mut Func<'_>, e: &Expr, fail: Fail) -> Reg {
        let key = format!("typed {}", key::of(e));
        if let Some(Value { is: Operand::Reg(reg), .. }) = self.cached(&key) {
            return reg;
        }
        let reg = match &e.kind {
            Kind::Root(root) => self.source.pointer(f, *root),
            Kind::Load(place) => {
                self.note(f, place.span);
                let Base::Memory(pointer) = &place.base else { return f.imm(0) };
                let base = self.typed_pointer(f, pointer, fail);
                // What points into user memory leads nowhere from here.
                // The verifier wants the test for NULL alone where an argument of a tracepoint may be it.
                f.if_unlikely(Cmp::Eq, Width::W64, base, 0, |f| self.null(f, pointer, fail));
                if matches!(pointer.kind, Kind::Root(_)) {
                    f.if_unlikely(Cmp::SGe, Width::W64, base, 0, |f| {
                        let status = f.imm(-EFAULT);
                        fail.fault(f, place.span, status);
                    });
                }
                f.load(Size::DW, base, place.offset as i32)
            }
            _ => f.imm(0),
        };
        self.cache.push((key, Value::full(reg)));
        reg
    }

    /// Leaves because a pointer is NULL. One that was loaded is NULL too where the load failed, which an output tells apart.
    fn null(&mut self, f: &mut Func<'_>, pointer: &Expr, fail: Fail) {
        if let (Fail::Record { .. }, Kind::Load(place)) = (fail, &pointer.kind)
            && let Base::Memory(outer) = &place.base
            && self.is_plain(place)
        {
            let known = self.cache.len();
            let base = self.typed_pointer(f, outer, fail);
            let slot = f.slot(8, 8);
            let from = Arg::Offset(base, place.offset as i32);
            let status = f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(slot, 0), Arg::Imm(8), from]);
            f.if_unlikely(Cmp::Ne, Width::W64, status, 0, |f| fail.fault(f, place.span, status));
            self.cache.truncate(known);
        }
        fail.leave(f, pointer.span);
    }

    fn plain_load(&mut self, f: &mut Func<'_>, pointer: &Expr, place: &Place, fail: Fail) -> Value {
        let base = self.typed_pointer(f, pointer, fail);
        self.note(f, place.span);
        let (size, bytes) = access(place);
        let signed = place.bits.is_none() && place.ty.word().is_some_and(|int| int.signed && int.size < 4);
        let load = |f: &mut Func<'_>| {
            if signed {
                f.load_signed(size, base, place.offset as i32)
            } else {
                f.load(size, base, place.offset as i32)
            }
        };
        let raw = f.var();
        let known = self.cache.len();
        // The kernel reads a bad address as zero. What an argument points to may be user memory, which is one to it.
        if matches!(pointer.kind, Kind::Root(Root::Arg(_) | Root::Retval)) {
            f.if_unlikely(Cmp::Eq, Width::W64, base, 0, |f| fail.leave(f, pointer.span));
            f.labelled(|f, done| {
                f.if_unlikely(Cmp::SGe, Width::W64, base, 0, |f| {
                    let slot = blank(f, bytes);
                    let from = Arg::Offset(base, place.offset as i32);
                    let read = &[Arg::SlotAddr(slot, 0), Arg::Imm(bytes.into()), from];
                    let status = f.call(Helper::PROBE_READ_USER, read);
                    f.if_(Cmp::Ne, Width::W64, status, 0, |f| fail.fault(f, place.span, status));
                    let value = from_slot(f, slot, 0, size, signed);
                    f.assign(raw, value);
                    f.leave(done);
                });
                let value = load(f);
                f.assign(raw, value);
            });
        } else {
            f.if_unlikely(Cmp::Eq, Width::W64, base, 0, |f| self.null(f, pointer, fail));
            let value = load(f);
            f.assign(raw, value);
        }
        // Zero may be what could not be read. In tests too: `x != 5` is not to hold of it, and outputs share what they read.
        f.if_unlikely(Cmp::Eq, Width::W64, raw, 0, |f| {
            let slot = blank(f, bytes);
            let from = Arg::Offset(base, place.offset as i32);
            let status =
                f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(slot, 0), Arg::Imm(bytes.into()), from]);
            let user = matches!(pointer.kind, Kind::Root(_));
            f.if_unlikely(Cmp::Ne, Width::W64, status, 0, |f| {
                // Zero in user memory is zero.
                if user {
                    f.if_(Cmp::SLt, Width::W64, base, 0, |f| fail.fault(f, place.span, status));
                } else {
                    fail.fault(f, place.span, status);
                }
            });
        });
        self.cache.truncate(known);
        if matches!(place.ty, Ty::Ptr(_)) {
            // Since 6.17 a pointer to numbers is memory to the verifier, with which little can be computed. What has been negated is a
            // plain number.
            let minus = f.neg(Width::W64, raw);
            let plain = f.neg(Width::W64, minus);
            f.assign(raw, plain);
        }
        self.decoded(f, raw, place)
    }

    /// By a probe read, what else is wanted close by with it.
    fn probe_load(&mut self, f: &mut Func<'_>, pointer: &Expr, place: &Place, fail: Fail) -> Value {
        let from = self.from(f, pointer, fail);
        self.note(f, place.span);
        let places = self.together(pointer, place);
        let first = places.iter().map(|p| p.offset).min().unwrap_or(place.offset);
        let end = places.iter().map(|p| p.offset + i64::from(access(p).1)).max().unwrap_or(first);
        let len = (end - first) as u32;
        let raws: Vec<Reg> = places.iter().map(|_| f.var()).collect();
        // The slot in a block of its own: it is free again behind.
        f.labelled(|f, _| {
            // What is taken from it in powers of two may go beyond.
            let slot = blank(f, len);
            self.probe(f, Arg::SlotAddr(slot, 0), len, from, first, place.span, fail);
            for (raw, p) in raws.iter().zip(&places) {
                let at = (p.offset - first) as i32;
                let value = unaligned(f, slot, at, p);
                f.assign(*raw, value);
            }
        });
        let mut wanted = None;
        for (raw, p) in raws.iter().zip(&places) {
            let value = self.decoded(f, *raw, p);
            if p == place {
                wanted = Some(value);
            }
            self.cache.push((key::of_load(p), value));
        }
        wanted.unwrap_or_else(|| Value::full(0))
    }

    /// What is read by one probe read: the place, and others of the same object that are not far.
    fn together(&self, pointer: &Expr, place: &Place) -> Vec<Place> {
        let span = |p: &Place| (p.offset, p.offset + i64::from(access(p).1));
        let (mut first, mut end) = span(place);
        let mut places = vec![place.clone()];
        for other in self.foreseen.get(&key::of(pointer)).into_iter().flatten() {
            if other == place || !other.ty.is_scalar() {
                continue;
            }
            let key = key::of_load(other);
            if places.iter().any(|p| key::of_load(p) == key) || self.cached(&key).is_some() {
                continue;
            }
            let (from, to) = (first.min(span(other).0), end.max(span(other).1));
            if to - from <= WINDOW && places.len() < MOST_AT_ONCE {
                (first, end) = (from, to);
                places.push(other.clone());
            }
        }
        places
    }

    /// A pointer that is not NULL, to read from.
    pub(super) fn from(&mut self, f: &mut Func<'_>, pointer: &Expr, fail: Fail) -> From {
        // An address within what a pointer points to: both parts are the helper's to add.
        if let Kind::Address(place) = &pointer.kind
            && let (Base::Memory(base), Ok(offset)) = (&place.base, i32::try_from(place.offset))
        {
            let from = self.from(f, base, fail);
            if let Some(offset) = from.offset.checked_add(offset) {
                return From { offset, ..from };
            }
        }
        let typed = self.is_typed(pointer);
        let key = format!("{} {}", if typed { "not NULL typed" } else { "not NULL" }, key::of(pointer));
        let user = may_be_user(pointer);
        if let Some(Value { is: Operand::Reg(base), .. }) = self.cached(&key) {
            return From { base, offset: 0, user };
        }
        let base = if typed {
            self.typed_pointer(f, pointer, fail)
        } else {
            let number = self.number(f, pointer, fail);
            self.register(f, number)
        };
        f.if_unlikely(Cmp::Eq, Width::W64, base, 0, |f| self.null(f, pointer, fail));
        self.cache.push((key, Value::full(base)));
        From { base, offset: 0, user }
    }

    /// Reads `len` bytes at `from` and `offset` into `to`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn probe(
        &self,
        f: &mut Func<'_>,
        to: Arg,
        len: u32,
        from: From,
        offset: i64,
        span: Span,
        fail: Fail,
    ) {
        self.probe_sized(f, to, Arg::Imm(len.into()), from, offset, span, fail);
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn probe_sized(
        &self,
        f: &mut Func<'_>,
        to: Arg,
        len: Arg,
        from: From,
        offset: i64,
        span: Span,
        fail: Fail,
    ) {
        let source = match i32::try_from(i64::from(from.offset) + offset) {
            Ok(offset) => Arg::Offset(from.base, offset),
            Err(_) => {
                let far = f.alu(Alu::Add, Width::W64, from.base, i64::from(from.offset) + offset);
                Arg::Reg(far)
            }
        };
        let args = [to, len, source];
        let status = f.call(Helper::PROBE_READ_KERNEL, &args);
        if !from.user {
            f.if_unlikely(Cmp::Ne, Width::W64, status, 0, |f| fail.fault(f, span, status));
            return;
        }
        // Cheap where it is the kernel's, and refused at once where it is not.
        f.labelled(|f, done| {
            f.if_unlikely(Cmp::Ne, Width::W64, status, 0, |f| {
                f.if_(Cmp::SGt, Width::W64, from.base, 0, |f| {
                    let again = f.call(Helper::PROBE_READ_USER, &args);
                    f.if_(Cmp::Eq, Width::W64, again, 0, |f| f.leave(done));
                    fail.fault(f, span, again);
                });
                fail.fault(f, span, status);
            });
        });
    }

    /// Where something lies.
    pub(super) fn address(&mut self, f: &mut Func<'_>, place: &Place, fail: Fail) -> Operand {
        let Base::Memory(pointer) = &place.base else { return Operand::Imm(0) };
        let key = format!("not NULL {}", key::of(pointer));
        let base = match self.cached(&key) {
            Some(value) => value.is,
            None => {
                let base = self.number(f, pointer, fail);
                let base = self.register(f, base);
                f.if_unlikely(Cmp::Eq, Width::W64, base, 0, |f| fail.leave(f, pointer.span));
                self.cache.push((key, Value::full(base)));
                base.into()
            }
        };
        if place.offset == 0 { base } else { f.alu(Alu::Add, Width::W64, base, place.offset).into() }
    }

    /// Part of a structure in registers.
    fn part(&mut self, f: &mut Func<'_>, root: Root, place: &Place) -> Value {
        let bytes = i64::from(access(place).1);
        let (slot, within) = (place.offset.div_euclid(8), place.offset.rem_euclid(8));
        let mut raw = self.source.word(f, root, slot.max(0) as u32);
        if within > 0 {
            raw = f.alu(Alu::Rsh, Width::W64, raw, within * 8);
        }
        if within + bytes > 8 {
            let next = self.source.word(f, root, slot.max(0) as u32 + 1);
            let next = f.alu(Alu::Lsh, Width::W64, next, (8 - within) * 8);
            raw = f.alu(Alu::Or, Width::W64, raw, next);
        }
        match place.bits {
            Some(_) => self.decoded(f, raw, place),
            None => self.trimmed(f, raw, &place.ty),
        }
    }

    /// What the bytes of a place, zero-extended, are as a number of its type.
    fn decoded(&self, f: &mut Func<'_>, raw: Reg, place: &Place) -> Value {
        let int = place.ty.word().unwrap_or(IntTy::ULONG);
        let Some(bits) = place.bits else {
            return match (int.size, int.signed) {
                (4, true) => Value::low(raw),
                // Extended when they were loaded.
                _ => Value::full(raw),
            };
        };
        // What takes nine bytes was brought down when it was put together.
        let shift = if bits.bytes() > 8 { 0 } else { i64::from(bits.shift) };
        let size = i64::from(bits.size);
        if int.signed {
            let up = f.alu(Alu::Lsh, Width::W64, raw, 64 - shift - size);
            return Value::full(f.alu(Alu::Arsh, Width::W64, up, 64 - size));
        }
        let down = if shift > 0 { f.alu(Alu::Rsh, Width::W64, raw, shift) } else { raw };
        Value::full(match size {
            1..=31 => f.alu(Alu::And, Width::W64, down, (1i64 << size) - 1),
            32 => f.zext(down, Size::W),
            64.. => down,
            _ => {
                let up = f.alu(Alu::Lsh, Width::W64, down, 64 - size);
                f.alu(Alu::Rsh, Width::W64, up, 64 - size)
            }
        })
    }
}

/// The load that fetches what lies at a place, and the bytes of it that count.
fn access(place: &Place) -> (Size, u32) {
    let bytes = match place.bits {
        Some(bits) => u32::from(bits.bytes()),
        None => place.ty.word().map_or(8, |int| int.size.into()),
    };
    (Size::of_bytes(bytes.next_power_of_two()).unwrap_or(Size::DW), bytes)
}

fn points_to_struct(place: &Place) -> bool {
    matches!(&place.ty, Ty::Ptr(to) if matches!(**to, Ty::Composite(_)))
}

/// A slot for so many bytes, and as many beyond as a load may take: those are zero.
fn blank(f: &mut Func<'_>, len: u32) -> Slot {
    let whole = len.next_multiple_of(8);
    let slot = f.slot(whole, 8);
    if whole != len {
        f.store_slot(Size::DW, slot, whole as i32 - 8, 0);
    }
    slot
}

fn from_slot(f: &mut Func<'_>, slot: Slot, at: i32, size: Size, signed: bool) -> Reg {
    if signed { f.load_slot_signed(size, slot, at) } else { f.load_slot(size, slot, at) }
}

/// What lies in a slot wherever it lies there: the stack is read at multiples of the size only.
fn unaligned(f: &mut Func<'_>, slot: Slot, at: i32, place: &Place) -> Reg {
    let (size, bytes) = access(place);
    let signed = place.bits.is_none() && place.ty.word().is_some_and(|int| int.signed && int.size < 4);
    let width = size.bytes() as i32;
    if at % width == 0 && bytes <= 8 {
        return from_slot(f, slot, at, size, signed);
    }
    // The bits above those that count are taken off by whoever decodes it.
    let word = at / 8 * 8;
    let within = i64::from(at - word);
    let raw = f.load_slot(Size::DW, slot, word);
    let mut raw = if within > 0 { f.alu(Alu::Rsh, Width::W64, raw, within * 8) } else { raw };
    if within + i64::from(bytes.min(8)) > 8 {
        let next = f.load_slot(Size::DW, slot, word + 8);
        let next = f.alu(Alu::Lsh, Width::W64, next, (8 - within) * 8);
        raw = f.alu(Alu::Or, Width::W64, raw, next);
    }
    if let Some(bits) = place.bits {
        if bytes == 9 {
            let shift = i64::from(bits.shift);
            let low = f.alu(Alu::Rsh, Width::W64, raw, shift);
            let last = unaligned_byte(f, slot, at + 8);
            let high = f.alu(Alu::Lsh, Width::W64, last, 64 - shift);
            return f.alu(Alu::Or, Width::W64, low, high);
        }
        return raw;
    }
    if signed { f.sext(raw, size) } else { f.zext(raw, size) }
}

fn unaligned_byte(f: &mut Func<'_>, slot: Slot, at: i32) -> Reg {
    f.load_slot(Size::B, slot, at)
}

/// Whether a pointer may be one into user memory. Pointers to structures that lie in structures of the kernel are its own.
fn may_be_user(pointer: &Expr) -> bool {
    match &pointer.kind {
        Kind::Const(_) | Kind::Root(Root::Task | Root::PerCpu(_)) => false,
        Kind::Load(place) => !points_to_struct(place),
        Kind::Address(place) => match &place.base {
            Base::Memory(base) => may_be_user(base),
            Base::Value(_) => true,
        },
        _ => true,
    }
}
