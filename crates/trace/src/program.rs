//! The programs: instructions for exactly what a probe captures.
//!
//! Order, cheapest and most perishable first: whose event it is → the time → the stack, if wanted → the room in the
//! ring, of exactly the record's size → header, arguments → texts and notes → submit. A refused room bumps a per-CPU
//! counter.

use crate::context;
use crate::filter::{Comm, Filter};
use crate::layout::{Argument, NOT_READ, NoteField, NoteKind, StringField, header, stack};
use crate::plan::{Method, Plan, Probe};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Program, Reg, Size, Width};
use bpf::AttachType;

/// Maps as the programs know them; their descriptors come at load time.
pub mod maps {
    use asm::MapId;

    /// Ring buffer of events.
    pub const RING: MapId = MapId(0);
    /// Per-CPU array of counters, see [`super::counter`].
    pub const COUNTERS: MapId = MapId(1);
    /// Hash of calls under way: key by [`super::call_key`], value a [`super::cell`].
    pub const CALLS: MapId = MapId(2);
    /// Hash of the tasks that are followed, by address.
    pub const TASKS: MapId = MapId(3);
}

/// Indices into the counters' map.
pub mod counter {
    /// Events that found no room in the ring.
    pub const LOST: u32 = 0;
    /// Entries whose time could not be kept, so that the exit has no duration.
    pub const UNTIMED: u32 = 1;
    /// Children that could not be followed.
    pub const UNFOLLOWED: u32 = 2;
    /// How many there are.
    pub const COUNT: u32 = 3;
}

/// A call's cell in [`maps::CALLS`].
pub mod cell {
    /// `u64` kernel time of the entry, ns; 0 once the exit has taken it.
    pub const TIME: i32 = 0;
    /// `u64` probe that wrote it.
    pub const PROBE: i32 = 8;
    /// Bytes.
    pub const SIZE: u32 = 16;
}

/// How a program reads its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgAccess {
    /// Loads from the context, which the verifier checks against BTF.
    Plain,
    /// One probe read of all slots: older verifiers (5.10) refuse plain loads of pointers to anything but structures.
    Copied,
}

/// Numbers the marks of a program, each a source line of its own: the verifier repeats a text only when the line changes.
struct Lines {
    next: u32,
}

impl Lines {
    /// Names what follows, so that the verifier's log and `bpftool prog dump xlated linum` show it.
    fn mark(&mut self, f: &mut Func<'_>, text: &str) {
        f.line(text, self.next, 1);
        self.next += 1;
    }
}

/// The program that takes a probe's event.
pub fn event(plan: &Plan, index: u32, probe: &Probe, access: ArgAccess) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&self::name(probe.method.attach_type(), name), name);
    program.main(|f| {
        let mut lines = Lines { next: 1 };
        let ctx = f.ctx();
        let who = whose(f, &mut lines, plan, true);
        lines.mark(f, "time");
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        let entry_time = probe.layout.entry_time.map(|at| {
            lines.mark(f, "duration");
            (at, take_entry_time(f, ctx, index))
        });
        if let (Method::Fentry, Some(exit)) = (probe.method, probe.pair) {
            lines.mark(f, "time for the exit");
            keep_time(f, ctx, exit, Some(now));
        }
        // After the call's cell was emptied, or it would be taken for a call under way for ever.
        if let (true, Some(ret)) = (plan.filter.errors, &probe.layout.ret) {
            only_errors(f, &mut lines, ret, access, ctx);
        }
        let size = probe.layout.size;
        let record = match probe.layout.stack {
            Some(at) => with_stack(f, &mut lines, ctx, size, at),
            None => {
                lines.mark(f, "room in the ring buffer");
                reserve(f, size)
            }
        };
        lines.mark(f, "header: time, probe, cpu, process");
        f.store(Size::DW, record, header::TIME as i32, now);
        f.store(Size::W, record, header::PROBE as i32, i64::from(index));
        if let Some((at, value)) = entry_time {
            f.store(Size::DW, record, at as i32, value);
        }
        if let Some(at) = probe.layout.call {
            let number = call_key(f, ctx);
            f.store(Size::DW, record, at as i32, number);
        }
        who.store(f, plan, record);
        let cpu = f.call(Helper::GET_SMP_PROCESSOR_ID, &[]);
        if let Some(count) = plan.preempt_count {
            f.store(Size::H, record, header::CPU as i32, cpu);
            lines.mark(f, "task, softirq, hardirq or NMI");
            let var = f.btf_var(count.var.0);
            let here = f.call(Helper::THIS_CPU_PTR, &[Arg::Reg(var)]);
            let bits = f.load(Size::W, here, count.offset as i32);
            let bits = f.alu(Alu::Rsh, Width::W32, bits, i64::from(context::SHIFT));
            f.store(Size::H, record, header::CONTEXT as i32, bits);
        } else {
            // CPU numbers fit the lower half (NR_CPUS); the upper, the context, is 0.
            f.store(Size::W, record, header::CPU as i32, cpu);
        }
        arguments(f, &mut lines, probe, access, ctx, record);
        for arg in probe.layout.args.iter().chain(&probe.layout.ret) {
            pointees(f, &mut lines, arg, record);
        }
        lines.mark(f, "submit");
        f.call(Helper::RINGBUF_SUBMIT, &[Arg::Reg(record), Arg::Imm(0)]);
        f.ret(0);
    });
    program
}

