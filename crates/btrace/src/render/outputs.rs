//! What expressions show: `out=((type)text=value, …)`.

use super::json::{error_value, quoted, symbol_fields, text_value};
use super::symbols::{Symbols, function, named};
use super::{decimal, format, hexadecimal, pointee, text};
use expr::tree::{BytesFormat, Format};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use trace::{Event, Output, OutputValue, Probe, Shown, ShownKind};

/// What `$ctx` can be.
const CONTEXTS: [&str; 4] = ["task", "softirq", "hardirq", "nmi"];

/// What stands before each value in every line of a probe.
pub fn labels(probe: &Probe, (label, end): (&str, &str)) -> Vec<Vec<u8>> {
    let shown = probe.layout.asked.shown.iter().enumerate();
    let prefix = |(index, shown): (usize, &Shown)| {
        let comma = if index > 0 { ", " } else { "" };
        let text = plain(&shown.text);
        format!("{comma}{label}({}){text}={end}", shown.type_name).into_bytes()
    };
    shown.map(prefix).collect()
}

/// An expression's text without what could harm a terminal or break the line.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Appends ` out=(…)`, if there is anything.
pub fn line(event: &Event<'_>, labels: &[Vec<u8>], symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    if labels.is_empty() {
        return;
    }
    out.extend_from_slice(b" out=(");
    for (output, label) in event.outputs().zip(labels) {
        out.extend_from_slice(label);
        match output.value {
            Ok(value) => {
                shown(output.shown, value, symbols, out);
                if !output.shown.notes.is_empty() && !matches!(output.shown.kind, ShownKind::Path) {
                    pointee::text(&output, symbols, out);
                }
                if let ShownKind::Path = output.shown.kind {
                    pointee::path_of(&output, out);
                }
            }
            Err(failure) => failed(output.shown, failure, out),
        }
    }
    out.push(b')');
}

/// `NULL@skb->dev`, `EFAULT@skb->dev->ifindex`
fn failed(shown: &Shown, failure: expr::Failure, out: &mut Vec<u8>) {
    match failure.errno {
        None => out.extend_from_slice(b"NULL"),
        Some(errno) => out.extend_from_slice(super::fault(-i32::from(errno)).as_bytes()),
    }
    let place = plain(failure.span.of(&shown.text));
    if !place.is_empty() {
        out.push(b'@');
        out.extend_from_slice(place.as_bytes());
    }
}

fn shown(shown: &Shown, value: OutputValue<'_>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    match (&shown.kind, value) {
        (ShownKind::Number { shape, format, .. }, OutputValue::Bytes(bytes)) => {
            number(shape, *format, bytes, symbols, out);
        }
        (ShownKind::Bytes { shape, format, .. }, OutputValue::Bytes(value)) => {
            bytes(shape, *format, value, symbols, out)
        }
        (ShownKind::Value { shape, .. }, OutputValue::Bytes(bytes)) => named(shape, bytes, symbols, out),
        (ShownKind::Buffer { format, .. }, OutputValue::Buffer { bytes: read, of }) => {
            bytes(&btf::Shape::Opaque { size: 0 }, *format, read, None, out);
            if of > read.len() as u64 {
                out.extend_from_slice("…".as_bytes());
            }
        }
        (_, OutputValue::Text(value)) => text::quoted(value, out),
        (_, OutputValue::Bytes(_) | OutputValue::Buffer { .. }) => {}
    }
}

/// A number as it is shown in text.
pub(super) fn number(
    shape: &btf::Shape,
    format: Format,
    bytes: &[u8],
    symbols: Option<&Symbols>,
    out: &mut Vec<u8>,
) {
    let value = format::number(bytes);
    match format {
        Format::Plain => shape.text(bytes, out),
        Format::Hex => hexadecimal(value, out),
        Format::Ip4 => display(Ipv4Addr::from((value as u32).to_le_bytes()), out),
        Format::Symbol => {
            hexadecimal(value, out);
            if let Some(symbol) = symbols.and_then(|s| s.resolve(value)) {
                out.push(b'(');
                function(&symbol, out);
                out.push(b')');
            }
        }
        Format::Context => {
            let name = CONTEXTS.get(value as usize).copied();
            out.extend_from_slice(name.unwrap_or("?").as_bytes());
        }
    }
}

