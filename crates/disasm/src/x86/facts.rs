//! What is always the same of an opcode: its mnemonic, which operands are printed in which order, and which prefixes it
//! takes to itself. Found out at the first instruction with that opcode, and kept.

use super::shape::{Encoding, Shape, is_rex};
use super::spelling;
use iced_x86::{
    Code, Decoder, FormatMnemonicOptions, Formatter, GasFormatter, IcedError, Instruction, Mnemonic, OpKind,
    RoundingControl,
};

/// Operands an instruction may have in print.
const MOST: usize = 6;

/// Where a printed operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// The instruction's operand of that number.
    Own(u8),
    /// iced makes it up, and writes it.
    Iced,
}

/// Of one opcode.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// As binutils spells it.
    pub mnemonic: Box<str>,
    /// Operands that are no one's choice, and that binutils prints before the others.
    pub implied: &'static str,
    operands: [Operand; MOST],
    count: u8,
    used: Used,
}

/// Which prefixes decide something: looked at when an instruction has them.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    wide: Option<bool>,
    reg: Option<bool>,
    base: Option<bool>,
    size: Option<bool>,
}

impl Facts {
    /// The operands in the order of print.
    pub fn operands(&self) -> &[Operand] {
        self.operands.get(..usize::from(self.count)).unwrap_or_default()
    }

    fn learn(gas: &mut GasFormatter, instruction: &Instruction, opcode: u8) -> Facts {
        // On the x87 stack binutils leaves nothing out.
        gas.options_mut().set_use_pseudo_ops(!is_x87(instruction));
        let mut mnemonic = String::new();
        gas.format_mnemonic_options(instruction, &mut mnemonic, FormatMnemonicOptions::NO_PREFIXES);
        let mut facts = Facts {
            mnemonic: spelling::mnemonic(instruction, &mnemonic).into(),
            implied: spelling::implied(instruction),
            operands: [Operand::Iced; MOST],
            count: 0,
            used: Used::default(),
        };
        for n in 0..gas.operand_count(instruction) {
            let own = match gas.get_instruction_operand(instruction, n) {
                Ok(Some(own)) if is_plain(gas, instruction, n, own) => Operand::Own(own as u8),
                _ => Operand::Iced,
            };
            if let Some(place) = facts.operands.get_mut(usize::from(facts.count)) {
                *place = own;
                facts.count += 1;
            }
        }
        if let Some(own) = spelling::operands(instruction, opcode) {
            facts.count = 0;
            for (place, own) in facts.operands.iter_mut().zip(own) {
                *place = Operand::Own(*own);
                facts.count += 1;
            }
        }
        if instruction.code() == Code::Nopq {
            facts.used.wide = Some(false);
        }
        facts
    }
}

/// Whether an operand in print is the instruction's own: iced shows some registers in another size.
fn is_plain(gas: &mut GasFormatter, instruction: &Instruction, printed: u32, own: u32) -> bool {
    if instruction.op_kind(own) != OpKind::Register {
        return true;
    }
    let mut text = String::new();
    let written: Result<(), IcedError> = gas.format_operand(instruction, &mut text, printed);
    let text = text.trim_start_matches('*');
    let text = text.split('{').next().unwrap_or_default();
    let register = instruction.op_register(own);
    written.is_ok() && text == gas.format_register(register)
}

/// The facts of every opcode met so far.
pub(super) struct FactTable {
    /// Twice a code's number, one more where there is memory: the place in `known` plus one.
    index: Vec<u16>,
    known: Vec<Facts>,
    /// Of an instruction whose text is not its opcode's alone.
    single: Option<Facts>,
}

impl FactTable {
    pub fn new() -> FactTable {
        FactTable { index: Vec::new(), known: Vec::new(), single: None }
    }

    /// What is known of an instruction's opcode.
    ///
    /// `opcode` is the last byte of it.
    pub fn of(
        &mut self,
        gas: &mut GasFormatter,
        instruction: &Instruction,
        opcode: u8,
        has_memory: bool,
    ) -> &mut Facts {
        if is_single(instruction) {
            return self.single.insert(Facts::learn(gas, instruction, opcode));
        }
        let key = instruction.code() as usize * 2 + usize::from(has_memory);
        if self.index.len() <= key {
            self.index.resize(key + 1, 0);
        }
        let place = match self.index.get(key) {
            Some(place) if *place != 0 => usize::from(*place) - 1,
            _ => {
                let place = self.known.len();
                self.known.push(Facts::learn(gas, instruction, opcode));
                if let (Some(entry), Ok(number)) = (self.index.get_mut(key), u16::try_from(place + 1)) {
                    *entry = number;
                }
                place
            }
        };
        match self.known.get_mut(place) {
            Some(facts) => facts,
            None => self.single.insert(Facts::learn(gas, instruction, opcode)),
        }
    }
}

