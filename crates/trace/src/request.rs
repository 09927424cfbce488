//! What was asked, free of any command-line flag.

use crate::filter::Filter;
use crate::pattern::Pattern;
use std::fmt;

/// What kind of thing a pattern names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A kernel function.
    Function,
    /// A tracepoint.
    Tracepoint,
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetKind::Function => "kernel function",
            TargetKind::Tracepoint => "tracepoint",
        })
    }
}

/// One pattern of the request.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    /// Function or tracepoint.
    pub kind: TargetKind,
    /// Name or glob.
    pub pattern: Pattern,
}

/// When a function's event is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At its start: arguments.
    Entry,
    /// At its return: arguments as they were at entry, return value, duration.
    #[default]
    Exit,
}

/// A whole request.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least one.
    pub targets: Vec<TargetSpec>,
    /// For functions; tracepoints have no exit.
    pub mode: Mode,
    /// Whose events are taken.
    pub filter: Filter,
    /// Functions that our own programs depend on are traced too, at the risk of a hang.
    pub force: bool,
    /// Most bytes read of a string, its terminator included.
    pub string_size: u32,
    /// Size of the ring buffer in bytes: a power of two times the page size.
    pub ring_size: u32,
}
