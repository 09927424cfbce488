//! What is shown of the object behind a pointer: probe reads, texts and walks, step by step (see [`crate::notes`]).
//!
//! Probe reads, not loads: a tracepoint's or a function's argument may be NULL or worse, and the kernels 6.2 to 6.12 let
//! a plain load through a tracepoint's NULL crash the machine. A failed one leaves zeros.

use super::values::text;
use crate::layout::StringField;
use crate::notes::{Condition, Step, StepKind};
use crate::walk::{NAME, NAMES, PathField, STEPS, Walk, end, place};
use asm::{Alu, Arg, Cmp, Func, Helper, Reg, Size, Width};

/// Does a step.
pub(super) fn behind(f: &mut Func<'_>, step: &Step, record: Reg) {
    match step.when {
        None => run(f, step, record),
        Some(when) => if_holds(f, when, record, |f| run(f, step, record)),
    }
}

/// Runs `then` if the condition holds.
fn if_holds(f: &mut Func<'_>, when: Condition, record: Reg, then: impl FnOnce(&mut Func<'_>)) {
    let size = match when.size {
        1 => Size::B,
        2 => Size::H,
        4 => Size::W,
        _ => Size::DW,
    };
    let value = f.load(size, record, when.at as i32);
    let holds = f.var();
    f.assign(holds, 0);
    for wanted in when.values {
        f.if_(Cmp::Eq, Width::W64, value, *wanted as i64, |f| f.assign(holds, 1));
    }
    f.if_(Cmp::Ne, Width::W64, holds, 0, then);
}

fn run(f: &mut Func<'_>, step: &Step, record: Reg) {
    let pointer = f.load(Size::DW, record, step.pointer as i32);
    match &step.kind {
        StepKind::Read { add, size, to, user } => {
            let from = plus(f, pointer, *add);
            let args = [Arg::Offset(record, *to as i32 + 8), Arg::Imm(i64::from(*size)), Arg::Reg(from)];
            let status = if *user {
                let status = f.var();
                let read = |helper| {
                    move |f: &mut Func<'_>| {
                        let got = f.call(helper, &args);
                        f.assign(status, got);
                    }
                };
                let (kernel, user) = (read(Helper::PROBE_READ_KERNEL), read(Helper::PROBE_READ_USER));
                f.if_else(Cmp::SLt, Width::W64, pointer, 0, kernel, user);
                status
            } else {
                f.call(Helper::PROBE_READ_KERNEL, &args)
            };
            f.store(Size::DW, record, *to as i32, status);
        }
        StepKind::Text { add, to } => {
            let from = plus(f, pointer, *add);
            text(f, *to, record, from);
        }
        StepKind::Counted { len, to } => counted(f, *len, *to, record, pointer),
        // In a block of its own, so that the walks of an event share their part of the stack.
        StepKind::Path { mount, to, walk } => {
            f.if_(Cmp::Ne, Width::W64, pointer, 0, |f| path(f, *mount, *to, walk, record, pointer));
        }
    }
}

fn plus(f: &mut Func<'_>, pointer: Reg, add: u32) -> Reg {
    if add == 0 { pointer } else { f.alu(Alu::Add, Width::W64, pointer, i64::from(add)) }
}

/// A text of as many bytes as the record says at `len`: its length word counts a terminator, though there is none.
fn counted(f: &mut Func<'_>, len: u32, to: StringField, record: Reg, pointer: Reg) {
    let bytes = f.load(Size::W, record, len as i32);
    let most = i64::from(to.size) - 1;
    let length = f.var();
    f.assign(length, bytes);
    f.if_(Cmp::Gt, Width::W64, length, most, |f| f.assign(length, most));
    let args = [Arg::Offset(record, to.offset as i32 + 4), Arg::Reg(length), Arg::Reg(pointer)];
    let status = f.call(Helper::PROBE_READ_KERNEL, &args);
    f.alu_to(length, Alu::Add, Width::W64, 1);
    f.if_(Cmp::Ne, Width::W64, status, 0, |f| f.assign(length, status));
    f.store(Size::W, record, to.offset as i32, length);
}

