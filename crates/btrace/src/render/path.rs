//! The executed path of a call: a line for each branch that was taken, oldest first, as branch records of the processor are shown. Loops are
//! folded, with how often they ran.

use super::stack::{Frame, Stacks};
use super::{decimal, hexadecimal, json};
use std::collections::HashMap;
use std::rc::Rc;
use symbols::lines::{Line, Lines};
use trace::path::{Code, Path, Step};
use trace::{Event, Exit};

/// Renders paths.
pub struct Paths {
    codes: Vec<Option<Code>>,
    verbose: bool,
    /// What is shown of addresses, each looked up once.
    known: HashMap<(u64, bool), Rc<str>>,
}

/// A line, before it has words.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    /// A jump. `unseen`: one of its ends has no probe.
    Jump { from: usize, to: usize, unseen: bool },
    /// An instruction faulted, and the kernel went on elsewhere.
    Fault { from: usize, to: usize },
    /// A conditional jump that was not taken.
    Stay { at: usize },
    /// What was not seen, between two blocks.
    Gap { from: usize, to: usize },
    /// The same rows again and again.
    Loop { times: usize, rows: Vec<Row> },
}

/// Rows of a loop's body, at most.
const LONGEST_LOOP: usize = 64;

/// Columns that the left ends of jumps are padded to at most.
const WIDEST: usize = 72;

impl Paths {
    /// For the probes whose functions these are. `verbose`: with addresses, and the branches that were not taken.
    pub fn new(codes: &[Option<Code>], verbose: bool) -> Paths {
        Paths { codes: codes.to_vec(), verbose, known: HashMap::new() }
    }

    /// Appends an event's path as lines.
    pub fn text(&mut self, event: &Event<'_>, stacks: &mut Stacks, out: &mut Vec<u8>) {
        let Some(hits) = event.hits() else { return };
        let Paths { codes, verbose, known } = self;
        let Some(Some(code)) = codes.get(event.index()) else { return };
        if hits.total == 0 {
            return out.extend_from_slice(
                b"Path: not kept: too many calls under way, or too deep within each other\n",
            );
        }
        let path = code.path(hits.offsets(), hits.total);
        out.extend_from_slice(b"Path:\n");
        let rows = fold(rows(&path, code, *verbose));
        let mut words = Words { code, stacks, verbose: *verbose, known };
        let width = words.width(&rows).min(WIDEST);
        words.rows(&rows, width, 0, out);
        if path.cut > 0 {
            out.extend_from_slice(format!("... {} further blocks, not kept\n", path.cut).as_bytes());
        } else if let Some(last) = path.visits.last() {
            words.end(last.block, width, out);
        }
        stacks.say_remark();
    }

