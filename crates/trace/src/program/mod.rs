//! The programs: instructions for exactly what a probe captures.
//!
//! Order, cheapest and most perishable first: branch records, if wanted → whose event it is → the time → the stack, if wanted → the room in the
//! ring, of exactly the record's size → header, arguments → texts and notes → submit. A refused room bumps a per-CPU
//! counter.

mod behind;
mod branches;
mod calls;
mod gather;
mod kprobe;
pub mod looking;
mod many;
mod parts;
mod path;
mod roots;
mod session;
mod source;
mod stack;
mod values;
mod whose;

pub use branches::{cells as snapshot_cells, size as snapshots_size};
pub use calls::entry_time;
pub use kprobe::{keep, kprobe, kretprobe};
pub use many::{Ends, Group, branch, branch_entry, cookie, fork, many};
pub use parts::{PART, Part, dispatch, part, part_entry};
pub use path::{decision, hits, state};
pub use session::session;

use crate::context;
use crate::expressions::VALUE;
use crate::layout::{self, Layout, Number, header};
use crate::plan::{Plan, Probe};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Program, Reg, Size, Width};
use calls::{call_key, keep_time, take_entry_time};
use expr::Compiler;
use gather::gather;
use roots::Roots;
use source::Source;
pub use source::stack_words;
use stack::with_stack;
use std::cell::Cell;
use values::pointees;
use whose::{Who, on_cpu, only_errors};

/// Maps as the programs know them; their descriptors come at load time.
pub mod maps {
    use asm::MapId;

    /// Ring buffer of events; where the plan has several, the array of them.
    pub const RING: MapId = MapId(0);
    /// Per-CPU array of counters, see [`super::counter`].
    pub const COUNTERS: MapId = MapId(1);
    /// Hash of calls under way that found their place in [`CELLS`] taken: key by [`super::call_key`], value a [`super::cell`].
    pub const CALLS: MapId = MapId(2);
    /// Hash of the tasks that are followed, by address.
    pub const TASKS: MapId = MapId(3);
    /// Hash of calls under way whose return is seen by a probe that does not see the arguments any more: key [`super::cell::KEPT_KEY`],
    /// value a [`super::cell`] of [`super::cell::KEPT_SIZE`].
    pub const KEPT: MapId = MapId(4);
    /// Array of one cell like those of [`KEPT`], all zeros: what a new one begins as.
    pub const BLANK: MapId = MapId(5);
    /// Array of [`super::quick::CELLS`] calls under way, each where its key's hash says: values by [`super::quick`].
    pub const CELLS: MapId = MapId(6);
    /// Programs to go to by tail call, see [`super::dispatch`]; one map for each program that does.
    pub const PARTS: MapId = MapId(7);
    /// Array of one value like the largest of [`gathered`], all zeros: what a new entry begins as.
    pub const ZEROS: MapId = MapId(8);
    /// Hash of the paths of calls under way, see [`super::state`].
    pub const PATHS: MapId = MapId(10);
    /// Array of one value like those of [`PATHS`], all zeros.
    pub const BLANK_PATH: MapId = MapId(11);
    /// Array of one value, cells of branch records.
    pub const SNAPSHOTS: MapId = MapId(9);
    /// The first of [`gathered`].
    pub const GATHERED: u32 = 16;

    /// Per-CPU hash of what an output of that number gathers.
    pub const fn gathered(number: usize) -> MapId {
        MapId(GATHERED + number as u32)
    }
}

/// A call's cell in [`maps::CELLS`].
pub mod quick {
    /// `u64` key of the call and its probe; 0 when the cell is free.
    pub const KEY: i32 = 0;
    /// `u64` kernel time of the entry, ns.
    pub const TIME: i32 = 8;
    /// `u64` who holds the cell or asks for it: the first has it.
    pub const CLAIMS: i32 = 16;
    /// Bytes.
    pub const SIZE: u32 = 24;
    /// How many there are, as a power of two.
    pub const BITS: u32 = 14;
    /// How many there are.
    pub const CELLS: u32 = 1 << BITS;
}

