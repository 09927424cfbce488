//! Calls under way: an entry's time, kept for its exit.

use super::{Lines, cell, count, counter, maps, whose::admit};
use crate::plan::{Plan, Probe};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Program, Reg, Size, Width};

/// The program at a function's entry that keeps the time for the exit.
///
/// The call's cell in the map is found and written in place, and emptied in place by the exit: making and deleting an
/// entry for each call would cost four times as much. Cells stay for the next call at that place of some stack; see
/// [`crate::Session::tend`] for when they have become too many.
pub fn entry_time(plan: &Plan, index: u32, probe: &Probe) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&format!("en_{name}"), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        admit(f, &lines, plan, 0);
        lines.mark(f, "time of entry");
        keep_time(f, ctx, index, None);
        f.ret(0);
    });
    program
}

/// Keeps the time of entry, `now` or the very moment, for the exit's probe `index`.
pub(super) fn keep_time(f: &mut Func<'_>, ctx: Reg, index: u32, now: Option<Reg>) {
    let key = f.slot(8, 8);
    let value = call_key(f, ctx);
    f.store_slot(Size::DW, key, 0, value);
    let found = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::CALLS), Arg::SlotAddr(key, 0)]);
    let time = |f: &mut Func<'_>| now.unwrap_or_else(|| f.call(Helper::KTIME_GET_NS, &[]));
    f.if_else(
        Cmp::Ne,
        Width::W64,
        found,
        0,
        |f| {
            f.store(Size::DW, found, cell::PROBE, i64::from(index));
            let now = time(f);
            f.store(Size::DW, found, cell::TIME, now);
        },
        |f| {
            let new = f.slot(cell::SIZE, 8);
            f.store_slot(Size::DW, new, cell::PROBE, i64::from(index));
            let now = time(f);
            f.store_slot(Size::DW, new, cell::TIME, now);
            let kept = f.call(
                Helper::MAP_UPDATE_ELEM,
                &[Arg::Map(maps::CALLS), Arg::SlotAddr(key, 0), Arg::SlotAddr(new, 0), Arg::Imm(0)],
            );
            f.if_(Cmp::Ne, Width::W64, kept, 0, |f| count(f, counter::UNTIMED));
        },
    );
}

/// The key of the call under way: its place on the kernel stack, where the trampoline keeps the arguments. Programs at
/// the entry and at the exit of one call get the same context, and no two calls under way share one, recursion
/// included.
///
/// The verifier does not hand out a context's address as a number, but it does hand out the difference of two
/// pointers; a map's own address is the same in both programs.
pub(super) fn call_key(f: &mut Func<'_>, ctx: Reg) -> Operand {
    let map = f.map(maps::CALLS);
    f.alu(Alu::Sub, Width::W64, ctx, map).into()
}

/// Takes the time of entry out of the call's cell: 0 when this probe's entry was not seen.
pub(super) fn take_entry_time(f: &mut Func<'_>, ctx: Reg, index: u32) -> Reg {
    let key = f.slot(8, 8);
    let value = call_key(f, ctx);
    f.store_slot(Size::DW, key, 0, value);
    let time = f.var();
    f.assign(time, 0);
    let found = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::CALLS), Arg::SlotAddr(key, 0)]);
    f.if_(Cmp::Ne, Width::W64, found, 0, |f| {
        // Another function's call may have been at this place of the stack, and its exit not seen.
        let owner = f.load(Size::DW, found, cell::PROBE);
        f.if_(Cmp::Eq, Width::W64, owner, i64::from(index), |f| {
            let kept = f.load(Size::DW, found, cell::TIME);
            f.assign(time, kept);
            f.store(Size::DW, found, cell::TIME, 0);
        });
    });
    time
}