    /// Appends an event's path as an object.
    pub fn json(&mut self, event: &Event<'_>, stacks: &mut Stacks, out: &mut Vec<u8>) {
        let Some(hits) = event.hits() else { return };
        let Some(Some(code)) = self.codes.get(event.index()) else { return };
        out.extend_from_slice(b",\"path\":");
        if hits.total == 0 {
            return out.extend_from_slice(b"null");
        }
        let path = code.path(hits.offsets(), hits.total);
        out.extend_from_slice(b"{\"hits\":");
        decimal(hits.total, out);
        out.extend_from_slice(b",\"whole\":");
        out.extend_from_slice(if path.is_whole(code) { b"true" } else { b"false" });
        out.extend_from_slice(b",\"blocks\":[");
        for (at, visit) in path.visits.iter().enumerate() {
            let Some(block) = code.blocks.list().get(visit.block) else { continue };
            out.extend_from_slice(if at > 0 { b",{\"by\":\"" } else { b"{\"by\":\"" });
            out.extend_from_slice(match visit.step {
                Step::Entry => b"entry",
                Step::Fell => b"next",
                Step::Jumped => b"jump",
                Step::Faulted => b"exception",
                Step::Unknown => b"unknown",
            });
            out.extend_from_slice(if visit.inferred {
                b"\",\"seen\":false,\"from\":"
            } else {
                b"\",\"seen\":true,\"from\":"
            });
            frame(block.start, stacks, out);
            out.extend_from_slice(b",\"to\":");
            frame(block.last, stacks, out);
            out.extend_from_slice(b",\"instruction\":");
            match block.text.is_empty() {
                true => out.extend_from_slice(b"null"),
                false => json::quoted(block.text.as_bytes(), out),
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        stacks.say_remark();
    }
}

fn frame(address: u64, stacks: &mut Stacks, out: &mut Vec<u8>) {
    let lines = stacks.lines_at(address);
    let symbol = stacks.symbols().resolve(address);
    Frame { address, symbol, exact: true }.json(&lines, out);
}

fn rows(path: &Path, code: &Code, verbose: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for pair in path.visits.windows(2) {
        let &[before, here] = pair else { continue };
        let (from, to) = (before.block, here.block);
        match here.step {
            Step::Jumped => rows.push(Row::Jump { from, to, unseen: before.inferred || here.inferred }),
            Step::Faulted => rows.push(Row::Fault { from, to }),
            Step::Unknown => rows.push(Row::Gap { from, to }),
            Step::Fell | Step::Entry => {
                let exit = code.blocks.list().get(from).map(|block| block.exit);
                if verbose && matches!(exit, Some(Exit::Branch(_))) {
                    rows.push(Row::Stay { at: from });
                }
            }
        }
    }
    rows
}

/// Puts what repeats itself into loops, short bodies first, so that a loop within a loop is one.
fn fold(mut rows: Vec<Row>) -> Vec<Row> {
    for period in 1..=LONGEST_LOOP {
        let mut folded: Vec<Row> = Vec::new();
        let mut rest = rows.as_slice();
        while let Some(first) = rest.first() {
            let times = match rest.get(..period) {
                Some(body) => rest.chunks_exact(period).take_while(|chunk| *chunk == body).count(),
                None => 0,
            };
            if times > 1 {
                let (body, behind) = (rest.get(..period), rest.get(period * times..));
                folded.push(Row::Loop { times, rows: body.unwrap_or_default().to_vec() });
                rest = behind.unwrap_or_default();
            } else {
                folded.push(first.clone());
                rest = rest.get(1..).unwrap_or_default();
            }
        }
        rows = folded;
    }
    rows
}

/// Rows in words.
struct Words<'a> {
    code: &'a Code,
    stacks: &'a mut Stacks,
    verbose: bool,
    known: &'a mut HashMap<(u64, bool), Rc<str>>,
}

impl Words<'_> {
    /// Columns of the widest left end.
    fn width(&mut self, rows: &[Row]) -> usize {
        let mut widest = 0;
        for row in rows {
            widest = widest.max(match row {
                Row::Jump { from, .. } | Row::Gap { from, .. } => self.last(*from).chars().count(),
                Row::Fault { from, to } => self.faulting(*from, *to).chars().count(),
                Row::Stay { .. } => 0,
                Row::Loop { rows, .. } => self.width(rows) + 2,
            });
        }
        widest
    }

    fn rows(&mut self, rows: &[Row], width: usize, indent: usize, out: &mut Vec<u8>) {
        for row in rows {
            let own = width.saturating_sub(indent);
            let line = match row {
                Row::Jump { from, to, unseen } => {
                    let unseen = if *unseen { "  [no probe there, but no other way]" } else { "" };
                    format!("{:<own$} -> {}{unseen}", self.last(*from), self.first(*to))
                }
                Row::Fault { from, to } => {
                    format!("{:<own$} -> {}  [an exception]", self.faulting(*from, *to), self.first(*to))
                }
                Row::Gap { from, to } => {
                    format!(
                        "{:<own$} ... {}  [the way between was not seen]",
                        self.last(*from),
                        self.first(*to)
                    )
                }
                Row::Stay { at } => format!("{:<own$} not taken", self.last(*at)),
                Row::Loop { times, rows } => {
                    let one = !matches!(rows.as_slice(), [_, _, ..] | [Row::Loop { .. }]);
                    if one {
                        let from = out.len();
                        self.rows(rows, width, indent, out);
                        if out.len() > from {
                            out.pop();
                        }
                        out.extend_from_slice(format!(" × {times}\n").as_bytes());
                    } else {
                        out.extend_from_slice(format!("{:indent$}× {times}:\n", "").as_bytes());
                        self.rows(rows, width, indent + 2, out);
                    }
                    continue;
                }
            };
            out.extend_from_slice(format!("{:indent$}{line}\n", "").as_bytes());
        }
    }

    /// The last line: from where the function was left.
    fn end(&mut self, last: usize, width: usize, out: &mut Vec<u8>) {
        let left = if self.code.leaves(last) {
            match self.code.blocks.list().get(last).map(|block| block.exit) {
                Some(Exit::Jump(to) | Exit::Branch(to)) => self.place(to, None).to_string(),
                Some(Exit::Indirect) => "returned, or jumped to another function".into(),
                _ => "returned".into(),
            }
        } else {
            "returned  [from where was not seen]".into()
        };
        let from = self.last(last);
        out.extend_from_slice(format!("{from:<width$} -> {left}\n").as_bytes());
    }

