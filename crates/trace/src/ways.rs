//! Every way in which the kernel lets a program be attached to one place, each by itself: for comparing them. A trace takes the
//! first that is granted (`attach.rs`).

use crate::abilities::{self, Refusal};
use crate::attach::{self, Place};
use crate::branches::Snapshot;
use crate::danger;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::program::looking::{self, Taking, cells, sight};
use crate::request::{TargetKind, TargetSpec};
use crate::systems;
use crate::target::{self, Target};
use asm::Code;
use bpf::{AttachTo, AttachType, BtfObject, KprobeAt, Link, Load, Map, MapType, ProgType, Program};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

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

    /// What it takes of the place that it is attached to.
    fn place(self) -> Place {
        match self {
            Way::Fentry | Way::Fexit | Way::Fsession => Place::Trampoline,
            Way::TracingMulti | Way::KprobeMulti | Way::KretprobeMulti | Way::KprobeSession => Place::Ftrace,
            Way::Kprobe | Way::Kretprobe => Place::Kprobe,
            Way::TpBtf | Way::RawTp | Way::Tp => Place::Tracepoint,
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
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    if text.contains(',') && !text.contains('{') {
        return Err(wrong("several names; btrace cost takes one name".into()));
    }
    for kind in kinds {
        let spec = TargetSpec::new(kind, text, false)?;
        if spec.pattern.is_glob() {
            return Err(wrong("a pattern; btrace cost takes one name".into()));
        }
        match target::resolve(kernel, &[spec]) {
            Ok(resolved) => found.extend(resolved.targets),
            Err(error) => errors.push(error),
        }
    }
    // What stands before a colon is a module for a function, a system for a tracepoint.
    let scope = text.split_once(':').map(|(scope, _)| scope);
    let is_module = scope.is_some_and(|scope| Path::new("/sys/module").join(scope).is_dir());
    // The function's comes last; of a plain name it has the better hint.
    let worst = |errors: Vec<Error>| {
        let last = errors.len().saturating_sub(1);
        let told = |error: &Error| !matches!(error, Error::Unknown { .. });
        let first = if is_module { last } else { errors.iter().position(told).unwrap_or(last) };
        errors.into_iter().nth(first)
    };
    let one = match (found.pop(), found.is_empty()) {
        (Some(one), true) => one,
        (Some(_), false) => {
            return Err(wrong("a function and a tracepoint have that name: say which with -k or -t".into()));
        }
        (None, _) => return Err(worst(errors).unwrap_or_else(|| wrong("nothing has that name".into()))),
    };
    if one.kind == TargetKind::Function
        && let Some(reason) = danger::reason(&one.name, false)
    {
        return Err(Error::Target { target: one.label(), reason: reason.into() });
    }
    Ok(one)
}

/// `r0 = 0; exit`.
const NOTHING: Load<'static> = Load {
    name: "cost_empty",
    ty: ProgType::Tracing,
    attach_type: AttachType::None,
    attach_btf_id: 0,
    attach_to: AttachTo::Kernel,
    sleepable: false,
    insns: &[0xb7, 0x95],
    btf: None,
    func_info: &[],
    line_info: &[],
};

/// A program at a place; dropped, it is gone from there.
#[derive(Debug)]
pub struct Placed {
    // First, so that it is detached before the program goes.
    _link: Option<Link>,
    program: Program,
    map: Option<Map>,
    /// How it takes a stack.
    taking: Option<Taking>,
    /// What takes the stack in the program's place, or why nothing does.
    watcher: Option<Result<(Link, Program), Refusal>>,
}

/// What a program that looks saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Times that it ran.
    pub hits: u64,
    /// Times that it ran for the process that was asked for.
    pub own: u64,
    /// The stack of the first of these, innermost first, with whatever took it.
    pub stack: Result<Vec<u64>, NoStack>,
    /// It was taken in the program's place by another, at the function [`WATCHED`](crate::WATCHED) that the program calls.
    pub watched: bool,
    /// It was taken by a helper that leaves out functions of the scheduler.
    pub without_scheduler: bool,
}

/// Why there is no stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// The helper's error; 0 where it never ran.
    Fault(i64),
    /// Nothing that could take it was to be had.
    Refused(Refusal),
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoStack::Fault(0) => f.write_str("no stack was taken"),
            NoStack::Fault(error) => {
                let name = u32::try_from(error.unsigned_abs()).ok().and_then(btf::errno_name);
                write!(f, "the stack was not taken: {}", name.unwrap_or("?"))
            }
            NoStack::Refused(refusal) => {
                write!(
                    f,
                    "a program so attached takes no stack with itself on it here, and to watch it by fentry: {refusal}"
                )
            }
        }
    }
}

