//! AT&T text as `objdump -d` writes it (binutils 2.40).
//!
//! Mnemonics and the order of operands are iced's, where it agrees; operands and prefixes are written here. What iced
//! says of a code is asked once and kept, so that an instruction costs no more than its text.

use super::facts::{FactTable, Idle, Operand};
use super::shape::Shape;
use super::spelling;
use crate::text;
use iced_x86::{FlowControl, Formatter, GasFormatter, Instruction, Mnemonic, OpKind, Register};

/// Writes instructions. Keeps what it learnt.
pub(crate) struct Att {
    gas: GasFormatter,
    facts: FactTable,
    registers: Registers,
}

impl Att {
    pub fn new() -> Att {
        let mut gas = GasFormatter::new();
        let options = gas.options_mut();
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_space_after_operand_separator(false);
        options.set_always_show_scale(true);
        let registers = Registers::new(&mut gas);
        Att { gas, facts: FactTable::new(), registers }
    }

    /// Appends the instruction; gives back where its operands begin in `out` (its end when there are none).
    pub fn write(&mut self, instruction: &Instruction, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let shape = Shape::of(bytes);
        let has_memory = (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
        let facts = self.facts.of(&mut self.gas, instruction, shape.opcode(bytes), has_memory);
        if shape.prefixes != 0 || shape.rex != 0 {
            let idle = Idle::of(facts, instruction, bytes, &shape, has_memory);
            if shape.prefixes != 0 {
                write_prefixes(instruction, bytes, &shape, idle, has_memory, out);
            }
            if idle.rex {
                write_rex(shape.rex, out);
            }
        }
        text::push(out, &facts.mnemonic);
        if shape.prefixes != 0 && instruction.flow_control() == FlowControl::ConditionalBranch {
            text::push(out, hint(bytes, &shape));
        }
        if facts.implied.is_empty() && facts.operands().is_empty() {
            return out.len();
        }
        out.push(b' ');
        let operands = out.len();
        text::push(out, facts.implied);
        for (n, operand) in facts.operands().iter().enumerate() {
            if n != 0 {
                out.push(b',');
            }
            match operand {
                Operand::Own(own) => {
                    let own = u32::from(*own);
                    if own == 0 && is_indirect(instruction) {
                        out.push(b'*');
                    }
                    if !self.registers.write_operand(instruction, own, bytes, &shape, out) {
                        // Only an operand that iced does not count fails, and it counted this one.
                        let _ = self.gas.format_operand(instruction, &mut super::Output(out), n as u32);
                    }
                }
                Operand::Iced => {
                    let _ = self.gas.format_operand(instruction, &mut super::Output(out), n as u32);
                }
            }
        }
        operands
    }
}

fn is_indirect(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall)
}

/// The names of registers, `%` before them.
struct Registers {
    names: Vec<Box<str>>,
}

impl Registers {
    fn new(gas: &mut GasFormatter) -> Registers {
        let spell = |register| spelling::register(register, gas.format_register(register)).into();
        Registers { names: Register::values().map(spell).collect() }
    }

    fn name(&self, register: Register) -> &str {
        self.names.get(register as usize).map_or("", |name| name)
    }