/// Indices into the counters' map.
pub mod counter {
    /// Events that found no room in the ring.
    pub const LOST: u32 = 0;
    /// Entries whose time could not be kept, so that the exit has no duration.
    pub const UNTIMED: u32 = 1;
    /// Children that could not be followed.
    pub const UNFOLLOWED: u32 = 2;
    /// Returns whose entry was not seen, so that nothing is known of the call.
    pub const UNSEEN: u32 = 3;
    /// Events that were not gathered, for a key or the value could not be read.
    pub const UNREAD: u32 = 4;
    /// Events that were not gathered, for the table was full.
    pub const NO_ROOM: u32 = 5;
    /// Calls whose path could not be kept.
    pub const PATHLESS: u32 = 6;
    /// Events of which something was to be gathered.
    pub const GATHERED: u32 = 7;
    /// How many there are.
    pub const COUNT: u32 = 8;
}

/// A call's cell in [`maps::CALLS`] or [`maps::KEPT`].
pub mod cell {
    /// `u64` kernel time of the entry, ns; 0 once the exit has taken it.
    pub const TIME: i32 = 0;
    /// `u64` probe that wrote it, in [`super::maps::CALLS`].
    pub const PROBE: i32 = 8;
    /// `u64` thread and process that made the call (`bpf_get_current_pid_tgid`), in [`super::maps::KEPT`].
    pub const OWNER: i32 = 8;
    /// Bytes, in [`super::maps::CALLS`].
    pub const SIZE: u32 = 16;
    /// Bytes of a key in [`super::maps::KEPT`]: `u64` place of the return address on the stack, `u64` probe or cookie.
    pub const KEPT_KEY: u32 = 16;
    /// In [`super::maps::KEPT`] the registers that carry arguments follow,
    pub const ARGUMENTS: i32 = 16;
    /// and as many words of the arguments that lie on the stack.
    pub const ON_STACK: i32 = ARGUMENTS + 8 * crate::arch::REGISTERS.len() as i32;
    /// Most of those words.
    pub const MOST_WORDS: u32 = 40;

    /// Bytes, in [`super::maps::KEPT`], where so many words are kept.
    pub const fn kept_size(words: u32) -> u32 {
        ON_STACK as u32 + 8 * words
    }
}

/// How a program reads its arguments from a trampoline's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgAccess {
    /// Loads from the context, which the verifier checks against BTF.
    Plain,
    /// One probe read of all slots: older verifiers (5.10) refuse plain loads of pointers to anything but structures.
    Copied,
}

impl ArgAccess {
    fn source(self) -> Source {
        match self {
            ArgAccess::Plain => Source::Slots,
            ArgAccess::Copied => Source::Copied,
        }
    }
}

/// Numbers the marks of a program, each a source line of its own: the verifier repeats a text only when the line changes.
struct Lines {
    next: Cell<u32>,
}

impl Lines {
    fn new() -> Lines {
        Lines { next: Cell::new(1) }
    }

    /// Names what follows, so that the verifier's log and `bpftool prog dump xlated linum` show it.
    fn mark(&self, f: &mut Func<'_>, text: &str) {
        f.line(text, self.next.get(), 1);
        self.next.set(self.next.get() + 1);
    }
}

/// What is known of an event when it comes to be written.
struct Moment {
    /// The time of the event.
    now: Reg,
    /// At exits, the time of the entry; 0 when it was not seen.
    entry_time: Option<Operand>,
    /// Where entries and exits are both taken, the call's number.
    call: Option<Operand>,
    /// The probe, an index into the plan.
    index: Operand,
    /// The state of the call's path, 0 if it has none.
    path: Option<Reg>,
}