/// Instructions whose mnemonic or number of operands lies in their immediate, registers or rounding.
fn is_single(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Aad, Aam, Cmppd, Cmpps, Cmpsd, Cmpss, Pclmulqdq, Vcmppd, Vcmpph, Vcmpps, Vcmpsd, Vcmpsh, Vcmpss,
        Vpclmulqdq, Vpcmpb, Vpcmpd, Vpcmpq, Vpcmpub, Vpcmpud, Vpcmpuq, Vpcmpuw, Vpcmpw, Vpcomb, Vpcomd,
        Vpcomq, Vpcomub, Vpcomud, Vpcomuq, Vpcomuw, Vpcomw,
    };
    matches!(
        instruction.mnemonic(),
        Aad | Aam
            | Cmppd
            | Cmpps
            | Cmpsd
            | Cmpss
            | Pclmulqdq
            | Vcmppd
            | Vcmpph
            | Vcmpps
            | Vcmpsd
            | Vcmpsh
            | Vcmpss
            | Vpclmulqdq
            | Vpcmpb
            | Vpcmpd
            | Vpcmpq
            | Vpcmpub
            | Vpcmpud
            | Vpcmpuq
            | Vpcmpuw
            | Vpcmpw
            | Vpcomb
            | Vpcomd
            | Vpcomq
            | Vpcomub
            | Vpcomud
            | Vpcomuq
            | Vpcomuw
            | Vpcomw
    ) || instruction.rounding_control() != RoundingControl::None
        || instruction.suppress_all_exceptions()
        || is_x87(instruction)
}

/// Whether an operand is a place on the x87 stack.
pub(super) fn is_x87(instruction: &Instruction) -> bool {
    let in_stack = |n| instruction.op_kind(n) == OpKind::Register && instruction.op_register(n).is_st();
    (0..instruction.op_count().min(2)).any(in_stack)
}

/// Which prefixes of an instruction change nothing, so that they are printed before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    /// REX, when one of its bits does not.
    pub rex: bool,
    /// The last operand-size prefix.
    pub size: bool,
}

impl Idle {
    /// Asks by taking away what is in question, and decoding again.
    pub fn of(
        facts: &mut Facts,
        instruction: &Instruction,
        bytes: &[u8],
        shape: &Shape,
        has_memory: bool,
    ) -> Idle {
        if shape.encoding == Encoding::Vector {
            return Idle::default();
        }
        let size = bytes.iter().take(shape.prefixes).position(|byte| *byte == 0x66);
        // A REX that does not count would, if a prefix after it went: that says nothing of the opcode.
        let is_tidy = !bytes.iter().take(shape.prefixes).any(|byte| is_rex(*byte));
        let mut idle = Idle::default();
        if shape.rex != 0 {
            let mut used = true;
            let without = |bit: u8| {
                let mut other = Bytes::of(bytes);
                other.change(shape.prefixes, shape.rex & !bit);
                other.differs(instruction, 0)
            };
            if shape.rex & 8 != 0 {
                used &= match size {
                    None => *facts.used.wide.get_or_insert_with(|| without(8)),
                    Some(_) => without(8),
                };
            }
            if shape.rex & 4 != 0 {
                used &= *facts.used.reg.get_or_insert_with(|| without(4));
            }
            if shape.rex & 2 != 0 {
                used &= shape.sib(bytes).is_some() && has_memory;
            }
            if shape.rex & 1 != 0 {
                used &= has_memory || *facts.used.base.get_or_insert_with(|| without(1));
            }
            if shape.rex & 15 == 0 {
                used = names_low_byte(instruction);
            }
            idle.rex = !used;
        }
        if let Some(at) = size {
            let without = || {
                let mut other = Bytes::of(bytes);
                other
                    .remove_all(at, shape.prefixes, 0x66)
                    .is_some_and(|removed| other.differs(instruction, removed))
            };
            idle.size = if shape.rex & 8 == 0 && is_tidy {
                !*facts.used.size.get_or_insert_with(without)
            } else {
                !without()
            };
        }
        idle
    }
}

/// Whether a REX without bits is needed, for `%spl` to `%dil`.
fn names_low_byte(instruction: &Instruction) -> bool {
    use iced_x86::Register::*;
    (0..instruction.op_count()).any(|n| matches!(instruction.op_register(n), SPL | BPL | SIL | DIL))
}

/// An instruction's bytes, to be changed.
struct Bytes {
    room: [u8; 16],
    len: usize,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Bytes {
        let mut room = [0; 16];
        let len = bytes.len().min(room.len());
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
        Bytes { room, len }
    }

    fn change(&mut self, at: usize, byte: u8) {
        if let Some(place) = self.room.get_mut(at) {
            *place = byte;
        }
    }

    /// Takes away each such byte from `from` to `to`; says how many.
    fn remove_all(&mut self, from: usize, to: usize, byte: u8) -> Option<usize> {
        let mut kept = from;
        for at in from..self.len {
            let this = *self.room.get(at)?;
            if at < to && this == byte {
                continue;
            }
            *self.room.get_mut(kept)? = this;
            kept += 1;
        }
        let removed = self.len - kept;
        self.len = kept;
        Some(removed)
    }

    /// Whether these bytes mean something else, at an address that is higher by what was taken away.
    fn differs(&self, instruction: &Instruction, removed: usize) -> bool {
        let bytes = self.room.get(..self.len).unwrap_or_default();
        let ip = instruction.ip().wrapping_add(removed as u64);
        let other = Decoder::with_ip(64, bytes, ip, super::OPTIONS).decode();
        other.code() != instruction.code() || other != *instruction
    }
}