/// Walks from a dentry to the root, each name straight into the record.
fn path(f: &mut Func<'_>, mount: Option<u32>, to: PathField, walk: &Walk, record: Reg, pointer: Reg) {
    let at = |place: u32| (to.offset + place) as i32;
    let dentry = f.var();
    f.assign(dentry, pointer);
    let vfsmount = f.var();
    if let Some(cell) = mount {
        let pointer = f.load(Size::DW, record, cell as i32);
        f.assign(vfsmount, pointer);
    }
    let used = f.var();
    f.assign(used, 0);
    let ended = f.var();
    f.assign(ended, i64::from(end::CUT));
    let (own, above) = (f.slot(walk.dentry.1, 8), f.slot(walk.mount.1, 8));
    let read = |f: &mut Func<'_>, slot, (first, size): (u32, u32), object| {
        let from = plus(f, object, first);
        f.call(
            Helper::PROBE_READ_KERNEL,
            &[Arg::SlotAddr(slot, 0), Arg::Imm(i64::from(size)), Arg::Reg(from)],
        )
    };
    // Appends a name; `dentry` was read into `own`.
    let take_name = |f: &mut Func<'_>| {
        let name = f.load_slot(Size::DW, own, walk.name as i32);
        let room = f.alu(Alu::Add, Width::W64, record, used);
        let args = [Arg::Offset(room, at(place::NAMES)), Arg::Imm(i64::from(NAME)), Arg::Reg(name)];
        f.call(Helper::PROBE_READ_KERNEL_STR, &args)
    };
    f.loop_(STEPS, |f, _| {
        let failed = read(f, own, walk.dentry, dentry);
        f.if_(Cmp::Ne, Width::W64, failed, 0, |f| {
            f.assign(ended, failed);
            f.break_();
        });
        let parent = f.load_slot(Size::DW, own, walk.parent as i32);
        f.if_(Cmp::Eq, Width::W64, parent, dentry, |f| {
            if mount.is_some() {
                let here = f.alu(Alu::Sub, Width::W64, vfsmount, i64::from(walk.vfsmount));
                let failed = read(f, above, walk.mount, here);
                f.if_(Cmp::Ne, Width::W64, failed, 0, |f| {
                    f.assign(ended, failed);
                    f.break_();
                });
                let up = f.load_slot(Size::DW, above, walk.mount_parent as i32);
                f.if_(Cmp::Ne, Width::W64, up, here, |f| {
                    let point = f.load_slot(Size::DW, above, walk.mountpoint as i32);
                    f.assign(dentry, point);
                    let up = f.alu(Alu::Add, Width::W64, up, i64::from(walk.vfsmount));
                    f.assign(vfsmount, up);
                    f.continue_();
                });
            }
            f.assign(ended, i64::from(end::ROOT));
            f.if_(Cmp::Eq, Width::W64, used, 0, |f| {
                f.assign(ended, i64::from(end::ALONE));
                let got = take_name(f);
                f.if_(Cmp::SGt, Width::W64, got, 0, |f| f.assign(used, got));
                let inode = f.load_slot(Size::DW, own, walk.inode as i32);
                for (to, size, from) in [(place::INO, 8, walk.ino), (place::MODE, 2, walk.mode)] {
                    let from = plus(f, inode, from);
                    f.call(
                        Helper::PROBE_READ_KERNEL,
                        &[Arg::Offset(record, at(to)), Arg::Imm(size), Arg::Reg(from)],
                    );
                }
            });
            f.break_();
        });
        // Room for one more name, or it is cut here.
        f.if_(Cmp::Gt, Width::W64, used, i64::from(NAMES - NAME), |f| f.break_());
        let got = take_name(f);
        f.if_(Cmp::SLe, Width::W64, got, 0, |f| {
            f.assign(ended, got);
            f.break_();
        });
        f.alu_to(used, Alu::Add, Width::W64, got);
        // Says nothing new: but with the same lower bound on every way here the verifier knows states again.
        f.alu_to(used, Alu::And, Width::W64, 0xff);
        f.assign(dentry, parent);
    });
    f.store(Size::W, record, at(place::END), ended);
    f.store(Size::W, record, at(place::USED), used);
}
