//! What the kernel's JIT makes of each instruction of BPF (`do_jit`, arch/x86/net/bpf_jit_comp.c), as far as needed to recognise
//! it: shapes of machine code, each held against operands.

use super::jit_alu;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic as M, OpKind, Register as R};

/// An instruction of BPF (`struct bpf_insn`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bpf {
    pub code: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
    /// The upper half of a 64-bit constant.
    pub high: i32,
}

impl Bpf {
    pub fn new(word: u64, next: u64) -> Bpf {
        Bpf {
            code: word as u8,
            dst: (word >> 8) as u8 & 15,
            src: (word >> 12) as u8 & 15,
            off: (word >> 16) as i16,
            imm: (word >> 32) as i32,
            high: (next >> 32) as i32,
        }
    }

    pub fn is_wide(&self) -> bool {
        self.code == LD_IMM64
    }

    pub fn class(&self) -> u8 {
        self.code & 7
    }

    fn op(&self) -> u8 {
        self.code & 0xf0
    }

    /// Whether the second operand is a register.
    pub fn is_x(&self) -> bool {
        self.code & 8 != 0
    }

    fn size(&self) -> u8 {
        match self.code & 0x18 {
            0 => 4,
            8 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// Of a jump, how many instructions of BPF it skips.
    pub fn distance(&self) -> Option<i64> {
        match (self.class(), self.op()) {
            (6, 0) => Some(self.imm.into()),
            (5 | 6, 0x80 | 0x90) => None,
            (5 | 6, _) => Some(self.off.into()),
            _ => None,
        }
    }
}

const LD_IMM64: u8 = 0x18;
/// `BPF_FUNC_tail_call`: as what a tail call is shown.
const TAIL_CALL: i32 = 12;
/// A move's offset that asks for this CPU's instance (`BPF_ADDR_PERCPU`).
pub(super) const PER_CPU: i16 = -1;
/// Machine instructions of the longest shape.
const LONGEST: usize = 14;

/// `reg2hex`; last the verifier's own register, which has number 11, and 12 since there are arguments on the stack.
pub(super) fn reg(bpf: u8) -> R {
    const MAP: [R; 13] = [
        R::RAX,
        R::RDI,
        R::RSI,
        R::RDX,
        R::RCX,
        R::R8,
        R::RBX,
        R::R13,
        R::R14,
        R::R15,
        R::RBP,
        R::R10,
        R::R10,
    ];
    MAP.get(usize::from(bpf)).copied().unwrap_or(R::None)
}

/// How many machine instructions at the beginning of `code` may be what `bpf` became; several when more than one may.
pub(crate) fn shapes(bpf: Bpf, code: &[Instruction]) -> Vec<usize> {
    let found = match (bpf.class(), bpf.op()) {
        _ if bpf.is_wide() => one(code, |i| jit_alu::is_constant(i, bpf)),
        (4 | 7, op) => jit_alu::shapes(bpf, op, code),
        (1, _) => load(bpf, code),
        (2, _) if bpf.code == 0xc2 => {
            // A barrier against speculation, where the CPU needs one.
            return [vec![0], one(code, |i| i.mnemonic() == M::Lfence)].concat();
        }
        (2 | 3, _) => store(bpf, code),
        (5, 0x80) if bpf.src == 0 && bpf.imm == TAIL_CALL => tail_call(code),
        (5, 0x80) => call(code),
        (5, 0x90) => exit(code),
        (5 | 6, 0) => return [vec![0], jump(code)].concat(),
        (5 | 6, op) => branch(bpf, op, code),
        _ => Vec::new(),
    };
    // Jumps that became shorter than thought leave no-ops behind, so that the rest keeps its place.
    match bpf.distance() {
        Some(_) => with_nops(found, code),
        None => found,
    }
}

/// What precedes the first instruction's code (`emit_prologue`): entry, frame, callee-saved registers.
pub(crate) fn prologues(code: &[Instruction]) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut has_frame = false;
    for (at, i) in code.iter().enumerate() {
        let (to, from) = (register(i, 0), register(i, 1));
        let belongs = match i.mnemonic() {
            M::Push | M::Endbr64 | M::Nop => true,
            M::Mov if to == R::RBP && from == R::RSP => {
                has_frame = true;
                true
            }
            M::Mov => (to == R::RAX && matches!(from, R::RSP | R::RBP)) || matches!(to, R::R9 | R::R12),
            M::Call | M::Jmp => at < 2 || (has_frame && at < LONGEST),
            M::Xor => to == R::RAX && !has_frame,
            M::Sub => to == R::RSP,
            M::Add => to == R::R9,
            M::Cmp => to == R::RAX && has_frame,
            M::Ja => has_frame,
            _ => false,
        };
        if !belongs {
            break;
        }
        if has_frame {
            lengths.push(at + 1);
        }
    }
    lengths
}

pub(super) fn register(i: &Instruction, n: u32) -> R {
    match n < i.op_count() && i.op_kind(n) == OpKind::Register {
        true => i.op_register(n).full_register(),
        false => R::None,
    }
}

pub(super) fn is_immediate(i: &Instruction, n: u32, value: i32) -> bool {
    n < i.op_count() && i.try_immediate(n).is_ok_and(|own| own as i32 == value)
}

fn is_in_memory(i: &Instruction, base: R, off: i16) -> bool {
    let plain = i.memory_base() == base && i.memory_index() == R::None;
    // An arena's begins where r12 points.
    let arena = [i.memory_base(), i.memory_index()] == [base, R::R12]
        || [i.memory_base(), i.memory_index()] == [R::R12, base];
    (plain || arena) && i.memory_displacement64() as i64 == i64::from(off) && i.segment_prefix() == R::None
}

fn has_size(i: &Instruction, size: u8) -> bool {
    i.memory_size().size() == usize::from(size)
}

pub(super) fn one(code: &[Instruction], is: impl Fn(&Instruction) -> bool) -> Vec<usize> {
    if code.first().is_some_and(is) { vec![1] } else { Vec::new() }
}

/// Every length up to which all instructions are `within`, and that is `whole`.
pub(super) fn run(
    code: &[Instruction],
    within: impl Fn(&Instruction) -> bool,
    whole: impl Fn(&[Instruction]) -> bool,
) -> Vec<usize> {
    let most = code.iter().take(LONGEST).take_while(|i| within(i)).count();
    (1..=most).filter(|n| code.get(..*n).is_some_and(&whole)).collect()
}

fn with_nops(found: Vec<usize>, code: &[Instruction]) -> Vec<usize> {
    let mut all = found.clone();
    for n in found {
        let nops = code.get(n..).unwrap_or_default().iter().take_while(|i| i.mnemonic() == M::Nop).count();
        all.extend((1..=nops).map(|more| n + more));
    }
    all
}

fn load(bpf: Bpf, code: &[Instruction]) -> Vec<usize> {
    let (dst, src) = (reg(bpf.dst), reg(bpf.src));
    let is_load = |i: &Instruction| {
        let signed = matches!(bpf.code & 0xe0, 0x40 | 0x80);
        let fits = match i.mnemonic() {
            M::Mov | M::Movzx => !signed,
            M::Movsx | M::Movsxd => signed,
            _ => false,
        };
        fits && register(i, 0) == dst
            && i.op1_kind() == OpKind::Memory
            && is_in_memory(i, src, bpf.off)
            && has_size(i, bpf.size())
    };
    // Where the pointer may be bad, a check of its range stands before (`BPF_PROBE_MEM`), which gives zero instead.
    let is_check = |i: &Instruction| {
        let scratch = |r: R| matches!(r, R::None | R::R10 | R::R11) || r == src;
        match i.mnemonic() {
            M::Mov | M::Lea | M::Add | M::Sub => {
                matches!(register(i, 0), R::R10 | R::R11) && scratch(register(i, 1))
            }
            M::Cmp | M::Test => scratch(register(i, 0)) && scratch(register(i, 1)),
            M::Xor => register(i, 0) == dst && register(i, 1) == dst,
            _ => i.op0_kind() == OpKind::NearBranch64 && i.flow_control() != FlowControl::Call,
        }
    };
    let checks = code.iter().take(LONGEST).take_while(|i| is_check(i) && !is_load(i)).count();
    let guarded = code
        .get(..checks)
        .unwrap_or_default()
        .iter()
        .any(|i| i.flow_control() == FlowControl::ConditionalBranch);
    match code.get(checks) {
        Some(i) if is_load(i) && (checks == 0 || guarded) => vec![checks + 1],
        _ => Vec::new(),
    }
}

fn store(bpf: Bpf, code: &[Instruction]) -> Vec<usize> {
    let (dst, src) = (reg(bpf.dst), reg(bpf.src));
    let to = |i: &Instruction| {
        i.op0_kind() == OpKind::Memory && is_in_memory(i, dst, bpf.off) && has_size(i, bpf.size())
    };
    if bpf.code & 0xe0 != 0xc0 || bpf.class() == 2 {
        let is_store = |i: &Instruction| {
            i.mnemonic() == M::Mov
                && to(i)
                && if bpf.class() == 3 { register(i, 1) == src } else { stored(i, bpf) }
        };
        return one(code, is_store);
    }
    // Atomic ones: add, or, and, xor, with what was there or without; exchange, and if it is as expected; acquire, release.
    let mnemonic = match bpf.imm {
        0x00 => M::Add,
        0x01 => M::Xadd,
        0x40 => M::Or,
        0x50 => M::And,
        0xa0 => M::Xor,
        0xe1 => M::Xchg,
        0xf1 => M::Cmpxchg,
        0x110 => M::Mov,
        0x100 => {
            return one(code, |i| {
                matches!(i.mnemonic(), M::Mov | M::Movzx)
                    && register(i, 0) == dst
                    && is_in_memory(i, src, bpf.off)
            });
        }
        _ => {
            // A loop around cmpxchg, with rax kept in r10 or r11.
            let moved = |i: &Instruction, to: R, from: R| {
                i.mnemonic() == M::Mov && register(i, 0) == to && register(i, 1) == from
            };
            let aside = code.first().map_or(R::None, |i| register(i, 0));
            let begins =
                matches!(aside, R::R10 | R::R11) && code.first().is_some_and(|i| moved(i, aside, R::RAX));
            let swapped = code.iter().take(LONGEST).position(|i| i.mnemonic() == M::Cmpxchg);
            let Some(swapped) = swapped.filter(|_| begins) else { return Vec::new() };
            let back = code.iter().skip(swapped).take(4).position(|i| moved(i, R::RAX, aside));
            return back.map(|n| vec![swapped + n + 1]).unwrap_or_default();
        }
    };
    one(code, |i| i.mnemonic() == mnemonic && to(i) && register(i, 1) == src)
}

/// Whether what is stored is the constant, as far as there is room for it.
fn stored(i: &Instruction, bpf: Bpf) -> bool {
    let mask = if bpf.size() >= 4 { u32::MAX } else { (1 << (8 * bpf.size())) - 1 };
    i.try_immediate(1).is_ok_and(|own| (own as u32 ^ bpf.imm.cast_unsigned()) & mask == 0)
}

fn jump(code: &[Instruction]) -> Vec<usize> {
    one(code, |i| matches!(i.code(), Code::Jmp_rel8_64 | Code::Jmp_rel32_64))
}

fn branch(bpf: Bpf, op: u8, code: &[Instruction]) -> Vec<usize> {
    let (dst, src) = (reg(bpf.dst), reg(bpf.src));
    let size = if bpf.class() == 5 { 8 } else { 4 };
    let compares = |i: &Instruction| {
        let second = if bpf.is_x() { register(i, 1) == src } else { is_immediate(i, 1, bpf.imm) };
        let zero = !bpf.is_x() && bpf.imm == 0 && register(i, 1) == dst;
        register(i, 0) == dst
            && i.op_register(0).size() == size
            && match i.mnemonic() {
                M::Test => op == 0x40 && second || op != 0x40 && zero,
                M::Cmp => op != 0x40 && second,
                _ => false,
            }
    };
    let jumps = |i: &Instruction| match i.mnemonic() {
        M::Je => op == 0x10,
        M::Jne => matches!(op, 0x40 | 0x50),
        M::Ja => op == 0x20,
        M::Jae => op == 0x30,
        M::Jb => op == 0xa0,
        M::Jbe => op == 0xb0,
        M::Jg => op == 0x60,
        M::Jge => op == 0x70,
        M::Jl => op == 0xc0,
        M::Jle => op == 0xd0,
        _ => false,
    };
    match code {
        [first, second, ..] if compares(first) && jumps(second) => vec![2],
        _ => Vec::new(),
    }
}

/// A call, with what is kept and counted around it; a few helpers become a load from this CPU's own area.
fn call(code: &[Instruction]) -> Vec<usize> {
    let before = |i: &Instruction| match i.mnemonic() {
        // The count of tail calls, for a function that may do some.
        M::Mov => register(i, 0) == R::RAX && i.memory_base() == R::RBP,
        // The depth of calls, for CPUs that count it.
        M::Sar | M::Shr | M::Inc | M::Add => i.segment_prefix() == R::GS,
        M::Push => register(i, 0) == R::R9,
        _ => false,
    };
    let ahead = code.iter().take(LONGEST).take_while(|i| before(i)).count();
    let kept = code.get(..ahead).unwrap_or_default().iter().any(|i| i.mnemonic() == M::Push);
    let back = code.get(ahead + 1).is_some_and(|i| i.mnemonic() == M::Pop && register(i, 0) == R::R9);
    match code.get(ahead) {
        Some(i)
            if i.mnemonic() == M::Call && i.op0_kind() == OpKind::NearBranch64 && kept == (kept && back) =>
        {
            vec![ahead + 1 + usize::from(kept)]
        }
        Some(i)
            if ahead == 0
                && i.mnemonic() == M::Mov
                && register(i, 0) == R::RAX
                && i.segment_prefix() == R::GS =>
        {
            vec![1]
        }
        _ => Vec::new(),
    }
}

/// A tail call: each of its conditions goes to its end when it is not met.
fn tail_call(code: &[Instruction]) -> Vec<usize> {
    let is_condition = |i: &&Instruction| i.flow_control() == FlowControl::ConditionalBranch;
    let Some(end) = code.iter().take(LONGEST).find(is_condition).map(Instruction::near_branch_target) else {
        return Vec::new();
    };
    let len = code.iter().take(4 * LONGEST).position(|i| i.ip() == end).unwrap_or(0);
    let leaves = code.get(..len).unwrap_or_default().iter().any(|i| {
        matches!(
            i.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::IndirectCall
        ) || i.mnemonic() == M::Nop
    });
    if leaves { vec![len] } else { Vec::new() }
}

/// The first exit has the epilogue, and the others jump there.
fn exit(code: &[Instruction]) -> Vec<usize> {
    let mut found = with_nops(jump(code), code);
    let undo = |i: &Instruction| {
        matches!(i.mnemonic(), M::Pop | M::Leave | M::Call | M::Push)
            || i.mnemonic() == M::Add && register(i, 0) == R::RSP
    };
    let ahead = code.iter().take(LONGEST).take_while(|i| undo(i)).count();
    let leaves = code.get(..ahead).unwrap_or_default().iter().any(|i| i.mnemonic() == M::Leave);
    if leaves
        && code
            .get(ahead)
            .is_some_and(|i| i.mnemonic() == M::Ret || !jump(std::slice::from_ref(i)).is_empty())
    {
        let traps = code.get(ahead + 1..).unwrap_or_default();
        let traps = traps.iter().take_while(|i| i.mnemonic() == M::Int3).count();
        found.extend((0..=traps).map(|n| ahead + 1 + n));
    }
    found
}
