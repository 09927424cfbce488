//! What the running kernel grants, each ability asked by one small function that tries it: a program of two instructions is
//! loaded, a link made and dropped at once. Nothing runs, nothing stays, and no version number is looked at.

use crate::cgroup::Ancestry;
use crate::context::PreemptCount;
use crate::error::Error;
use crate::kernel::Kernel;
use bpf::features::{self, PROG_TYPE_KPROBE, PROG_TYPE_RAW_TRACEPOINT, PROG_TYPE_TRACING};
use btf::{Kind, TypeId};
use std::fmt;

/// Why something is not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the kernel said, or what is missing: a clause, no full stop.
    pub reason: String,
    /// Refused for want of permission, by EPERM or EACCES and no verifier's reason: with other privileges, or another
    /// security policy, the answer may differ.
    pub permission: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The kernel's answer.
pub type Answer = Result<(), Refusal>;

fn missing(reason: &str) -> Refusal {
    Refusal { reason: reason.into(), permission: false }
}

/// `enum bpf_attach_type`: for what a program is loaded (include/uapi/linux/bpf.h).
mod attach_type {
    pub const TP_BTF: u32 = 23;
    pub const FENTRY: u32 = 24;
    pub const FEXIT: u32 = 25;
    pub const KPROBE_MULTI: u32 = 42;
    pub const KPROBE_SESSION: u32 = 56;
    pub const FSESSION: u32 = 58;
    pub const FENTRY_MULTI: u32 = 59;
}

/// What there is to try things on.
///
/// The functions are the kernel's own for tests of BPF where it has them, for nothing calls those; `vfs_read`, which every
/// kernel has, where it has not.
#[derive(Clone, Copy, Debug)]
pub struct Subjects<'a> {
    kernel: &'a Kernel,
    function: Option<(TypeId, &'static str)>,
    tracepoint: Option<TypeId>,
}

