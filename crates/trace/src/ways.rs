//! Every way in which the kernel lets a program be attached to one place, each by itself: for comparing them. A trace takes the
//! first that is granted (`attach.rs`).

use crate::abilities::{self, Refusal};
use crate::danger;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::request::{TargetKind, TargetSpec};
use crate::systems;
use crate::target::{self, Target};
use bpf::{AttachTo, AttachType, BtfObject, KprobeAt, Link, Load, Map, MapType, ProgType, Program};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

/// A way to attach one program to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A tracepoint with typed arguments.
    TpBtf,
    /// A tracepoint with its arguments as words.
    RawTp,
    /// A tracepoint through perf, which makes a record first.
    Tp,
    /// A trampoline at a function's entry.
    Fentry,
    /// The same for many functions at once (7.2).
    TracingMulti,
    /// A trampoline around a function, its program at the return.
    Fexit,
    /// The same with the program at both ends (7.0).
    Fsession,
    /// A kprobe through perf.
    Kprobe,
    /// A kprobe by fprobe, for many functions at once (5.18).
    KprobeMulti,
    /// A kretprobe through perf.
    Kretprobe,
    /// The return by fprobe.
    KretprobeMulti,
    /// Both ends by fprobe and one program (6.10).
    KprobeSession,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Way::TpBtf => "tp_btf",
            Way::RawTp => "raw_tp",
            Way::Tp => "tp",
            Way::Fentry => "fentry",
            Way::TracingMulti => "tracing_multi",
            Way::Fexit => "fexit",
            Way::Fsession => "fsession",
            Way::Kprobe => "kprobe",
            Way::KprobeMulti => "kprobe_multi",
            Way::Kretprobe => "kretprobe",
            Way::KretprobeMulti => "kretprobe_multi",
            Way::KprobeSession => "kprobe_session",
        })
    }
}

impl Way {
    /// The ways to a tracepoint; of such as cost alike what is preferred comes first.
    pub const OF_TRACEPOINT: [Way; 3] = [Way::TpBtf, Way::RawTp, Way::Tp];

    /// The ways to a function.
    pub const OF_FUNCTION: [Way; 9] = [
        Way::Fentry,
        Way::TracingMulti,
        Way::Fexit,
        Way::Fsession,
        Way::Kprobe,
        Way::KprobeMulti,
        Way::Kretprobe,
        Way::KretprobeMulti,
        Way::KprobeSession,
    ];

    /// Whether its program runs at the return, or there too.
    pub fn sees_return(self) -> bool {
        matches!(self, Way::Fexit | Way::Fsession | Way::Kretprobe | Way::KretprobeMulti | Way::KprobeSession)
    }

    /// Runs of its program in a call.
    pub fn runs(self) -> u64 {
        if matches!(self, Way::Fsession | Way::KprobeSession) { 2 } else { 1 }
    }

    /// Program type, attach type, and whether the program is loaded for the target's type.
    fn kind(self) -> (ProgType, AttachType, bool) {
        match self {
            Way::TpBtf => (ProgType::Tracing, AttachType::TpBtf, true),
            Way::RawTp => (ProgType::RawTracepoint, AttachType::None, false),
            Way::Tp => (ProgType::Tracepoint, AttachType::None, false),
            Way::Fentry => (ProgType::Tracing, AttachType::Fentry, true),
            Way::TracingMulti => (ProgType::Tracing, AttachType::FentryMulti, false),
            Way::Fexit => (ProgType::Tracing, AttachType::Fexit, true),
            Way::Fsession => (ProgType::Tracing, AttachType::Fsession, true),
            Way::Kprobe | Way::Kretprobe => (ProgType::Kprobe, AttachType::None, false),
            Way::KprobeMulti | Way::KretprobeMulti => (ProgType::Kprobe, AttachType::KprobeMulti, false),
            Way::KprobeSession => (ProgType::Kprobe, AttachType::KprobeSession, false),
        }
    }

    /// Its enumerator in `enum bpf_attach_type`, of those that not every kernel has.
    fn enumerator(self) -> Option<&'static str> {
        match self {
            Way::TracingMulti => Some("BPF_TRACE_FENTRY_MULTI"),
            Way::Fsession => Some("BPF_TRACE_FSESSION"),
            Way::KprobeMulti | Way::KretprobeMulti => Some("BPF_TRACE_KPROBE_MULTI"),
            Way::KprobeSession => Some("BPF_TRACE_KPROBE_SESSION"),
            _ => None,
        }
    }
}

