//! arm64, by yaxpeax-arm; targets and the names of system registers are ours.

mod names;

use crate::decoded::{BAD, Class, Decoded};
use crate::labels::Labels;
use crate::{Flow, TargetKind, text};
use std::fmt::Write;
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

/// Bytes of an instruction.
const LENGTH: usize = 4;

/// What an `adrp` put into a register, while what follows may add the rest of the address.
#[derive(Clone, Copy, Debug)]
struct Page {
    register: u16,
    address: u64,
}

/// Where in some bytes decoding is.
#[derive(Default)]
pub(crate) struct Cursor {
    /// Of `adrp`s right before.
    pages: [Option<Page>; 2],
}

impl Cursor {
    /// The instruction at the beginning of `rest`, which is at `address`; its text is appended.
    pub fn next(&mut self, rest: &[u8], address: u64, out: &mut Vec<u8>) -> Decoded {
        let word = first_word(rest);
        let Some((word, instruction)) = word.and_then(|word| Some((word, decode(word)?))) else {
            self.pages = [None; 2];
            out.extend_from_slice(BAD.as_bytes());
            return Decoded {
                length: rest.len().min(LENGTH),
                flow: Flow::Invalid,
                operands_at: out.len(),
                targets: [None; 2],
                class: if word == Some(0) { Class::Zeros } else { Class::Plain },
            };
        };
        let flow = flow(word);
        let target = relative(word, &instruction, address);
        let begin = out.len();
        write(word, &instruction, target, out);
        let blank = out.iter().skip(begin).position(|byte| *byte == b' ');
        let operands_at = blank.map_or(out.len(), |blank| begin + blank + 1);
        let targets = match (flow, target) {
            (Flow::Call, Some(to)) => [Some((TargetKind::Call, to)), None],
            (Flow::Jump | Flow::Branch, Some(to)) => [Some((TargetKind::Jump, to)), None],
            (_, Some(page)) if instruction.opcode == Opcode::ADRP => {
                self.remember(&instruction, page);
                return Decoded {
                    length: LENGTH,
                    flow,
                    operands_at,
                    targets: [None; 2],
                    class: Class::Plain,
                };
            }
            (_, Some(to)) => [Some((TargetKind::Data, to)), None],
            (_, None) => [self.rest_of_page(&instruction).map(|to| (TargetKind::Data, to)), None],
        };
        self.pages = [None; 2];
        Decoded { length: LENGTH, flow, operands_at, targets, class: class(word) }
    }

    fn remember(&mut self, instruction: &Instruction, address: u64) {
        if let Operand::Register(_, register) = instruction.operands[0] {
            let [last, _] = self.pages;
            self.pages = [Some(Page { register, address }), last];
        }
    }

    /// The address that an `adrp` right before and this instruction make together.
    fn rest_of_page(&self, instruction: &Instruction) -> Option<u64> {
        let (register, offset) = match (instruction.opcode, instruction.operands) {
            (Opcode::ADD, [_, Operand::RegisterOrSP(_, base), Operand::Immediate(offset), _]) => {
                (base, u64::from(offset))
            }
            (_, operands) => operands.iter().find_map(|operand| match operand {
                Operand::RegPreIndex(base, offset, false) => Some((*base, u64::try_from(*offset).ok()?)),
                _ => None,
            })?,
        };
        let page = self.pages.iter().flatten().find(|page| page.register == register)?;
        Some(page.address.wrapping_add(offset))
    }
}

fn first_word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(..LENGTH)?.try_into().ok()?))
}

fn decode(word: u32) -> Option<Instruction> {
    let mut instruction = Instruction::default();
    let bytes = word.to_le_bytes();
    InstDecoder::default().decode_into(&mut instruction, &mut U8Reader::new(&bytes)).ok()?;
    Some(instruction)
}

/// Notes where instructions begin and where jumps go.
pub(crate) fn find_labels(bytes: &[u8], labels: &mut Labels) {
    for (n, four) in bytes.chunks(LENGTH).enumerate() {
        let offset = n * LENGTH;
        labels.instruction(offset);
        let Some(word) = first_word(four) else { continue };
        if matches!(flow(word), Flow::Jump | Flow::Branch) {
            // The distance is within 128 MiB: it lies in a field of the word.
            let to = branch_distance(word).wrapping_add(offset as i64) as u64;
            if to < bytes.len() as u64 {
                labels.jump(to);
            }
        }
    }
}

/// What trailing padding is told by: each instruction's end, class and flow.
pub(crate) fn walk(bytes: &[u8], mut visit: impl FnMut(usize, Class, Flow)) {
    let mut end = 0;
    for four in bytes.chunks(LENGTH) {
        end += four.len();
        match first_word(four) {
            Some(word) => visit(end, class(word), flow(word)),
            None if four.iter().all(|byte| *byte == 0) => visit(end, Class::Zeros, Flow::Invalid),
            None => visit(end, Class::Plain, Flow::Invalid),
        }
    }
}

/// Arm Architecture Reference Manual, C4.1.65, "Branches, Exception Generating and System instructions".
fn flow(word: u32) -> Flow {
    match word {
        _ if word & 0xfc00_0000 == 0x1400_0000 => Flow::Jump,
        _ if word & 0xfc00_0000 == 0x9400_0000 => Flow::Call,
        _ if word & 0xff00_0000 == 0x5400_0000 => Flow::Branch,
        // cbz, cbnz, tbz, tbnz
        _ if word & 0x7c00_0000 == 0x3400_0000 => Flow::Branch,
        _ if word & 0xfe00_0000 == 0xd600_0000 => match word >> 21 & 15 {
            0 | 8 => Flow::IndirectJump,
            1 | 9 => Flow::IndirectCall,
            2 | 4 | 5 => Flow::Return,
            _ => Flow::Next,
        },
        // brk, hlt, udf
        _ if word & 0xffe0_001f == 0xd420_0000 || word & 0xffe0_001f == 0xd440_0000 || word >> 16 == 0 => {
            Flow::Trap
        }
        _ => Flow::Next,
    }
}