/// The program that takes a probe's event at a trampoline or tracepoint.
pub fn event(plan: &Plan, index: u32, probe: &Probe, access: ArgAccess) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&self::name(probe, name), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        branches::snapshot(f, &lines, plan, ctx);
        let duration = |f: &mut Func<'_>| {
            probe.layout.entry_time.map(|_| {
                lines.mark(f, "duration");
                take_entry_time(f, plan, ctx, index).into()
            })
        };
        // A task may be renamed or moved during the call: the cell is emptied whatever becomes of the event, lest a later call
        // that is not admitted at its entry find it.
        let taken = if plan.filter.may_change() { duration(f) } else { None };
        let typed = access == ArgAccess::Plain && probe.target.kind != crate::TargetKind::Tracepoint;
        let roots = Roots::new(plan, &probe.layout, access.source(), ctx, &lines).typed(typed);
        let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
        let compiler = &mut roots.compiler(&mark);
        let mut who = whose::admit_by(f, &lines, plan, 0, |f| {
            on_cpu(f, &lines, plan);
            if !probe.at_exit {
                admit_by(f, &mut *compiler, &probe.layout, 0);
            }
        });
        who.identify(f, plan);
        lines.mark(f, "time");
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        let entry_time = if plan.filter.may_change() { taken } else { duration(f) };
        if let (true, false, Some(Operand::Reg(start))) =
            (probe.at_exit, probe.layout.asked.tests.at_entry.is_empty(), entry_time)
        {
            // Its entry did not admit it.
            f.if_(Cmp::Eq, Width::W64, start, 0, |f| f.ret(0));
        }
        roots.now.set(Some(now));
        roots.entry_time.set(entry_time);
        if let (false, Some(exit)) = (probe.at_exit, probe.pair) {
            lines.mark(f, "time for the exit");
            keep_time(f, plan, ctx, exit, Some(now));
        }
        let call = probe.layout.call.map(|_| call_key(f, ctx));
        let moment = Moment { now, entry_time, call, index: i64::from(index).into(), path: None };
        write_event(f, &lines, plan, &probe.layout, &who, access.source(), ctx, &moment, compiler);
    });
    program
}

/// Where an event goes, and where it happened: what all events of a program have in common.
struct Here {
    ring: Arg,
    /// The CPU; with `context` in the upper half of 32 bits, the header's two fields in one.
    cpu: Option<Reg>,
    context: bool,
}

impl Here {
    /// What must be known before there is a record: its ring. The rest is left to the header.
    fn ring(f: &mut Func<'_>, lines: &Lines, plan: &Plan) -> Here {
        if plan.rings == 1 {
            return Here { ring: Arg::Map(maps::RING), cpu: None, context: false };
        }
        lines.mark(f, "this CPU's ring buffer");
        let cpu = f.call(Helper::GET_SMP_PROCESSOR_ID, &[]);
        Here { ring: Arg::Reg(own_ring(f, plan, cpu)), cpu: Some(cpu), context: false }
    }

    /// All of it, for programs that write records of many layouts: the kernel makes each of these helpers' calls into
    /// instructions, and moves the whole rest of the program for every one.
    fn all(f: &mut Func<'_>, lines: &Lines, plan: &Plan) -> Here {
        let here = Here::ring(f, lines, plan);
        let cpu = here.cpu.unwrap_or_else(|| f.call(Helper::GET_SMP_PROCESSOR_ID, &[]));
        let Some(bits) = context_bits(f, lines, plan) else { return Here { cpu: Some(cpu), ..here } };
        let bits = f.alu(Alu::Lsh, Width::W32, bits, i64::from(header::CONTEXT - header::CPU) * 8);
        let both = f.alu(Alu::Or, Width::W32, bits, cpu);
        Here { cpu: Some(both), context: true, ..here }
    }

    /// Writes the CPU and the context into the header.
    fn store(&self, f: &mut Func<'_>, lines: &Lines, plan: &Plan, record: Reg) {
        let cpu = self.cpu.unwrap_or_else(|| f.call(Helper::GET_SMP_PROCESSOR_ID, &[]));
        if self.context || plan.preempt_count.is_none() {
            // CPU numbers fit the lower half (NR_CPUS); the upper, the context, may be 0.
            f.store(Size::W, record, header::CPU as i32, cpu);
            return;
        }
        f.store(Size::H, record, header::CPU as i32, cpu);
        if let Some(bits) = context_bits(f, lines, plan) {
            f.store(Size::H, record, header::CONTEXT as i32, bits);
        }
    }
}

