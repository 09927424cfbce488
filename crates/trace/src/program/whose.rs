//! Whose event it is: the filter's tests, cheapest first, and the task's fields of the header.

use super::source::Source;
use super::values::copied_slot;
use super::{Lines, maps};
use crate::cgroup::{Ancestry, Cgroup};
use crate::filter::{Comm, Filter};
use crate::layout::{Argument, header};
use crate::plan::Plan;
use asm::{Alu, Arg, Cmp, Func, Helper, Reg, Size, Width};
use std::collections::BTreeMap;

/// The current task, as far as the filter had to look at it already.
#[derive(Default)]
pub(super) struct Who {
    /// `struct task_struct *` that the verifier trusts.
    task: Option<Reg>,
    /// `bpf_get_current_pid_tgid()`.
    pid_tgid: Option<Reg>,
    tgid: Option<Reg>,
}

impl Who {
    /// Looks up the current task for the header, unless the filter had to.
    pub(super) fn identify(&mut self, f: &mut Func<'_>, plan: &Plan) {
        if plan.current_task_btf {
            self.task.get_or_insert_with(|| f.call(Helper::GET_CURRENT_TASK_BTF, &[]));
        } else {
            self.pid_tgid.get_or_insert_with(|| f.call(Helper::GET_CURRENT_PID_TGID, &[]));
        }
    }

    /// Writes tid, tgid and comm into the header.
    pub(super) fn store(&self, f: &mut Func<'_>, plan: &Plan, record: Reg) {
        if let Some(task) = self.task {
            let tid = f.load(Size::W, task, plan.task.pid as i32);
            f.store(Size::W, record, header::TID as i32, tid);
            let tgid = match self.tgid {
                Some(tgid) => tgid,
                None => f.load(Size::W, task, plan.task.tgid as i32),
            };
            f.store(Size::W, record, header::TGID as i32, tgid);
            for half in [0, 8] {
                let part = f.load(Size::DW, task, plan.task.comm as i32 + half);
                f.store(Size::DW, record, header::COMM as i32 + half, part);
            }
        } else if let Some(both) = self.pid_tgid {
            // tgid << 32 | tid is, on a little-endian machine, tid and then tgid in memory.
            f.store(Size::DW, record, header::TID as i32, both);
            let size = i64::from(header::COMM_SIZE);
            f.call(Helper::GET_CURRENT_COMM, &[Arg::Offset(record, header::COMM as i32), Arg::Imm(size)]);
        }
    }
}

/// Returns from the program unless the event is on one of the wanted CPUs.
///
/// Between entry and exit a task may move to another CPU, so this is asked of events only: an entry's time is kept
/// whatever the CPU.
pub(super) fn on_cpu(f: &mut Func<'_>, lines: &Lines, plan: &Plan) {
    if plan.filter.cpus.is_empty() {
        return;
    }
    lines.mark(f, "filter: CPU");
    let cpu = f.call(Helper::GET_SMP_PROCESSOR_ID, &[]);
    one_of(f, cpu, &plan.filter.cpus, 0);
}

/// Returns `otherwise` from the program unless the current task passes the filter.
pub(super) fn admit(f: &mut Func<'_>, lines: &Lines, plan: &Plan, otherwise: i64) -> Who {
    admit_by(f, lines, plan, otherwise, |_| {})
}

/// The same with what is asked of the call's arguments: before the task is looked at, where all that is asked of it is not to be
/// ourselves. Most calls that are not admitted are not for their arguments.
pub(super) fn admit_by(
    f: &mut Func<'_>,
    lines: &Lines,
    plan: &Plan,
    otherwise: i64,
    asked: impl FnOnce(&mut Func<'_>),
) -> Who {
    if plan.filter.is_of_anybody() {
        asked(f);
        return admit_task(f, lines, plan, otherwise);
    }
    let who = admit_task(f, lines, plan, otherwise);
    asked(f);
    who
}

fn admit_task(f: &mut Func<'_>, lines: &Lines, plan: &Plan, otherwise: i64) -> Who {
    let Filter { tgids, tids, pid_namespace, comms, cpus: _, cgroups, errors: _, not_tgid, followed } =
        &plan.filter;
    let (mut tgids, mut tids) = (tgids.as_slice(), tids.as_slice());
    let mut who = Who { task: None, pid_tgid: None, tgid: None };
    if *followed {
        lines.mark(f, "filter: the command and its children");
        let key = f.slot(8, 8);
        let task = f.call(Helper::GET_CURRENT_TASK, &[]);
        f.store_slot(Size::DW, key, 0, task);
        let found = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::TASKS), Arg::SlotAddr(key, 0)]);
        f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(otherwise));
    }
    if !cgroups.is_empty() {
        lines.mark(f, "filter: cgroup");
        one_of_cgroups(f, cgroups);
    }
    if !comms.is_empty() {
        lines.mark(f, "filter: name of the thread");
        one_of_comms(f, comms, otherwise);
    }
    if let (Some(namespace), false) = (pid_namespace, tgids.is_empty() && tids.is_empty()) {
        lines.mark(f, "filter: process id in our pid namespace");
        // struct bpf_pidns_info: u32 pid, u32 tgid. It fails for tasks of other namespaces.
        let ids = f.slot(8, 8);
        let (dev, ino) = (Arg::Imm(namespace.dev as i64), Arg::Imm(namespace.ino as i64));
        let failed = f.call(Helper::GET_NS_CURRENT_PID_TGID, &[dev, ino, Arg::SlotAddr(ids, 0), Arg::Imm(8)]);
        f.if_(Cmp::Ne, Width::W64, failed, 0, |f| f.ret(otherwise));
        let tid = f.load_slot(Size::W, ids, 0);
        one_of(f, tid, tids, otherwise);
        let tgid = f.load_slot(Size::W, ids, 4);
        one_of(f, tgid, tgids, otherwise);
        (tgids, tids) = (&[], &[]);
    }
    // The command is never ourselves, so following it needs no further test.
    let not_tgid = not_tgid.filter(|_| !*followed);
    let tests = not_tgid.is_some() || !tgids.is_empty();
    if !tests && tids.is_empty() {
        return who;
    }
    lines.mark(f, "filter: process id");
    if plan.current_task_btf {
        let task = f.call(Helper::GET_CURRENT_TASK_BTF, &[]);
        who.task = Some(task);
        if tests {
            who.tgid = Some(f.load(Size::W, task, plan.task.tgid as i32));
        }
        if !tids.is_empty() {
            let tid = f.load(Size::W, task, plan.task.pid as i32);
            one_of(f, tid, tids, otherwise);
        }
    } else {
        let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
        who.pid_tgid = Some(both);
        if tests {
            who.tgid = Some(f.alu(Alu::Rsh, Width::W64, both, 32));
        }
        // The comparison looks at the lower half alone, which is the tid.
        one_of(f, both, tids, otherwise);
    }
    let Some(tgid) = who.tgid else { return who };
    if let Some(own) = not_tgid {
        f.if_(Cmp::Eq, Width::W32, tgid, i64::from(own as i32), |f| f.ret(otherwise));
    }
    one_of(f, tgid, tgids, otherwise);
    who
}

