//! Expressions computed over plain bytes: the oracle that programs are held against.
//!
//! It follows the words of [`crate::tree`] one by one and shares nothing with the compiler but those and what operators do to
//! numbers.

use crate::check::fold;
use crate::error::Span;
use crate::status::Failure;
use crate::tree::{Base, BinaryOp, Bits, Expr, Kind, Output, Place, Root, Test, Text};
use crate::types::{IntTy, Ty};

/// Where an expression's values come from.
pub trait Machine {
    /// What the probe brings, 8 bytes at a time: `slot` is 0 but of a structure that is passed by value.
    fn root(&self, root: Root, slot: u32) -> u64;

    /// Reads memory, all of `out` or nothing.
    ///
    /// # Errors
    /// The errno of the read, positive.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), u16>;

    /// `$comm`, filled up with zeros.
    fn comm(&self) -> [u8; 16];
}

/// Whether a test holds. One of what cannot be read, or has NULL on the way, does not.
pub fn test(test: &Test, machine: &dyn Machine) -> bool {
    holds(test, machine).unwrap_or(false)
}

/// A value, wrapped to its type and extended to 64 bits.
///
/// # Errors
/// Which part is NULL or could not be read.
pub fn value(expr: &Expr, machine: &dyn Machine) -> Result<u64, Failure> {
    let number = match &expr.kind {
        Kind::Const(number) => *number,
        Kind::Root(root) => machine.root(*root, 0),
        Kind::Load(place) => load(place, machine)?,
        Kind::Address(place) => address(place, machine)?,
        Kind::Convert(of) => {
            let number = value(of, machine)?;
            if expr.ty == Ty::Bool { u64::from(number != 0) } else { number }
        }
        Kind::Neg(of) => value(of, machine)?.wrapping_neg(),
        Kind::BitNot(of) => !value(of, machine)?,
        Kind::Binary(op, a, b) => {
            let (a, b) = (value(a, machine)?, value(b, machine)?);
            fold::binary(*op, expr.word(), a, b)
        }
        Kind::PtrAdd { pointer, index, size, minus } => {
            let (pointer, index) = (value(pointer, machine)?, value(index, machine)?);
            let by = index.wrapping_mul(*size);
            if *minus { pointer.wrapping_sub(by) } else { pointer.wrapping_add(by) }
        }
        Kind::PtrDiff { a, b, size } => {
            let bytes = value(a, machine)?.wrapping_sub(value(b, machine)?);
            fold::binary(BinaryOp::Div, IntTy::LONG, bytes, *size)
        }
        Kind::Swap(size, of) => {
            let number = value(of, machine)?;
            number.swap_bytes() >> (64 - u32::from(*size).clamp(1, 8) * 8)
        }
        Kind::Test(of) => u64::from(test(of, machine)),
        Kind::Cond(condition, yes, no) => value(if test(condition, machine) { yes } else { no }, machine)?,
    };
    Ok(expr.word().wrap(number))
}

/// What an output's record holds behind its status, padding left out (see [`crate::Room`]). Of texts that do not say how much at most
/// `text` bytes are read, terminator included; `len` is the size of what is passed by value.
///
/// # Errors
/// Which part is NULL or could not be read.
pub fn output(output: &Output, machine: &dyn Machine, text: u32, len: u32) -> Result<Vec<u8>, Failure> {
    match output {
        Output::Scalar(e, _) | Output::Path(e, _) => Ok(value(e, machine)?.to_le_bytes().into()),
        Output::Bytes { pointer, len, .. } => bytes_at(pointer, *len as usize, machine),
        Output::Buffer { pointer, len, most, .. } => {
            let asked = value(len, machine)?;
            bytes_at(pointer, 0, machine)?;
            if asked.cast_signed() < 0 {
                return Err(Failure { span: len.span, errno: Some(crate::lower::EINVAL) });
            }
            let mut record = asked.to_le_bytes().to_vec();
            record.extend(bytes_at(pointer, asked.min(u64::from(*most)) as usize, machine)?);
            Ok(record)
        }
        Output::Value(place) => {
            let Base::Value(root) = place.base else { return Err(Failure { span: place.span, errno: None }) };
            let first = place.offset.max(0) as u32;
            let words = first / 8..(first + len).div_ceil(8);
            Ok(words.flat_map(|word| machine.root(root, word).to_le_bytes()).collect())
        }
        Output::Text(of @ Text::Comm, _) => {
            let mut record = 16u32.to_le_bytes().to_vec();
            record.extend(text_of(of, 16, machine)?);
            record.resize(4 + 16, 0);
            Ok(record)
        }
        Output::Text(of, most) => {
            // Of an array all of it, with a terminator behind where it has none; else one byte more than is shown.
            let most = match (of, most) {
                (Text::Memory { most: Some(array), .. }, Some(most)) => most.saturating_add(1).min(*array),
                (Text::Memory { most: Some(array), .. }, None) => *array,
                (_, Some(most)) => most.saturating_add(1),
                _ => text.saturating_sub(1),
            };
            let bytes = text_of(of, most as usize, machine)?;
            let mut record = (bytes.len() as u32 + 1).to_le_bytes().to_vec();
            record.extend(bytes);
            record.push(0);
            Ok(record)
        }
    }
}

