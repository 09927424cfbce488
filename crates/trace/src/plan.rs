//! The plan: for each target the attach method, and the layout of its events.

use crate::attach_many::MANY;
use crate::context::PreemptCount;
use crate::danger;
use crate::error::Error;
use crate::expressions::{Compile, Gathered, Key};
use crate::filter::Filter;
use crate::gathering::{self, Room};
use crate::kernel::{Kernel, Newer, TaskFields};
use crate::layout::{Captures, End, Layout};
use crate::path::{self, Code};
use crate::program;
use crate::program_target;
use crate::request::{Mode, Request, TargetKind};
use crate::rings;
use crate::target::{self, Resolved, Target};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Of more functions than these nothing behind pointers is shown but texts: nearly every prototype would have a record of its own
/// kind, thousands of them, and each is code that the kernel has to verify.
pub(crate) const MOST_WITH_POINTEES: usize = 4096;

/// How a program comes to run at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A trampoline at the function's entry.
    Fentry,
    /// A trampoline around the function; our program runs at its return, a smaller one at its entry for the time.
    Fexit,
    /// A trampoline around the function; one program runs at both ends (7.0).
    Fsession,
    /// The same, or fentry, for many functions by one program (7.2).
    TracingMulti,
    /// A breakpoint, or ftrace's call, at the entry; at exits also the return address replaced: for what no trampoline serves.
    Kprobe,
    /// ftrace's call, for many functions by one program (5.18; exits 6.10).
    KprobeMulti,
    /// A tracepoint, arguments typed by BTF.
    TpBtf,
    /// A tracepoint, arguments as untyped words: where tp_btf is refused.
    RawTp,
}

impl Method {
    /// The kernel's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Fentry => "fentry",
            Method::Fexit => "fexit",
            Method::Fsession => "fsession",
            Method::TracingMulti => "tracing_multi",
            Method::Kprobe => "kprobe",
            Method::KprobeMulti => "kprobe_multi",
            Method::TpBtf => "tp_btf",
            Method::RawTp => "raw_tp",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A target with its method and layout.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What is traced. Shared, as the layout is: of thousands of probes there are several copies.
    pub target: Arc<Target>,
    /// How.
    pub method: Method,
    /// At the return of a function rather than its entry.
    pub at_exit: bool,
    /// Why no trampoline serves it, if so: then the method is [`Method::Kprobe`].
    pub obstacle: Option<String>,
    /// What its events hold.
    pub layout: Arc<Layout>,
    /// With entries and exits both, the index of the probe at the call's other end. The two are attached as one.
    pub pair: Option<u32>,
}

impl Probe {
    /// Whether it is the entry of a pair, which its exit's probe attaches.
    pub(crate) fn is_paired_entry(&self) -> bool {
        self.pair.is_some() && !self.at_exit
    }
}

/// What will be loaded. It borrows nothing from the kernel's BTF, which can be dropped now.
#[derive(Debug)]
pub struct Plan {
    /// Probes; an event names its own by index.
    pub probes: Vec<Probe>,
    /// Targets that cannot be traced, with the reason.
    pub refused: Vec<(String, String)>,
    /// What is to be said of targets, a line each.
    pub remarks: Vec<String>,
    /// Thousands of functions: what costs something for each of them is left out.
    pub(crate) vast: bool,
    pub(crate) filter: Filter,
    pub(crate) task: TaskFields,
    pub(crate) current_task_btf: bool,
    pub(crate) newer: Newer,
    /// Times of entry lie in an array's cells first, see `program/calls.rs`.
    pub(crate) quick_calls: bool,
    /// Atomic additions give the old value (5.12).
    pub(crate) fetch_add: bool,
    pub(crate) preempt_count: Option<PreemptCount>,
    /// Branch records are taken: cells for them, as a power of two.
    pub(crate) branches: Option<u32>,
    pub(crate) ring_size: u32,
    /// Ring buffers, a power of two: 1, or one for each CPU.
    pub(crate) rings: u32,
    /// Where a task's stack is, if executed paths are wanted.
    pub(crate) task_stack: Option<TaskStack>,
    /// By probe, the code of those whose paths are wanted.
    pub(crate) codes: Vec<Option<Code>>,
}

impl Plan {
    /// Resolves and plans a request.
    ///
    /// A target that cannot be traced is an error when it is the only one; else it is listed in
    /// [`Plan::refused`] and the rest go on.
    pub fn new(kernel: &Kernel, request: &Request) -> Result<Plan, Error> {
        Plan::new_unless(kernel, request, &mut || false)
    }

