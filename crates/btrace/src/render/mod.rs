//! Events as lines: text for people, JSON for programs.
//!
//! What is the same in every event of a probe is put together once; an event copies it and fills in the values.

mod json;
mod text;

pub use json::Json;
pub use text::TextLines;

use trace::{Event, Probe};

/// Either way of rendering.
pub enum Renderer {
    /// The article's line.
    Text(TextLines),
    /// One object a line.
    Json(Json),
}

impl Renderer {
    /// Prepares for the events of these probes.
    pub fn new(json: bool, probes: &[Probe], clock: crate::clock::Clock) -> Renderer {
        if json {
            Renderer::Json(Json::new(probes, clock))
        } else {
            Renderer::Text(TextLines::new(probes, clock))
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

/// An integer in decimal.
fn decimal(n: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// The name of an error that a read can give (include/uapi/asm-generic/errno-base.h), or its number.
fn fault(error: i32) -> std::borrow::Cow<'static, str> {
    match error {
        -14 => "EFAULT".into(),
        -1 => "EPERM".into(),
        -34 => "ERANGE".into(),
        other => format!("error {other}").into(),
    }
}
