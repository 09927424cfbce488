//! What was asked, free of any command-line flag.

use crate::error::Error;
use crate::expressions::Expressions;
use crate::filter::Filter;
use crate::pattern::Pattern;
use crate::program_spec::ProgramSpec;
use std::fmt;

/// What kind of thing a pattern names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A kernel function.
    Function,
    /// A tracepoint.
    Tracepoint,
    /// A function of a BPF program.
    Program,
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetKind::Function => "kernel function",
            TargetKind::Tracepoint => "tracepoint",
            TargetKind::Program => "BPF program",
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
    /// Where it is looked for.
    pub scope: Scope,
}

impl TargetSpec {
    /// Reads `name` or `module:name`, either part a glob if need be. `everywhere`: what names no module is looked for in
    /// vmlinux and all modules.
    pub fn new(kind: TargetKind, text: &str, everywhere: bool) -> Result<TargetSpec, Error> {
        // A part that is wrong is shown with the whole.
        let whole = |error| match error {
            Error::Pattern { pattern, reason } if pattern.is_empty() && text.len() <= 60 => {
                Error::Pattern { pattern: text.into(), reason }
            }
            error => error,
        };
        let (scope, name) = match text.split_once(':') {
            // The kernel's names of modules have underscores where their files may have dashes.
            Some((module, name)) => {
                (Scope::Module(Pattern::new(&module.replace('-', "_")).map_err(whole)?), name)
            }
            None if everywhere => (Scope::Everywhere, text),
            None => (Scope::Kernel, text),
        };
        Ok(TargetSpec { kind, pattern: Pattern::new(name).map_err(whole)?, scope })
    }
}

/// Where a pattern is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// In vmlinux; a name that it does not have, in the modules.
    #[default]
    Kernel,
    /// In vmlinux and all loaded modules.
    Everywhere,
    /// In the modules of that name or glob; `vmlinux` is none, and means just that.
    Module(Pattern),
}

/// When a function's event is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At its start: arguments.
    Entry,
    /// At its return: arguments as they were at entry, return value, duration.
    #[default]
    Exit,
    /// Both: the entry at once, the exit when it comes, each call's two with the same number.
    Both,
}

/// A whole request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Functions and tracepoints.
    pub targets: Vec<TargetSpec>,
    /// BPF programs. Of both there is at least one.
    pub programs: Vec<ProgramSpec>,
    /// For functions; tracepoints have no exit.
    pub mode: Mode,
    /// Whose events are taken.
    pub filter: Filter,
    /// What has to hold of events, and what they show besides.
    pub expressions: Expressions,
    /// Functions that our own programs depend on are traced too, at the risk of a hang.
    pub force: bool,
    /// With the kernel stack of each event.
    pub stack: bool,
    /// With the executed path of each call.
    pub path: Option<crate::path::Wanted>,
    /// With the CPU's branch records of each event; enabling them is the caller's part (`bpf::BranchRecords`).
    pub branches: bool,
    /// With what is to be known of the objects behind pointers.
    pub pointees: bool,
    /// Most bytes read of a string, its terminator included.
    pub string_size: u32,
    /// Size of the ring buffer in bytes: a power of two times the page size.
    pub ring_size: u32,
}