/// Returns from the program unless the lower 32 bits of `value` are one of `wanted`; none wanted: any will do.
fn one_of(f: &mut Func<'_>, value: Reg, wanted: &[u32], otherwise: i64) {
    match wanted {
        [] => {}
        [one] => f.if_(Cmp::Ne, Width::W32, value, i64::from(*one as i32), |f| f.ret(otherwise)),
        many => {
            let found = f.var();
            f.assign(found, 0);
            for one in many {
                f.if_(Cmp::Eq, Width::W32, value, i64::from(*one as i32), |f| f.assign(found, 1));
            }
            f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(otherwise));
        }
    }
}

/// Returns from the program unless the task is in one of these cgroups, or below.
fn one_of_cgroups(f: &mut Func<'_>, wanted: &[Cgroup]) {
    if let [one] = wanted {
        let id = one.ancestry.id(f, one.level);
        let right = f.imm(one.id as i64);
        return f.if_(Cmp::Ne, Width::W64, id, right, |f| f.ret(0));
    }
    let found = f.var();
    f.assign(found, 0);
    let levels: BTreeMap<u32, Ancestry> = wanted.iter().map(|c| (c.level, c.ancestry)).collect();
    for (level, ancestry) in levels {
        let id = ancestry.id(f, level);
        for one in wanted.iter().filter(|c| c.level == level) {
            let right = f.imm(one.id as i64);
            f.if_(Cmp::Eq, Width::W64, id, right, |f| f.assign(found, 1));
        }
    }
    f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(0));
}

/// Returns from the program unless the thread's whole name is one of these.
///
/// Behind the terminator there may be anything: in the task's own field before 5.17, and the helper left our bytes as they
/// were from 5.17 to 6.3 (`strscpy`, not `strscpy_pad`). So the helper is used, on zeros.
fn one_of_comms(f: &mut Func<'_>, wanted: &[Comm], otherwise: i64) {
    let name = f.slot(header::COMM_SIZE, 8);
    f.store_slot(Size::DW, name, 0, 0);
    f.store_slot(Size::DW, name, 8, 0);
    f.call(Helper::GET_CURRENT_COMM, &[Arg::SlotAddr(name, 0), Arg::Imm(i64::from(header::COMM_SIZE))]);
    let first = f.load_slot(Size::DW, name, 0);
    let second = f.load_slot(Size::DW, name, 8);
    let found = f.var();
    f.assign(found, 0);
    for comm in wanted {
        let [low, high] = comm.halves().map(|half| f.imm(half));
        f.if_(Cmp::Eq, Width::W64, first, low, |f| {
            f.if_(Cmp::Eq, Width::W64, second, high, |f| f.assign(found, 1));
        });
    }
    f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(otherwise));
}

/// Returns from the program unless the function returned an error (`IS_ERR_VALUE`, include/linux/err.h).
pub(super) fn only_errors(f: &mut Func<'_>, lines: &Lines, ret: &Argument, source: Source, ctx: Reg) {
    lines.mark(f, "filter: only errors");
    let value = match (source, &ret.shape) {
        // The verifier compares no pointer with a number; a probe read of the slot makes one of it.
        (Source::Copied, _) | (Source::Slots, btf::Shape::Ptr { .. }) => {
            copied_slot(f, ctx, (ret.slot * 8) as i32)
        }
        _ => source.result(f, ret, 0, ctx),
    };
    let value = if ret.size == 4 { f.sext(value, Size::W) } else { value };
    // As unsigned numbers, errors are the last 4095.
    f.if_(Cmp::Lt, Width::W64, value, -4095, |f| f.ret(0));
}