    /// Writes an operand, unless it is of a rare kind.
    fn write_operand(
        &self,
        instruction: &Instruction,
        n: u32,
        bytes: &[u8],
        shape: &Shape,
        out: &mut Vec<u8>,
    ) -> bool {
        let immediate = |out: &mut Vec<u8>, value: u64| {
            out.push(b'$');
            text::hex(out, value);
        };
        match instruction.op_kind(n) {
            OpKind::Register => {
                let register = instruction.op_register(n);
                if register == Register::DX && spelling::is_port(instruction) {
                    text::push(out, "(%dx)");
                } else {
                    text::push(out, self.name(register));
                }
            }
            OpKind::NearBranch64 => text::hex(out, instruction.near_branch64()),
            OpKind::Immediate8 => immediate(out, instruction.immediate8().into()),
            OpKind::Immediate8_2nd => immediate(out, instruction.immediate8_2nd().into()),
            OpKind::Immediate16 => immediate(out, instruction.immediate16().into()),
            OpKind::Immediate32 => immediate(out, instruction.immediate32().into()),
            OpKind::Immediate64 => immediate(out, instruction.immediate64()),
            OpKind::Immediate8to16 => immediate(out, u64::from(instruction.immediate8to16() as u16)),
            OpKind::Immediate8to32 => immediate(out, u64::from(instruction.immediate8to32() as u32)),
            OpKind::Immediate8to64 => immediate(out, instruction.immediate8to64() as u64),
            OpKind::Immediate32to64 => immediate(out, instruction.immediate32to64() as u64),
            OpKind::MemorySegRSI => self.write_string(data_segment(instruction), "(%rsi)", out),
            OpKind::MemorySegESI => self.write_string(data_segment(instruction), "(%esi)", out),
            OpKind::MemorySegRDI => self.write_string(data_segment(instruction), "(%rdi)", out),
            OpKind::MemorySegEDI => self.write_string(data_segment(instruction), "(%edi)", out),
            OpKind::MemoryESRDI => self.write_string(Register::ES, "(%rdi)", out),
            OpKind::MemoryESEDI => self.write_string(Register::ES, "(%edi)", out),
            OpKind::Memory => {
                self.write_memory(instruction, bytes, shape, out);
                if instruction.is_broadcast() {
                    return false;
                }
            }
            _ => return false,
        }
        if n == 0 && (instruction.has_op_mask() || instruction.zeroing_masking()) {
            if instruction.has_op_mask() {
                out.push(b'{');
                text::push(out, self.name(instruction.op_mask()));
                out.push(b'}');
            }
            if instruction.zeroing_masking() {
                text::push(out, "{z}");
            }
        }
        true
    }

    fn write_string(&self, segment: Register, base: &str, out: &mut Vec<u8>) {
        text::push(out, self.name(segment));
        out.push(b':');
        text::push(out, base);
    }

    fn write_memory(&self, instruction: &Instruction, bytes: &[u8], shape: &Shape, out: &mut Vec<u8>) {
        let segment = instruction.segment_prefix();
        if matches!(segment, Register::FS | Register::GS) && instruction.mnemonic() != Mnemonic::Xlatb {
            text::push(out, self.name(segment));
            out.push(b':');
        }
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64();
        if matches!(base, Register::RIP | Register::EIP) {
            let next = instruction.next_ip();
            let next = if base == Register::RIP { next } else { next & 0xffff_ffff };
            let relative = displacement.wrapping_sub(next) as i64;
            text::signed_hex(out, if base == Register::RIP { relative } else { (relative as i32).into() });
            out.push(b'(');
            text::push(out, self.name(base));
            out.push(b')');
            return;
        }
        if instruction.mnemonic() == Mnemonic::Xlatb {
            self.write_string(data_segment(instruction), "(", out);
            text::push(out, self.name(base));
            out.push(b')');
            return;
        }
        if spelling::is_offset(instruction.code()) {
            text::hex(out, displacement);
            return;
        }
        let sib = shape.sib(bytes);
        let scale = sib.map_or(0, |sib| sib >> 6);
        if base == Register::None && index == Register::None && scale == 0 {
            text::hex(out, displacement);
            return;
        }
        if shape.mode(bytes) != 0 || base == Register::None {
            let signed =
                if is_32(base, index) { i64::from(displacement as i32) } else { displacement as i64 };
            text::signed_hex(out, signed);
        }
        out.push(b'(');
        text::push(out, if base == Register::None { "" } else { self.name(base) });
        let stack_base = sib.is_some_and(|sib| sib & 7 == 4)
            && matches!(base, Register::RSP | Register::ESP | Register::R12 | Register::R12D);
        if index != Register::None {
            out.push(b',');
            text::push(out, self.name(index));
        } else if scale != 0 || (sib.is_some() && !stack_base) {
            text::push(out, if is_32(base, index) { ",%eiz" } else { ",%riz" });
        }
        if index != Register::None || scale != 0 || (sib.is_some() && !stack_base) {
            out.push(b',');
            out.push(b'0' + (1 << scale));
        }
        out.push(b')');
    }
}

/// The segment of a string instruction's operand that an override applies to: in 64-bit mode two have a meaning.
fn data_segment(instruction: &Instruction) -> Register {
    match instruction.segment_prefix() {
        segment @ (Register::FS | Register::GS) => segment,
        _ => Register::DS,
    }
}

