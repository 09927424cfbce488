//! Calls under way: an entry's time, kept for its exit.
//!
//! Where the kernel's atomic additions give the old value (5.12), a call has a cell of an array at the hash of its place and
//! probe: the kernel looks into an array by a few instructions, into a hash map by a hundred. A cell serves one call at a time;
//! a second one that falls on it, which takes many calls under way at once, goes to a hash map, as all do on older kernels.
//! Cells whose calls' exits were never seen stay taken, which slows other calls there and makes none of them wrong.

use super::roots::Roots;
use super::{ArgAccess, Lines, admit_by, cell, count, counter, maps, quick, whose};
use crate::plan::{Plan, Probe};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Program, Reg, Size, Width};

/// 2^64 divided by the golden ratio, odd: spreads places that differ in few bits (Knuth, volume 3, 6.4).
pub(super) const MULTIPLIER: i64 = 0x9e37_79b9_7f4a_7c15_u64.cast_signed();

/// The program at a function's entry that keeps the time for the exit.
///
/// In a hash map the call's cell is found and written in place, and emptied in place by the exit: making and deleting an
/// entry for each call would cost four times as much. Cells stay for the next call at that place of some stack; see
/// [`crate::Session::tend`] for when they have become too many.
pub fn entry_time(plan: &Plan, index: u32, probe: &Probe, access: ArgAccess) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&format!("en_{name}"), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        let typed = access == ArgAccess::Plain;
        let roots = Roots::new(plan, &probe.layout, access.source(), ctx, &lines).typed(typed);
        let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
        whose::admit_by(f, &lines, plan, 0, |f| {
            admit_by(f, &mut roots.compiler_at_entry(&mark), &probe.layout, 0);
        });
        lines.mark(f, "time of entry");
        keep_time(f, plan, ctx, index, None);
        f.ret(0);
    });
    program
}

/// Keeps the time of entry, `now` or the very moment, for the exit's probe `index`.
pub(super) fn keep_time(f: &mut Func<'_>, plan: &Plan, ctx: Reg, index: u32, now: Option<Reg>) {
    let place = call_key(f, ctx);
    if !plan.quick_calls {
        return keep_in_hash(f, place, index, now);
    }
    let (key, cell) = quick_cell(f, place, index);
    let now = now.unwrap_or_else(|| f.call(Helper::KTIME_GET_NS, &[]));
    let kept = f.var();
    f.assign(kept, 0);
    f.if_(Cmp::Ne, Width::W64, cell, 0, |f| {
        let owner = f.load(Size::DW, cell, quick::KEY);
        f.if_else(
            Cmp::Eq,
            Width::W64,
            owner,
            0,
            |f| {
                let one = f.imm(1);
                let others = f.fetch_add(Size::DW, cell, quick::CLAIMS, one);
                f.if_else(
                    Cmp::Eq,
                    Width::W64,
                    others,
                    0,
                    |f| {
                        f.store(Size::DW, cell, quick::TIME, now);
                        f.store(Size::DW, cell, quick::KEY, key);
                        f.assign(kept, 1);
                    },
                    |f| {
                        let less = f.imm(-1);
                        f.atomic_add(Size::DW, cell, quick::CLAIMS, less);
                    },
                );
            },
            |f| {
                // An earlier call at this place, whose exit was not seen.
                f.if_(Cmp::Eq, Width::W64, owner, key, |f| {
                    f.store(Size::DW, cell, quick::TIME, now);
                    f.assign(kept, 1);
                });
            },
        );
    });
    f.if_unlikely(Cmp::Eq, Width::W64, kept, 0, |f| keep_in_hash(f, place, index, Some(now)));
}

/// The call's cell in [`maps::CELLS`], which another call may have, and what it is marked by as this one's.
fn quick_cell(f: &mut Func<'_>, place: Operand, index: u32) -> (Reg, Reg) {
    // Places differ in their lower 48 bits.
    let key = f.alu(Alu::Xor, Width::W64, place, i64::from(index) << 48);
    let hash = f.alu(Alu::Mul, Width::W64, key, MULTIPLIER);
    let hash = f.alu(Alu::Rsh, Width::W64, hash, i64::from(64 - quick::BITS));
    let at = f.slot(4, 4);
    f.store_slot(Size::W, at, 0, hash);
    (key, f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::CELLS), Arg::SlotAddr(at, 0)]))
}

fn keep_in_hash(f: &mut Func<'_>, place: Operand, index: u32, now: Option<Reg>) {
    let key = f.slot(8, 8);
    f.store_slot(Size::DW, key, 0, place);
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
pub(super) fn take_entry_time(f: &mut Func<'_>, plan: &Plan, ctx: Reg, index: u32) -> Reg {
    let place = call_key(f, ctx);
    let time = f.var();
    f.assign(time, 0);
    if !plan.quick_calls {
        take_from_hash(f, place, index, time);
        return time;
    }
    let (key, cell) = quick_cell(f, place, index);
    f.if_(Cmp::Ne, Width::W64, cell, 0, |f| {
        let owner = f.load(Size::DW, cell, quick::KEY);
        f.if_(Cmp::Eq, Width::W64, owner, key, |f| {
            let kept = f.load(Size::DW, cell, quick::TIME);
            f.assign(time, kept);
            f.store(Size::DW, cell, quick::KEY, 0);
            let less = f.imm(-1);
            f.atomic_add(Size::DW, cell, quick::CLAIMS, less);
        });
    });
    f.if_unlikely(Cmp::Eq, Width::W64, time, 0, |f| take_from_hash(f, place, index, time));
    time
}

fn take_from_hash(f: &mut Func<'_>, place: Operand, index: u32, time: Reg) {
    let key = f.slot(8, 8);
    f.store_slot(Size::DW, key, 0, place);
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
}
