//! Where binutils (2.40) spells Intel's syntax otherwise than iced.

use iced_x86::{Code, Instruction, MemorySize, Mnemonic, OpKind, Register};
use std::borrow::Cow;

/// The mnemonic as binutils has it, from iced's.
pub(super) fn mnemonic<'a>(instruction: &Instruction, iced: &'a str) -> Cow<'a, str> {
    use Mnemonic::{Iret, Iretd, Popf, Popfq, Pushf, Pushfq, Reservednop, Retf, Sal, Sysret};
    let bare = match instruction.mnemonic() {
        _ if instruction.code() == Code::Mov_r64_imm64 || super::spelling::is_offset(instruction.code()) => {
            "movabs"
        }
        Pushfq => "pushf",
        Popfq => "popf",
        Iretd => "iret",
        Popf => "popfw",
        Pushf => "pushfw",
        Iret => "iretw",
        Sysret if instruction.code() == Code::Sysretd => "sysretd",
        Retf => match instruction.code() {
            Code::Retfq | Code::Retfq_imm16 => "retfq",
            Code::Retfw | Code::Retfw_imm16 => "retfw",
            _ => "retf",
        },
        Sal => "shl",
        Reservednop => "nop",
        _ if instruction.code() == Code::Nopq => "nop",
        // Operands say how much.
        _ if instruction.is_string_instruction() => iced.get(..iced.len().saturating_sub(1)).unwrap_or(iced),
        _ if iced == "xstore" => "xstore-rng",
        _ if iced.starts_with("xcrypt") => return Cow::Owned(iced.replacen("xcrypt", "xcrypt-", 1)),
        _ if super::spelling::is_late_vex(instruction.code()) => {
            return Cow::Owned(format!("{{vex}} {iced}"));
        }
        _ => iced.strip_suffix(" far").unwrap_or(iced),
    };
    Cow::Borrowed(bare)
}

/// An operand that the opcode means, which binutils prints after the others.
pub(super) fn implied(instruction: &Instruction) -> &'static str {
    match instruction.code() {
        Code::Sha256rnds2_xmm_xmmm128
        | Code::Pblendvb_xmm_xmmm128
        | Code::Blendvps_xmm_xmmm128
        | Code::Blendvpd_xmm_xmmm128 => ",xmm0",
        _ => "",
    }
}

/// The instruction's operands in binutils' order, where that is not iced's.
pub(super) fn operands(instruction: &Instruction) -> Option<&'static [u8]> {
    use Mnemonic::{
        Enter, Fcom, Fcomp, Fld, Fst, Fstp, Fucom, Fucomp, Fxch, Imul, Monitor, Monitorx, Mwait, Mwaitx,
        Pvalidate, Reservednop,
    };
    match instruction.mnemonic() {
        // Also where two are the same register.
        Imul if instruction.op_count() == 3 => Some(&[0, 1, 2]),
        Monitor | Monitorx | Mwait | Mwaitx | Pvalidate => Some(&[]),
        _ if instruction.is_string_instruction() => Some(&[0, 1]),
        Enter => Some(&[0, 1]),
        Reservednop => Some(&[0]),
        Fxch | Fcom | Fcomp | Fucom | Fucomp if super::facts::is_x87(instruction) => Some(&[1]),
        Fld | Fst | Fstp if super::facts::is_x87(instruction) => Some(&[0]),
        _ if instruction.code() == Code::Nopq => Some(&[]),
        // From or to the top of the x87 stack, which goes without saying.
        _ if instruction.op_count() == 1 && instruction.op0_kind() == OpKind::Memory => Some(&[0]),
        _ => None,
    }
}

/// What an instruction of a shift or rotation by one says so with: the opcode, of which `opcode` is the last byte.
pub(super) fn is_by_one(instruction: &Instruction, opcode: u8) -> bool {
    use Mnemonic::{Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shr};
    matches!(instruction.mnemonic(), Rcl | Rcr | Rol | Ror | Sal | Sar | Shl | Shr)
        && matches!(opcode, 0xd0 | 0xd1)
}

/// Whether a register is the top of the x87 stack by the opcode, not by its number in the instruction.
pub(super) fn is_top(instruction: &Instruction, n: u32, bytes: &[u8]) -> bool {
    // No prefix is like the opcode.
    let opcode = bytes.iter().find(|byte| matches!(byte, 0xd8..=0xdf));
    let is_second = matches!(opcode, Some(0xdc | 0xde));
    instruction.op_register(n) == Register::ST0
        && instruction.op_count() == 2
        && super::facts::is_x87(instruction)
        && n == u32::from(is_second)
}

/// Whether a register is shown by its lower half, of which alone the instruction takes anything.
pub(super) fn is_16(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Lldt | Mnemonic::Ltr | Mnemonic::Verr | Mnemonic::Verw | Mnemonic::Lmsw
    )
}

/// What stands before an operand in memory: how much of it is meant.
pub(super) fn size(instruction: &Instruction) -> &'static str {
    use Mnemonic::{
        Cmpxchg16b, Invept, Invlpg, Invpcid, Invvpid, Lea, Lgdt, Lidt, Sgdt, Sidt, Wrssd, Wrssq, Wrussd,
        Wrussq,
    };
    match (instruction.mnemonic(), instruction.memory_size()) {
        (Invlpg, _) => "BYTE PTR ",
        (Cmpxchg16b, _) => "OWORD PTR ",
        _ if super::spelling::is_offset(instruction.code()) => "",
        (Wrssd | Wrssq | Wrussd | Wrussq, _) => "",
        (Lgdt | Lidt | Sgdt | Sidt | Invpcid | Invept | Invvpid | Lea, _) | (_, MemorySize::Unknown) => "",
        (_, size) => match size.size() {
            1 => "BYTE PTR ",
            2 => "WORD PTR ",
            4 => "DWORD PTR ",
            6 => "FWORD PTR ",
            8 => "QWORD PTR ",
            10 => "TBYTE PTR ",
            16 => "XMMWORD PTR ",
            32 => "YMMWORD PTR ",
            64 => "ZMMWORD PTR ",
            _ => "",
        },
    }
}

/// A register's name as binutils has it, from iced's.
pub(super) fn register(register: Register, iced: &str) -> String {
    match register {
        Register::None => String::new(),
        _ if register.is_st() => format!("st({})", register.number()),
        _ if register.is_gpr8() && iced.ends_with('l') && iced.starts_with('r') => {
            format!("{}b", iced.trim_end_matches('l'))
        }
        _ => iced.to_owned(),
    }
}