/// The one function or tracepoint that `text` names: of the kind, or of either where that leaves no doubt.
pub fn place(kernel: &Kernel, kind: Option<TargetKind>, text: &str) -> Result<Target, Error> {
    let kinds = match kind {
        Some(kind) => vec![kind],
        None => vec![TargetKind::Tracepoint, TargetKind::Function],
    };
    let wrong = |reason: String| Error::Pattern { pattern: text.into(), reason };
    let (mut found, mut absent) = (Vec::new(), None);
    for kind in kinds {
        let spec = TargetSpec::new(kind, text, false)?;
        if spec.pattern.is_glob() {
            return Err(wrong("a pattern; btrace cost takes one name".into()));
        }
        match target::resolve(kernel, &[spec]) {
            Ok(resolved) => found.extend(resolved.targets),
            // The function's error comes last, and has the better hint.
            Err(error @ Error::Unknown { .. }) => absent = Some(error),
            Err(error) => return Err(error),
        }
    }
    let one = match (found.pop(), found.is_empty()) {
        (Some(one), true) => one,
        (Some(_), false) => {
            return Err(wrong("a function and a tracepoint have that name: say which with -k or -t".into()));
        }
        (None, _) => return Err(absent.unwrap_or_else(|| wrong("nothing has that name".into()))),
    };
    if one.kind == TargetKind::Function
        && let Some(reason) = danger::reason(&one.name, false)
    {
        return Err(Error::Target { target: one.label(), reason: reason.into() });
    }
    Ok(one)
}

/// `r0 = 0; exit`.
const NOTHING: [u64; 2] = [0xb7, 0x95];

/// A program at a place; dropped, it is gone from there.
#[derive(Debug)]
pub struct Placed {
    // First, so that it is detached before the program goes.
    _link: Link,
    _program: Program,
    sight: Option<Map>,
}

/// What a program that looks saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Times that it ran.
    pub hits: u64,
    /// Times that it ran for the process that was asked for.
    pub own: u64,
    /// The stack of the first of these, innermost first, with whatever took it; or the error of the helper that takes it.
    pub stack: Result<Vec<u64>, i64>,
}

impl Placed {
    /// What it saw so far; of the empty program nothing.
    pub fn sight(&self) -> Result<Sight, Error> {
        let Some(map) = &self.sight else {
            return Ok(Sight { hits: 0, own: 0, stack: Ok(Vec::new()) });
        };
        let value = map.lookup(&0u32.to_ne_bytes())?.unwrap_or_default();
        let mut words = value.chunks_exact(8).filter_map(|c| c.try_into().ok()).map(u64::from_ne_bytes);
        let mut next = || words.next().unwrap_or(0);
        let (hits, own, length) = (next(), next(), next() as i64);
        let frames = usize::try_from(length).map(|bytes| bytes / 8).map_err(|_| length);
        Ok(Sight { hits, own, stack: frames.map(|count| words.take(count).collect()) })
    }
}

/// Frames that a stack has room for.
const FRAMES: i32 = 127;

/// Attaches programs to one place in turn.
#[derive(Debug)]
pub struct Ways<'a> {
    kernel: &'a Kernel,
    target: &'a Target,
    module: Option<BtfObject>,
}

