//! Events as lines: text for people, JSON for programs.
//!
//! What is the same in every event of a probe is put together once; an event copies it and fills in the values.

mod json;
mod stack;
mod text;

pub use json::Json;
pub use stack::Stacks;
pub use text::TextLines;

use std::borrow::Cow;
use trace::{Event, Probe, Value};

/// Either way of rendering.
pub enum Renderer {
    /// The article's line.
    Text(TextLines),
    /// One object a line.
    Json(Json),
}

impl Renderer {
    /// Prepares for the events of these probes.
    pub fn new(json: bool, probes: &[Probe], clock: crate::clock::Clock, stacks: Option<Stacks>) -> Renderer {
        if json {
            Renderer::Json(Json::new(probes, clock, stacks))
        } else {
            Renderer::Text(TextLines::new(probes, clock, stacks))
        }
    }

    /// Appends one event, newline included.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        match self {
            Renderer::Text(text) => text.event(event, out),
            Renderer::Json(json) => json.event(event, out),
        }
    }
}

/// What a probe's events are called. A BPF program's function is marked as one, with the program's id where another
/// program's function of the same name is traced beside it.
fn title(probe: &Probe, all: &[Probe]) -> String {
    let name = &probe.target.name;
    let Some(function) = &probe.target.program else { return name.clone() };
    let id = function.program.id;
    let shared = all.iter().any(|other| {
        other.target.name == *name && other.target.program.as_ref().is_some_and(|f| f.program.id != id)
    });
    if shared { format!("{name}[bpf:{id}]") } else { format!("{name}[bpf]") }
}

/// An integer in decimal.
fn decimal(n: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// An integer in hexadecimal, with 0x.
fn hexadecimal(n: u64, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (u64::BITS - n.leading_zeros()).div_ceil(4).max(1);
    out.extend_from_slice(b"0x");
    out.extend((0..digits).rev().map(|at| DIGITS[(n >> (4 * at) & 15) as usize]));
}

/// The name of the error that a function returned: as a negative signed integer, or in a pointer (`IS_ERR_VALUE`).
fn error_name(retval: &Value<'_>) -> Option<&'static str> {
    let bytes = retval.bytes;
    let number = match (&retval.field.shape, bytes.len()) {
        (btf::Shape::Int { signed: true, .. }, 4) => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        (btf::Shape::Int { signed: true, .. }, 8) => i64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    (-4095..0).contains(&number).then(|| btf::errno_name(number.unsigned_abs() as u32)).flatten()
}

/// The name of an error that a read gave, or its number.
fn fault(error: i32) -> Cow<'static, str> {
    match btf::errno_name(error.unsigned_abs()) {
        Some(name) => name.into(),
        None => format!("error {error}").into(),
    }
}