/// Reserves a record of that size; leaves the program, the loss counted, if the ring is full.
fn reserve(f: &mut Func<'_>, size: u32) -> Reg {
    let size = Arg::Imm(i64::from(size));
    let record = f.call(Helper::RINGBUF_RESERVE, &[Arg::Map(maps::RING), size, Arg::Imm(0)]);
    f.if_(Cmp::Eq, Width::W64, record, 0, |f| {
        count(f, counter::LOST);
        f.ret(0);
    });
    record
}

/// Takes the kernel stack and reserves a record that holds it.
///
/// The first frames go to this program's own stack, which no interrupt and no other task shares, as they would a
/// per-CPU map; only a stack with more is taken again, straight into the largest record.
fn with_stack(f: &mut Func<'_>, lines: &mut Lines, ctx: Reg, size: u32, at: u32) -> Reg {
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
        let new = reserve(f, size + small);
        for word in (0..small).step_by(stack::FRAME as usize) {
            let frame = f.load_slot(Size::DW, frames, word as i32);
            f.store(Size::DW, new, (at + 8 + word) as i32, frame);
        }
        f.assign(record, new);
    };
    let longer = |f: &mut Func<'_>, room: u32| {
        let new = reserve(f, size + room);
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
                let new = reserve(f, size + large);
                f.assign(record, new);
                let got = take(f, to(new), large);
                f.assign(length, got);
            },
        );
    });
    f.store(Size::DW, record, at as i32, length);
    record
}

/// The program at a function's entry that keeps the time for the exit.
///
/// The call's cell in the map is found and written in place, and emptied in place by the exit: making and deleting an
/// entry for each call would cost four times as much. Cells stay for the next call at that place of some stack; see
/// [`crate::Session::tend`] for when they have become too many.
pub fn entry_time(plan: &Plan, index: u32, probe: &Probe) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&self::name(AttachType::Fentry, name), name);
    program.main(|f| {
        let mut lines = Lines { next: 1 };
        let ctx = f.ctx();
        whose(f, &mut lines, plan, false);
        lines.mark(f, "time of entry");
        keep_time(f, ctx, index, None);
        f.ret(0);
    });
    program
}

