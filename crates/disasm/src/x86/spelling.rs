//! Where binutils (2.40) spells otherwise than iced.

use iced_x86::{Code, Instruction, Mnemonic, Register};
use std::borrow::Cow;

/// The mnemonic as binutils has it, from iced's.
pub(super) fn mnemonic<'a>(instruction: &Instruction, iced: &'a str) -> Cow<'a, str> {
    use Mnemonic::{Call, Jmp, Pop, Push, Retf};
    let bare = match instruction.mnemonic() {
        // In 64-bit mode 64 bits are the only size, and go without saying.
        Call | Jmp | Push | Pop | Retf => match (iced.strip_prefix('l'), iced.strip_suffix('q')) {
            (Some(_), _) => iced.strip_suffix('l').unwrap_or(iced),
            (_, Some(bare)) => bare,
            _ => iced,
        },
        _ => iced,
    };
    Cow::Borrowed(bare)
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
    use Mnemonic::{Imul, Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shr};
    match instruction.mnemonic() {
        // Also where two are the same register.
        Imul if instruction.op_count() == 3 => Some(&[2, 1, 0]),
        // By one: the opcode says so.
        Rcl | Rcr | Rol | Ror | Sal | Sar | Shl | Shr if matches!(opcode, 0xd0 | 0xd1) => Some(&[0]),
        _ => None,
    }
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
