//! Bytes of a [`Shape`] as C-like text and as JSON.
//!
//! Both walk the shape the same way and differ in punctuation only, so there is one walk over a [`Style`]. Scalars come first
//! and go straight to the output: an event is mostly integers and pointers.

use crate::errno::errno_name;
use crate::shape::{Bits, Field, Shape};
use crate::text::{escape_json, escape_text, fast_dec, fast_dec_signed, fast_hex, plain_len};

impl Shape {
    /// Appends a value as C-like text: `{a=1, b={c=0xffff888100000000}, comm="sh", list=[1, 2, … 6 more]}`.
    ///
    /// `bytes` begins with the value and may be longer. What it is too short for is `?`, whole members beyond its end are
    /// counted: `… 3 more`. Integers are decimal, pointers hexadecimal (`ERR_PTR(-2 ENOENT)` for an error in a pointer), an enum is its
    /// name, or its number if it has none.
    #[inline]
    pub fn text(&self, bytes: &[u8], out: &mut Vec<u8>) {
        render::<Text>(self, bytes, None, out);
    }

    /// As [`Shape::text`], with `name` appending what is known of the address that a pointer to a function holds.
    pub fn text_with(&self, bytes: &[u8], name: &dyn Fn(u64, &mut Vec<u8>), out: &mut Vec<u8>) {
        render::<Text>(self, bytes, Some(name), out);
    }

    /// Appends a value as JSON, always valid: integers are numbers, pointers strings (`"0xffff888100000000"`), enums
    /// `{"value":1,"name":"X"}` (`null` for an unknown value's name), structs objects, `char[n]` strings, bools `true` and `false`.
    ///
    /// `bytes` begins with the value and may be longer. What it is too short for is `null`. What is left out is counted under
    /// the key `"…"` of an object and in a last string `"… 6 more"` of an array.
    #[inline]
    pub fn json(&self, bytes: &[u8], out: &mut Vec<u8>) {
        render::<Json>(self, bytes, None, out);
    }
}

/// Appends what is known of an address of code.
type Name<'n> = Option<&'n dyn Fn(u64, &mut Vec<u8>)>;

/// What text and JSON do differently.
trait Style {
    /// A value that is not in the bytes.
    const MISSING: &'static [u8];
    /// Between elements and members.
    const COMMA: &'static [u8];
    /// A value that is not shown.
    const HIDDEN: &'static [u8];
    const VOID: &'static [u8];

    fn char(value: u8, signed: bool, out: &mut Vec<u8>);
    fn ptr(value: u64, out: &mut Vec<u8>);
    fn hex(value: u64, out: &mut Vec<u8>);
    fn enumerator(value: i64, signed: bool, name: Option<&str>, out: &mut Vec<u8>);
    fn float(value: f64, shown: &str, out: &mut Vec<u8>);
    fn string(bytes: &[u8], cut: bool, out: &mut Vec<u8>);
    fn key(name: &str, out: &mut Vec<u8>);
    fn more_members(count: u32, out: &mut Vec<u8>);
    fn more_elements(count: u32, out: &mut Vec<u8>);
}

struct Text;
struct Json;

impl Style for Text {
    const MISSING: &'static [u8] = b"?";
    const COMMA: &'static [u8] = b", ";
    const HIDDEN: &'static [u8] = "{…}".as_bytes();
    const VOID: &'static [u8] = b"void";

    fn char(value: u8, signed: bool, out: &mut Vec<u8>) {
        match value {
            b'\'' | b'\\' => out.extend_from_slice(&[b'\'', b'\\', value, b'\'']),
            b' '..=b'~' => out.extend_from_slice(&[b'\'', value, b'\'']),
            _ => char_number(value, signed, out),
        }
    }

    fn ptr(value: u64, out: &mut Vec<u8>) {
        // IS_ERR_VALUE of include/linux/err.h: the last 4095 addresses are error numbers.
        if value >= u64::MAX - 4094 {
            out.extend_from_slice(b"ERR_PTR(");
            fast_dec_signed(value as i64, out);
            if let Some(name) = errno_name(value.wrapping_neg() as u32) {
                out.push(b' ');
                out.extend_from_slice(name.as_bytes());
            }
            out.push(b')');
        } else {
            fast_hex(value, out);
        }
    }

