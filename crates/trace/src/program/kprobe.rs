//! Kprobes and kretprobes: for functions that no trampoline serves. The context is the processor's registers, and at
//! the return those of the arguments are gone: they are kept at the entry.

use super::roots::Roots;
use super::source::{Source, stack_words};
use super::whose::{self, Who, admit, on_cpu};
use super::{Lines, Moment, admit_by, branches, cell, count, counter, maps, write_event};
use crate::arch;
use crate::plan::{Plan, Probe};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Program, Reg, Size, Slot, Width};

/// The event of a probe at an entry.
pub fn kprobe(plan: &Plan, index: u32, probe: &Probe) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&super::name(probe, name), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        branches::snapshot(f, &lines, plan, ctx);
        let roots = Roots::new(plan, &probe.layout, Source::Registers, ctx, &lines);
        let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
        let compiler = &mut roots.compiler(&mark);
        let mut who = whose::admit_by(f, &lines, plan, 0, |f| {
            on_cpu(f, &lines, plan);
            admit_by(f, &mut *compiler, &probe.layout, 0);
        });
        who.identify(f, plan);
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        roots.now.set(Some(now));
        let moment = Moment { now, entry_time: None, call: None, index: i64::from(index).into(), path: None };
        write_event(f, &lines, plan, &probe.layout, &who, Source::Registers, ctx, &moment, compiler);
    });
    program
}

/// At an entry, what the return's probe `index` will want; and the entry's own event where both are taken.
pub fn keep(plan: &Plan, index: u32, probe: &Probe) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&format!("en_{name}"), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        let paired = probe.pair.and_then(|i| Some((i, plan.probes.get(i as usize)?)));
        if paired.is_some() {
            branches::snapshot(f, &lines, plan, ctx);
        }
        let mut who = admit(f, &lines, plan, 0);
        if probe.layout.path.is_some() {
            // Whatever becomes of the call: a call within it has a path of its own.
            super::path::begin(f, &lines, plan, ctx, index);
        }
        let layout = paired.map_or(&probe.layout, |(_, entry)| &entry.layout);
        let roots = Roots::new(plan, layout, Source::Registers, ctx, &lines);
        let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
        let compiler = &mut roots.compiler(&mark);
        admit_by(f, compiler, layout, 0);
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        roots.now.set(Some(now));
        let key = keep_call(f, &lines, ctx, now, i64::from(index).into(), stack_words(&probe.layout));
        if let Some((at, entry)) = paired {
            on_cpu(f, &lines, plan);
            who.identify(f, plan);
            let moment = Moment {
                now,
                entry_time: None,
                call: Some(call_number(f, key, i64::from(index).into())),
                index: i64::from(at).into(),
                path: None,
            };
            write_event(f, &lines, plan, &entry.layout, &who, Source::Registers, ctx, &moment, compiler);
        }
        f.ret(0);
    });
    program
}

/// The event of a probe at a return.
pub fn kretprobe(plan: &Plan, index: u32, probe: &Probe) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&super::name(probe, name), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        branches::snapshot(f, &lines, plan, ctx);
        lines.mark(f, "the call's entry");
        let after = f.load(Size::DW, ctx, arch::STACK_POINTER);
        let key = f.alu(Alu::Sub, Width::W64, after, arch::FRAME_TO_RETURN);
        let path = probe.layout.path.and_then(|_| super::path::end(f, &lines, plan, key, index));
        let (cell, start) = take_call(f, key, i64::from(index).into());
        on_cpu(f, &lines, plan);
        let mut who = Who::default();
        who.identify(f, plan);
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        let call = probe.layout.call.map(|_| call_number(f, key, i64::from(index).into()));
        let moment =
            Moment { now, entry_time: Some(start.into()), call, index: i64::from(index).into(), path };
        let roots = Roots::new(plan, &probe.layout, Source::Kept(cell), ctx, &lines);
        roots.now.set(Some(now));
        roots.entry_time.set(Some(start.into()));
        let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
        let compiler = &mut roots.compiler(&mark);
        write_event(f, &lines, plan, &probe.layout, &who, Source::Kept(cell), ctx, &moment, compiler);
    });
    program
}