/// The header's context, in the lower half.
fn context_bits(f: &mut Func<'_>, lines: &Lines, plan: &Plan) -> Option<Reg> {
    let count = plan.preempt_count?;
    lines.mark(f, "task, softirq, hardirq or NMI");
    let var = f.btf_var(count.var.0);
    let here = f.call(Helper::THIS_CPU_PTR, &[Arg::Reg(var)]);
    let bits = f.load(Size::W, here, count.offset as i32);
    Some(f.alu(Alu::Rsh, Width::W32, bits, i64::from(context::SHIFT)))
}

/// What was interrupted, as `$ctx` has it: 0 a task, 1 softirq, 2 hardirq, 3 NMI.
fn context_value(f: &mut Func<'_>, lines: &Lines, plan: &Plan) -> Reg {
    let Some(bits) = context_bits(f, lines, plan) else { return f.imm(0) };
    let value = f.var();
    f.assign(value, 0);
    for (number, mask) in (1..).zip(context::MASKS) {
        let masked = f.alu(Alu::And, Width::W32, bits, i64::from(mask));
        f.if_(Cmp::Ne, Width::W32, masked, 0, |f| f.assign(value, number));
    }
    value
}

/// Leaves the program unless what was asked of the call's beginning holds.
fn admit_by(f: &mut Func<'_>, compiler: &mut Compiler<'_>, layout: &Layout, otherwise: i64) {
    for conjuncts in &layout.asked.tests.at_entry {
        compiler.require(f, &conjuncts.tests, &conjuncts.text, otherwise);
    }
}

/// Takes the event and returns from the program.
#[allow(clippy::too_many_arguments)]
fn write_event(
    f: &mut Func<'_>,
    lines: &Lines,
    plan: &Plan,
    layout: &Layout,
    who: &Who,
    source: Source,
    ctx: Reg,
    moment: &Moment,
    compiler: &mut Compiler<'_>,
) {
    wanted(f, lines, plan, layout, source, ctx, compiler);
    gather(f, plan, layout, moment, compiler);
    if layout.asked.silent {
        return f.ret(0);
    }
    let here = Here::ring(f, lines, plan);
    let record = match layout.stack {
        Some(at) => with_stack(f, lines, ctx, here.ring, layout.size, at),
        None => {
            lines.mark(f, "room in the ring buffer");
            reserve(f, here.ring, layout.size)
        }
    };
    fill(f, lines, plan, layout, who, source, ctx, moment, &here, record, compiler);
}

/// The same where a program writes events of many layouts: what they share is known already, and when the ring is full, the
/// program goes on, to count that in one place.
#[allow(clippy::too_many_arguments)]
fn write_one_of_many(
    f: &mut Func<'_>,
    lines: &Lines,
    plan: &Plan,
    layout: &Layout,
    who: &Who,
    source: Source,
    ctx: Reg,
    moment: &Moment,
    here: &Here,
    compiler: &mut Compiler<'_>,
) {
    wanted(f, lines, plan, layout, source, ctx, compiler);
    gather(f, plan, layout, moment, compiler);
    if layout.asked.silent {
        return f.ret(0);
    }
    if let Some(at) = layout.stack {
        let record = with_stack(f, lines, ctx, here.ring, layout.size, at);
        return fill(f, lines, plan, layout, who, source, ctx, moment, here, record, compiler);
    }
    lines.mark(f, "room in the ring buffer");
    let size = Arg::Imm(i64::from(layout.size));
    let record = f.call(Helper::RINGBUF_RESERVE, &[here.ring, size, Arg::Imm(0)]);
    f.if_(Cmp::Ne, Width::W64, record, 0, |f| {
        fill(f, lines, plan, layout, who, source, ctx, moment, here, record, compiler);
    });
}

/// Leaves the program unless the event passes the tests on what it holds.
#[allow(clippy::too_many_arguments)]
fn wanted(
    f: &mut Func<'_>,
    lines: &Lines,
    plan: &Plan,
    layout: &Layout,
    source: Source,
    ctx: Reg,
    compiler: &mut Compiler<'_>,
) {
    // After the call's cell was emptied, or it would be taken for a call under way for ever.
    if let (true, Some(ret)) = (plan.filter.errors, &layout.ret) {
        only_errors(f, lines, ret, source, ctx);
    }
    for conjuncts in &layout.asked.tests.at_exit {
        compiler.require(f, &conjuncts.tests, &conjuncts.text, 0);
    }
}