    fn hex(value: u64, out: &mut Vec<u8>) {
        fast_hex(value, out);
    }

    fn enumerator(value: i64, signed: bool, name: Option<&str>, out: &mut Vec<u8>) {
        match name {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            None => number(value, signed, out),
        }
    }

    fn float(_: f64, shown: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(shown.as_bytes());
    }

    fn string(bytes: &[u8], cut: bool, out: &mut Vec<u8>) {
        out.push(b'"');
        escape_text(bytes, out);
        out.push(b'"');
        if cut {
            out.extend_from_slice("…".as_bytes());
        }
    }

    fn key(name: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
    }

    fn more_members(count: u32, out: &mut Vec<u8>) {
        out.extend_from_slice("… ".as_bytes());
        fast_dec(count.into(), out);
        out.extend_from_slice(b" more");
    }

    fn more_elements(count: u32, out: &mut Vec<u8>) {
        Text::more_members(count, out);
    }
}

impl Style for Json {
    const MISSING: &'static [u8] = b"null";
    const COMMA: &'static [u8] = b",";
    const HIDDEN: &'static [u8] = "\"…\"".as_bytes();
    const VOID: &'static [u8] = b"null";

    fn char(value: u8, signed: bool, out: &mut Vec<u8>) {
        char_number(value, signed, out);
    }

    fn ptr(value: u64, out: &mut Vec<u8>) {
        Json::hex(value, out);
    }

    fn hex(value: u64, out: &mut Vec<u8>) {
        out.push(b'"');
        fast_hex(value, out);
        out.push(b'"');
    }

    fn enumerator(value: i64, signed: bool, name: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"value\":");
        number(value, signed, out);
        match name {
            Some(name) => {
                out.extend_from_slice(b",\"name\":\"");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\"}");
            }
            None => out.extend_from_slice(b",\"name\":null}"),
        }
    }

    fn float(value: f64, shown: &str, out: &mut Vec<u8>) {
        if value.is_finite() {
            out.extend_from_slice(shown.as_bytes());
        } else {
            // JSON has no number for these.
            Json::string(shown.as_bytes(), false, out);
        }
    }

    fn string(bytes: &[u8], _cut: bool, out: &mut Vec<u8>) {
        out.push(b'"');
        escape_json(bytes, out);
        out.push(b'"');
    }

    fn key(name: &str, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
    }

    fn more_members(count: u32, out: &mut Vec<u8>) {
        Json::key("…", out);
        fast_dec(count.into(), out);
    }

    fn more_elements(count: u32, out: &mut Vec<u8>) {
        out.push(b'"');
        Text::more_members(count, out);
        out.push(b'"');
    }
}

/// Any value; integers and pointers, which most are, without a call.
#[inline]
fn render<S: Style>(shape: &Shape, bytes: &[u8], name: Name<'_>, out: &mut Vec<u8>) {
    match (shape, bytes.first_chunk::<8>()) {
        (Shape::Int { size: size @ 1..=8, signed }, Some(eight)) => {
            number(extend(u64::from_le_bytes(*eight), u32::from(*size) * 8, *signed), *signed, out);
        }
        (Shape::Ptr { code: false, .. }, Some(eight)) => S::ptr(u64::from_le_bytes(*eight), out),
        _ => render_any::<S>(shape, bytes, name, out),
    }
}

