//! What comes out.

use crate::{Frame, Site, Symbol};

/// One line of a listing.
// There is one at a time, and nearly all are instructions.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// Heads the instructions that follow, up to the next one.
    Source(Source<'a>),
    /// Something jumps to the instruction that follows. Labels are numbered from 1 in the order of addresses.
    Label {
        /// Its number.
        number: u32,
        /// Its address.
        address: u64,
    },
    /// An instruction.
    Instruction(Instruction<'a>),
}

/// Where a run of instructions comes from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Address of the first of them.
    pub address: u64,
    /// Its symbol.
    pub symbol: Option<Symbol<'a>>,
    /// The innermost function first; nothing when there is no debug information.
    pub chain: &'a [Frame<'a>],
}

/// An instruction, or bytes that are none.
#[derive(Clone, Copy, Debug)]
pub struct Instruction<'a> {
    /// Where it is.
    pub address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Mnemonic and operands, one blank between them; `(bad)` for what is no instruction.
    pub text: &'a str,
    /// Where the operands begin in `text`; its end when there are none.
    pub operands_at: usize,
    /// Where it goes on.
    pub flow: Flow,
    /// What it refers to.
    pub targets: Targets<'a>,
    /// What the kernel patches here.
    pub site: Option<Site<'a>>,
}

impl<'a> Instruction<'a> {
    /// The mnemonic, with what prefixes are printed.
    pub fn mnemonic(&self) -> &'a str {
        let has_operands = self.operands_at < self.text.len();
        let end = if has_operands { self.operands_at.saturating_sub(1) } else { self.text.len() };
        self.text.get(..end).unwrap_or(self.text)
    }

    /// The operands, as they are written; empty when there are none.
    pub fn operands(&self) -> &'a str {
        self.text.get(self.operands_at..).unwrap_or_default()
    }

    /// Whether the bytes are an instruction.
    pub fn is_valid(&self) -> bool {
        self.flow != Flow::Invalid
    }
}

/// Where an instruction goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// At the next one.
    Next,
    /// At its target.
    Jump,
    /// At its target or the next one.
    Branch,
    /// At its target, to come back.
    Call,
    /// At an address in a register or memory.
    IndirectJump,
    /// The same, to come back.
    IndirectCall,
    /// At the caller.
    Return,
    /// Nowhere by itself: a trap, an undefined instruction, a halt.
    Trap,
    /// It is no instruction.
    Invalid,
}

impl Flow {
    /// Whether the next instruction may follow, as far as this one tells.
    pub fn falls_through(self) -> bool {
        !matches!(self, Flow::Jump | Flow::IndirectJump | Flow::Return | Flow::Trap)
    }
}

/// What an address in an instruction is to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// It is called.
    Call,
    /// It is jumped to.
    Jump,
    /// It is read or written, or made a pointer (relative to the instruction pointer, or absolute).
    Data,
    /// The same, relative to the CPU's own area (`%gs:`).
    PerCpu,
    /// It is an immediate operand.
    Immediate,
}

/// An address that an instruction refers to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// What it is to it.
    pub kind: TargetKind,
    /// The address.
    pub address: u64,
    /// What is there.
    pub symbol: Option<Symbol<'a>>,
    /// The label there, if it is a jump within the listing.
    pub label: Option<u32>,
    /// Its source position; of calls and jumps.
    pub location: Option<Frame<'a>>,
}

/// Up to two [`Target`]s: an instruction may have a displacement and an immediate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Targets<'a> {
    pub(crate) list: [Option<Target<'a>>; 2],
}

impl<'a> Targets<'a> {
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Target<'a>> {
        self.list.iter().flatten()
    }
}
