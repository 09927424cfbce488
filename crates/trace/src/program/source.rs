//! Where a program finds what a call was given and what it gave back: that depends on how it is attached.

use super::cell;
use crate::arch::{self, Place};
use crate::layout::{Argument, Layout, Registers};
use asm::{Arg, Func, Helper, Reg, Size};

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A trampoline's context, a slot for each register, by loads that the verifier checks against BTF.
    Slots,
    /// The same by one probe read of all slots: older verifiers (5.10) refuse loads of pointers to anything but structures.
    Copied,
    /// A trampoline's context by helpers: programs for many functions at once may not look into it.
    Helpers,
    /// A kprobe's registers.
    Registers,
    /// At a return, arguments kept at the entry in this cell, and the result's register.
    Kept(Reg),
}

impl Source {
    /// Copies the arguments and the return value into the record.
    pub(super) fn capture(
        self,
        f: &mut Func<'_>,
        mark: &dyn Fn(&mut Func<'_>, &str),
        layout: &Layout,
        ctx: Reg,
        record: Reg,
    ) {
        if let Some(registers) = &layout.registers {
            mark(f, "registers of the program that made the system call");
            let from = self.first(f, ctx);
            behind(f, registers, from, record);
        }
        if self == Source::Copied {
            let all = || layout.args.iter().chain(&layout.ret).filter(|a| a.slots > 0);
            let slots: u32 = all().map(|a| a.slots).sum();
            let Some(first) = all().next() else { return };
            mark(f, "arguments");
            let (to, size) = (Arg::Offset(record, first.offset as i32), Arg::Imm(i64::from(slots * 8)));
            f.call(Helper::PROBE_READ_KERNEL, &[to, size, Arg::Offset(ctx, (first.slot * 8) as i32)]);
            return;
        }
        let places = arch::places(layout.args.iter().map(|a| a.size));
        for (arg, place) in layout.args.iter().zip(places) {
            mark(f, &format!("{} {}", arg.type_name, arg.name));
            self.argument(f, arg, place, ctx, record);
        }
        if let Some(ret) = &layout.ret {
            mark(f, &format!("{} {}", ret.type_name, ret.name));
            for slot in 0..ret.slots {
                let value = self.result(f, ret, slot, ctx);
                f.store(Size::DW, record, (ret.offset + slot * 8) as i32, value);
            }
        }
    }

    fn argument(self, f: &mut Func<'_>, arg: &Argument, place: Place, ctx: Reg, record: Reg) {
        let each = |f: &mut Func<'_>, get: &dyn Fn(&mut Func<'_>, u32) -> Reg| {
            for slot in 0..arg.slots {
                let value = get(f, slot);
                f.store(Size::DW, record, (arg.offset + slot * 8) as i32, value);
            }
        };
        match (self, place) {
            (Source::Slots | Source::Copied, _) => {
                each(f, &|f, slot| f.load(Size::DW, ctx, ((arg.slot + slot) * 8) as i32));
            }
            (Source::Helpers, _) => each(f, &|f, slot| {
                let cell = f.slot(8, 8);
                let n = Arg::Imm(i64::from(arg.slot + slot));
                // Beyond the function's arguments it fails, and the cell must not be read as it was.
                f.store_slot(Size::DW, cell, 0, 0);
                f.call(Helper::GET_FUNC_ARG, &[Arg::Reg(ctx), n, Arg::SlotAddr(cell, 0)]);
                f.load_slot(Size::DW, cell, 0)
            }),
            (Source::Registers, Place::Register(first)) => each(f, &|f, slot| {
                let at = arch::REGISTERS.get(first + slot as usize).copied().unwrap_or(arch::RESULT);
                f.load(Size::DW, ctx, at)
            }),
            (Source::Kept(cell), Place::Register(first)) => {
                each(f, &|f, slot| f.load(Size::DW, cell, cell::ARGUMENTS + (first as i32 + slot as i32) * 8))
            }
            (Source::Registers, Place::Stack(at)) => {
                let stack = f.load(Size::DW, ctx, arch::STACK_POINTER);
                let from = f.alu(
                    asm::Alu::Add,
                    asm::Width::W64,
                    stack,
                    i64::from(arch::STACK_ARGUMENTS) + i64::from(at),
                );
                let (to, size) = (Arg::Offset(record, arg.offset as i32), i64::from(arg.slots * 8));
                f.call(Helper::PROBE_READ_KERNEL, &[to, Arg::Imm(size), Arg::Reg(from)]);
            }
            (Source::Kept(cell), Place::Stack(at)) => each(f, &|f, slot| {
                // All of it is kept, or the function is not attached this way.
                f.load(Size::DW, cell, cell::ON_STACK + at as i32 + slot as i32 * 8)
            }),
        }
    }