/// Fills the record, hands it over, and returns from the program.
#[allow(clippy::too_many_arguments)]
fn fill(
    f: &mut Func<'_>,
    lines: &Lines,
    plan: &Plan,
    layout: &Layout,
    who: &Who,
    source: Source,
    ctx: Reg,
    moment: &Moment,
    here: &Here,
    record: Reg,
    compiler: &mut Compiler<'_>,
) {
    lines.mark(f, "header: time, probe, cpu, process");
    f.store(Size::DW, record, header::TIME as i32, moment.now);
    f.store(Size::W, record, header::PROBE as i32, moment.index);
    if let (Some(at), Some(value)) = (layout.entry_time, moment.entry_time) {
        f.store(Size::DW, record, at as i32, value);
    }
    if let (Some(at), Some(number)) = (layout.call, moment.call) {
        f.store(Size::DW, record, at as i32, number);
    }
    who.store(f, plan, record);
    here.store(f, lines, plan, record);
    if let Some(at) = layout.words {
        lines.mark(f, "who called the program");
        let bytes = Arg::Imm(i64::from(layout::stack::WORDS * layout::stack::FRAME));
        f.call(Helper::PROBE_READ_KERNEL, &[Arg::Offset(record, at as i32), bytes, Arg::Reg(ctx)]);
    }
    if let Some(at) = layout.branches {
        branches::copy(f, lines, plan, ctx, record, at);
    }
    source.capture(f, &|f, text| lines.mark(f, text), layout, ctx, record);
    if let Some(number) = layout.number {
        lines.mark(f, "which system call");
        system_call(f, layout, number, record);
    }
    for arg in layout.args.iter().chain(&layout.ret) {
        pointees(f, lines, arg, record);
    }
    for shown in &layout.asked.shown {
        compiler.output(f, &shown.output, &shown.text, record, shown.room);
        if shown.steps.is_empty() {
            continue;
        }
        // What cannot be had leads nowhere.
        let failed = f.load(Size::DW, record, shown.room.offset as i32);
        f.if_(Cmp::Ne, Width::W64, failed, 0, |f| {
            f.store(Size::DW, record, (shown.room.offset + VALUE) as i32, 0);
        });
        for step in &shown.steps {
            lines.mark(f, &format!("{}->{}", shown.text, step.what));
            behind::behind(f, step, record);
        }
    }
    if let (Some(at), Some(state)) = (layout.path, moment.path) {
        path::copy(f, lines, state, record, at);
    }
    lines.mark(f, "submit");
    f.call(Helper::RINGBUF_SUBMIT, &[Arg::Reg(record), Arg::Imm(0)]);
    f.ret(0);
}

/// Copies a system call's number, and what tells whether a 32-bit program made it.
fn system_call(f: &mut Func<'_>, layout: &Layout, number: Number, record: Reg) {
    let regs = layout.args.first().map_or(0, |arg| arg.offset);
    let Number { offset, told } = number;
    // From the record rather than the context: there it is a plain number on every kernel.
    let from = f.load(Size::DW, record, regs as i32);
    let from = f.alu(Alu::Add, Width::W64, from, i64::from(told.number));
    let to = Arg::Offset(record, offset as i32);
    f.call(Helper::PROBE_READ_KERNEL, &[to, Arg::Imm(8), Arg::Reg(from)]);
    let task = f.call(Helper::GET_CURRENT_TASK, &[]);
    let from = f.alu(Alu::Add, Width::W64, task, i64::from(told.status));
    let to = Arg::Offset(record, offset as i32 + 8);
    f.call(Helper::PROBE_READ_KERNEL, &[to, Arg::Imm(4), Arg::Reg(from)]);
}

/// The ring of this CPU; leaves the program, the loss counted, if there is none, which the verifier alone thinks possible.
fn own_ring(f: &mut Func<'_>, plan: &Plan, cpu: Reg) -> Reg {
    let key = f.slot(4, 4);
    let index = f.alu(Alu::And, Width::W32, cpu, i64::from(plan.rings - 1));
    f.store_slot(Size::W, key, 0, index);
    let ring = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::RING), Arg::SlotAddr(key, 0)]);
    f.if_(Cmp::Eq, Width::W64, ring, 0, |f| {
        count(f, counter::LOST);
        f.ret(0);
    });
    ring
}