/// Keeps the time of entry, `now` or the very moment, for the exit's probe `index`.
fn keep_time(f: &mut Func<'_>, ctx: Reg, index: u32, now: Option<Reg>) {
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

/// A name that tells the programs apart in `bpftool prog`; the kernel keeps 15 characters.
pub fn name(attach_type: AttachType, target: &str) -> String {
    let prefix = match attach_type {
        AttachType::Fentry => "en_",
        AttachType::Fexit => "ex_",
        AttachType::TpBtf | AttachType::None => "tp_",
    };
    format!("{prefix}{target}")
}

/// The current task, as far as the filter had to look at it already.
struct Who {
    /// `struct task_struct *` that the verifier trusts.
    task: Option<Reg>,
    /// `bpf_get_current_pid_tgid()`.
    pid_tgid: Option<Reg>,
    tgid: Option<Reg>,
}

/// Returns from the program unless the current task passes the filter.
///
/// With `recorded` the task is looked up even if no test needs it.
fn whose(f: &mut Func<'_>, lines: &mut Lines, plan: &Plan, recorded: bool) -> Who {
    let Filter { tgids, tids, pid_namespace, comms, cpus, errors: _, not_tgid, followed } = &plan.filter;
    let (mut tgids, mut tids) = (tgids.as_slice(), tids.as_slice());
    let mut who = Who { task: None, pid_tgid: None, tgid: None };
    if *followed {
        lines.mark(f, "filter: the command and its children");
        let key = f.slot(8, 8);
        let task = f.call(Helper::GET_CURRENT_TASK, &[]);
        f.store_slot(Size::DW, key, 0, task);
        let found = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::TASKS), Arg::SlotAddr(key, 0)]);
        f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(0));
    }
    // Between entry and exit the task may move to another CPU, so the entry's time is kept whatever the CPU.
    if let (true, false) = (recorded, cpus.is_empty()) {
        lines.mark(f, "filter: CPU");
        let cpu = f.call(Helper::GET_SMP_PROCESSOR_ID, &[]);
        one_of(f, cpu, cpus);
    }
    if !comms.is_empty() {
        lines.mark(f, "filter: name of the thread");
        one_of_comms(f, comms);
    }
    if let (Some(namespace), false) = (pid_namespace, tgids.is_empty() && tids.is_empty()) {
        lines.mark(f, "filter: process id in our pid namespace");
        // struct bpf_pidns_info: u32 pid, u32 tgid. It fails for tasks of other namespaces.
        let ids = f.slot(8, 8);
        let (dev, ino) = (Arg::Imm(namespace.dev as i64), Arg::Imm(namespace.ino as i64));
        let failed = f.call(Helper::GET_NS_CURRENT_PID_TGID, &[dev, ino, Arg::SlotAddr(ids, 0), Arg::Imm(8)]);
        f.if_(Cmp::Ne, Width::W64, failed, 0, |f| f.ret(0));
        let tid = f.load_slot(Size::W, ids, 0);
        one_of(f, tid, tids);
        let tgid = f.load_slot(Size::W, ids, 4);
        one_of(f, tgid, tgids);
        (tgids, tids) = (&[], &[]);
    }
    // The command is never ourselves, so following it needs no further test.
    let not_tgid = not_tgid.filter(|_| !*followed);
    let tests = not_tgid.is_some() || !tgids.is_empty();
    if !tests && tids.is_empty() && !recorded {
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
            one_of(f, tid, tids);
        }
    } else {
        let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
        who.pid_tgid = Some(both);
        if tests {
            who.tgid = Some(f.alu(Alu::Rsh, Width::W64, both, 32));
        }
        // The comparison looks at the lower half alone, which is the tid.
        one_of(f, both, tids);
    }
    let Some(tgid) = who.tgid else { return who };
    if let Some(own) = not_tgid {
        f.if_(Cmp::Eq, Width::W32, tgid, i64::from(own as i32), |f| f.ret(0));
    }
    one_of(f, tgid, tgids);
    who
}

/// Returns from the program unless the lower 32 bits of `value` are one of `wanted`; none wanted: any will do.
fn one_of(f: &mut Func<'_>, value: Reg, wanted: &[u32]) {
    match wanted {
        [] => {}
        [one] => f.if_(Cmp::Ne, Width::W32, value, i64::from(*one as i32), |f| f.ret(0)),
        many => {
            let found = f.var();
            f.assign(found, 0);
            for one in many {
                f.if_(Cmp::Eq, Width::W32, value, i64::from(*one as i32), |f| f.assign(found, 1));
            }
            f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(0));
        }
    }
}

/// Returns from the program unless the thread's whole name is one of these.
///
/// Behind the terminator there may be anything: in the task's own field before 5.17, and the helper left our bytes as they
/// were from 5.17 to 6.3 (`strscpy`, not `strscpy_pad`). So the helper is used, on zeros.
fn one_of_comms(f: &mut Func<'_>, wanted: &[Comm]) {
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
    f.if_(Cmp::Eq, Width::W64, found, 0, |f| f.ret(0));
}

/// Returns from the program unless the function returned an error (`IS_ERR_VALUE`, include/linux/err.h).
fn only_errors(f: &mut Func<'_>, lines: &mut Lines, ret: &Argument, access: ArgAccess, ctx: Reg) {
    lines.mark(f, "filter: only errors");
    let at = (ret.slot * 8) as i32;
    let value = match access {
        ArgAccess::Plain => {
            // The verifier compares no pointer with a number; a probe read of the slot makes one of it.
            match ret.shape {
                btf::Shape::Ptr { .. } => copied_slot(f, ctx, at),
                _ => f.load(Size::DW, ctx, at),
            }
        }
        ArgAccess::Copied => copied_slot(f, ctx, at),
    };
    let value = if ret.size == 4 { f.sext(value, Size::W) } else { value };
    // As unsigned numbers, errors are the last 4095.
    f.if_(Cmp::Lt, Width::W64, value, -4095, |f| f.ret(0));
}

