//! What arguments and return values point to.

use super::Lines;
use crate::layout::{Argument, NOT_READ, NoteField, NoteKind, StringField};
use asm::{Alu, Arg, Cmp, Func, Helper, Reg, Size, Width};

/// A context's slot as a plain number.
pub(super) fn copied_slot(f: &mut Func<'_>, ctx: Reg, at: i32) -> Reg {
    let cell = f.slot(8, 8);
    f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(8), Arg::Offset(ctx, at)]);
    f.load_slot(Size::DW, cell, 0)
}

/// Reads what an argument points to: its text, its notes.
pub(super) fn pointees(f: &mut Func<'_>, lines: &Lines, arg: &Argument, record: Reg) {
    if let Some(field) = arg.string {
        lines.mark(f, &format!("text of {}", arg.name));
        // From the record rather than the context: there it is a plain number on every kernel.
        let pointer = f.load(Size::DW, record, arg.offset as i32);
        text(f, field, record, pointer);
    }
    for note in &arg.notes {
        lines.mark(f, &format!("{}->{}", arg.name, note.label));
        note_of(f, note, arg, record);
    }
}

/// Reads a text: from kernel or user memory, as the address tells.
fn text(f: &mut Func<'_>, field: StringField, record: Reg, pointer: Reg) {
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

/// Follows a note's pointers by probe reads: a tracepoint's or a function's argument may be NULL or worse, and the
/// kernels 6.2 to 6.12 let a plain load through a tracepoint's NULL crash the machine.
fn note_of(f: &mut Func<'_>, note: &NoteField, arg: &Argument, record: Reg) {
    let mut pointer = f.load(Size::DW, record, arg.offset as i32);
    let Some((last, through)) = note.hops.split_last() else { return };
    let cell = f.slot(8, 8);
    let follow = |f: &mut Func<'_>, pointer: Reg, hop: u32| {
        // A failed read leaves zero, and the next read through that fails in turn.
        let from = f.alu(Alu::Add, Width::W64, pointer, i64::from(hop));
        f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(8), Arg::Reg(from)]);
        f.load_slot(Size::DW, cell, 0)
    };
    for hop in through {
        pointer = follow(f, pointer, *hop);
    }
    match &note.kind {
        NoteKind::Text(field) => {
            let pointer = follow(f, pointer, *last);
            text(f, *field, record, pointer);
        }
        NoteKind::Value { offset, size, .. } => {
            let from = f.alu(Alu::Add, Width::W64, pointer, i64::from(*last));
            let status = f.call(
                Helper::PROBE_READ_KERNEL,
                &[Arg::Offset(record, *offset as i32 + 8), Arg::Imm(i64::from(*size)), Arg::Reg(from)],
            );
            f.store(Size::DW, record, *offset as i32, status);
        }
    }
}