fn is_32(base: Register, index: Register) -> bool {
    base.is_gpr32() || index.is_gpr32()
}

/// Prefixes that do nothing, and those that are written apart, in the order of the bytes.
pub(super) fn write_prefixes(
    instruction: &Instruction,
    bytes: &[u8],
    shape: &Shape,
    idle: Idle,
    has_memory: bool,
    out: &mut Vec<u8>,
) {
    let prefixes = bytes.get(..shape.prefixes).unwrap_or_default();
    let last = |wanted: &[u8]| prefixes.iter().rposition(|byte| wanted.contains(byte));
    let (segment, size, repeat) = (last(&[0x64, 0x65]), last(&[0x66]), last(&[0xf2, 0xf3]));
    let (address, any_segment) = (last(&[0x67]), last(&[0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65]));
    let any_operand =
        |wanted: fn(OpKind) -> bool| (0..instruction.op_count()).any(|n| wanted(instruction.op_kind(n)));
    let takes_segment =
        any_operand(|kind| is_string(kind) && !matches!(kind, OpKind::MemoryESRDI | OpKind::MemoryESEDI))
            || instruction.mnemonic() == Mnemonic::Xlatb;
    let uses_memory = has_memory || any_operand(is_string);
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    for (at, byte) in prefixes.iter().enumerate() {
        let at = Some(at);
        let name = match byte {
            0x64 | 0x65 if at == segment && (has_memory || takes_segment) => continue,
            0x26 | 0x2e | 0x36 | 0x3e if at == any_segment && takes_segment => continue,
            0x66 if at == size && !idle.size => continue,
            0x67 if at == address && (uses_memory || counts_by_ecx(instruction)) => continue,
            0xf2 | 0xf3 if at == repeat && !repeats => continue,
            0x3e if at == any_segment && is_indirect(instruction) => "notrack",
            0x2e | 0x3e
                if at == any_segment && instruction.flow_control() == FlowControl::ConditionalBranch =>
            {
                continue;
            }
            0x26 => "es",
            0x2e => "cs",
            0x36 => "ss",
            0x3e => "ds",
            0x64 => "fs",
            0x65 => "gs",
            0x66 => "data16",
            0x67 => "addr32",
            0xf0 => "lock",
            0xf2 if at == repeat => repne(instruction),
            0xf3 if at == repeat => rep(instruction),
            0xf2 => "repnz",
            0xf3 => "repz",
            rex => {
                write_rex(*rex, out);
                continue;
            }
        };
        text::push(out, name);
        out.push(b' ');
    }
}

pub(super) fn write_rex(rex: u8, out: &mut Vec<u8>) {
    text::push(out, "rex");
    if rex & 15 != 0 {
        out.push(b'.');
    }
    for (bit, letter) in [(8, b'W'), (4, b'R'), (2, b'X'), (1, b'B')] {
        if rex & bit != 0 {
            out.push(letter);
        }
    }
    out.push(b' ');
}

/// A branch's hint, said by a segment prefix.
pub(super) fn hint(bytes: &[u8], shape: &Shape) -> &'static str {
    let segment = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65);
    match bytes.iter().take(shape.prefixes).rev().find(segment) {
        Some(0x2e) => ",pn",
        Some(0x3e) => ",pt",
        _ => "",
    }
}

fn is_string(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(kind, MemorySegRSI | MemorySegESI | MemorySegRDI | MemorySegEDI | MemoryESRDI | MemoryESEDI)
}

fn counts_by_ecx(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(instruction.mnemonic(), Jecxz | Loop | Loope | Loopne)
}

fn rep(instruction: &Instruction) -> &'static str {
    use Mnemonic::*;
    match instruction.mnemonic() {
        _ if instruction.has_xrelease_prefix() => "xrelease",
        Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq => "repz",
        _ if instruction.is_string_instruction() => "rep",
        _ => "repz",
    }
}

fn repne(instruction: &Instruction) -> &'static str {
    use Mnemonic::{Call, Jmp, Ret};
    match instruction.mnemonic() {
        _ if instruction.has_xacquire_prefix() => "xacquire",
        Call | Jmp | Ret => "bnd",
        _ if instruction.is_jcc_short_or_near() => "bnd",
        _ => "repnz",
    }
}
