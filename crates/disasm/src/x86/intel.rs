//! Intel's syntax as `objdump -M intel` writes it (binutils 2.40).
//!
//! As with AT&T's, mnemonics and the order of operands are iced's where it agrees; prefixes, memory and the other operands that most
//! instructions have are written here.

use super::att::{hint, write_prefixes, write_rex};
use super::facts::{FactTable, Idle};
use super::shape::Shape;
use super::spelling_intel as spelling;
use crate::text;
use iced_x86::{
    FlowControl, FormatMnemonicOptions, Formatter, GasFormatter, Instruction, IntelFormatter, Mnemonic,
    OpKind, Register,
};

/// Writes instructions. Keeps what it learnt.
pub(crate) struct Intel {
    formatter: IntelFormatter,
    /// Of which prefixes do nothing.
    gas: GasFormatter,
    facts: FactTable,
    names: Vec<Box<str>>,
    mnemonic: String,
}

impl Intel {
    pub fn new() -> Intel {
        let mut formatter = IntelFormatter::new();
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_space_after_operand_separator(false);
        options.set_rip_relative_addresses(true);
        options.set_show_branch_size(false);
        let name =
            |register: Register| spelling::register(register, &format!("{register:?}").to_lowercase()).into();
        let names = Register::values().map(name).collect();
        Intel { formatter, gas: GasFormatter::new(), facts: FactTable::new(), names, mnemonic: String::new() }
    }