/// Any value. (Not inlined: what the fast path would have to save and restore for it costs more than the call.)
#[inline(never)]
fn render_any<S: Style>(shape: &Shape, bytes: &[u8], name: Name<'_>, out: &mut Vec<u8>) {
    let shown = match shape {
        Shape::Int { size: size @ 1..=8, signed } => {
            word(bytes, *size).map(|raw| number(extend(raw, u32::from(*size) * 8, *signed), *signed, out))
        }
        Shape::Int { size, signed } => wide_int(*size, *signed, bytes, out),
        Shape::Ptr { code, .. } => word(bytes, 8).map(|value| {
            S::ptr(value, out);
            if let (true, Some(name)) = (*code, name) {
                name(value, out);
            }
        }),
        Shape::Enum { size, signed, .. } => {
            word(bytes, *size).map(|raw| scalar::<S>(shape, extend(raw, u32::from(*size) * 8, *signed), out))
        }
        Shape::Bool { size } => {
            let value = bytes.get(..usize::from(*size));
            value.map(|b| scalar::<S>(shape, b.iter().any(|b| *b != 0).into(), out))
        }
        Shape::Char { signed } => bytes.first().map(|b| S::char(*b, *signed, out)),
        Shape::Text { len } => return text::<S>(*len as usize, bytes, out),
        Shape::Float { size } => float::<S>(*size, bytes, out),
        Shape::Struct { size, fields, omitted } if !bytes.is_empty() || *size == 0 => {
            return members::<S>(fields, *omitted, bytes, name, out);
        }
        Shape::Array { element, stride, len, shown } => {
            return elements::<S>(element, *stride as usize, (*len, *shown), bytes, name, out);
        }
        Shape::Void => return out.extend_from_slice(S::VOID),
        Shape::Opaque { .. } => return out.extend_from_slice(S::HIDDEN),
        Shape::Struct { .. } => None,
    };
    if shown.is_none() {
        out.extend_from_slice(S::MISSING);
    }
}

/// An integer of more than eight bytes in decimal. `None` if the bytes are too few.
fn wide_int(size: u8, signed: bool, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut wide = [0; 16];
    let value = bytes.get(..size.into())?;
    wide.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
    let unused = 128_u32.saturating_sub(u32::from(size) * 8).min(127);
    let raw = u128::from_le_bytes(wide) << unused;
    let mut buffer = itoa::Buffer::new();
    let digits = if signed { buffer.format((raw as i128) >> unused) } else { buffer.format(raw >> unused) };
    out.extend_from_slice(digits.as_bytes());
    Some(())
}

/// A number up to 64 bits wide, extended to `i64` as its signedness says: an enum, a bool, or a bit-field of any kind.
fn scalar<S: Style>(shape: &Shape, value: i64, out: &mut Vec<u8>) {
    match shape {
        Shape::Int { signed: true, .. } | Shape::Char { signed: true } => fast_dec_signed(value, out),
        Shape::Int { .. } | Shape::Char { .. } => fast_dec(value as u64, out),
        Shape::Bool { .. } => out.extend_from_slice(if value != 0 { b"true" } else { b"false" }),
        Shape::Enum { signed, names, .. } => {
            S::enumerator(value, *signed, names.get(value), out);
        }
        _ => S::hex(value as u64, out),
    }
}

/// A bit-field. `None` if the bytes are too few.
fn bitfield<S: Style>(shape: &Shape, bits: Bits, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // Up to 7 + 64 bits: nine bytes.
    let width = u32::from(bits.size).clamp(1, 64);
    let shift = u32::from(bits.shift & 7);
    let needed = (width + shift).div_ceil(8) as usize;
    let mut wide = [0; 16];
    wide.iter_mut().zip(bytes.get(..needed)?).for_each(|(to, from)| *to = *from);
    let raw = (u128::from_le_bytes(wide) >> shift) as u64;
    let signed = matches!(
        shape,
        Shape::Int { signed: true, .. } | Shape::Enum { signed: true, .. } | Shape::Char { signed: true }
    );
    scalar::<S>(shape, extend(raw, width, signed), out);
    Some(())
}

fn char_number(value: u8, signed: bool, out: &mut Vec<u8>) {
    fast_dec_signed(if signed { i64::from(value as i8) } else { i64::from(value) }, out);
}

fn text<S: Style>(len: usize, bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.is_empty() && len > 0 {
        return out.extend_from_slice(S::MISSING);
    }
    let all = bytes.get(..len).unwrap_or(bytes);
    let (plain, rest) = all.split_at_checked(plain_len(all)).unwrap_or((all, &[]));
    if rest.first() == Some(&0) || (rest.is_empty() && all.len() == len) {
        // Nothing to escape, as in nearly every name of a process.
        out.push(b'"');
        out.extend_from_slice(plain);
        out.push(b'"');
        return;
    }
    let end = all.iter().position(|b| *b == 0);
    let value = all.get(..end.unwrap_or(all.len())).unwrap_or(all);
    S::string(value, end.is_none() && all.len() < len, out);
}

