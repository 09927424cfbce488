//! Following a command: the set of its tasks, kept by two small programs.
//!
//! Tasks are known by the address of their `task_struct`, which is theirs alone from fork until it is freed; ids are
//! handed out again sooner. A child of ours that is not a thread of ours is the command: we start no other.

use crate::kernel::TaskFields;
use crate::program::{count, counter, maps};
use asm::{Alu, Arg, Cmp, Func, Helper, Program, Reg, Size, Width};

/// Tasks followed at one time. Beyond that children are counted as not followed, and said.
pub const MOST_TASKS: u32 = 16384;

/// The tracepoints to attach [`fork`] and [`free`] to.
pub const FORK: &str = "sched_process_fork";
/// Fires when the last reference to a task has gone: later than its exit, whose calls still are the command's.
pub const FREE: &str = "sched_process_free";

/// At [`FORK`] (parent, child): the child of a followed task is followed; so is a child process of ours.
pub fn fork(task: TaskFields, own_tgid: u32) -> Program {
    let mut program = Program::new("follow_fork", "tracker");
    program.main(|f| {
        f.line("a child of a followed task?", 1, 1);
        let ctx = f.ctx();
        let parent = f.load(Size::DW, ctx, 0);
        let child = f.load(Size::DW, ctx, 8);
        let key = f.slot(8, 8);
        f.store_slot(Size::DW, key, 0, parent);
        let found = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::TASKS), Arg::SlotAddr(key, 0)]);
        f.if_(Cmp::Eq, Width::W64, found, 0, |f| {
            f.line("the command itself?", 2, 1);
            let own = i64::from(own_tgid as i32);
            let tgid = tgid_of(f, task, parent);
            f.if_(Cmp::Ne, Width::W32, tgid, own, |f| f.ret(0));
            let tgid = tgid_of(f, task, child);
            f.if_(Cmp::Eq, Width::W32, tgid, own, |f| f.ret(0));
        });
        f.line("follow the child", 3, 1);
        f.store_slot(Size::DW, key, 0, child);
        let one = f.slot(4, 4);
        f.store_slot(Size::W, one, 0, 1);
        let kept = f.call(
            Helper::MAP_UPDATE_ELEM,
            &[Arg::Map(maps::TASKS), Arg::SlotAddr(key, 0), Arg::SlotAddr(one, 0), Arg::Imm(0)],
        );
        f.if_(Cmp::Ne, Width::W64, kept, 0, |f| count(f, counter::UNFOLLOWED));
        f.ret(0);
    });
    program
}

/// At [`FREE`] (task): it is followed no longer.
pub fn free() -> Program {
    let mut program = Program::new("follow_free", "tracker");
    program.main(|f| {
        f.line("forget the task", 1, 1);
        let ctx = f.ctx();
        let task = f.load(Size::DW, ctx, 0);
        let key = f.slot(8, 8);
        f.store_slot(Size::DW, key, 0, task);
        f.call(Helper::MAP_DELETE_ELEM, &[Arg::Map(maps::TASKS), Arg::SlotAddr(key, 0)]);
        f.ret(0);
    });
    program
}

fn tgid_of(f: &mut Func<'_>, fields: TaskFields, task: Reg) -> Reg {
    let cell = f.slot(8, 8);
    f.store_slot(Size::DW, cell, 0, 0);
    let from = f.alu(Alu::Add, Width::W64, task, i64::from(fields.tgid));
    f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(4), Arg::Reg(from)]);
    f.load_slot(Size::W, cell, 0)
}