    /// Appends the instruction; gives back where its operands begin in `out` (its end when there are none).
    pub fn write(&mut self, instruction: &Instruction, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let shape = Shape::of(bytes);
        let has_memory = (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
        if shape.prefixes != 0 || shape.rex != 0 {
            let facts = self.facts.of(&mut self.gas, instruction, shape.opcode(bytes), has_memory);
            let idle = Idle::of(facts, instruction, bytes, &shape, has_memory);
            if shape.prefixes != 0 {
                write_prefixes(instruction, bytes, &shape, idle, has_memory, out);
            }
            if shape.prefixes != 0 && instruction.flow_control() == FlowControl::ConditionalBranch {
                // The prefix by its name, where AT&T's syntax says what it hints at.
                text::push(
                    out,
                    match hint(bytes, &shape) {
                        ",pt" => "ds ",
                        ",pn" => "cs ",
                        _ => "",
                    },
                );
            }
            if idle.rex {
                write_rex(shape.rex, out);
            }
        }
        self.formatter.options_mut().set_use_pseudo_ops(!super::facts::is_x87(instruction));
        self.mnemonic.clear();
        self.formatter.format_mnemonic_options(
            instruction,
            &mut self.mnemonic,
            FormatMnemonicOptions::NO_PREFIXES,
        );
        text::push(out, &spelling::mnemonic(instruction, &self.mnemonic));
        let implied = spelling::implied(instruction);
        let own = spelling::operands(instruction);
        let count = own.map_or_else(|| self.formatter.operand_count(instruction), |own| own.len() as u32);
        if count == 0 {
            return out.len();
        }
        out.push(b' ');
        let operands_at = out.len();
        for n in 0..count {
            if n != 0 {
                out.push(b',');
            }
            let of = match own {
                Some(own) => own.get(n as usize).map(|own| u32::from(*own)),
                None => self.formatter.get_instruction_operand(instruction, n).ok().flatten(),
            };
            let written = of.is_some_and(|of| self.operand(instruction, of, bytes, &shape, out));
            if !written {
                // Only an operand that iced does not count fails, and it counted this one.
                let _ = self.formatter.format_operand(instruction, &mut super::Output(out), n);
            }
        }
        text::push(out, implied);
        operands_at
    }

    fn name(&self, register: Register) -> &str {
        self.names.get(register as usize).map_or("", |name| name)
    }

    /// Writes an operand, unless it is of a rare kind.
    fn operand(
        &self,
        instruction: &Instruction,
        n: u32,
        bytes: &[u8],
        shape: &Shape,
        out: &mut Vec<u8>,
    ) -> bool {
        use OpKind::*;
        match instruction.op_kind(n) {
            OpKind::Register if spelling::is_16(instruction) => {
                let low = instruction.op_register(n).number();
                text::push(out, self.name(iced_x86::Register::AX + low as u32));
            }
            OpKind::Register if spelling::is_top(instruction, n, bytes) => text::push(out, "st"),
            OpKind::Register => text::push(out, self.name(instruction.op_register(n))),
            Immediate8 if spelling::is_by_one(instruction, shape.opcode(bytes)) => out.push(b'1'),
            NearBranch64 => text::hex(out, instruction.near_branch64()),
            Immediate8 => text::hex(out, instruction.immediate8().into()),
            Immediate8_2nd => text::hex(out, instruction.immediate8_2nd().into()),
            Immediate16 => text::hex(out, instruction.immediate16().into()),
            Immediate32 => text::hex(out, instruction.immediate32().into()),
            Immediate64 => text::hex(out, instruction.immediate64()),
            Immediate8to16 => text::hex(out, u64::from(instruction.immediate8to16() as u16)),
            Immediate8to32 => text::hex(out, u64::from(instruction.immediate8to32() as u32)),
            Immediate8to64 => text::hex(out, instruction.immediate8to64() as u64),
            Immediate32to64 => text::hex(out, instruction.immediate32to64() as u64),
            MemorySegRSI => self.string(instruction, data_segment(instruction), "rsi", out),
            MemorySegESI => self.string(instruction, data_segment(instruction), "esi", out),
            MemorySegRDI => self.string(instruction, data_segment(instruction), "rdi", out),
            MemorySegEDI => self.string(instruction, data_segment(instruction), "edi", out),
            MemoryESRDI => self.string(instruction, iced_x86::Register::ES, "rdi", out),
            MemoryESEDI => self.string(instruction, iced_x86::Register::ES, "edi", out),
            Memory => {
                if instruction.is_broadcast() {
                    return false;
                }
                text::push(out, spelling::size(instruction));
                self.memory(instruction, bytes, shape, out);
            }
            _ => return false,
        }
        if n == 0 && instruction.has_op_mask() {
            out.push(b'{');
            text::push(out, self.name(instruction.op_mask()));
            out.push(b'}');
        }
        if n == 0 && instruction.zeroing_masking() {
            text::push(out, "{z}");
        }
        true
    }

    fn string(&self, instruction: &Instruction, segment: Register, base: &str, out: &mut Vec<u8>) {
        text::push(out, spelling::size(instruction));
        text::push(out, self.name(segment));
        text::push(out, ":[");
        text::push(out, base);
        out.push(b']');
    }

    fn memory(&self, instruction: &Instruction, bytes: &[u8], shape: &Shape, out: &mut Vec<u8>) {
        let segment = instruction.segment_prefix();
        let has_segment = matches!(segment, Register::FS | Register::GS);
        if has_segment && instruction.mnemonic() != Mnemonic::Xlatb {
            text::push(out, self.name(segment));
            out.push(b':');
        }
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64();
        if matches!(base, Register::RIP | Register::EIP) {
            let is_64 = base == Register::RIP;
            let next = if is_64 { instruction.next_ip() } else { instruction.next_ip() & 0xffff_ffff };
            let relative = displacement.wrapping_sub(next);
            out.push(b'[');
            text::push(out, self.name(base));
            out.push(b'+');
            text::hex(out, if is_64 { relative } else { relative & 0xffff_ffff });
            out.push(b']');
            return;
        }
        if instruction.mnemonic() == Mnemonic::Xlatb {
            text::push(out, self.name(data_segment(instruction)));
            text::push(out, ":[rbx]");
            return;
        }
        let sib = shape.sib(bytes);
        let scale = sib.map_or(0, |sib| sib >> 6);
        if super::spelling::is_offset(instruction.code())
            || base == Register::None && index == Register::None && scale == 0
        {
            if !has_segment {
                text::push(out, "ds:");
            }
            text::hex(out, displacement);
            return;
        }
        out.push(b'[');
        let mut begun = base != Register::None;
        if begun {
            text::push(out, self.name(base));
        }
        let stack_base = sib.is_some_and(|sib| sib & 7 == 4)
            && matches!(base, Register::RSP | Register::ESP | Register::R12 | Register::R12D);
        let is_32 = base.is_gpr32() || index.is_gpr32();
        if index != Register::None || scale != 0 || (sib.is_some() && !stack_base) {
            if begun {
                out.push(b'+');
            }
            begun = true;
            match index {
                Register::None => text::push(out, if is_32 { "eiz" } else { "riz" }),
                index => text::push(out, self.name(index)),
            }
            out.push(b'*');
            out.push(b'0' + (1 << scale));
        }
        if shape.mode(bytes) != 0 || base == Register::None {
            let signed = if is_32 { i64::from(displacement as i32) } else { displacement as i64 };
            if begun && signed >= 0 {
                out.push(b'+');
            }
            text::signed_hex(out, signed);
        }
        out.push(b']');
    }
}

/// The segment of a string instruction's operand that an override applies to: in 64-bit mode two have a meaning.
fn data_segment(instruction: &Instruction) -> Register {
    match instruction.segment_prefix() {
        segment @ (Register::FS | Register::GS) => segment,
        _ => Register::DS,
    }
}
