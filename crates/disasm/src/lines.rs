//! The listing: instructions in turn, with headers and labels between them.

use crate::decoded::{BAD, Class, Decoded};
use crate::labels::Labels;
use crate::line::{Instruction, Line, Source, Target, TargetKind, Targets};
use crate::site::{self, Surroundings};
use crate::{Arch, Flow, Frame, Symbols, Syntax, arm64, x86};

/// Makes listings of one architecture. Worth keeping: it learns as it goes.
pub struct Disassembler {
    machine: Machine,
    labels: Labels,
    text: Vec<u8>,
}

enum Machine {
    X86(x86::Writer),
    Arm64,
}

/// Where a listing is.
enum Cursor<'a> {
    X86(Box<x86::Cursor<'a>>),
    Arm64(arm64::Cursor),
}

impl Disassembler {
    /// For an architecture, in a syntax.
    pub fn new(arch: Arch, syntax: Syntax) -> Disassembler {
        let machine = match arch {
            Arch::X86_64 => Machine::X86(x86::Writer::new(syntax)),
            Arch::Arm64 => Machine::Arm64,
        };
        Disassembler { machine, labels: Labels::default(), text: Vec::new() }
    }

    /// The lines of `bytes`, which are at `address`: best one function, from its beginning.
    pub fn decode<'a, S: Symbols + ?Sized>(
        &'a mut self,
        bytes: &'a [u8],
        address: u64,
        symbols: &'a S,
    ) -> Lines<'a, S> {
        self.labels.begin(bytes.len());
        let cursor = match &self.machine {
            Machine::X86(_) => {
                x86::find_labels(bytes, address, &mut self.labels);
                Cursor::X86(Box::new(x86::Cursor::new(bytes, address)))
            }
            Machine::Arm64 => {
                arm64::find_labels(bytes, &mut self.labels);
                Cursor::Arm64(arm64::Cursor::default())
            }
        };
        self.labels.finish(address);
        let is_function = symbols.symbol(address).is_some_and(|symbol| symbol.offset == 0);
        Lines {
            disassembler: self,
            cursor,
            symbols,
            bytes,
            address,
            at: 0,
            stage: Stage::Source,
            ask_source_at: None,
            chain: Vec::new(),
            asked: Vec::new(),
            at_entry: is_function,
            falls_through: true,
        }
    }
}

/// Bytes of x86's direct call, which a static call's site has whatever is there.
const CALL: usize = 5;

/// What is next of an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Source,
    Label,
    Instruction { labelled: bool },
}

/// A listing, line by line.
pub struct Lines<'a, S: Symbols + ?Sized> {
    disassembler: &'a mut Disassembler,
    cursor: Cursor<'a>,
    symbols: &'a S,
    bytes: &'a [u8],
    address: u64,
    at: usize,
    stage: Stage,
    /// From where on the source position may be another; `None` before the first.
    ask_source_at: Option<u64>,
    chain: Vec<Frame<'a>>,
    asked: Vec<Frame<'a>>,
    at_entry: bool,
    falls_through: bool,
}