    /// The same, given up with [`Error::Stopped`] once `stop` says so: it is asked at each target.
    pub fn new_unless(
        kernel: &Kernel,
        request: &Request,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Plan, Error> {
        let mut resolved = target::resolve(kernel, &request.targets)?;
        program_target::resolve(kernel, &request.programs, &mut resolved)?;
        let preempt_count = PreemptCount::of(&kernel.btf);
        if preempt_count.is_none() {
            log::debug!("this kernel does not tell where its preempt count is: interrupts are not marked");
        }
        let functions = resolved.targets.iter().any(|t| t.kind != TargetKind::Tracepoint);
        let newer = if functions { kernel.newer() } else { Newer::default() };
        let mut plan = Plan::of(kernel, request, resolved, preempt_count, newer, stop)?;
        if let Some(wanted) = request.path {
            path::find_code(&mut plan, wanted)?;
        }
        Ok(plan)
    }

    /// Targets that are traced.
    pub fn targets(&self) -> usize {
        self.probes.iter().filter(|probe| !probe.is_paired_entry()).count()
    }

    /// The room of each table that events are gathered in, by the number of its output.
    pub fn rooms(&self) -> Result<BTreeMap<usize, Room>, Error> {
        let rooms = gathering::rooms(&self.probes, bpf::possible_cpus()?);
        Ok(rooms.into_iter().map(|(number, (_, room))| (number, room)).collect())
    }

    /// Whether it is of thousands of functions, which slow down the kernel: what can be read of it is better read before.
    pub fn is_vast(&self) -> bool {
        self.vast
    }

    /// How the targets are attached, if that can be told beforehand: of many functions some may go by a way for many, and others not.
    pub fn only_way(&self) -> Option<Method> {
        let functions = self.probes.iter().filter(|p| p.target.kind == TargetKind::Function).count();
        let for_many = self.newer.tracing_multi.is_some()
            || self.newer.kprobe_multi
            || self.newer.kprobe_session.is_some();
        self.probes.last().map(|p| p.method).filter(|_| functions < MANY || !for_many)
    }

    /// Adds probes that stand for those at `index`, and at the call's other end, where they are attached a second time, by
    /// another method. Gives the index of the one for `index`. An entry comes just before its exit, on which programs for many
    /// functions rely.
    pub(crate) fn again(&mut self, index: usize) -> Option<usize> {
        let mut probe = self.probes.get(index)?.clone();
        probe.method = Method::Kprobe;
        let at = self.probes.len();
        let other = probe.pair.and_then(|pair| self.probes.get(pair as usize)).cloned();
        match other {
            Some(mut other) => {
                other.method = Method::Kprobe;
                let is_exit = probe.at_exit;
                let (mut entry, mut exit) = if is_exit { (other, probe) } else { (probe, other) };
                (entry.pair, exit.pair) = (Some(at as u32 + 1), Some(at as u32));
                self.probes.extend([entry, exit]);
                Some(at + usize::from(is_exit))
            }
            None => {
                self.probes.push(Probe { pair: None, ..probe });
                Some(at)
            }
        }
    }

    /// Plans targets that are resolved already.
    pub(crate) fn of(
        kernel: &Kernel,
        request: &Request,
        resolved: Resolved,
        preempt_count: Option<PreemptCount>,
        newer: Newer,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Plan, Error> {
        if request.branches && kernel.btf.enum_has("bpf_func_id", "BPF_FUNC_get_branch_snapshot").is_none() {
            return Err(Error::NoBranchSnapshot);
        }
        let Resolved { targets, mut refused, mut remarks } = resolved;
        let count = targets.len() + refused.len();
        let mut probes = Vec::with_capacity(targets.len());
        let functions = targets.iter().filter(|t| t.kind == TargetKind::Function).count();
        let many = functions > MOST_WITH_POINTEES;
        let pointees = request.pointees && !many;
        if many {
            remarks.insert(
                0,
                format!(
                    "{functions} functions, more than {MOST_WITH_POINTEES}: {}functions that share a name with another, and copies \
                     that the compiler made, are not looked for",
                    if request.pointees { "of what is behind pointers only texts are shown; " } else { "" }
                ),
            );
        }
        let captures = Captures {
            string_size: request.string_size,
            pointees,
            context: preempt_count.is_some(),
            stack: request.stack,
            path: request.path.is_some(),
            branches: request.branches,
        };
        request.expressions.all_meant(&targets)?;
        let compile = Compile::new(kernel, &request.expressions);
        let mut tables = Tables::default();
        let mut misread = Vec::new();
        for target in targets.into_iter().map(Arc::new) {
            if stop() {
                return Err(Error::Stopped);
            }
            let planned = one(&compile, request, &newer, captures, many, &target);
            match planned {
                Ok(planned) if planned.iter().any(|probe| tables.differ(probe)) => {
                    let reason = "--output-arg: what it gathers has keys of other types than that of another target; F:EXPR is for \
                                  target F alone";
                    refused.push((target.label(), reason.into()));
                }
                Ok(mut planned) => {
                    let index = probes.len() as u32;
                    if let [entry, exit] = planned.as_mut_slice() {
                        (entry.pair, exit.pair) = (Some(index + 1), Some(index));
                    }
                    probes.append(&mut planned);
                }
                Err(error @ Error::Expression { .. }) if count > 1 => {
                    let Error::Expression { flag, source, .. } = &error else { continue };
                    refused.push((target.label(), format!("{flag}: {source}")));
                    misread.push(error);
                }
                Err(Error::Target { reason, .. }) if count > 1 => refused.push((target.label(), reason)),
                // One odd prototype is no reason to trace nothing.
                Err(error @ Error::Btf(_)) if count > 1 => refused.push((target.label(), error.to_string())),
                Err(error) => return Err(error),
            }
        }
        // Nothing is left: then the place where the expression is wrong says more than a count.
        if let (true, Some(error)) = (probes.is_empty(), of_all(misread)) {
            return Err(error);
        }
        if let (true, Some((target, reason))) = (probes.is_empty(), refused.first()) {
            return Err(Error::AllFailed { count, first: format!("{target}: {reason}") });
        }
        gathering::check(&probes, other_maps(request, &probes))?;
        let timed = probes.iter().any(|p| p.at_exit) && newer.fsession.is_none();
        let sums = probes.iter().flat_map(|p| &p.layout.asked.gathered).any(Gathered::is_summed);
        let fetch_add = (timed || sums)
            && bpf::features::try_fetch_add()
                .inspect_err(|error| log::debug!("atomic additions do not give the old value: {error}"))
                .is_ok();
        let quick_calls = timed && fetch_add;
        Ok(Plan {
            probes,
            refused,
            remarks,
            vast: many,
            filter: Filter {
                errors: request.filter.errors && !request.path.is_some_and(|path| path.of_all),
                ..request.filter.clone()
            },
            task: kernel.task,
            current_task_btf: kernel.current_task_btf,
            newer,
            quick_calls,
            fetch_add,
            preempt_count,
            branches: request.branches.then(|| program::snapshot_cells(cpus())),
            ring_size: request.ring_size,
            rings: rings::wanted(),
            task_stack: request.path.and_then(|_| TaskStack::of(kernel)),
            codes: Vec::new(),
        })
    }
}

/// What is said where expressions mean nothing at any of the targets: of a name that none has, that, with what most of them have that is
/// like it; else what is wrong at the first that has the names.
fn of_all(mut errors: Vec<Error>) -> Option<Error> {
    let count = errors.len();
    let source = |error: &Error| match error {
        Error::Expression { flag, text, source, .. } => Some((*flag, text.clone(), source.clone())),
        _ => None,
    };
    let place = |error: &Error| {
        source(error)
            .filter(|(.., source)| source.unknown)
            .map(|(flag, text, source)| (flag, text, source.span))
    };
    if let Some(known) = errors.iter().position(|error| place(error).is_none()) {
        return Some(errors.swap_remove(known));
    }
    let first = errors.first().and_then(place);
    if count < 2 || errors.iter().any(|error| place(error) != first) {
        return errors.into_iter().next();
    }
    let mut meant: BTreeMap<String, usize> = BTreeMap::new();
    for (.., source) in errors.iter().filter_map(source).filter(|(.., source)| !source.meant().is_empty()) {
        *meant.entry(source.meant().into()).or_default() += 1;
    }
    let most = meant.into_iter().max_by_key(|(_, count)| *count).map(|(meant, _)| meant).unwrap_or_default();
    let is_most = |error: &Error| source(error).is_some_and(|(.., source)| source.meant() == most);
    let index = errors.iter().position(is_most).unwrap_or(0);
    Some(match errors.swap_remove(index) {
        Error::Expression { flag, text, target, source } => {
            let source = source.of_none(count, &text);
            Error::Expression { flag, text, target, source }
        }
        other => other,
    })
}

/// Maps that a program may use beside what it gathers in, whatever it is attached by.
fn other_maps(request: &Request, probes: &[Probe]) -> usize {
    let sends = probes.iter().any(|p| !p.layout.asked.is_silent());
    let exits = probes.iter().any(|p| p.at_exit);
    let made = probes.iter().flat_map(|p| &p.layout.asked.gathered).any(|gathered| !gathered.is_one());
    // Counters; what new entries are made from; the ring; calls under way, by a trampoline's programs (cells and calls) or a kprobe's
    // (kept and blank); the tasks of a command; paths; branch records. Programs that go to parts use no other maps.
    1 + usize::from(made)
        + usize::from(sends)
        + 2 * usize::from(exits)
        + usize::from(request.filter.followed)
        + 2 * usize::from(request.path.is_some())
        + usize::from(request.branches)
}

/// Where the kernel stack of a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskStack {
    /// Offset of its address in `struct task_struct`.
    pub offset: u32,
    /// Its size.
    pub size: u32,
}

impl TaskStack {
    fn of(kernel: &Kernel) -> Option<TaskStack> {
        /// `THREAD_SIZE` of x86-64 (without KASAN).
        const USUAL: u64 = 16 << 10;
        let btf = &kernel.btf;
        let task = btf.find(btf::Kind::Struct, "task_struct")?;
        let offset = btf.member(task, "stack").ok()?.bit_offset / 8;
        let union = btf.find(btf::Kind::Union, "thread_union").and_then(|union| btf.size_of(union).ok());
        Some(TaskStack { offset, size: u32::try_from(union.unwrap_or(USUAL)).ok()? })
    }
}

/// CPUs that are online; where they cannot be counted, none.
fn cpus() -> usize {
    bpf::online_cpus().map_or(0, |(cpus, _)| cpus)
}

/// What is gathered in each table, as the first target has it: all that go to one have keys alike.
#[derive(Default)]
struct Tables(BTreeMap<usize, (bool, Vec<Key>)>);

impl Tables {
    fn differ(&mut self, probe: &Probe) -> bool {
        probe.layout.asked.gathered.iter().any(|gathered| {
            let own = (gathered.signed, gathered.keys.clone());
            *self.0.entry(gathered.number).or_insert_with(|| own.clone()) != own
        })
    }
}

/// The probe of one target, or the two where both ends are taken: the entry's, then the exit's.
fn one(
    compile: &Compile<'_>,
    request: &Request,
    newer: &Newer,
    captures: Captures,
    many: bool,
    target: &Arc<Target>,
) -> Result<Vec<Probe>, Error> {
    let kernel = compile.kernel;
    let refuse = |reason: String| Err(Error::Target { target: target.label(), reason });
    let function = target.kind != TargetKind::Tracepoint;
    let (entry, exit) = match request.mode {
        _ if !function => (true, false),
        Mode::Entry => (true, false),
        Mode::Exit => (false, true),
        Mode::Both => (true, true),
    };
    if let (false, Some(reason)) = (request.force, danger_of(target, many)) {
        return refuse(format!("refused: {reason} (--force traces it all the same)"));
    }
    if request.filter.errors
        && let Some(reason) = no_errors(kernel, target, exit && !entry)?
    {
        return refuse(reason.into());
    }
    let obstacle = target.obstacle(kernel)?;
    let obstacle = obstacle.or(captures.path.then(|| "its path is told by kprobes".into()));
    // A kprobe is for functions of the kernel.
    if let (TargetKind::Tracepoint | TargetKind::Program, Some(reason)) = (target.kind, obstacle.clone()) {
        return refuse(reason);
    }
    let method = |at_exit: bool| match (function, at_exit, &obstacle) {
        (false, ..) => Method::TpBtf,
        (true, _, Some(_)) => Method::Kprobe,
        (true, false, None) => Method::Fentry,
        (true, true, None) if newer.fsession.is_some() => Method::Fsession,
        (true, true, None) => Method::Fexit,
    };
    let probe = |at_exit: bool| {
        let end = End { at_exit, paired: entry && exit, by_kprobe: obstacle.is_some() };
        Ok(Probe {
            target: Arc::clone(target),
            method: method(at_exit),
            at_exit,
            obstacle: obstacle.clone(),
            layout: Arc::new(Layout::new(kernel, target, end, captures, compile)?),
            pair: None,
        })
    };
    let ends = entry.then_some(false).into_iter().chain(exit.then_some(true));
    ends.map(probe).collect()
}

/// Why tracing a target can hang the machine, if it can: what runs at a function that our own programs run through is as
/// dangerous as that function.
fn danger_of(target: &Target, many: bool) -> Option<String> {
    match (target.kind, &target.program) {
        (TargetKind::Function, _) => danger::reason(&target.name, many).map(str::to_string),
        (TargetKind::Program, Some(function)) => {
            let at = function.program.runs_at.as_ref()?;
            danger::reason(at, many).map(|reason| format!("it runs at {at}: {reason}"))
        }
        _ => None,
    }
}

/// Why a filter for errors cannot apply to a target, if it cannot.
fn no_errors(kernel: &Kernel, target: &Target, only_exits: bool) -> Result<Option<&'static str>, Error> {
    if !only_exits {
        return Ok(Some("only errors are wanted, and an event here is not a function's return"));
    }
    let btf = kernel.types_of(target)?;
    let ret = btf.get(btf.resolve(target.ret))?;
    let signed = ret.int().is_some_and(|int| int.signed) && matches!(ret.size(), Some(4 | 8));
    let pointer = ret.kind() == btf::Kind::Ptr;
    Ok((!signed && !pointer)
        .then_some("only errors are wanted, and it returns neither a signed number nor a pointer"))
}