/// Branch records that a program took, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    length: i64,
    room: Vec<u8>,
}

impl Records {
    /// The records.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self.length, &self.room)
    }
}

fn word(bytes: &[u8], at: i32) -> u64 {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let bytes = bytes.get(at..).and_then(|b| b.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

impl Placed {
    /// What a program that looks saw so far; another saw nothing.
    pub fn sight(&self) -> Result<Sight, Error> {
        let value = self.value()?;
        let stack = match (word(&value, sight::LENGTH).cast_signed(), &self.watcher) {
            (_, Some(Err(refusal))) => Err(NoStack::Refused(refusal.clone())),
            (length, _) => match usize::try_from(length) {
                Ok(length) if length > 0 => {
                    let all = value.get(sight::STACK as usize..).unwrap_or_default();
                    Ok(all.chunks_exact(8).take(length / 8).map(|address| word(address, 0)).collect())
                }
                _ => Err(NoStack::Fault(length)),
            },
        };
        let watched = self.taking == Some(Taking::Watched);
        let without_scheduler = self.taking == Some(Taking::OfTask);
        Ok(Sight {
            hits: word(&value, sight::HITS),
            own: word(&value, sight::OWN),
            stack,
            watched,
            without_scheduler,
        })
    }

    /// The records that a program took for the process `tgid` (0: for any), of as many runs as it has room for.
    pub fn records(&self, tgid: u32) -> Result<Vec<Records>, Error> {
        let value = self.value()?;
        let taken = value.chunks_exact(1 << cells::BITS).skip(1).filter(|cell| {
            let owner = word(cell, cells::OWNER);
            owner != 0 && (tgid == 0 || owner == u64::from(tgid))
        });
        Ok(taken
            .map(|cell| {
                let length = word(cell, cells::LENGTH).cast_signed();
                Records { length, room: cell.get(cells::RECORDS as usize..).unwrap_or_default().to_vec() }
            })
            .collect())
    }

    /// Where the program's machine code is; `None` where the kernel tells nobody.
    pub fn code(&self) -> Result<Option<Range<u64>>, Error> {
        let jited = self.program.jited()?;
        Ok(jited.functions.first().map(|(start, len)| *start..start.saturating_add(u64::from(*len))))
    }

    fn value(&self) -> Result<Vec<u8>, Error> {
        let Some(map) = &self.map else { return Ok(Vec::new()) };
        Ok(map.lookup(&0u32.to_ne_bytes())?.unwrap_or_default())
    }
}

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

    /// How a program attached so comes to the stack that it is on itself.
    fn taking(&self, way: Way) -> Taking {
        let has = |name| abilities::helper(self.kernel, name);
        if matches!(way.kind().0, ProgType::Tracing | ProgType::RawTracepoint) {
            Taking::Here
        } else if has("BPF_FUNC_get_current_task_btf") && has("BPF_FUNC_get_task_stack") {
            Taking::OfTask
        } else {
            Taking::Watched
        }
    }

    /// Attaches a program that does nothing.
    pub fn empty(&self, way: Way) -> Result<Placed, Refusal> {
        let (link, program) = self.attach(way, NOTHING)?;
        Ok(Placed { _link: Some(link), program, map: None, taking: None, watcher: None })
    }

    /// Loads the same, and attaches it nowhere: for its code to be looked at.
    pub fn empty_unattached(&self, way: Way) -> Result<Placed, Refusal> {
        Ok(Placed { _link: None, program: self.load(way, NOTHING)?, map: None, taking: None, watcher: None })
    }

    /// Attaches a program that counts its runs, those for the process `tgid` apart (0: all of them), and takes the stack of
    /// one of these.
    pub fn looking(&self, way: Way, tgid: u32) -> Result<Placed, Refusal> {
        let map = Map::create(MapType::Array, "cost_sight", 4, sight::SIZE, 1).map_err(abilities::refusal)?;
        let taking = self.taking(way);
        let code = looking::looking(tgid, taking);
        self.placed(way, "cost_look", code, map, Some(taking))
    }

    /// Whether the kernel gives branch records to programs (5.16).
    pub fn has_branch_records(&self) -> bool {
        abilities::helper(self.kernel, "BPF_FUNC_get_branch_snapshot")
    }

    /// Attaches a program that takes branch records, before anything else.
    pub fn branching(&self, way: Way) -> Result<Placed, Refusal> {
        let map =
            Map::create(MapType::Array, "cost_branches", 4, cells::SIZE, 1).map_err(abilities::refusal)?;
        self.placed(way, "cost_branches", looking::branching(), map, None)
    }

    /// Attaches a program that was assembled, and what watches it where that takes the stack.
    fn placed(
        &self,
        way: Way,
        name: &str,
        code: Result<Code, asm::Error>,
        map: Map,
        taking: Option<Taking>,
    ) -> Result<Placed, Refusal> {
        let code = code.map_err(|error| missing(&error.to_string()))?;
        let (link, program) = with_code(&code, name, &map, |load| self.attach(way, load))?;
        let watcher = (taking == Some(Taking::Watched)).then(|| watch(&program, &code, &map));
        Ok(Placed { _link: Some(link), program, map: Some(map), taking, watcher })
    }

    /// Loads a program, of which all is known but what the way says.
    fn load(&self, way: Way, load: Load<'_>) -> Result<Program, Refusal> {
        let absent = way
            .enumerator()
            .filter(|enumerator| self.kernel.btf.enum_has("bpf_attach_type", enumerator).is_none());
        if absent.is_some() {
            return Err(missing("this kernel does not have it"));
        }
        let (ty, attach_type, typed) = way.kind();
        if self.target.address.is_some() && (typed || way == Way::TracingMulti) {
            return Err(missing("no type of it is known to the kernel"));
        }
        let attach_to = match &self.module {
            Some(object) if ty == ProgType::Tracing => AttachTo::Module(object.as_fd()),
            _ => AttachTo::Kernel,
        };
        let attach_btf_id = if typed { self.target.btf_id.0 } else { 0 };
        let load = Load { ty, attach_type, attach_btf_id, attach_to, ..load };
        Program::load(&load).map_err(abilities::refusal)
    }

    /// The same, and attaches it.
    fn attach(&self, way: Way, load: Load<'_>) -> Result<(Link, Program), Refusal> {
        if matches!(way, Way::Kprobe | Way::Kretprobe) && bpf::kprobes_exist().is_err() {
            return Err(missing("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"));
        }
        let id = if way == Way::Tp { Some(self.tracefs_id()?) } else { None };
        let program = self.load(way, load)?;
        let (_, attach_type, _) = way.kind();
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
        let link = link.map_err(|error| match attach::place_reason(way.place(), &error) {
            Some(reason) => missing(&reason),
            None => abilities::refusal(error),
        })?;
        Ok((link, program))
    }

    /// The tracepoint's number, which tracefs alone tells.
    fn tracefs_id(&self) -> Result<u64, Refusal> {
        // Where it is not mounted a mount will do that is at no place.
        let mut detached = None;
        let folder = match systems::tracefs() {
            Some(folder) => folder,
            None => match bpf::Tracefs::detached() {
                Ok(tracefs) => detached.insert(tracefs).path(),
                Err(error) => {
                    let refusal = abilities::refusal(error);
                    let reason =
                        format!("tracefs, which has the tracepoint's number, is not mounted: {refusal}");
                    return Err(Refusal { reason, ..refusal });
                }
            },
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

fn missing(reason: &str) -> Refusal {
    Refusal { reason: reason.into(), permission: false }
}

/// Hands assembled code with its one map to what loads it.
fn with_code<T>(
    code: &Code,
    name: &str,
    map: &Map,
    load: impl FnOnce(Load<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let fd = map.as_fd().as_raw_fd();
    let insns = code.relocate(|_| fd).map_err(|error| missing(&error.to_string()))?;
    let btf = bpf::load_btf(&code.btf).map_err(abilities::refusal)?;
    let (func_info, line_info) = (code.func_info_raw(), code.line_info_raw());
    let (btf, func_info, line_info) = (Some(btf.as_fd()), &func_info, &line_info);
    load(Load { btf, func_info, line_info, ..Load::new(name, ProgType::Tracing, &insns) })
}

/// Attaches what takes the stack to the function that the program calls for it.
fn watch(program: &Program, code: &Code, map: &Map) -> Result<(Link, Program), Refusal> {
    let watched = code.func_info.get(1).map(|function| function.type_id);
    let attach_btf_id = watched.ok_or_else(|| missing("the program calls no function to be watched"))?;
    let watching = looking::watching().map_err(|error| missing(&error.to_string()))?;
    with_code(&watching, "cost_watching", map, |load| {
        let attach_to = AttachTo::Program(program.as_fd());
        let load = Load { attach_type: AttachType::Fentry, attach_btf_id, attach_to, ..load };
        let watcher = Program::load(&load).map_err(abilities::refusal)?;
        let link = bpf::attach_trampoline(&watcher, looking::WATCHED).map_err(abilities::refusal)?;
        Ok((link, watcher))
    })
}
