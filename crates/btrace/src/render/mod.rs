//! Events as lines: text for people, JSON for programs.
//!
//! What is the same in every event of a probe is put together once; an event copies it and fills in the values.

mod branches;
mod format;
mod json;
mod outputs;
mod paint;
mod path;
mod pointee;
mod stack;
mod symbols;
mod tally;
mod text;

pub use branches::is_thunk;
pub use json::Json;
pub use paint::wanted as colour_wanted;
pub use path::Paths;
pub use stack::{StackOptions, Stacks};
pub use symbols::Symbols;
pub use text::TextLines;

use crate::clock::Clock;
use paint::{Colour, Plain};
use std::borrow::Cow;
use trace::{Event, Layout, NoteField, NoteKind, Probe, Tally, Value};

/// A way of rendering.
pub enum Renderer {
    /// The article's line.
    Text(TextLines<Plain>),
    /// The same, coloured.
    Coloured(TextLines<Colour>),
    /// One object a line.
    Json(Json),
}

/// Which way.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// One object a line.
    pub json: bool,
    /// Coloured, if text.
    pub colour: bool,
    /// Addresses and our own frames in stacks.
    pub verbose: bool,
}

impl Renderer {
    /// Prepares for the events of these probes. Reads the kernel's symbols if their events have a use for them: stacks, and
    /// pointers to functions, unless they are at hand.
    pub fn new(
        style: Style,
        probes: &[Probe],
        clock: Clock,
        options: StackOptions,
        symbols: Option<Symbols>,
    ) -> Renderer {
        let stacks = probes.iter().any(shows_code);
        let paths =
            options.codes.iter().any(Option::is_some).then(|| Paths::new(&options.codes, style.verbose));
        let symbols = symbols.or_else(|| Renderer::shows_symbols(probes).then(Symbols::load));
        let stacks = symbols.clone().filter(|_| stacks).map(|s| Stacks::new(s, style.verbose, options));
        match style {
            Style { json: true, .. } => Renderer::Json(Json::new(probes, clock, stacks, paths, symbols)),
            Style { colour: true, .. } => {
                Renderer::Coloured(TextLines::new(probes, clock, stacks, paths, symbols))
            }
            _ => Renderer::Text(TextLines::new(probes, clock, stacks, paths, symbols)),
        }
    }

    /// Whether events of these probes have a use for the kernel's symbols.
    pub fn shows_symbols(probes: &[Probe]) -> bool {
        probes.iter().any(|p| shows_code(p) || has_functions(&p.layout))
    }

    /// Takes the source lines for the renderer that follows this one.
    pub fn take_lines(&mut self) -> Option<::symbols::lines::Source> {
        let stacks = match self {
            Renderer::Text(text) => &mut text.stacks,
            Renderer::Coloured(text) => &mut text.stacks,
            Renderer::Json(json) => &mut json.stacks,
        };
        stacks.take()?.into_lines()
    }

    /// Appends what was gathered of events, up to that kernel time; `interim`: the trace goes on.
    pub fn tally(&mut self, tally: &Tally<'_>, time_ns: u64, interim: bool, out: &mut Vec<u8>) {
        match self {
            Renderer::Text(text) => tally::text(tally, text.symbols.as_ref(), out),
            Renderer::Coloured(text) => tally::text(tally, text.symbols.as_ref(), out),
            Renderer::Json(json) => {
                tally::json(tally, (time_ns, interim), &mut json.clock, json.symbols.as_ref(), out);
            }
        }
    }

    /// Appends one event, newline included.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        match self {
            Renderer::Text(text) => text.event(event, out),
            Renderer::Coloured(text) => text.event(event, out),
            Renderer::Json(json) => json.event(event, out),
        }
    }
}

/// Whether an event holds a stack or branch records.
fn shows_code(probe: &Probe) -> bool {
    probe.layout.stack.is_some() || probe.layout.branch_bytes().is_some() || probe.layout.has_path()
}