    /// A block's first instruction.
    fn first(&mut self, block: usize) -> Rc<str> {
        let address = self.code.blocks.list().get(block).map_or(0, |block| block.start);
        self.place(address, None)
    }

    /// The instruction of a block that faulted; the block, where several may have.
    fn faulting(&mut self, from: usize, to: usize) -> Rc<str> {
        let list = self.code.blocks.list();
        let (Some(from), Some(to)) = (list.get(from), list.get(to)) else { return "?".into() };
        let mut faults = from.faults.iter().filter(|fault| fault.to == to.start);
        match (faults.next(), faults.next()) {
            (Some(one), None) => self.place(one.at, None),
            _ => format!("{}..", self.place(from.start, None)).into(),
        }
    }

    /// A block's last instruction; without source lines as it reads, its target by name.
    fn last(&mut self, block: usize) -> Rc<str> {
        let Some(block) = self.code.blocks.list().get(block) else { return "?".into() };
        let (Exit::Branch(to) | Exit::Jump(to)) = block.exit else {
            // By the kernel's thunk, where returns are mitigated.
            let thunk = block.exit == Exit::Return && block.text.starts_with("jmp");
            return self.place(block.last, Some(if thunk { "return thunk" } else { &block.text }));
        };
        let mnemonic = block.text.rsplit_once(' ').map_or(block.text.as_str(), |(mnemonic, _)| mnemonic);
        let text = match self.stacks.symbols().resolve(to) {
            Some(symbol) if symbol.name == self.code.name => format!("{mnemonic} +{:#x}", symbol.offset),
            Some(symbol) => format!("{mnemonic} {}+{:#x}", symbol.name, symbol.offset),
            None => block.text.clone(),
        };
        self.place(block.last, Some(&text))
    }

    fn place(&mut self, address: u64, instruction: Option<&str>) -> Rc<str> {
        if let Some(known) = self.known.get(&(address, instruction.is_some())) {
            return Rc::clone(known);
        }
        let mut text = Vec::new();
        if self.verbose {
            hexadecimal(address, &mut text);
            text.push(b':');
        }
        match self.stacks.symbols().resolve(address) {
            Some(symbol) => {
                text.extend_from_slice(symbol.name.as_bytes());
                text.push(b'+');
                hexadecimal(symbol.offset, &mut text);
                super::symbols::module(&symbol, &mut text);
            }
            None if self.verbose => {
                text.pop();
            }
            None => hexadecimal(address, &mut text),
        }
        let lines = self.stacks.lines_at(address);
        match (lines.chain.first(), instruction) {
            (Some(line), _) => {
                text.extend_from_slice(b" (");
                source(line, &lines, &mut text);
                text.push(b')');
            }
            (None, Some(instruction)) if !instruction.is_empty() => {
                text.extend_from_slice(format!(" ({instruction})").as_bytes());
            }
            _ => {}
        }
        let text: Rc<str> = String::from_utf8_lossy(&text).into();
        self.known.insert((address, instruction.is_some()), Rc::clone(&text));
        text
    }
}

/// Appends `file:line`, and which function it is of, if that was inlined.
fn source(line: &Line, lines: &Lines, out: &mut Vec<u8>) {
    if let (false, Some(function)) = (lines.inlined().is_empty(), &line.function) {
        out.extend_from_slice(function.as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(line.file.as_bytes());
    out.push(b':');
    match line.line {
        0 => out.push(b'?'),
        number => decimal(number, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jump(from: usize, to: usize) -> Row {
        Row::Jump { from, to, unseen: false }
    }

    #[test]
    fn loops_are_folded_with_their_inner_loops() {
        let mut path = vec![jump(0, 1)];
        for _ in 0..3 {
            path.extend([jump(2, 2), jump(2, 2), jump(3, 2)]);
        }
        path.push(jump(3, 4));
        let inner = Row::Loop { times: 2, rows: vec![jump(2, 2)] };
        assert_eq!(
            fold(path),
            [jump(0, 1), Row::Loop { times: 3, rows: vec![inner, jump(3, 2)] }, jump(3, 4)]
        );
        assert_eq!(fold(vec![jump(0, 1), jump(1, 2)]), [jump(0, 1), jump(1, 2)]);
        assert_eq!(fold(Vec::new()), []);
    }
}