/// Reserves a record of that size; leaves the program, the loss counted, if the ring is full.
fn reserve(f: &mut Func<'_>, ring: Arg, size: u32) -> Reg {
    let size = Arg::Imm(i64::from(size));
    let record = f.call(Helper::RINGBUF_RESERVE, &[ring, size, Arg::Imm(0)]);
    f.if_(Cmp::Eq, Width::W64, record, 0, |f| {
        count(f, counter::LOST);
        f.ret(0);
    });
    record
}

/// A name that tells the programs apart in `bpftool prog`; the kernel keeps 15 characters.
pub fn name(probe: &Probe, target: &str) -> String {
    let prefix = match probe.target.kind {
        crate::TargetKind::Tracepoint => "tp_",
        _ if probe.at_exit => "ex_",
        _ => "en_",
    };
    format!("{prefix}{target}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::layout::stack;
    use crate::request::Scope;
    use crate::{Kernel, Mode, Pattern, Request, TargetKind, TargetSpec};

    /// Stack of a BPF program (`MAX_BPF_STACK`).
    const BPF_STACK: u32 = 512;

    fn is_path(note: &crate::NoteField) -> bool {
        matches!(note.kind, crate::NoteKind::Path(_))
    }

    #[test]
    fn a_stack_is_the_records_last_part_and_fits_the_programs_own() {
        let kernel = match Kernel::running() {
            Ok(kernel) => kernel,
            Err(error) => return println!("SKIP: {error}"),
        };
        let pattern = Pattern::new("vfs_read").expect("pattern");
        let mut request = Request {
            targets: vec![TargetSpec { kind: TargetKind::Function, pattern, scope: Scope::default() }],
            programs: Vec::new(),
            mode: Mode::Exit,
            filter: Filter { tgids: vec![1, 2, 3], not_tgid: Some(4), followed: true, ..Filter::default() },
            expressions: Default::default(),
            force: false,
            path: None,
            stack: false,
            branches: false,
            string_size: 64,
            pointees: true,
            ring_size: 1 << 16,
        };
        let plain = Plan::new(&kernel, &request).expect("plan");
        request.stack = true;
        let mut stacked = Plan::new(&kernel, &request).expect("plan");
        let (without, with) = (&plain.probes[0].layout, &stacked.probes[0].layout);
        assert_eq!((without.stack, with.stack), (None, Some(without.size)));
        assert_eq!(with.size, without.size + 8);
        assert!(with.size.is_multiple_of(8));
        for (access, rings) in
            [ArgAccess::Plain, ArgAccess::Copied].into_iter().flat_map(|access| [(access, 1), (access, 64)])
        {
            stacked.rings = rings;
            let code = event(&stacked, 0, &stacked.probes[0], access)
                .assemble(&asm::Options::default())
                .expect("assemble");
            assert!(code.stack_used <= BPF_STACK, "{}", code.stack_used);
        }
        request.targets[0].pattern = Pattern::new("{vfs,security,path,tcp,d}_*").expect("pattern");
        let mut many = Plan::new(&kernel, &request).expect("plan");
        many.rings = 64;
        let walks = |p: &Probe| p.layout.args.iter().flat_map(|a| &a.notes).filter(|n| is_path(n)).count();
        let most = many.probes.iter().map(walks).max();
        assert!(most >= Some(2), "functions with several paths");
        for (index, probe) in many.probes.iter().enumerate() {
            let code = event(&many, index as u32, probe, ArgAccess::Plain).assemble(&asm::Options::default());
            let used = code.unwrap_or_else(|e| panic!("{}: {e}", probe.target.name)).stack_used;
            assert!(used <= BPF_STACK, "{}: {used}", probe.target.name);
        }
        assert!(stack::ROOMS.is_sorted() && stack::FIRST * stack::FRAME < BPF_STACK);
    }
}
