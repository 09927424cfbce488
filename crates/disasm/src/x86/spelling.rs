//! Where binutils (2.40) spells otherwise than iced.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use std::borrow::Cow;

/// The mnemonic as binutils has it, from iced's.
pub(super) fn mnemonic<'a>(instruction: &Instruction, iced: &'a str) -> Cow<'a, str> {
    use Mnemonic::{Call, Iretd, Jmp, Pop, Push, Reservednop, Retf, Sal};
    let has_memory = instruction.op0_kind() == OpKind::Memory;
    let bare = match instruction.mnemonic() {
        // In 64-bit mode 64 bits are the only size, and go without saying.
        Call | Jmp | Push | Pop | Retf => match (iced.strip_prefix('l'), iced.strip_suffix('q')) {
            (Some(_), _) => iced.strip_suffix('l').unwrap_or(iced),
            (_, Some(bare)) => bare,
            _ => iced,
        },
        Iretd => "iret",
        // Two encodings of one instruction.
        Sal => return Cow::Owned(iced.replacen("sal", "shl", 1)),
        Reservednop if has_memory => match instruction.code() {
            Code::Reservednop_rm16_r16_0F0D
            | Code::Reservednop_rm16_r16_0F18
            | Code::Reservednop_rm16_r16_0F19
            | Code::Reservednop_rm16_r16_0F1A
            | Code::Reservednop_rm16_r16_0F1B
            | Code::Reservednop_rm16_r16_0F1C
            | Code::Reservednop_rm16_r16_0F1D
            | Code::Reservednop_rm16_r16_0F1E
            | Code::Reservednop_rm16_r16_0F1F => "nopw",
            _ if instruction.op1_register().is_gpr64() => "nopq",
            _ => "nopl",
        },
        _ if instruction.code() == Code::Nopq => "nop",
        _ if iced == "movzxw" => "movzww",
        _ if iced == "movsxw" => "movsww",
        _ if iced == "xstore" => "xstore-rng",
        _ if iced.starts_with("xcrypt") => return Cow::Owned(iced.replacen("xcrypt", "xcrypt-", 1)),
        // These came with EVEX first; binutils says when it is the other encoding.
        _ if is_late_vex(instruction.code()) => return Cow::Owned(format!("{{vex}} {iced}")),
        _ => iced,
    };
    Cow::Borrowed(bare)
}

pub(super) fn is_late_vex(code: Code) -> bool {
    let name = format!("{code:?}");
    ["VEX_Vpdpbusd", "VEX_Vpdpwssd", "VEX_Vpmadd52"].iter().any(|one| name.starts_with(one))
}

/// Registers that the instruction uses without naming them, which binutils prints.
pub(super) fn implied(instruction: &Instruction) -> &'static str {
    match instruction.code() {
        Code::Mwait => "%eax,%ecx",
        Code::Mwaitx => "%eax,%ecx,%ebx",
        Code::Monitorq | Code::Monitorxq => "%rax,%ecx,%edx",
        Code::Monitord | Code::Monitorxd => "%eax,%ecx,%edx",
        _ => "",
    }
}

/// The instruction's operands in binutils' order, where that is not iced's. `opcode` is its last byte.
pub(super) fn operands(instruction: &Instruction, opcode: u8) -> Option<&'static [u8]> {
    use Mnemonic::{Enter, Imul, Rcl, Rcr, Reservednop, Rol, Ror, Sal, Sar, Shl, Shr};
    match instruction.mnemonic() {
        // Also where two are the same register.
        Imul if instruction.op_count() == 3 => Some(&[2, 1, 0]),
        // By one: the opcode says so.
        Rcl | Rcr | Rol | Ror | Sal | Sar | Shl | Shr if matches!(opcode, 0xd0 | 0xd1) => Some(&[0]),
        Enter => Some(&[0, 1]),
        Reservednop => Some(&[0]),
        _ if instruction.code() == Code::Nopq => Some(&[]),
        _ => None,
    }
}

/// Whether the operand in memory is an address in the instruction, without ModRM.
pub(super) fn is_offset(code: Code) -> bool {
    matches!(
        code,
        Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
            | Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
    )
}

/// Whether `%dx` is a port, which binutils writes as if it were memory.
pub(super) fn is_port(instruction: &Instruction) -> bool {
    use Mnemonic::{In, Insb, Insd, Insw, Out, Outsb, Outsd, Outsw};
    matches!(instruction.mnemonic(), In | Insb | Insd | Insw | Out | Outsb | Outsd | Outsw)
}

/// A register's name as binutils has it, from iced's.
pub(super) fn register(register: Register, iced: &str) -> String {
    if register.is_dr() { iced.replacen("dr", "db", 1) } else { iced.to_owned() }
}