/// What a probe's events are called. A BPF program's function is marked as one, with the program's id where another
/// program's function of the same name is traced beside it.
fn title(probe: &Probe, all: &[Probe]) -> String {
    let name = &probe.target.name;
    let Some(function) = &probe.target.program else { return probe.target.label() };
    let id = function.program.id;
    let shared = all.iter().any(|other| {
        other.target.name == *name && other.target.program.as_ref().is_some_and(|f| f.program.id != id)
    });
    if shared { format!("{name}[bpf:{id}]") } else { format!("{name}[bpf]") }
}

/// Whether an event holds addresses of code.
fn has_functions(layout: &Layout) -> bool {
    let in_note = |note: &NoteField| matches!(note.kind, NoteKind::Value { function: true, .. });
    let is_symbol = |shown: &trace::Shown| {
        matches!(shown.kind, trace::ShownKind::Number { format: expr::tree::Format::Symbol, .. })
    };
    let in_bytes = |shown: &trace::Shown| match &shown.kind {
        trace::ShownKind::Bytes { shape, .. } | trace::ShownKind::Value { shape, .. } => shape.has_code(),
        _ => false,
    };
    let in_output = |s: &trace::Shown| is_symbol(s) || in_bytes(s) || s.notes.iter().any(in_note);
    let in_struct = |shape: &btf::Shape| matches!(shape, btf::Shape::Struct { .. }) && shape.has_code();
    let in_argument =
        |arg: &trace::Argument| arg.function || in_struct(&arg.shape) || arg.notes.iter().any(in_note);
    layout.args.iter().chain(&layout.ret).any(in_argument)
        || layout.asked.shown.iter().any(in_output)
        || layout.asked.gathered.iter().any(tally::shows_symbols)
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

/// The name of the error that a function returned as a negative signed integer.
fn error_name(retval: &Value<'_>) -> Option<&'static str> {
    let bytes = retval.bytes;
    let number = match (&retval.field.shape, bytes.len()) {
        (btf::Shape::Int { signed: true, .. }, 4) => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        (btf::Shape::Int { signed: true, .. }, 8) => i64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    (-4095..0).contains(&number).then(|| btf::errno_name(number.unsigned_abs() as u32)).flatten()
}

/// The name of the error in a pointer (`IS_ERR_VALUE`).
fn pointer_error(value: &Value<'_>) -> Option<&'static str> {
    let (btf::Shape::Ptr { .. }, Some(word)) = (&value.field.shape, value.bytes.first_chunk()) else {
        return None;
    };
    let number = u64::from_ne_bytes(*word).wrapping_neg();
    (1..=4095).contains(&number).then(|| btf::errno_name(number as u32)).flatten()
}

/// Whether the call returned an error: a negative number, or a pointer that is one (`IS_ERR_VALUE`), named or not.
pub fn returned_error(event: &Event<'_>) -> bool {
    let Some(retval) = event.retval() else { return false };
    let number = match (&retval.field.shape, retval.bytes.len()) {
        (btf::Shape::Int { signed: true, .. }, 4) => {
            retval.bytes.try_into().ok().map(i32::from_le_bytes).map(i64::from)
        }
        (btf::Shape::Int { signed: true, .. } | btf::Shape::Ptr { .. }, 8) => {
            retval.bytes.try_into().ok().map(i64::from_le_bytes)
        }
        _ => None,
    };
    number.is_some_and(|number| (-4095..0).contains(&number))
}

/// An address that is not the kernel's is out of range to a probe read; to everybody else it is a bad address.
const ERANGE: i32 = -34;
const EFAULT: i32 = -14;

/// The name of an error that a read gave, or its number.
fn fault(error: i32) -> Cow<'static, str> {
    let error = if error == ERANGE { EFAULT } else { error };
    match btf::errno_name(error.unsigned_abs()) {
        Some(name) => name.into(),
        None => format!("error {error}").into(),
    }
}