fn float<S: Style>(size: u8, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // `{:?}` is the shortest text that reads back as the same number, with an exponent where that is shorter.
    match size {
        4 => {
            let value = f32::from_le_bytes(load(bytes)?);
            S::float(value.into(), &format!("{value:?}"), out);
        }
        8 => {
            let value = f64::from_le_bytes(load(bytes)?);
            S::float(value, &format!("{value:?}"), out);
        }
        _ => {
            let mut digits = String::from("0x");
            for byte in bytes.get(..size.into())?.iter().rev() {
                digits.push_str(&format!("{byte:02x}"));
            }
            // Not a number JSON could hold.
            S::float(f64::NAN, &digits, out);
        }
    }
    Some(())
}

fn members<S: Style>(fields: &[Field], omitted: u32, bytes: &[u8], name: Name<'_>, out: &mut Vec<u8>) {
    let mut left_out = omitted;
    let mut comma = false;
    out.push(b'{');
    for field in fields {
        let rest = bytes.get(field.offset as usize..).unwrap_or_default();
        // A flexible array at the end has no bytes and is there all the same.
        if rest.is_empty() && (field.bits.is_some() || field.shape.size() > 0) {
            left_out = left_out.saturating_add(1);
            continue;
        }
        if std::mem::replace(&mut comma, true) {
            out.extend_from_slice(S::COMMA);
        }
        S::key(&field.name, out);
        match field.bits {
            None => render::<S>(&field.shape, rest, name, out),
            Some(bits) if bitfield::<S>(&field.shape, bits, rest, out).is_none() => {
                out.extend_from_slice(S::MISSING);
            }
            Some(_) => {}
        }
    }
    if left_out > 0 {
        if comma {
            out.extend_from_slice(S::COMMA);
        }
        S::more_members(left_out, out);
    }
    out.push(b'}');
}

/// Of `len` elements the first `shown`.
fn elements<S: Style>(
    element: &Shape,
    stride: usize,
    (len, shown): (u32, u32),
    bytes: &[u8],
    name: Name<'_>,
    out: &mut Vec<u8>,
) {
    out.push(b'[');
    let mut rest = bytes;
    for i in 0..shown {
        if i > 0 {
            out.extend_from_slice(S::COMMA);
        }
        if rest.is_empty() && stride > 0 {
            out.extend_from_slice(S::MISSING);
            break;
        }
        render::<S>(element, rest, name, out);
        rest = rest.get(stride..).unwrap_or_default();
    }
    if len > shown {
        if shown > 0 {
            out.extend_from_slice(S::COMMA);
        }
        S::more_elements(len - shown, out);
    }
    out.push(b']');
}

/// The low `width` bits of `raw` as a number.
#[inline]
fn extend(raw: u64, width: u32, signed: bool) -> i64 {
    let unused = 64_u32.saturating_sub(width).min(63);
    if signed { ((raw << unused) as i64) >> unused } else { ((raw << unused) >> unused) as i64 }
}

/// The first `size` bytes, up to eight, as a number.
#[inline]
fn word(bytes: &[u8], size: u8) -> Option<u64> {
    match size {
        4 => Some(u32::from_le_bytes(load(bytes)?).into()),
        2 => Some(u16::from_le_bytes(load(bytes)?).into()),
        1 => bytes.first().map(|b| u64::from(*b)),
        8 => Some(u64::from_le_bytes(load(bytes)?)),
        _ => {
            let mut wide = [0; 8];
            wide.iter_mut().zip(bytes.get(..size.into())?).for_each(|(to, from)| *to = *from);
            Some(u64::from_le_bytes(wide))
        }
    }
}

#[inline]
fn load<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk::<N>().copied()
}

/// A number of up to 64 bits in decimal.
#[inline]
fn number(value: i64, signed: bool, out: &mut Vec<u8>) {
    if signed { fast_dec_signed(value, out) } else { fast_dec(value as u64, out) }
}
