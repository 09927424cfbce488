//! x86-64, by iced-x86.

mod att;
mod facts;
mod intel;
pub(crate) mod jit;
mod jit_alu;
mod shape;
mod spelling;
mod spelling_intel;

use crate::decoded::{BAD, Class, Decoded};
use crate::labels::Labels;
use crate::{Flow, Syntax, TargetKind};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, FormatterOutput, FormatterTextKind, Instruction, Mnemonic,
    OpKind, Register,
};

/// Writes instructions in one of the syntaxes.
pub(crate) enum Writer {
    Att(Box<att::Att>),
    Intel(Box<intel::Intel>),
}

impl Writer {
    pub fn new(syntax: Syntax) -> Writer {
        match syntax {
            Syntax::Att => Writer::Att(Box::new(att::Att::new())),
            Syntax::Intel => Writer::Intel(Box::new(intel::Intel::new())),
        }
    }
}

/// As objdump decodes: MPX's instructions, though no newer CPU has them.
const OPTIONS: u32 = DecoderOptions::MPX;

/// What iced writes, into bytes.
struct Output<'a>(&'a mut Vec<u8>);

impl FormatterOutput for Output<'_> {
    fn write(&mut self, text: &str, _: FormatterTextKind) {
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// Where in some bytes decoding is.
pub(crate) struct Cursor<'a> {
    decoder: Decoder<'a>,
    instruction: Instruction,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], address: u64) -> Cursor<'a> {
        Cursor { decoder: Decoder::with_ip(64, bytes, address, OPTIONS), instruction: Instruction::default() }
    }

    /// The instruction at the beginning of `rest`, which is where the cursor is; its text is appended.
    pub fn next(&mut self, writer: &mut Writer, rest: &[u8], text: &mut Vec<u8>) -> Decoded {
        let instruction = &mut self.instruction;
        step(&mut self.decoder, instruction);
        let bytes = rest.get(..instruction.len()).unwrap_or_default();
        if instruction.is_invalid() || bytes.is_empty() {
            text.extend_from_slice(BAD.as_bytes());
            let all_zero = rest.first() == Some(&0);
            return Decoded {
                length: 1,
                flow: Flow::Invalid,
                operands_at: text.len(),
                targets: [None; 2],
                class: if all_zero { Class::Zeros } else { Class::Plain },
            };
        }
        let operands_at = match writer {
            Writer::Att(att) => att.write(instruction, bytes, text),
            Writer::Intel(intel) => intel.write(instruction, bytes, text),
        };
        Decoded {
            length: bytes.len(),
            flow: flow(instruction),
            operands_at,
            targets: targets(instruction),
            class: class(instruction, bytes),
        }
    }
}

/// Decodes the next instruction; of bytes that are none passes one.
fn step(decoder: &mut Decoder<'_>, instruction: &mut Instruction) {
    let (position, ip) = (decoder.position(), decoder.ip());
    decoder.decode_out(instruction);
    if instruction.is_invalid() && decoder.set_position(position + 1).is_ok() {
        decoder.set_ip(ip.wrapping_add(1));
    }
}

/// A function's instructions.
pub(crate) struct Machine {
    pub instructions: Vec<Instruction>,
    address: u64,
    len: usize,
}

impl Machine {
    pub fn decode(bytes: &[u8], address: u64) -> Machine {
        let mut decoder = Decoder::with_ip(64, bytes, address, OPTIONS);
        let mut instructions = Vec::new();
        while decoder.can_decode() {
            let mut instruction = Instruction::default();
            step(&mut decoder, &mut instruction);
            instructions.push(instruction);
        }
        Machine { instructions, address, len: bytes.len() }
    }

    /// The number of the instruction that begins at an offset; of the end, how many there are.
    pub fn index(&self, offset: usize) -> Option<usize> {
        if offset == self.len {
            return Some(self.instructions.len());
        }
        self.instructions.binary_search_by_key(&offset, |i| i.ip().wrapping_sub(self.address) as usize).ok()
    }

    /// Where an instruction begins.
    pub fn offset(&self, index: usize) -> Option<usize> {
        match self.instructions.get(index) {
            Some(instruction) => Some(instruction.ip().wrapping_sub(self.address) as usize),
            None => (index == self.instructions.len()).then_some(self.len),
        }
    }

    /// Where the last jump of a piece goes, no-ops after it apart.
    pub fn jump_in(&self, from: usize, to: usize) -> Option<u64> {
        let piece = self.instructions.get(self.index(from)?..self.index(to)?)?;
        let last = piece.iter().rev().find(|i| i.mnemonic() != Mnemonic::Nop)?;
        let jumps = last.op0_kind() == OpKind::NearBranch64 && flow(last) != Flow::Call;
        jumps.then(|| last.near_branch_target())
    }
}

