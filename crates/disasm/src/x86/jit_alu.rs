//! What the kernel's JIT makes of calculations of BPF: see `jit.rs`.

use super::jit::{Bpf, PER_CPU, is_immediate, one, reg, register, run};
use iced_x86::{Instruction, Mnemonic as M, Register as R};

/// A constant into a register (`emit_mov_imm32`, `emit_mov_imm64`).
pub(super) fn is_constant(i: &Instruction, bpf: Bpf) -> bool {
    let value = match bpf.is_wide() {
        true => i64::from(bpf.high) << 32 | i64::from(bpf.imm.cast_unsigned()),
        false if bpf.class() == 7 => bpf.imm.into(),
        false => bpf.imm.cast_unsigned().into(),
    };
    // Of a map or function it is an address, which is not shown here.
    let is_known = !bpf.is_wide() || bpf.src == 0 && value != 0;
    register(i, 0) == reg(bpf.dst)
        && match i.mnemonic() {
            M::Xor => register(i, 1) == reg(bpf.dst) && (!is_known || value == 0),
            M::Mov => i.try_immediate(1).is_ok_and(|own| !is_known || own as i64 == value),
            _ => false,
        }
}

/// How many machine instructions may be what a calculation of BPF became.
pub(super) fn shapes(bpf: Bpf, op: u8, code: &[Instruction]) -> Vec<usize> {
    let (dst, src) = (reg(bpf.dst), reg(bpf.src));
    let is_64 = bpf.class() == 7;
    let fits =
        |i: &Instruction| register(i, 0) == dst && i.op_register(0).size() == if is_64 { 8 } else { 4 };
    let second =
        |i: &Instruction| if bpf.is_x() { register(i, 1) == src } else { is_immediate(i, 1, bpf.imm) };
    let plain = |mnemonic: M| one(code, |i| i.mnemonic() == mnemonic && fits(i) && second(i));
    match op {
        0x00 => plain(M::Add),
        0x10 => plain(M::Sub),
        0x40 => plain(M::Or),
        0x50 => plain(M::And),
        0xa0 => plain(M::Xor),
        0x80 => one(code, |i| i.mnemonic() == M::Neg && fits(i)),
        0x20 => {
            let product = |i: &Instruction| {
                i.mnemonic() == M::Imul
                    && fits(i)
                    && if bpf.is_x() { register(i, 1) == src } else { is_immediate(i, 2, bpf.imm) }
            };
            let found = one(code, product);
            if found.is_empty() { long_arithmetic(code, &[M::Mul, M::Imul]) } else { found }
        }
        0x30 | 0x90 => long_arithmetic(code, &[M::Div, M::Idiv]),
        0x60 => shift(bpf, code, M::Shl, M::Shlx),
        0x70 => shift(bpf, code, M::Shr, M::Shrx),
        0xc0 => shift(bpf, code, M::Sar, M::Sarx),
        0xb0 if !bpf.is_x() => one(code, |i| is_constant(i, bpf)),
        0xb0 => {
            let mov = |i: &Instruction| match bpf.off {
                0 | PER_CPU => i.mnemonic() == M::Mov && fits(i) && register(i, 1) == src,
                bits @ (8 | 16 | 32) => {
                    matches!(i.mnemonic(), M::Movsx | M::Movsxd)
                        && fits(i)
                        && register(i, 1) == src
                        && i.op_register(1).size() * 8 == bits as usize
                }
                _ => false,
            };
            if bpf.off != PER_CPU {
                return one(code, mov);
            }
            let moved = usize::from(code.first().is_some_and(mov));
            let added = code.get(moved).is_some_and(|i| {
                i.mnemonic() == M::Add && register(i, 0) == dst && i.segment_prefix() == R::GS
            });
            if added { vec![moved + 1] } else { Vec::new() }
        }
        0xd0 => swap(bpf, code),
        _ => Vec::new(),
    }
}

