//! BPF programs' source lines, from what they were loaded with: no debug file is needed.

use super::Line;
use bpf::{Jited, Program};
use std::collections::HashMap;

/// The first instruction of a source line of a BPF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramLine {
    /// Address of its machine code.
    pub address: u64,
    /// Index of the BPF instruction, as translated by the verifier (`bpftool prog dump xlated`).
    pub instruction: u32,
    /// File, as the compiler was told.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1; 0 when not known.
    pub column: u32,
    /// The line itself.
    pub text: String,
}

/// The source lines of a program, in the order of its instructions, subprograms included: whoever loaded it. Empty when it was
/// loaded without BTF or line_info, and where the kernel hides addresses; `None` when there is no such program.
///
/// Takes CAP_SYS_ADMIN, as opening programs by id does.
pub fn program_lines(id: u32) -> bpf::Result<Option<Vec<ProgramLine>>> {
    let Some(program) = Program::by_id(id)? else { return Ok(None) };
    with_texts(&program.jited()?).map(Some)
}

fn with_texts(jited: &Jited) -> bpf::Result<Vec<ProgramLine>> {
    if jited.lines.is_empty() || jited.btf_id == 0 {
        return Ok(Vec::new());
    }
    let Some(bytes) = bpf::btf_bytes(jited.btf_id)? else { return Ok(Vec::new()) };
    let btf = btf::Btf::from_bytes(bytes)
        .map_err(|e| bpf::Error::Protocol(format!("BTF object {}: {e}", jited.btf_id)))?;
    let text = |offset| btf.string(offset).unwrap_or_default().to_string();
    let line = |l: &bpf::JitedLine| ProgramLine {
        address: l.address,
        instruction: l.instruction,
        file: text(l.file),
        line: l.line,
        column: l.column,
        text: text(l.text),
    };
    Ok(jited.lines.iter().map(line).collect())
}

/// The programs that are in the kernel, as far as addresses of theirs were asked for.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// First address, the one after the last, program.
    functions: Vec<(u64, u64, u32)>,
    /// By address.
    lines: HashMap<u32, Vec<ProgramLine>>,
}

impl Programs {
    /// The line of an address in a program's machine code.
    pub fn line_at(&mut self, address: u64) -> Option<Line> {
        let (start, id) = match self.function_at(address) {
            Some(found) => found,
            None => {
                // Loaded since, or never asked for.
                self.read_functions();
                self.function_at(address)?
            }
        };
        let lines = self.lines.entry(id).or_insert_with(|| {
            let mut lines = program_lines(id)
                .inspect_err(|error| log::debug!("no source lines of BPF program {id}: {error}"))
                .ok()
                .flatten()
                .unwrap_or_default();
            lines.sort_by_key(|l| l.address);
            lines
        });
        let line = covering(lines, start, address)?;
        (!line.file.is_empty()).then(|| Line {
            function: None,
            file: line.file.clone(),
            line: line.line,
            column: line.column,
        })
    }

    fn function_at(&self, address: u64) -> Option<(u64, u32)> {
        let at = self.functions.iter().find(|(start, end, _)| (*start..*end).contains(&address));
        at.map(|(start, _, id)| (*start, *id))
    }

    fn read_functions(&mut self) {
        self.functions.clear();
        self.lines.clear();
        let ids = match bpf::program_ids() {
            Ok(ids) => ids,
            Err(error) => {
                log::debug!("no source lines of BPF programs: {error}");
                return;
            }
        };
        for id in ids {
            // Gone meanwhile, or not to be told.
            let Ok(Some(program)) = Program::by_id(id) else { continue };
            let Ok(jited) = program.jited() else { continue };
            let ends = jited
                .functions
                .iter()
                .map(|(start, len)| (*start, start.saturating_add(u64::from(*len)), id));
            self.functions.extend(ends);
        }
    }
}

/// The last line that begins in the function at `start` and not after `address`.
fn covering(lines: &[ProgramLine], start: u64, address: u64) -> Option<&ProgramLine> {
    let end = lines.partition_point(|l| l.address <= address);
    lines.get(end.checked_sub(1)?).filter(|l| l.address >= start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_covers_what_follows_it_within_its_function() {
        let line = |address, line| ProgramLine {
            address,
            instruction: 0,
            file: "x.c".into(),
            line,
            column: 1,
            text: String::new(),
        };
        let lines = [line(0x100, 1), line(0x108, 2), line(0x210, 3)];
        let at = |start, address| covering(&lines, start, address).map(|l| l.line);
        assert_eq!(at(0x100, 0xff), None);
        assert_eq!(at(0x100, 0x100), Some(1));
        assert_eq!(at(0x100, 0x107), Some(1));
        assert_eq!(at(0x100, 0x150), Some(2));
        assert_eq!(at(0x200, 0x205), None, "the line of another function");
        assert_eq!(at(0x200, 0x300), Some(3));
        assert_eq!(covering(&[], 0, 1), None);
    }
}