impl<'a> Subjects<'a> {
    /// Looks them up.
    pub fn of(kernel: &'a Kernel) -> Subjects<'a> {
        const FUNCTIONS: [&str; 2] = ["bpf_fentry_test1", "vfs_read"];
        let wanted = FUNCTIONS.map(|name| (Kind::Func, name));
        let found = kernel.btf.find_many(&[wanted[0], wanted[1], (Kind::Typedef, "btf_trace_sched_switch")]);
        let id = |at: usize| found.get(at).copied().flatten();
        let function = FUNCTIONS.iter().enumerate().find_map(|(at, name)| Some((id(at)?, *name)));
        Subjects { kernel, function, tracepoint: id(2) }
    }

    fn function(&self) -> Result<(u32, &'static str), Refusal> {
        let (id, name) =
            self.function.ok_or_else(|| missing("nothing to try it on was found in the kernel's BTF"))?;
        Ok((id.0, name))
    }

    /// What to say of a refusal: an attach type that `enum bpf_attach_type` lacks is refused in many words, none of which
    /// says so.
    fn refused(&self, attach_type: &str, refusal: Refusal) -> Refusal {
        match self.kernel.btf.enum_has("bpf_attach_type", attach_type) {
            Some(_) => refusal,
            None => missing("this kernel does not have it"),
        }
    }
}

/// fentry: programs at a function's entry, through its trampoline.
pub fn fentry(subjects: &Subjects<'_>) -> Answer {
    tracing(attach_type::FENTRY, subjects.function()?.0).map(drop)
}

/// fexit: the same at its return.
pub fn fexit(subjects: &Subjects<'_>) -> Answer {
    tracing(attach_type::FEXIT, subjects.function()?.0).map(drop)
}

/// fsession: one program at both, with a cookie between.
pub fn fsession(subjects: &Subjects<'_>) -> Answer {
    tracing(attach_type::FSESSION, subjects.function()?.0)
        .map(drop)
        .map_err(|refusal| subjects.refused("BPF_TRACE_FSESSION", refusal))
}

/// tracing_multi: one fentry program at many functions, attached in one go.
pub fn tracing_multi(subjects: &Subjects<'_>) -> Answer {
    let (id, _) = subjects.function()?;
    // Loaded for no function: what it is for comes with the link.
    tracing(attach_type::FENTRY_MULTI, 0)
        .and_then(|program| program.tracing_multi(id).map_err(refusal))
        .map_err(|refusal| subjects.refused("BPF_TRACE_FENTRY_MULTI", refusal))
}

/// tp_btf: tracepoints with typed arguments.
pub fn tp_btf(subjects: &Subjects<'_>) -> Answer {
    let id =
        subjects.tracepoint.ok_or_else(|| missing("nothing to try it on was found in the kernel's BTF"))?;
    tracing(attach_type::TP_BTF, id.0).map(drop)
}

/// raw_tp: tracepoints with untyped arguments.
pub fn raw_tp() -> Answer {
    features::try_load(PROG_TYPE_RAW_TRACEPOINT, 0, 0).map(drop).map_err(refusal)
}

/// kprobe: a breakpoint, or a call where ftrace has one, as a perf event.
pub fn kprobe(subjects: &Subjects<'_>) -> Answer {
    perf_kprobe(subjects, false)
}

/// kretprobe: the same at the return.
pub fn kretprobe(subjects: &Subjects<'_>) -> Answer {
    perf_kprobe(subjects, true)
}

/// kprobe_multi: one program at many functions by fprobe.
pub fn kprobe_multi(subjects: &Subjects<'_>) -> Answer {
    multi(subjects, attach_type::KPROBE_MULTI)
        .map_err(|refusal| subjects.refused("BPF_TRACE_KPROBE_MULTI", refusal))
}

/// kprobe session: the same at entry and return.
pub fn kprobe_session(subjects: &Subjects<'_>) -> Answer {
    multi(subjects, attach_type::KPROBE_SESSION)
        .map_err(|refusal| subjects.refused("BPF_TRACE_KPROBE_SESSION", refusal))
}

/// The ring buffer that events go through.
pub fn ring_buffer() -> Answer {
    features::try_ring_buffer().map_err(refusal)
}

/// Running a program once on request, by which our own process id is asked in a container.
pub fn test_run() -> Answer {
    const NOTHING: [u64; 2] = [0xb7, 0x95];
    let load = bpf::Load::new("tried", bpf::ProgType::RawTracepoint, &NOTHING);
    let program = bpf::Program::load(&load).map_err(refusal)?;
    program.test_run(&bpf::TestRun::default()).map(drop).map_err(refusal)
}

/// Telling a task from the interrupt that interrupted it: `context=` in events.
pub fn context(kernel: &Kernel) -> Answer {
    PreemptCount::of(&kernel.btf)
        .map(drop)
        .ok_or_else(|| missing("this kernel does not tell programs where its preempt count is"))
}

/// Telling the cgroup of a task.
pub fn cgroups(kernel: &Kernel) -> Answer {
    Ancestry::of(&kernel.btf)
        .map(drop)
        .ok_or_else(|| missing("this kernel's programs cannot tell the cgroup of a task"))
}

/// The id of the current task's cgroup, as `$cgroup` asks for it: without CONFIG_CGROUPS programs have no such helper.
pub fn cgroup_id() -> Answer {
    let mut program = asm::Program::new("cgroup_id", "cgroup");
    program.main(|f| {
        f.line("cgroup", 1, 1);
        let id = f.call(asm::Helper::GET_CURRENT_CGROUP_ID, &[]);
        f.ret(id);
    });
    let defect = |error: &dyn fmt::Display| missing(&error.to_string());
    let code = program.assemble(&asm::Options::default()).map_err(|e| defect(&e))?;
    let insns = code.relocate(|_| -1).map_err(|e| defect(&e))?;
    let load = bpf::Load::new("cgroup_id", bpf::ProgType::RawTracepoint, &insns);
    bpf::Program::load(&load).map(drop).map_err(refusal)
}

/// Holding a command before its first instruction, as `-c` does: a shell is started and killed before it ran.
pub fn hold_command() -> Answer {
    bpf::Held::spawn(":").map(drop).map_err(refusal)
}

/// Whether the kernel has a helper, by its enumerator in `enum bpf_func_id`: `BPF_FUNC_…`.
pub fn helper(kernel: &Kernel, enumerator: &str) -> bool {
    kernel.btf.enum_has("bpf_func_id", enumerator).is_some()
}

/// Whether the kernel has a function that programs may call: all are in its BTF.
pub fn kfunc(kernel: &Kernel, name: &str) -> bool {
    kernel.btf.find(Kind::Func, name).is_some()
}

/// Where the kernel describes its kprobes for perf.
const KPROBE_PMU: &str = "/sys/bus/event_source/devices/kprobe";

fn perf_kprobe(subjects: &Subjects<'_>, at_return: bool) -> Answer {
    let (_, function) = subjects.function()?;
    let read = |file: &str| std::fs::read_to_string(format!("{KPROBE_PMU}/{file}"));
    let pmu = match read("type") {
        Ok(text) => text.trim().parse().map_err(|_| missing("its number in /sys is no number"))?,
        Err(error) => {
            return Err(missing(&format!("this kernel shows no kprobes for perf ({KPROBE_PMU}: {error})")));
        }
    };
    let bit = match at_return {
        false => None,
        // "config:0"
        true => Some(
            read("format/retprobe")
                .ok()
                .and_then(|text| text.trim().strip_prefix("config:")?.parse().ok())
                .ok_or_else(|| missing("this kernel has no kretprobes for perf"))?,
        ),
    };
    features::try_kprobe(pmu, function, bit).map_err(refusal)
}

fn multi(subjects: &Subjects<'_>, attach_type: u32) -> Answer {
    let (_, function) = subjects.function()?;
    let program = features::try_load(PROG_TYPE_KPROBE, attach_type, 0).map_err(refusal)?;
    program.kprobe_multi(function).map_err(refusal)
}

fn tracing(attach_type: u32, btf_id: u32) -> Result<features::Tried, Refusal> {
    features::try_load(PROG_TYPE_TRACING, attach_type, btf_id).map_err(refusal)
}

/// `EINVAL`, `EOPNOTSUPP` and `ENOTSUPP` (include/linux/errno.h, the kernel's own): what is not known, or not built in.
const UNKNOWN: [i32; 3] = [22, 95, 524];

/// What the kernel's refusal of a load or an attach comes to.
pub(crate) fn refusal(error: bpf::Error) -> Refusal {
    let said =
        error.log().and_then(|log| log.lines().find(|l| !l.is_empty() && !l.starts_with("processed ")));
    let named = |errno: i32| match btf::errno_name(errno.unsigned_abs()) {
        Some(name) => name.to_string(),
        None => format!("error {errno}"),
    };
    let reason = match (error.errno(), said) {
        (_, Some(said)) => format!("refused: {said}"),
        (Some(errno), None) if UNKNOWN.contains(&errno) => {
            format!("this kernel does not have it ({})", named(errno))
        }
        (Some(errno), None) if error.is_permission() => {
            format!("refused with {} and no reason", named(errno))
        }
        _ => error.to_string(),
    };
    Refusal { reason, permission: error.is_permission() && said.is_none() }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { permission: matches!(error, Error::Permission(_)), reason: error.to_string() }
    }
}