fn holds(of: &Test, machine: &dyn Machine) -> Result<bool, Failure> {
    Ok(match of {
        Test::Compare(op, a, b) => {
            let (x, y) = (value(a, machine)?, value(b, machine)?);
            fold::compare(*op, a.word(), x, y)
        }
        Test::Truth(of) => value(of, machine)? != 0,
        Test::In(of, list) => {
            let of = value(of, machine)?;
            // One that cannot be had is not it; the next may be.
            list.iter().any(|item| value(item, machine) == Ok(of))
        }
        Test::Text { text, any_of, negated } => {
            // As far as decides which of them it is.
            let most = any_of.iter().map(Vec::len).max().unwrap_or(0) + 1;
            let read = text_of(text, most, machine)?;
            any_of.contains(&read) != *negated
        }
        Test::Bytes { pointer, wanted, negated } => {
            let read = bytes_at(pointer, wanted.len(), machine)?;
            (read == *wanted) != *negated
        }
        Test::Not(of) => !test(of, machine),
        Test::And(a, b) => test(a, machine) && test(b, machine),
        Test::Or(a, b) => test(a, machine) || test(b, machine),
    })
}

/// What a pointer points to must not be NULL.
fn base(pointer: &Expr, machine: &dyn Machine) -> Result<u64, Failure> {
    match value(pointer, machine)? {
        0 => Err(Failure { span: pointer.span, errno: None }),
        address => Ok(address),
    }
}

fn address(place: &Place, machine: &dyn Machine) -> Result<u64, Failure> {
    match &place.base {
        Base::Memory(pointer) => Ok(base(pointer, machine)?.wrapping_add_signed(place.offset)),
        // The checker refuses it: there is no address to be had.
        Base::Value(_) => Err(Failure { span: place.span, errno: None }),
    }
}

fn load(place: &Place, machine: &dyn Machine) -> Result<u64, Failure> {
    let int = place.ty.word().unwrap_or(IntTy::ULONG);
    let len = place.bits.map_or(int.size, Bits::bytes).min(16);
    let mut bytes = [0; 16];
    if let Some(out) = bytes.get_mut(..len.into()) {
        read_place(place, out, machine)?;
    }
    let all = u128::from_le_bytes(bytes);
    let Some(bits) = place.bits else { return Ok(int.wrap(all as u64)) };
    let number = (all >> bits.shift.min(7)) as u64;
    let unused = 64 - u32::from(bits.size.clamp(1, 64));
    Ok(if int.signed {
        ((number << unused).cast_signed() >> unused).cast_unsigned()
    } else {
        number << unused >> unused
    })
}

/// The bytes from a place on.
fn read_place(place: &Place, out: &mut [u8], machine: &dyn Machine) -> Result<(), Failure> {
    match &place.base {
        Base::Memory(_) => {
            let from = address(place, machine)?;
            read(from, out, place.span, machine)
        }
        Base::Value(root) => {
            for (at, byte) in (place.offset..).zip(out) {
                let slot = machine.root(*root, u32::try_from(at / 8).unwrap_or(0));
                *byte = (slot >> (at.rem_euclid(8) * 8)) as u8;
            }
            Ok(())
        }
    }
}

fn read(from: u64, out: &mut [u8], span: Span, machine: &dyn Machine) -> Result<(), Failure> {
    machine.read(from, out).map_err(|errno| Failure { span, errno: Some(errno) })
}

fn bytes_at(pointer: &Expr, len: usize, machine: &dyn Machine) -> Result<Vec<u8>, Failure> {
    let from = base(pointer, machine)?;
    let mut bytes = vec![0; len];
    read(from, &mut bytes, pointer.span, machine)?;
    Ok(bytes)
}

/// A text up to its end, the terminator left out; no further than `most` bytes.
fn text_of(text: &Text, most: usize, machine: &dyn Machine) -> Result<Vec<u8>, Failure> {
    match text {
        Text::Comm => {
            Ok(machine.comm().into_iter().take(most.min(15)).take_while(|byte| *byte != 0).collect())
        }
        Text::Memory { pointer, most: array } => {
            let from = base(pointer, machine)?;
            let most = array.map_or(most, |array| most.min(array as usize));
            let mut bytes = Vec::new();
            while bytes.len() < most {
                let mut byte = [0];
                let at = from.wrapping_add(bytes.len() as u64);
                read(at, &mut byte, pointer.span, machine)?;
                match byte {
                    [0] => break,
                    [byte] => bytes.push(byte),
                }
            }
            Ok(bytes)
        }
    }
}
