//! What a decoder says of one instruction: what both architectures have in common.

use crate::{Flow, TargetKind};

/// The text of bytes that are no instruction.
pub(crate) const BAD: &str = "(bad)";

/// An instruction, its text apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    /// How many bytes.
    pub length: usize,
    /// Where it goes on.
    pub flow: Flow,
    /// Where its operands begin in the text.
    pub operands_at: usize,
    /// The addresses in it. Those of kinds other than calls and jumps are such only if a symbol covers them.
    pub targets: [Option<(TargetKind, u64)>; 2],
    /// What sort of filler or marker it is.
    pub class: Class,
}

/// Instructions that sites and padding are recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Does something.
    Plain,
    /// Does nothing.
    Nop,
    /// The breakpoint that fills gaps.
    Filler,
    /// Marks where indirect branches may go (`endbr64`, `bti`), or a no-op in its place.
    Landing,
    /// Zeros.
    Zeros,
}