/// The key of a call that is kept: the place of its return address, and its probe. A function that ends in a jump to another
/// leaves it its own place, and both return from there.
fn key_of(f: &mut Func<'_>, place: Reg, index: Operand) -> Slot {
    let key = f.slot(cell::KEPT_KEY, 8);
    f.store_slot(Size::DW, key, 0, place);
    f.store_slot(Size::DW, key, 8, index);
    key
}

/// The number of a call that is kept: its place, told apart by its probe from that of a function that jumped to it.
pub(super) fn call_number(f: &mut Func<'_>, place: Reg, index: Operand) -> Operand {
    let index = f.alu(Alu::Lsh, Width::W64, index, 48);
    f.alu(Alu::Xor, Width::W64, place, index).into()
}

/// Keeps the time and the arguments of a call for its return; gives the place of its return address.
///
/// `words`: so many of the stack, where further arguments lie, are kept too.
pub(super) fn keep_call(
    f: &mut Func<'_>,
    lines: &Lines,
    ctx: Reg,
    now: Reg,
    index: Operand,
    words: u32,
) -> Reg {
    lines.mark(f, "time and arguments for the return");
    let place = f.load(Size::DW, ctx, arch::STACK_POINTER);
    let key = key_of(f, place, index);
    let owner = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
    let cell = f.var();
    let found = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::KEPT), Arg::SlotAddr(key, 0)]);
    f.assign(cell, found);
    // The first call at this place of a stack: a cell of its own, made of a blank one, for it would not fit the program's stack.
    f.if_(Cmp::Eq, Width::W64, found, 0, |f| {
        let first = f.slot(4, 4);
        f.store_slot(Size::W, first, 0, 0);
        let blank = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::BLANK), Arg::SlotAddr(first, 0)]);
        f.if_(Cmp::Ne, Width::W64, blank, 0, |f| {
            let new = &[Arg::Map(maps::KEPT), Arg::SlotAddr(key, 0), Arg::Reg(blank), Arg::Imm(0)];
            f.call(Helper::MAP_UPDATE_ELEM, new);
        });
        let made = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::KEPT), Arg::SlotAddr(key, 0)]);
        f.assign(cell, made);
    });
    f.if_else(
        Cmp::Ne,
        Width::W64,
        cell,
        0,
        |f| {
            // Still taken: a call at this place of the stack whose return the kernel did not show us.
            let earlier = f.load(Size::DW, cell, cell::TIME);
            f.if_unlikely(Cmp::Ne, Width::W64, earlier, 0, |f| count(f, counter::UNSEEN));
            f.store(Size::DW, cell, cell::OWNER, owner);
            for (n, register) in arch::REGISTERS.into_iter().enumerate() {
                let value = f.load(Size::DW, ctx, register);
                f.store(Size::DW, cell, cell::ARGUMENTS + 8 * n as i32, value);
            }
            if words > 0 {
                let from = f.alu(Alu::Add, Width::W64, place, i64::from(arch::STACK_ARGUMENTS));
                let (to, size) = (Arg::Offset(cell, cell::ON_STACK), i64::from(words * 8));
                f.call(Helper::PROBE_READ_KERNEL, &[to, Arg::Imm(size), Arg::Reg(from)]);
            }
            // The time last: it makes the cell valid.
            f.store(Size::DW, cell, cell::TIME, now);
        },
        |f| count(f, counter::UNSEEN),
    );
    place
}

/// The cell of a call by its key, and its time of entry; leaves the program when its entry was not seen.
pub(super) fn take_call(f: &mut Func<'_>, place: Reg, index: Operand) -> (Reg, Reg) {
    let key = key_of(f, place, index);
    let found = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::KEPT), Arg::SlotAddr(key, 0)]);
    f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(0));
    let start = f.load(Size::DW, found, cell::TIME);
    // No entry: the filter did not admit it.
    f.if_(Cmp::Eq, Width::W64, start, 0, |f| f.ret(0));
    // Of another call, whose return the kernel did not show us: this one's entry was not admitted. Its cell stays as it is, to be
    // counted.
    let owner = f.load(Size::DW, found, cell::OWNER);
    let task = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
    f.if_(Cmp::Ne, Width::W64, owner, task, |f| f.ret(0));
    f.store(Size::DW, found, cell::TIME, 0);
    (found, start)
}
