//! x86-64: `struct pt_regs` (arch/x86/include/asm/ptrace.h) and the System V calling convention.

/// Offsets in `struct pt_regs` of the registers that carry arguments, in order: di, si, dx, cx, r8, r9.
pub(crate) const REGISTERS: [i32; 6] = [112, 104, 96, 88, 72, 64];

/// Their names, for functions whose arguments are not known.
pub(crate) const REGISTER_NAMES: [&str; 6] = ["di", "si", "dx", "cx", "r8", "r9"];

/// Offset of the result: ax.
pub(crate) const RESULT: i32 = 80;

/// Offset of the stack pointer: at a function's entry it points at the return address.
pub(crate) const STACK_POINTER: i32 = 152;

/// Offset of the instruction pointer: ip.
pub(crate) const INSTRUCTION_POINTER: i32 = 128;

/// Offset of the flags.
pub(crate) const FLAGS: i32 = 144;

/// What a conditional jump goes by: the flags, and whether it is taken when that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// It holds if one of these flags is set, given as a mask,
    pub any: u32,
    /// or, if this is said, when the signs' flags (sign and overflow) differ.
    pub signs_differ: bool,
    /// The jump is taken when it does not hold.
    pub negated: bool,
}

/// The bit of the overflow flag.
pub(crate) const OVERFLOW: u32 = 11;

/// The bit of the sign flag.
pub(crate) const SIGN: u32 = 7;

/// The condition of a jump by its machine code (Intel's manual, volume 2, appendix B, table B-10); none of what goes by a register.
pub(crate) fn condition(code: &[u8]) -> Option<Condition> {
    const CARRY: u32 = 1;
    const PARITY: u32 = 1 << 2;
    const ZERO: u32 = 1 << 6;
    let code = match code {
        // A hint which way it goes, or a prefix that only makes it longer.
        [0x2e | 0x3e | 0xf2, rest @ ..] => rest,
        all => all,
    };
    let number = match code {
        [short @ 0x70..=0x7f, _] => short & 15,
        [0x0f, near @ 0x80..=0x8f, _, _, _, _] => near & 15,
        _ => return None,
    };
    let (any, signs_differ) = match number >> 1 {
        0 => (1 << OVERFLOW, false),
        1 => (CARRY, false),
        2 => (ZERO, false),
        3 => (CARRY | ZERO, false),
        4 => (1 << SIGN, false),
        5 => (PARITY, false),
        6 => (0, true),
        _ => (ZERO, true),
    };
    Some(Condition { any, signs_differ, negated: number & 1 != 0 })
}

/// From a probed instruction to the instruction pointer that its program sees, however the kernel makes the probe: behind a breakpoint
/// (kprobe_int3_handler, optimized_callback, arch/x86/kernel/kprobes/).
pub(crate) const PROBED: u64 = 1;

/// From the stack pointer at a function's entry to its first argument on the stack: behind the return address.
pub(crate) const STACK_ARGUMENTS: i32 = 8;

/// From the stack pointer at a function's entry to the one after its return, which took the return address.
pub(crate) const FRAME_TO_RETURN: i64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_by_flags() {
        let je = Condition { any: 1 << 6, signs_differ: false, negated: false };
        assert_eq!(condition(&[0x74, 0x05]), Some(je));
        assert_eq!(condition(&[0x75, 0x05]), Some(Condition { negated: true, ..je }));
        assert_eq!(condition(&[0x0f, 0x84, 0, 1, 0, 0]), Some(je));
        assert_eq!(condition(&[0x3e, 0x74, 0x05]), Some(je));
        let jle = Condition { any: 1 << 6, signs_differ: true, negated: false };
        assert_eq!(condition(&[0x7e, 0xf0]), Some(jle));
        assert_eq!(
            condition(&[0x77, 0xf0]),
            Some(Condition { any: 1 | 1 << 6, signs_differ: false, negated: true })
        );
        // jrcxz, jmp, loop, half a jump
        for other in [&[0xe3, 0x00][..], &[0xeb, 0x00], &[0xe2, 0x00], &[0x74], &[0x0f, 0x84], &[]] {
            assert_eq!(condition(other), None);
        }
    }
}
