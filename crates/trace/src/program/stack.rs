//! The kernel stack of an event, taken before the record is reserved.

use super::{Lines, reserve};
use crate::layout::stack;
use asm::{Arg, Cmp, Func, Helper, Reg, Size, Width};

/// Takes the kernel stack and reserves a record that holds it.
///
/// The first frames go to this program's own stack, which no interrupt and no other task shares, as they would a
/// per-CPU map; only a stack with more is taken again, straight into the largest record.
pub(super) fn with_stack(f: &mut Func<'_>, lines: &Lines, ctx: Reg, ring: Arg, size: u32, at: u32) -> Reg {
    const BYTES: u32 = stack::FIRST * stack::FRAME;
    let take = |f: &mut Func<'_>, to: Arg, bytes: u32| {
        f.call(Helper::GET_STACK, &[Arg::Reg(ctx), to, Arg::Imm(i64::from(bytes)), Arg::Imm(0)])
    };
    lines.mark(f, "kernel stack");
    let frames = f.slot(BYTES, 8);
    let length = f.var();
    let got = take(f, Arg::SlotAddr(frames, 0), BYTES);
    f.assign(length, got);
    let record = f.var();
    let to = |record| Arg::Offset(record, (at + 8) as i32);
    let [small, middle, large] = stack::ROOMS.map(|room| room * stack::FRAME);
    // Word by word a short stack is copied in a quarter of the instructions that a probe read takes.
    let short = |f: &mut Func<'_>| {
        let new = reserve(f, ring, size + small);
        for word in (0..small).step_by(stack::FRAME as usize) {
            let frame = f.load_slot(Size::DW, frames, word as i32);
            f.store(Size::DW, new, (at + 8 + word) as i32, frame);
        }
        f.assign(record, new);
    };
    let longer = |f: &mut Func<'_>, room: u32| {
        let new = reserve(f, ring, size + room);
        f.call(Helper::PROBE_READ_KERNEL, &[to(new), Arg::Imm(i64::from(room)), Arg::SlotAddr(frames, 0)]);
        f.assign(record, new);
    };
    lines.mark(f, "room in the ring buffer for a short stack, or an error");
    f.if_else(Cmp::SLe, Width::W64, length, i64::from(small), short, |f| {
        lines.mark(f, "for a longer one");
        f.if_else(
            Cmp::SLt,
            Width::W64,
            length,
            i64::from(middle),
            |f| longer(f, middle),
            |f| {
                lines.mark(f, "for the longest");
                let new = reserve(f, ring, size + large);
                f.assign(record, new);
                let got = take(f, to(new), large);
                f.assign(length, got);
            },
        );
    });
    f.store(Size::DW, record, at as i32, length);
    record
}
