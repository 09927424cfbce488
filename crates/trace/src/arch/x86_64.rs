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

/// From a probed instruction to the instruction pointer that its program sees, however the kernel makes the probe: behind a breakpoint
/// (kprobe_int3_handler, optimized_callback, arch/x86/kernel/kprobes/).
pub(crate) const PROBED: u64 = 1;

/// From the stack pointer at a function's entry to its first argument on the stack: behind the return address.
pub(crate) const STACK_ARGUMENTS: i32 = 8;

/// From the stack pointer at a function's entry to the one after its return, which took the return address.
pub(crate) const FRAME_TO_RETURN: i64 = 8;
