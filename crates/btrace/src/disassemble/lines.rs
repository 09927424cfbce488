//! Source lines of a listing, looked up before it is written.

use btrace::logging::say_once;
use disasm::{Disassembler, Line, NoSymbols, TargetKind};
use std::collections::HashMap;
use std::rc::Rc;
use symbols::lines::{Lines, Source};

/// The lines of the addresses that a listing shows: of its instructions, and of what they call and jump to.
pub type Known = HashMap<u64, Rc<Lines>>;

/// Where lines come from; nothing any more once it was said that there is no debug information.
pub struct Finder {
    source: Option<Source>,
}

impl Finder {
    pub fn new(source: Source) -> Finder {
        Finder { source: Some(source) }
    }

    /// The lines of one address.
    pub fn lines_at(&mut self, address: u64) -> Rc<Lines> {
        let Some(source) = &mut self.source else { return Rc::default() };
        let lines = source.lines_at(address);
        if let Some(remark) = source.remark() {
            say_once(&format!("btrace: {remark}"));
            self.source = None;
        }
        lines
    }

    /// Of none.
    pub fn without() -> Finder {
        Finder { source: None }
    }

    /// The lines that a listing of this code will show.
    /// What the kernel made itself, a trampoline, has none to be missed.
    pub fn of_code(
        &mut self,
        disassembler: &mut Disassembler,
        code: &[u8],
        address: u64,
        module: Option<&str>,
    ) -> Known {
        let mut known = Known::new();
        let Some(source) = &mut self.source else { return known };
        let first = source.lines_at(address);
        if module != Some("bpf")
            && let Some(remark) = source.remark()
        {
            say_once(&format!("btrace: {remark}"));
            self.source = None;
            return known;
        }
        known.insert(address, first);
        let mut lines = disassembler.decode(code, address, &NoSymbols);
        while let Some(line) = lines.next_line() {
            let Line::Instruction(instruction) = line else { continue };
            known.entry(instruction.address).or_insert_with(|| source.lines_at(instruction.address));
            for target in instruction.targets.iter() {
                if matches!(target.kind, TargetKind::Call | TargetKind::Jump) {
                    known.entry(target.address).or_insert_with(|| source.lines_at(target.address));
                }
            }
        }
        known.retain(|_, lines| !lines.chain.is_empty());
        known
    }
}