impl<S: Symbols + ?Sized> Lines<'_, S> {
    /// The next line, which lasts until the one after it is asked for.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let address = self.address.wrapping_add(self.at as u64);
        if self.stage == Stage::Source {
            self.stage = Stage::Label;
            if self.comes_from_elsewhere(address) {
                let symbol = self.symbols.symbol(address);
                return Some(Line::Source(Source { address, symbol, chain: &self.chain }));
            }
        }
        if self.stage == Stage::Label {
            let label = self.disassembler.labels.come_to(address);
            self.stage = Stage::Instruction { labelled: label.is_some() };
            if let Some(number) = label {
                return Some(Line::Label { number, address });
            }
        }
        let labelled = self.stage == Stage::Instruction { labelled: true };
        self.stage = Stage::Source;
        self.instruction(address, labelled).map(Line::Instruction)
    }

    /// Whether the instruction begins a run of another source line; its position is in `chain` then.
    fn comes_from_elsewhere(&mut self, address: u64) -> bool {
        let is_first = self.ask_source_at.is_none();
        if self.ask_source_at.is_some_and(|at| address < at) {
            return false;
        }
        self.asked.clear();
        let until = self.symbols.source(address, &mut self.asked);
        self.ask_source_at = Some(until.max(address.saturating_add(1)));
        // Columns change within a line.
        let same_line =
            |a: &Frame<'_>, b: &Frame<'_>| a.line == b.line && a.file == b.file && a.function == b.function;
        let same = self.asked.len() == self.chain.len()
            && self.asked.iter().zip(&self.chain).all(|(a, b)| same_line(a, b));
        std::mem::swap(&mut self.asked, &mut self.chain);
        is_first || !same
    }

    fn instruction(&mut self, address: u64, labelled: bool) -> Option<Instruction<'_>> {
        let rest = self.bytes.get(self.at..)?;
        let Disassembler { machine, labels, text } = &mut *self.disassembler;
        text.clear();
        let decoded = match (machine, &mut self.cursor) {
            (Machine::X86(writer), Cursor::X86(cursor)) => cursor.next(writer, rest, text),
            (_, Cursor::Arm64(cursor)) => cursor.next(rest, address, text),
            // A cursor is made for its machine.
            (Machine::Arm64, Cursor::X86(_)) => return None,
        };
        let bytes = rest.get(..decoded.length.max(1)).unwrap_or(rest);
        let targets = targets(&decoded, labels, self.symbols);
        let around = Surroundings {
            at_entry: self.at_entry,
            is_reached: self.falls_through || labelled,
            stays: targets.iter().any(|target| {
                target.kind == TargetKind::Jump
                    && target.address.wrapping_sub(self.address) < self.bytes.len() as u64
            }),
        };
        let called = targets.iter().find(|target| matches!(target.kind, TargetKind::Call | TargetKind::Jump));
        // The kernel patches no-ops, jumps, calls and returns, and what has the size of a call: most are none of these.
        let may_be_patched = decoded.flow != Flow::Next || decoded.class == Class::Nop || bytes.len() == CALL;
        let told = if may_be_patched { self.symbols.site(address, decoded.flow) } else { None };
        let site = told
            .or_else(|| site::recognise(&decoded, bytes, around, called.and_then(|target| target.symbol)));
        self.at_entry &= decoded.class == Class::Landing;
        self.falls_through = match decoded.class {
            Class::Nop | Class::Filler | Class::Zeros if !around.is_reached => false,
            _ => decoded.flow.falls_through(),
        };
        self.at += bytes.len();
        Some(Instruction {
            address,
            bytes,
            text: std::str::from_utf8(text).unwrap_or(BAD),
            operands_at: decoded.operands_at,
            flow: decoded.flow,
            targets,
            site,
        })
    }
}

/// The addresses in an instruction, named.
fn targets<'a, S: Symbols + ?Sized>(decoded: &Decoded, labels: &Labels, symbols: &'a S) -> Targets<'a> {
    let mut list = [None; 2];
    let mut places = list.iter_mut();
    for (kind, address) in decoded.targets.iter().flatten() {
        let (kind, address) = (*kind, *address);
        let symbol = match kind {
            TargetKind::PerCpu => symbols.per_cpu(address),
            _ => symbols.symbol(address),
        };
        let goes = matches!(kind, TargetKind::Call | TargetKind::Jump);
        // Of numbers that may be addresses it is the symbol that says so.
        if symbol.is_none() && matches!(kind, TargetKind::Immediate | TargetKind::PerCpu) {
            continue;
        }
        let label = if kind == TargetKind::Jump { labels.at(address) } else { None };
        let location = if goes { symbols.location(address) } else { None };
        if let Some(place) = places.next() {
            *place = Some(Target { kind, address, symbol, label, location });
        }
    }
    Targets { list }
}