fn class(word: u32) -> Class {
    match word {
        0 => Class::Zeros,
        0xd503_201f => Class::Nop,
        // bti c, bti j, bti jc; and what precedes the call of a tracer, `mov x9, x30`.
        0xd503_245f | 0xd503_249f | 0xd503_24df | 0xaa1e_03e9 => Class::Landing,
        _ if word & 0xffe0_001f == 0xd420_0000 => Class::Filler,
        _ => Class::Plain,
    }
}

/// How far a branch goes, in bytes.
fn branch_distance(word: u32) -> i64 {
    // Each field's highest bit is shifted to the word's, to bring the sign down again.
    let field = |low: u32, bits: u32| i64::from((word << (32 - bits - low)) as i32 >> (32 - bits)) * 4;
    match word {
        _ if word & 0x7c00_0000 == 0x1400_0000 => field(0, 26),
        // tbz, tbnz
        _ if word & 0x7e00_0000 == 0x3600_0000 => field(5, 14),
        _ => field(5, 19),
    }
}

/// The address an instruction means that is relative to its own.
fn relative(word: u32, instruction: &Instruction, address: u64) -> Option<u64> {
    if matches!(flow(word), Flow::Jump | Flow::Branch | Flow::Call) {
        return Some(address.wrapping_add(branch_distance(word) as u64));
    }
    let offset = instruction.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(*offset as u64),
        _ => None,
    })?;
    let base = if instruction.opcode == Opcode::ADRP { address & !0xfff } else { address };
    Some(base.wrapping_add(offset))
}

/// Its text, as yaxpeax has it, but for what that does not know.
fn write(word: u32, instruction: &Instruction, target: Option<u64>, out: &mut Vec<u8>) {
    let register = Operand::Register(yaxpeax_arm::armv8::a64::SizeCode::X, (word & 31) as u16);
    // Writing to a vector cannot fail.
    let mut say = |arguments: std::fmt::Arguments<'_>| {
        let _ = Bytes(out).write_fmt(arguments);
    };
    match instruction.opcode {
        Opcode::HINT => {
            let number = word >> 5 & 0x7f;
            match names::hint(number) {
                Some(name) => say(format_args!("{name}")),
                None => say(format_args!("hint #{number:#x}")),
            }
        }
        Opcode::SYS(_) => {
            let number = word >> 5 & 0x3fff;
            match names::operation(number) {
                Some((name, true)) => say(format_args!("{name}, {register}")),
                Some((name, false)) => say(format_args!("{name}")),
                None => say(format_args!("{instruction}")),
            }
        }
        _ if is_system_move(instruction) => {
            let number = (word >> 5 & 0x7fff) as u16;
            let written = word & 1 << 21 == 0;
            match (names::register(number, written), written) {
                (Some(name), true) => say(format_args!("msr {name}, {register}")),
                (Some(name), false) => say(format_args!("mrs {register}, {name}")),
                (None, true) => say(format_args!("msr {}, {register}", Operand::SystemReg(number))),
                (None, false) => say(format_args!("mrs {register}, {}", Operand::SystemReg(number))),
            }
        }
        _ => match instruction.operands.iter().find_map(|operand| match operand {
            Operand::PstateField(field) => names::pstate(*field),
            _ => None,
        }) {
            Some(name) => say(format_args!("msr {name}, #{:#x}", word >> 8 & 15)),
            None => say(format_args!("{instruction}")),
        },
    }
    if [", lsr", ", asr", ", ror"].iter().any(|shift| out.ends_with(shift.as_bytes())) {
        // By nothing, which yaxpeax leaves out.
        out.extend_from_slice(b" #0x0");
    }
    extension(word, out);
    if let Some(target) = target {
        // It is the last operand: `$+0x10`.
        if let Some(at) = out.iter().rposition(|byte| *byte == b'$') {
            out.truncate(at);
            text::hex(out, target);
        }
    }
}

/// Gives the operand of an addition its extension, which yaxpeax calls a shift: that is its
/// name only beside the stack pointer, when it is of the operation's own width.
fn extension(word: u32, out: &mut Vec<u8>) {
    let is_extended = word & 0x1fe0_0000 == 0x0b20_0000;
    let sets_flags = word & 1 << 29 != 0;
    let beside_stack = (word >> 5 & 31) == 31 || (word & 31 == 31 && !sets_flags);
    let is_whole = word >> 13 & 7 == 2 + (word >> 31);
    let name: &[u8] = match word >> 13 & 7 {
        2 => b"uxtw",
        3 => b"uxtx",
        _ => return,
    };
    if !is_extended || (beside_stack && is_whole) {
        return;
    }
    match out.windows(3).rposition(|three| three == b"lsl") {
        Some(at) => {
            out.splice(at..at + 3, name.iter().copied());
        }
        None if !out.windows(3).any(|three| three == b"uxt") => {
            out.extend_from_slice(b", ");
            out.extend_from_slice(name);
        }
        None => {}
    }
}

fn is_system_move(instruction: &Instruction) -> bool {
    instruction.operands.iter().any(|operand| matches!(operand, Operand::SystemReg(_)))
}

/// Formatted text into bytes.
struct Bytes<'a>(&'a mut Vec<u8>);

impl Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
