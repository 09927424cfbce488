//! What arguments and return values point to.

use super::Lines;
use super::behind::behind;
use crate::layout::{Argument, NOT_READ, StringField};
use asm::{Arg, Cmp, Func, Helper, Reg, Size, Width};

/// A context's slot as a plain number.
pub(super) fn copied_slot(f: &mut Func<'_>, ctx: Reg, at: i32) -> Reg {
    let cell = f.slot(8, 8);
    f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(8), Arg::Offset(ctx, at)]);
    f.load_slot(Size::DW, cell, 0)
}

/// Reads what an argument points to: its text, what is shown of the object.
pub(super) fn pointees(f: &mut Func<'_>, lines: &Lines, arg: &Argument, record: Reg) {
    if let Some(field) = arg.string {
        lines.mark(f, &format!("text of {}", arg.name));
        // From the record rather than the context: there it is a plain number on every kernel.
        let pointer = f.load(Size::DW, record, arg.offset as i32);
        text(f, field, record, pointer);
    }
    for step in &arg.steps {
        lines.mark(f, &format!("{}->{}", arg.name, step.what));
        behind(f, step, record);
    }
}

/// Reads a text: from kernel or user memory, as the address tells.
pub(super) fn text(f: &mut Func<'_>, field: StringField, record: Reg, pointer: Reg) {
    let to = Arg::Offset(record, field.offset as i32 + 4);
    let size = Arg::Imm(i64::from(field.size));
    let length = f.var();
    f.assign(length, i64::from(NOT_READ));
    f.if_else(
        Cmp::SLt,
        Width::W64,
        pointer,
        0,
        |f| {
            let got = f.call(Helper::PROBE_READ_KERNEL_STR, &[to, size, Arg::Reg(pointer)]);
            f.assign(length, got);
        },
        |f| {
            if field.user_too {
                let got = f.call(Helper::PROBE_READ_USER_STR, &[to, size, Arg::Reg(pointer)]);
                f.assign(length, got);
            }
        },
    );
    f.store(Size::W, record, field.offset as i32, length);
}