impl<'a> Ways<'a> {
    /// For a target of this kernel.
    pub fn new(kernel: &'a Kernel, target: &'a Target) -> Result<Ways<'a>, Error> {
        let module = target.module.as_deref().map(bpf::module_btf).transpose()?.flatten();
        Ok(Ways { kernel, target, module })
    }

    /// Whether a program attached so can take a stack with itself on it.
    pub fn sees_itself(&self, way: Way) -> bool {
        let has = |name| abilities::helper(self.kernel, name);
        matches!(way.kind().0, ProgType::Tracing | ProgType::RawTracepoint)
            || (has("BPF_FUNC_get_current_task_btf") && has("BPF_FUNC_get_task_stack"))
    }

    /// Attaches a program that does nothing.
    pub fn empty(&self, way: Way) -> Result<Placed, Refusal> {
        self.attach(way, "cost_empty", &NOTHING, None)
    }

    /// Attaches a program that counts its runs, those for the process `tgid` apart (0: all of them), and takes the stack of
    /// one of these.
    pub fn looking(&self, way: Way, tgid: u32) -> Result<Placed, Refusal> {
        let map = Map::create(MapType::Array, "cost_sight", 4, 24 + FRAMES as u32 * 8, 1)
            .map_err(abilities::refusal)?;
        let plain = matches!(way.kind().0, ProgType::Tracing | ProgType::RawTracepoint);
        let taking = match (plain, self.sees_itself(way)) {
            (true, _) => Taking::Here,
            (false, true) => Taking::OfTask,
            (false, false) => Taking::Not,
        };
        let code = looking(map.as_fd().as_raw_fd(), tgid, taking);
        self.attach(way, "cost_look", &code, Some(map))
    }

    fn attach(&self, way: Way, name: &str, insns: &[u64], sight: Option<Map>) -> Result<Placed, Refusal> {
        let missing = |reason: String| Refusal { reason, permission: false };
        let absent = way
            .enumerator()
            .filter(|enumerator| self.kernel.btf.enum_has("bpf_attach_type", enumerator).is_none());
        if absent.is_some() {
            return Err(missing("this kernel does not have it".into()));
        }
        let (ty, attach_type, typed) = way.kind();
        if self.target.address.is_some() && (typed || way == Way::TracingMulti) {
            return Err(missing("no type of it is known to the kernel".into()));
        }
        let id = if way == Way::Tp { Some(self.tracefs_id()?) } else { None };
        let attach_to = match &self.module {
            Some(object) if ty == ProgType::Tracing => AttachTo::Module(object.as_fd()),
            _ => AttachTo::Kernel,
        };
        let attach_btf_id = if typed { self.target.btf_id.0 } else { 0 };
        let load = Load { attach_type, attach_btf_id, attach_to, ..Load::new(name, ty, insns) };
        let program = Program::load(&load).map_err(abilities::refusal)?;
        let function = self.target.name.as_str();
        let at = self.target.address.map_or(KprobeAt::Symbol(function), KprobeAt::Address);
        let link = match way {
            Way::RawTp => bpf::open_raw_tracepoint(&program, function),
            Way::Tp => bpf::attach_tracepoint(&program, id.unwrap_or_default()),
            Way::TpBtf | Way::Fentry | Way::Fexit | Way::Fsession => {
                bpf::attach_trampoline(&program, function)
            }
            Way::TracingMulti => {
                bpf::attach_tracing_multi(&program, attach_type, &[self.target.btf_id.0], &[0])
            }
            Way::Kprobe => bpf::attach_kprobe(&program, at, false),
            Way::Kretprobe => bpf::attach_kprobe(&program, at, true),
            Way::KprobeMulti | Way::KprobeSession => {
                bpf::attach_kprobe_multi_named(&program, attach_type, function, false)
            }
            Way::KretprobeMulti => bpf::attach_kprobe_multi_named(&program, attach_type, function, true),
        };
        Ok(Placed { _link: link.map_err(abilities::refusal)?, _program: program, sight })
    }

    /// The tracepoint's number, which tracefs alone tells.
    fn tracefs_id(&self) -> Result<u64, Refusal> {
        let missing = |reason: &str| Refusal { reason: reason.into(), permission: false };
        let Some(folder) = systems::tracefs() else {
            return Err(missing(
                "tracefs, which has the tracepoint's number, is not mounted (btrace mounts nothing)",
            ));
        };
        let folder = folder.join("events");
        let systems = folder.read_dir().map_err(|error| Refusal {
            permission: error.kind() == std::io::ErrorKind::PermissionDenied,
            reason: format!("{}: {error}", folder.display()),
        })?;
        systems
            .flatten()
            .find_map(|system| {
                let id = system.path().join(&self.target.name).join("id");
                std::fs::read_to_string(id).ok()?.trim().parse().ok()
            })
            .ok_or_else(|| missing("tracefs has no event of that name: it is for raw tracepoints alone"))
    }
}