/// Notes where instructions begin and where jumps go.
pub(crate) fn find_labels(bytes: &[u8], address: u64, labels: &mut Labels) {
    let mut decoder = Decoder::with_ip(64, bytes, address, OPTIONS);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        labels.instruction(decoder.position());
        step(&mut decoder, &mut instruction);
        let jumps = instruction.op0_kind() == OpKind::NearBranch64 && flow(&instruction) != Flow::Call;
        if jumps && !instruction.is_invalid() {
            let offset = instruction.near_branch64().wrapping_sub(address);
            if offset < bytes.len() as u64 {
                labels.jump(offset);
            }
        }
    }
}

/// What trailing padding is told by: each instruction's length, class and flow.
pub(crate) fn walk(bytes: &[u8], mut visit: impl FnMut(usize, Class, Flow)) {
    let mut decoder = Decoder::new(64, bytes, OPTIONS);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let from = decoder.position();
        step(&mut decoder, &mut instruction);
        let these = bytes.get(from..decoder.position()).unwrap_or_default();
        if instruction.is_invalid() {
            // The end may cut a zero's instruction in two.
            let class = if these == [0] { Class::Zeros } else { Class::Plain };
            visit(decoder.position(), class, Flow::Invalid);
        } else {
            visit(decoder.position(), class(&instruction, these), flow(&instruction));
        }
    }
}

fn flow(instruction: &Instruction) -> Flow {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch => Flow::Jump,
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            if instruction.op0_kind() == OpKind::NearBranch64 { Flow::Branch } else { Flow::Next }
        }
        FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => Flow::Call,
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Return => Flow::Return,
        FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => Flow::Trap,
        FlowControl::Exception => Flow::Trap,
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => Flow::Trap,
        FlowControl::Next | FlowControl::Call | FlowControl::Interrupt => Flow::Next,
    }
}

fn class(instruction: &Instruction, bytes: &[u8]) -> Class {
    match instruction.code() {
        Code::Int3 => Class::Filler,
        Code::Endbr64 => Class::Landing,
        // What kernels put in the place of an endbr64 that nothing needs (gen_endbr_poison).
        Code::Nop_rm16 | Code::Nop_rm32
            if matches!(bytes, [0x66, 0x0f, 0x1f, 0] | [0x0f, 0x1f, 0x40, 0xd6]) =>
        {
            Class::Landing
        }
        Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64 | Code::Nopw | Code::Nopd | Code::Nopq => Class::Nop,
        _ if bytes.iter().all(|byte| *byte == 0) => Class::Zeros,
        _ => Class::Plain,
    }
}

/// The lowest address of the kernel's half.
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// Small negative numbers, errors among them, are no addresses.
const NEGATIVE: u64 = 0xffff_ffff_fff0_0000;

fn targets(instruction: &Instruction) -> [Option<(TargetKind, u64)>; 2] {
    let mut found = [None; 2];
    let mut places = found.iter_mut();
    let mut add = |kind, address| {
        if let Some(place) = places.next() {
            *place = Some((kind, address));
        }
    };
    for n in 0..instruction.op_count() {
        match instruction.op_kind(n) {
            OpKind::NearBranch64 => {
                let kind = if flow(instruction) == Flow::Call { TargetKind::Call } else { TargetKind::Jump };
                add(kind, instruction.near_branch64());
            }
            OpKind::Memory if class(instruction, &[1]) != Class::Nop => {
                let address = instruction.memory_displacement64();
                let relative = matches!(instruction.memory_base(), Register::RIP | Register::EIP);
                if instruction.segment_prefix() == Register::GS {
                    let plain = instruction.memory_base() == Register::None
                        && instruction.memory_index() == Register::None;
                    if relative || plain {
                        add(TargetKind::PerCpu, address);
                    }
                } else if relative {
                    add(TargetKind::Data, address);
                } else if (KERNEL..NEGATIVE).contains(&address) {
                    add(TargetKind::Immediate, address);
                }
            }
            OpKind::Immediate32to64 => {
                let value = instruction.immediate32to64() as u64;
                if (KERNEL..NEGATIVE).contains(&value) {
                    add(TargetKind::Immediate, value);
                }
            }
            OpKind::Immediate64 if (KERNEL..NEGATIVE).contains(&instruction.immediate64()) => {
                add(TargetKind::Immediate, instruction.immediate64());
            }
            _ => {}
        }
    }
    found
}