/// Multiplication and division take `rax` and `rdx`, which are kept elsewhere meanwhile.
fn long_arithmetic(code: &[Instruction], of: &[M]) -> Vec<usize> {
    let within = |i: &Instruction| {
        of.contains(&i.mnemonic())
            || matches!(i.mnemonic(), M::Push | M::Pop | M::Mov | M::Xor | M::Cdq | M::Cqo)
    };
    run(code, within, |all| {
        let count = |m: M| all.iter().filter(|i| i.mnemonic() == m).count();
        let done = all.iter().position(|i| of.contains(&i.mnemonic()));
        let once = all.iter().filter(|i| of.contains(&i.mnemonic())).count() == 1;
        // After it results are moved from where they are, and no memory is touched but the stack's end.
        let after = done.and_then(|at| all.get(at + 1..)).unwrap_or_default();
        let from_result = |i: &Instruction| {
            i.mnemonic() == M::Pop
                || i.mnemonic() == M::Mov && matches!(register(i, 1), R::RAX | R::RDX | R::R11)
        };
        // What is put into r11 after it is the result, and goes on from there at the end.
        let aside = after.iter().any(|i| register(i, 0) == R::R11);
        let goes_on = all.last().is_some_and(|i| register(i, 1) == R::R11);
        once && count(M::Push) == count(M::Pop)
            && after.iter().all(from_result)
            && after.iter().filter(|i| i.mnemonic() == M::Mov).count() <= 1 + usize::from(aside)
            && aside == goes_on
            && all.iter().all(|i| i.memory_base() == R::None)
    })
}

fn shift(bpf: Bpf, code: &[Instruction], plain: M, by_any: M) -> Vec<usize> {
    let (dst, src) = (reg(bpf.dst), reg(bpf.src));
    if !bpf.is_x() {
        return one(code, |i| i.mnemonic() == plain && register(i, 0) == dst && is_immediate(i, 1, bpf.imm));
    }
    let found = one(code, |i| {
        i.mnemonic() == by_any && register(i, 0) == dst && register(i, 1) == dst && register(i, 2) == src
    });
    if !found.is_empty() {
        return found;
    }
    // By `cl` alone: rcx is kept on the stack, or what is shifted in r11.
    let within = |i: &Instruction| {
        i.mnemonic() == plain
            || matches!(i.mnemonic(), M::Push | M::Pop) && register(i, 0) == R::RCX
            || i.mnemonic() == M::Mov
                && [register(i, 0), register(i, 1)].iter().any(|r| matches!(r, R::RCX | R::R11))
    };
    run(code, within, |all| {
        let count = |m: M| all.iter().filter(|i| i.mnemonic() == m).count();
        let shifted = all.iter().filter(|i| i.mnemonic() == plain && i.op_register(1) == R::CL).count() == 1;
        // The last is the shift itself, or gives rcx back, or its new value.
        let ends = all.last().is_some_and(|i| match i.mnemonic() {
            M::Pop => dst != R::RCX,
            M::Mov => dst == R::RCX && register(i, 0) == R::RCX && register(i, 1) == R::R11,
            _ => register(i, 0) == dst,
        });
        shifted && count(plain) == 1 && count(M::Push) == count(M::Pop) && ends
    })
}

fn swap(bpf: Bpf, code: &[Instruction]) -> Vec<usize> {
    let dst = reg(bpf.dst);
    let is = |n: usize, m: M| code.get(n).is_some_and(|i| i.mnemonic() == m && register(i, 0) == dst);
    let is_le = bpf.class() == 4 && !bpf.is_x();
    match (bpf.imm, is_le) {
        (64, true) => vec![0],
        (32, true) if is(0, M::Mov) => vec![1],
        (16, true) if is(0, M::Movzx) => vec![1],
        (16, false) if is(0, M::Ror) && is(1, M::Movzx) => vec![2],
        (32 | 64, false) if is(0, M::Bswap) => vec![1],
        _ => Vec::new(),
    }
}