/// How a program takes the stack that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    /// bpf_get_stack, which begins at the program in programs that have no registers of the traced place.
    Here,
    /// bpf_get_task_stack of the current task: of kprobes and perf's tracepoints bpf_get_stack begins at the traced place.
    OfTask,
    /// Neither will do.
    Not,
}

/// The program of [`Ways::looking`]. Its value in the map: hits, own hits, length of the stack in bytes or error, stack.
fn looking(map: i32, tgid: u32, taking: Taking) -> Vec<u64> {
    const MAP_LOOKUP: i32 = 1;
    const GET_CURRENT_PID_TGID: i32 = 14;
    const GET_STACK: i32 = 67;
    const GET_TASK_STACK: i32 = 141;
    const GET_CURRENT_TASK_BTF: i32 = 158;
    let insn = |op: u8, dst: u64, src: u64, off: i16, imm: i32| {
        u64::from(op) | dst << 8 | src << 12 | u64::from(off as u16) << 16 | u64::from(imm as u32) << 32
    };
    let call = |helper| insn(0x85, 0, 0, 0, helper);
    let mov = |dst, src| insn(0xbf, dst, src, 0, 0);
    let set = |dst, imm| insn(0xb7, dst, 0, 0, imm);
    let mut rest = Vec::new();
    match taking {
        Taking::Here => rest.extend([mov(1, 6)]),
        Taking::OfTask => rest.extend([call(GET_CURRENT_TASK_BTF), mov(1, 0)]),
        Taking::Not => {}
    }
    if taking != Taking::Not {
        let helper = if taking == Taking::Here { GET_STACK } else { GET_TASK_STACK };
        rest.extend([
            mov(2, 7),
            insn(0x07, 2, 0, 0, 24),
            set(3, FRAMES * 8),
            set(4, 0),
            call(helper),
            // *(u64 *)(r7 + 16) = r0
            insn(0x7b, 7, 0, 16, 0),
        ]);
    }
    // if *(u64 *)(r7 + 16) != 0 goto out
    let mut own = vec![set(1, 1), insn(0xdb, 7, 1, 8, 0), insn(0x79, 1, 7, 16, 0)];
    own.push(insn(0x55, 1, 0, rest.len() as i16, 0));
    own.append(&mut rest);
    let mut body = vec![set(1, 1), insn(0xdb, 7, 1, 0, 0)];
    if tgid != 0 {
        body.extend([
            call(GET_CURRENT_PID_TGID),
            // r0 >>= 32; if w0 != tgid goto out (a 32-bit comparison: tgid may look negative to a 64-bit one)
            insn(0x77, 0, 0, 0, 32),
            insn(0x56, 0, 0, own.len() as i16, tgid as i32),
        ]);
    }
    body.append(&mut own);
    let mut code = vec![
        mov(6, 1),
        // *(u32 *)(r10 - 4) = 0; r2 = r10 - 4
        insn(0x62, 10, 0, -4, 0),
        mov(2, 10),
        insn(0x07, 2, 0, 0, -4),
        // r1 = map
        insn(0x18, 1, 1, 0, map),
        0,
        call(MAP_LOOKUP),
        // if r0 == 0 goto out
        insn(0x15, 0, 0, body.len() as i16 + 1, 0),
        mov(7, 0),
    ];
    code.append(&mut body);
    code.extend([set(0, 0), insn(0x95, 0, 0, 0, 0)]);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every jump of the program that looks goes to its last two instructions, whatever it is made of.
    #[test]
    fn jumps_go_to_the_end() {
        for taking in [Taking::Here, Taking::OfTask, Taking::Not] {
            for tgid in [0, 1, u32::MAX] {
                let code = looking(3, tgid, taking);
                let jumps: Vec<usize> = code
                    .iter()
                    .enumerate()
                    .filter(|(_, insn)| matches!(**insn & 0xff, 0x15 | 0x55 | 0x56))
                    .map(|(at, insn)| at + 1 + usize::from((insn >> 16) as u16))
                    .collect();
                assert_eq!(jumps.len(), if tgid == 0 { 2 } else { 3 });
                assert!(jumps.iter().all(|to| *to == code.len() - 2), "{jumps:?} of {}", code.len());
                assert_eq!(code[code.len() - 2..], NOTHING);
            }
        }
    }
}