/// A context's slot as a plain number.
fn copied_slot(f: &mut Func<'_>, ctx: Reg, at: i32) -> Reg {
    let cell = f.slot(8, 8);
    f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(8), Arg::Offset(ctx, at)]);
    f.load_slot(Size::DW, cell, 0)
}

impl Who {
    /// Writes tid, tgid and comm into the header.
    fn store(&self, f: &mut Func<'_>, plan: &Plan, record: Reg) {
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

/// The key of the call under way: its place on the kernel stack, where the trampoline keeps the arguments. Programs at
/// the entry and at the exit of one call get the same context, and no two calls under way share one, recursion
/// included.
///
/// The verifier does not hand out a context's address as a number, but it does hand out the difference of two
/// pointers; a map's own address is the same in both programs.
fn call_key(f: &mut Func<'_>, ctx: Reg) -> Operand {
    let map = f.map(maps::CALLS);
    f.alu(Alu::Sub, Width::W64, ctx, map).into()
}

/// Takes the time of entry out of the call's cell: 0 when this probe's entry was not seen.
fn take_entry_time(f: &mut Func<'_>, ctx: Reg, index: u32) -> Reg {
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

/// Bumps a counter of this CPU.
pub fn count(f: &mut Func<'_>, counter: u32) {
    let key = f.slot(4, 4);
    f.store_slot(Size::W, key, 0, i64::from(counter));
    let value = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::COUNTERS), Arg::SlotAddr(key, 0)]);
    f.if_(Cmp::Ne, Width::W64, value, 0, |f| {
        // Atomic: an interrupt on this CPU may be counting too.
        let one = f.imm(1);
        f.atomic_add(Size::DW, value, 0, one);
    });
}

/// Copies the argument slots and the return value into the record.
fn arguments(f: &mut Func<'_>, lines: &mut Lines, probe: &Probe, access: ArgAccess, ctx: Reg, record: Reg) {
    let layout = &probe.layout;
    let all = || layout.args.iter().chain(&layout.ret);
    match access {
        ArgAccess::Plain => {
            for arg in all() {
                lines.mark(f, &format!("{} {}", arg.type_name, arg.name));
                for slot in 0..arg.slots {
                    let value = f.load(Size::DW, ctx, ((arg.slot + slot) * 8) as i32);
                    f.store(Size::DW, record, (arg.offset + slot * 8) as i32, value);
                }
            }
        }
        ArgAccess::Copied => {
            let slots: u32 = all().map(|a| a.slots).sum();
            let Some(first) = all().next() else { return };
            lines.mark(f, "arguments");
            f.call(
                Helper::PROBE_READ_KERNEL,
                &[Arg::Offset(record, first.offset as i32), Arg::Imm(i64::from(slots * 8)), Arg::Reg(ctx)],
            );
        }
    }
}

/// Reads what an argument points to: its text, its notes.
fn pointees(f: &mut Func<'_>, lines: &mut Lines, arg: &Argument, record: Reg) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scope;
    use crate::{Kernel, Mode, Pattern, Request, TargetKind, TargetSpec};

    /// Stack of a BPF program (`MAX_BPF_STACK`).
    const BPF_STACK: u32 = 512;

    #[test]
    fn a_stack_is_the_records_last_part_and_fits_the_programs_own() {
        let kernel = match Kernel::running() {
            Ok(kernel) => kernel,
            Err(error) => return println!("SKIP: {error}"),
        };
        let pattern = Pattern::new("vfs_read").expect("pattern");
        let mut request = Request {
            targets: vec![TargetSpec { kind: TargetKind::Function, pattern, scope: Scope::default() }],
            mode: Mode::Exit,
            filter: Filter { tgids: vec![1, 2, 3], not_tgid: Some(4), followed: true, ..Filter::default() },
            force: false,
            stack: false,
            string_size: 64,
            ring_size: 1 << 16,
        };
        let plain = Plan::new(&kernel, &request).expect("plan");
        request.stack = true;
        let stacked = Plan::new(&kernel, &request).expect("plan");
        let (without, with) = (&plain.probes[0].layout, &stacked.probes[0].layout);
        assert_eq!((without.stack, with.stack), (None, Some(without.size)));
        assert_eq!(with.size, without.size + 8);
        assert!(with.size.is_multiple_of(8));
        for access in [ArgAccess::Plain, ArgAccess::Copied] {
            let code = event(&stacked, 0, &stacked.probes[0], access)
                .assemble(&asm::Options::default())
                .expect("assemble");
            assert!(code.stack_used <= BPF_STACK, "{}", code.stack_used);
        }
        assert!(stack::ROOMS.is_sorted() && stack::FIRST * stack::FRAME < BPF_STACK);
    }
}