    /// Eight bytes of an argument, as a plain number. `pointer`: a load of it would be the verifier's own.
    pub(super) fn word(
        self,
        f: &mut Func<'_>,
        arg: &Argument,
        place: Place,
        slot: u32,
        pointer: bool,
        ctx: Reg,
    ) -> Reg {
        let at = ((arg.slot + slot) * 8) as i32;
        match (self, place) {
            (Source::Slots, _) if !pointer => f.load(Size::DW, ctx, at),
            (Source::Slots | Source::Copied, _) => scoped_copy(f, Arg::Offset(ctx, at)),
            (Source::Helpers, _) => {
                let value = f.var();
                f.labelled(|f, _| {
                    let cell = f.slot(8, 8);
                    f.store_slot(Size::DW, cell, 0, 0);
                    let n = Arg::Imm(i64::from(arg.slot + slot));
                    f.call(Helper::GET_FUNC_ARG, &[Arg::Reg(ctx), n, Arg::SlotAddr(cell, 0)]);
                    let word = f.load_slot(Size::DW, cell, 0);
                    f.assign(value, word);
                });
                value
            }
            (Source::Registers, Place::Register(first)) => {
                let at = arch::REGISTERS.get(first + slot as usize).copied().unwrap_or(arch::RESULT);
                f.load(Size::DW, ctx, at)
            }
            (Source::Kept(cell), Place::Register(first)) => {
                f.load(Size::DW, cell, cell::ARGUMENTS + (first as i32 + slot as i32) * 8)
            }
            (Source::Registers, Place::Stack(at)) => {
                let stack = f.load(Size::DW, ctx, arch::STACK_POINTER);
                let at = i64::from(arch::STACK_ARGUMENTS) + i64::from(at) + i64::from(slot * 8);
                let from = f.alu(asm::Alu::Add, asm::Width::W64, stack, at);
                scoped_copy(f, Arg::Reg(from))
            }
            (Source::Kept(cell), Place::Stack(at)) => {
                f.load(Size::DW, cell, cell::ON_STACK + at as i32 + slot as i32 * 8)
            }
        }
    }

    /// Eight bytes of what was returned, as a plain number.
    pub(super) fn result_word(
        self,
        f: &mut Func<'_>,
        ret: &Argument,
        slot: u32,
        pointer: bool,
        ctx: Reg,
    ) -> Reg {
        match self {
            Source::Slots if !pointer => self.result(f, ret, slot, ctx),
            Source::Slots | Source::Copied => {
                scoped_copy(f, Arg::Offset(ctx, ((ret.slot + slot) * 8) as i32))
            }
            _ => self.result(f, ret, slot, ctx),
        }
    }

    /// The first argument.
    pub(super) fn first(self, f: &mut Func<'_>, ctx: Reg) -> Reg {
        match self {
            Source::Slots => f.load(Size::DW, ctx, 0),
            Source::Copied => {
                let cell = f.slot(8, 8);
                f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(8), Arg::Reg(ctx)]);
                f.load_slot(Size::DW, cell, 0)
            }
            Source::Helpers => {
                let cell = f.slot(8, 8);
                f.store_slot(Size::DW, cell, 0, 0);
                f.call(Helper::GET_FUNC_ARG, &[Arg::Reg(ctx), Arg::Imm(0), Arg::SlotAddr(cell, 0)]);
                f.load_slot(Size::DW, cell, 0)
            }
            Source::Registers => {
                f.load(Size::DW, ctx, arch::REGISTERS.first().copied().unwrap_or(arch::RESULT))
            }
            Source::Kept(kept) => f.load(Size::DW, kept, cell::ARGUMENTS),
        }
    }

    /// A slot of the return value.
    pub(super) fn result(self, f: &mut Func<'_>, ret: &Argument, slot: u32, ctx: Reg) -> Reg {
        match self {
            Source::Slots | Source::Copied => f.load(Size::DW, ctx, ((ret.slot + slot) * 8) as i32),
            Source::Helpers => {
                let cell = f.slot(8, 8);
                f.store_slot(Size::DW, cell, 0, 0);
                f.call(Helper::GET_FUNC_RET, &[Arg::Reg(ctx), Arg::SlotAddr(cell, 0)]);
                f.load_slot(Size::DW, cell, 0)
            }
            Source::Registers | Source::Kept(_) => f.load(Size::DW, ctx, arch::RESULT),
        }
    }
}

/// Eight bytes by a probe read, through a part of the stack that is free again behind.
fn scoped_copy(f: &mut Func<'_>, from: Arg) -> Reg {
    let value = f.var();
    f.labelled(|f, _| {
        let cell = f.slot(8, 8);
        f.store_slot(Size::DW, cell, 0, 0);
        f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(8), from]);
        let word = f.load_slot(Size::DW, cell, 0);
        f.assign(value, word);
    });
    value
}

/// Copies the registers of a system call, which `from` points to.
fn behind(f: &mut Func<'_>, registers: &Registers, from: Reg, record: Reg) {
    let Registers { offset, from: first, size, cleared } = registers;
    let from = f.alu(asm::Alu::Add, asm::Width::W64, from, i64::from(*first));
    let (to, size) = (Arg::Offset(record, *offset as i32), Arg::Imm(i64::from(*size)));
    f.call(Helper::PROBE_READ_KERNEL, &[to, size, Arg::Reg(from)]);
    for half in cleared {
        f.store(Size::W, record, *half as i32, 0);
    }
}

/// Words of the stack, from the first argument there on, that hold a function's arguments.
pub fn stack_words(layout: &Layout) -> u32 {
    let places = arch::places(layout.args.iter().map(|a| a.size));
    let ends = layout.args.iter().zip(places).map(|(arg, place)| match place {
        Place::Register(_) => 0,
        Place::Stack(at) => at / 8 + arg.slots,
    });
    ends.max().unwrap_or(0)
}