fn bytes(
    shape: &btf::Shape,
    format: BytesFormat,
    value: &[u8],
    symbols: Option<&Symbols>,
    out: &mut Vec<u8>,
) {
    match format {
        BytesFormat::Plain => named(shape, value, symbols, out),
        BytesFormat::Hex => value.iter().for_each(|b| display(format_args!("{b:02x}"), out)),
        BytesFormat::Buffer => {
            out.push(b'"');
            btf::escape_text(value, out);
            out.push(b'"');
        }
        BytesFormat::Ip6 => match value.first_chunk::<16>() {
            Some(octets) => display(Ipv6Addr::from(*octets), out),
            None => out.push(b'?'),
        },
        BytesFormat::Mac => {
            for (index, byte) in value.iter().enumerate() {
                if index > 0 {
                    out.push(b':');
                }
                display(format_args!("{byte:02x}"), out);
            }
        }
    }
}

fn display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    // A vector takes everything.
    let _ = write!(out, "{value}");
}

/// Appends `,"out":[…]`, if there is anything.
pub fn json(event: &Event<'_>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    if event.probe.layout.asked.shown.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"out\":[");
    for (index, output) in event.outputs().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"expr\":");
        quoted(output.shown.text.as_bytes(), out);
        out.extend_from_slice(b",\"type\":");
        quoted(output.shown.type_name.as_bytes(), out);
        one(&output, symbols, out);
        out.push(b'}');
    }
    out.push(b']');
}

fn one(output: &Output<'_>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    let shown = output.shown;
    let value = match output.value {
        Ok(value) => value,
        Err(failure) => {
            out.extend_from_slice(b",\"value\":null,\"error\":");
            match failure.errno {
                None => quoted(b"NULL", out),
                Some(errno) => quoted(super::fault(-i32::from(errno)).as_bytes(), out),
            }
            out.extend_from_slice(b",\"at\":");
            return quoted(failure.span.of(&shown.text).as_bytes(), out);
        }
    };
    out.extend_from_slice(b",\"value\":");
    match (&shown.kind, value) {
        (ShownKind::Number { shape, format, .. }, OutputValue::Bytes(bytes)) => {
            number_json(shape, *format, bytes, symbols, out);
        }
        (ShownKind::Bytes { shape, format: BytesFormat::Plain, .. }, OutputValue::Bytes(bytes))
        | (ShownKind::Value { shape, .. }, OutputValue::Bytes(bytes)) => shape.json(bytes, out),
        (ShownKind::Bytes { shape, format, .. }, OutputValue::Bytes(value)) => {
            quoted_bytes(value, out);
            let mut text = Vec::new();
            bytes(shape, *format, value, None, &mut text);
            out.extend_from_slice(b",\"text\":");
            quoted(&text, out);
        }
        (ShownKind::Buffer { .. }, OutputValue::Buffer { bytes, of }) => {
            quoted_bytes(bytes, out);
            out.extend_from_slice(b",\"of\":");
            decimal(of, out);
        }
        (_, OutputValue::Text(value)) => text_value(value, out),
        (ShownKind::Path, OutputValue::Bytes(bytes)) => {
            out.push(b'"');
            btf::fast_hex(format::number(bytes), out);
            out.push(b'"');
        }
        _ => error_value(0, out),
    }
    if !shown.notes.is_empty() {
        pointee::json(output, symbols, out);
    }
}

/// Bytes as hexadecimal digits.
fn quoted_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    bytes.iter().for_each(|b| display(format_args!("{b:02x}"), out));
    out.push(b'"');
}

/// A number's value, and what else is to be said of it.
pub(super) fn number_json(
    shape: &btf::Shape,
    format: Format,
    bytes: &[u8],
    symbols: Option<&Symbols>,
    out: &mut Vec<u8>,
) {
    match format {
        Format::Symbol => {
            out.push(b'"');
            btf::fast_hex(format::number(bytes), out);
            out.push(b'"');
            symbol_fields(symbols, format::number(bytes), out);
        }
        Format::Plain => shape.json(bytes, out),
        _ => {
            shape.json(bytes, out);
            let mut text = Vec::new();
            number(shape, format, bytes, symbols, &mut text);
            out.extend_from_slice(b",\"text\":");
            quoted(&text, out);
        }
    }
}
