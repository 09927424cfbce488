//! Instructions as the kernel takes them: `struct bpf_insn` and the opcode numbers of `include/uapi/linux/bpf.h` and
//! `include/uapi/linux/bpf_common.h`; their meaning is in `Documentation/bpf/standardization/instruction-set.rst`.

use crate::ir::{Alu, Cmp, Size, Width};

/// One instruction, `struct bpf_insn`. A 64-bit immediate load takes two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Insn {
    /// Opcode.
    pub code: u8,
    /// Destination register, 0-10.
    pub dst: u8,
    /// Source register, 0-10, or a pseudo source.
    pub src: u8,
    /// Jump distance in instructions, or byte offset.
    pub off: i16,
    /// Constant.
    pub imm: i32,
}

impl Insn {
    /// The eight bytes of the instruction in this machine's order, as the kernel reads them.
    pub fn to_bytes(self) -> [u8; 8] {
        let regs = if cfg!(target_endian = "little") {
            self.dst & 15 | self.src << 4
        } else {
            self.dst << 4 | self.src & 15
        };
        let [o0, o1] = self.off.to_ne_bytes();
        let [i0, i1, i2, i3] = self.imm.to_ne_bytes();
        [self.code, regs, o0, o1, i0, i1, i2, i3]
    }

    /// The same eight bytes as a number.
    pub fn to_u64(self) -> u64 {
        u64::from_ne_bytes(self.to_bytes())
    }

    /// From the eight bytes as a number, whatever they are.
    pub fn from_u64(word: u64) -> Insn {
        let [code, regs, o0, o1, i0, i1, i2, i3] = word.to_ne_bytes();
        let (low, high) = (regs & 15, regs >> 4);
        let (dst, src) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        let (off, imm) = (i16::from_ne_bytes([o0, o1]), i32::from_ne_bytes([i0, i1, i2, i3]));
        Insn { code, dst, src, off, imm }
    }

    /// Whether this is the first half of a two-instruction load.
    pub fn is_wide(self) -> bool {
        self.code == LD_IMM64
    }
}

pub(crate) const LD: u8 = 0x00;
pub(crate) const LDX: u8 = 0x01;
pub(crate) const ST: u8 = 0x02;
pub(crate) const STX: u8 = 0x03;
pub(crate) const ALU: u8 = 0x04;
pub(crate) const JMP: u8 = 0x05;
pub(crate) const JMP32: u8 = 0x06;
pub(crate) const ALU64: u8 = 0x07;

pub(crate) const K: u8 = 0x00;
pub(crate) const X: u8 = 0x08;

pub(crate) const MEM: u8 = 0x60;
pub(crate) const MEMSX: u8 = 0x80;
pub(crate) const ATOMIC: u8 = 0xc0;
/// In the constant of an atomic operation: the register added gets the old value (Linux 5.12).
pub(crate) const FETCH: i32 = 0x01;

pub(crate) const NEG: u8 = 0x80;
pub(crate) const MOV: u8 = 0xb0;
pub(crate) const END: u8 = 0xd0;
pub(crate) const TO_LE: u8 = 0x00;
pub(crate) const TO_BE: u8 = 0x08;

pub(crate) const JA: u8 = JMP;
pub(crate) const CALL: u8 = JMP | 0x80;
pub(crate) const EXIT: u8 = JMP | 0x90;
pub(crate) const LD_IMM64: u8 = LD | 0x18;

pub(crate) const PSEUDO_MAP_FD: u8 = 1;
pub(crate) const PSEUDO_MAP_VALUE: u8 = 2;
pub(crate) const PSEUDO_BTF_ID: u8 = 3;
pub(crate) const PSEUDO_FUNC: u8 = 4;
pub(crate) const PSEUDO_CALL: u8 = 1;
pub(crate) const PSEUDO_KFUNC_CALL: u8 = 2;

/// The frame pointer.
pub(crate) const FP: u8 = 10;

pub(crate) const fn size_bits(size: Size) -> u8 {
    match size {
        Size::W => 0x00,
        Size::H => 0x08,
        Size::B => 0x10,
        Size::DW => 0x18,
    }
}

pub(crate) const fn alu_class(width: Width) -> u8 {
    match width {
        Width::W32 => ALU,
        Width::W64 => ALU64,
    }
}

pub(crate) const fn jmp_class(width: Width) -> u8 {
    match width {
        Width::W32 => JMP32,
        Width::W64 => JMP,
    }
}

pub(crate) const fn alu_bits(op: Alu) -> u8 {
    match op {
        Alu::Add => 0x00,
        Alu::Sub => 0x10,
        Alu::Mul => 0x20,
        Alu::Div => 0x30,
        Alu::Or => 0x40,
        Alu::And => 0x50,
        Alu::Lsh => 0x60,
        Alu::Rsh => 0x70,
        Alu::Mod => 0x90,
        Alu::Xor => 0xa0,
        Alu::Arsh => 0xc0,
    }
}

pub(crate) const fn cmp_bits(cmp: Cmp) -> u8 {
    match cmp {
        Cmp::Eq => 0x10,
        Cmp::Gt => 0x20,
        Cmp::Ge => 0x30,
        Cmp::Set => 0x40,
        Cmp::Ne => 0x50,
        Cmp::SGt => 0x60,
        Cmp::SGe => 0x70,
        Cmp::Lt => 0xa0,
        Cmp::Le => 0xb0,
        Cmp::SLt => 0xc0,
        Cmp::SLe => 0xd0,
    }
}
