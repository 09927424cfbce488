//! A trace under way: programs loaded and attached, events drained, losses counted.

use crate::error::Error;
use crate::event::Event;
use crate::layout::Layout;
use crate::plan::{Method, Plan, Probe};
use crate::program::{self, ArgAccess, cell, counter, maps};
use crate::target::{self, Target};
use crate::tracker;
use asm::{Code, MapId};
use bpf::{AttachType, BtfObject, Link, Load, Map, MapType, ProgType, Program, RingBuf};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Places on kernel stacks whose calls can be timed, at one time.
const MOST_CALLS: u32 = 16384;

/// A target that could not be attached, while others could.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Its name.
    pub target: String,
    /// Why.
    pub reason: String,
}

/// What did not reach the caller, up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events that found no room in the ring buffer.
    pub lost: u64,
    /// Exits without a duration because the entry's time could not be kept.
    pub untimed: u64,
    /// Children of the command that were not followed.
    pub unfollowed: u64,
    /// Calls not seen because the program was already running on that CPU; `None` where the kernel does not count.
    pub missed: u64,
}

/// Programs attached, and the ring they write to.
///
/// Dropping it detaches everything; so does the end of the process, whatever ends it.
#[derive(Debug)]
pub struct Session {
    probes: Vec<Probe>,
    ring: RingBuf,
    maps: Maps,
    attached: Vec<(Program, Link)>,
    tracker: Vec<(Program, Link)>,
    /// The kernel's BTF objects of the modules that targets are in.
    modules: BTreeMap<String, BtfObject>,
    /// Calls missed by programs that are no longer attached.
    missed_before: u64,
    /// Calls that could not be timed when [`Session::tend`] last looked.
    untimed_before: u64,
    /// Targets that failed while others went on.
    pub failed: Vec<Failed>,
}

/// All maps but the ring, which its reader owns.
#[derive(Debug)]
struct Maps {
    counters: Map,
    calls: Option<Map>,
    tasks: Option<Map>,
}

impl Session {
    /// Makes the maps and, if the filter asks for it, attaches the tracker. Events flow after [`Session::attach`].
    pub fn start(plan: &Plan, own_tgid: u32) -> Result<Session, Error> {
        bpf::raise_limits();
        let ring = Map::create(MapType::RingBuf, "events", 0, 0, plan.ring_size).map_err(permission)?;
        let counters = Map::create(MapType::PerCpuArray, "counters", 4, 8, counter::COUNT)?;
        let exits = plan.probes.iter().any(|p| p.method == Method::Fexit);
        let calls =
            exits.then(|| Map::create(MapType::Hash, "calls", 8, cell::SIZE, MOST_CALLS)).transpose()?;
        let followed = plan.filter.followed;
        let tasks =
            followed.then(|| Map::create(MapType::Hash, "tasks", 8, 4, tracker::MOST_TASKS)).transpose()?;
        let mut session = Session {
            probes: Vec::new(),
            ring: RingBuf::new(ring)?,
            maps: Maps { counters, calls, tasks },
            attached: Vec::new(),
            tracker: Vec::new(),
            modules: BTreeMap::new(),
            missed_before: 0,
            untimed_before: 0,
            failed: Vec::new(),
        };
        if followed {
            for (tracepoint, program) in
                [(tracker::FORK, tracker::fork(plan.task, own_tgid)), (tracker::FREE, tracker::free())]
            {
                let code = assemble(tracepoint, &program)?;
                let loaded =
                    session.load(&code, tracepoint, ProgType::RawTracepoint, AttachType::None, None)?;
                let link = bpf::open_raw_tracepoint(&loaded, tracepoint)?;
                session.tracker.push((loaded, link));
            }
        }
        Ok(session)
    }

    /// Loads and attaches every probe of the plan. A target that fails is listed in [`Session::failed`] if another
    /// succeeds; when none does, that is the error.
    pub fn attach(&mut self, plan: &Plan) -> Result<(), Error> {
        self.probes.clone_from(&plan.probes);
        let mut first = None;
        for (index, probe) in plan.probes.iter().enumerate() {
            match self.attach_one(plan, index as u32, probe) {
                Ok(()) => log::debug!("{}: {} attached", probe.target.label(), probe.method),
                // Refused for all of them: the next would fare no better.
                Err(
                    error @ (Error::Permission(_) | Error::MethodRefused { .. } | Error::Assemble { .. }),
                ) => {
                    return Err(error);
                }
                Err(Error::Target { target, reason }) => {
                    log::debug!("{target}: {reason}");
                    self.failed.push(Failed { target, reason });
                }
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        if !self.attached.is_empty() {
            return first.map_or(Ok(()), Err);
        }
        match (first, self.failed.as_slice()) {
            (Some(error), _) => Err(error),
            (None, [one]) => Err(Error::Target { target: one.target.clone(), reason: one.reason.clone() }),
            (None, all) => Err(Error::AllFailed {
                count: all.len(),
                first: all.first().map_or_else(String::new, |f| format!("{}: {}", f.target, f.reason)),
            }),
        }
    }

    fn attach_one(&mut self, plan: &Plan, index: u32, probe: &Probe) -> Result<(), Error> {
        self.open_module(probe)?;
        // The entry's time first, so that every exit seen after it has a duration.
        if probe.method == Method::Fexit {
            let program = program::entry_time(plan, index, probe);
            let code = assemble(&probe.target.name, &program)?;
            let loaded = self.load_probe(&code, probe, AttachType::Fentry)?;
            self.link(loaded, probe)?;
        }
        let attach_type = probe.method.attach_type();
        let mut refusal = None;
        for access in [ArgAccess::Plain, ArgAccess::Copied] {
            let code = assemble(&probe.target.name, &program::event(plan, index, probe, access))?;
            log::trace!("{}:\n{}", probe.target.name, code.dump());
            match self.load_probe(&code, probe, attach_type) {
                Ok(loaded) => return self.link(loaded, probe),
                // The verifier had a reason: perhaps it dislikes a plain load of some argument.
                Err(error @ Error::Target { .. }) => {
                    log::debug!("with {access:?} arguments: {error}");
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refusal.unwrap_or_else(|| Error::Target {
            target: probe.target.label(),
            reason: "no way to read its arguments".into(),
        }))
    }

    /// Gets hold of the BTF object that the target's id is of, once for each module.
    fn open_module(&mut self, probe: &Probe) -> Result<(), Error> {
        let Some(module) = probe.target.module.as_ref().filter(|m| !self.modules.contains_key(*m)) else {
            return Ok(());
        };
        let object = bpf::module_btf(module).map_err(permission)?.ok_or_else(|| Error::Target {
            target: probe.target.label(),
            reason: format!("the kernel has no types of module {module} any more: was it unloaded just now?"),
        })?;
        self.modules.insert(module.clone(), object);
        Ok(())
    }

    fn link(&mut self, loaded: Program, probe: &Probe) -> Result<(), Error> {
        let link =
            bpf::attach_trampoline(&loaded, &probe.target.name).map_err(|error| match error.errno() {
                Some(errno) => {
                    Error::Target { target: probe.target.label(), reason: attach_reason(probe.method, errno) }
                }
                None => error.into(),
            })?;
        self.attached.push((loaded, link));
        Ok(())
    }

    fn load_probe(&self, code: &Code, probe: &Probe, attach_type: AttachType) -> Result<Program, Error> {
        let method = match attach_type {
            AttachType::Fentry => "fentry",
            AttachType::Fexit => "fexit",
            AttachType::TpBtf | AttachType::None => "tp_btf",
        };
        let name = program::name(attach_type, &probe.target.name);
        self.load(code, &name, ProgType::Tracing, attach_type, Some(&probe.target)).map_err(|error| {
            match error {
                Error::Sys(source @ bpf::Error::Load { .. }) => match source.log() {
                    Some(log) => Error::Target {
                        target: probe.target.label(),
                        reason: missing_symbol(&probe.target, log)
                            .unwrap_or_else(|| verifier_reason(log, method)),
                    },
                    None if source.is_permission() => Error::MethodRefused { method, cause: source },
                    None => Error::Target { target: probe.target.label(), reason: source.to_string() },
                },
                other => other,
            }
        })
    }

    fn load(
        &self,
        code: &Code,
        name: &str,
        ty: ProgType,
        attach_type: AttachType,
        target: Option<&Target>,
    ) -> Result<Program, Error> {
        let insns = code
            .relocate(|map| self.map_fd(map))
            .map_err(|source| Error::Assemble { target: name.into(), source })?;
        let btf = bpf::load_btf(&code.btf)?;
        let func_info: Vec<[u32; 2]> = code.func_info.iter().map(|f| [f.insn_off, f.type_id]).collect();
        let line_info: Vec<[u32; 4]> =
            code.line_info.iter().map(|l| [l.insn_off, l.file_name_off, l.line_off, l.line_col]).collect();
        Ok(Program::load(&Load {
            name,
            ty,
            attach_type,
            attach_btf_id: target.map_or(0, |t| t.btf_id.0),
            attach_btf: target.and_then(|t| self.modules.get(t.module.as_ref()?)).map(AsFd::as_fd),
            insns: &insns,
            btf: Some(btf.as_fd()),
            func_info: &func_info,
            line_info: &line_info,
        })?)
    }

    /// The descriptor of a map; -1, which the kernel refuses, for one that this session has not made.
    fn map_fd(&self, map: MapId) -> i32 {
        let fd = |m: &Map| m.as_fd().as_raw_fd();
        match map {
            maps::RING => fd(self.ring.map()),
            maps::COUNTERS => fd(&self.maps.counters),
            maps::CALLS => self.maps.calls.as_ref().map_or(-1, fd),
            maps::TASKS => self.maps.tasks.as_ref().map_or(-1, fd),
            _ => -1,
        }
    }

    /// Targets attached.
    pub fn attached(&self) -> usize {
        self.probes.len() - self.failed.len()
    }

    /// Hands over what is in the ring now, oldest first, until it is empty or `each` breaks.
    ///
    /// Returns how many events were handed over.
    pub fn drain(&mut self, mut each: impl FnMut(&Event<'_>) -> ControlFlow<()>) -> Result<usize, Error> {
        let probes = &self.probes;
        let mut foreign = 0usize;
        let done = self.ring.drain(|record| match Event::new(probes, record) {
            Some(event) => each(&event),
            None => {
                foreign += 1;
                ControlFlow::Continue(())
            }
        })?;
        if foreign > 0 {
            // Our own programs alone write to this ring, so this is a defect of ours; it must not pass unseen.
            log::error!(
                "{foreign} records of the ring buffer fit no probe: please report this as a defect of btrace"
            );
        }
        Ok(done.records - foreign)
    }

    /// Whether the ring holds anything.
    pub fn is_drained(&self) -> bool {
        self.ring.pending() == 0
    }

    /// To be called now and then, every second or so: when the cells for entry times have run out, gives back those
    /// that hold no call under way.
    ///
    /// A call that takes such a cell at this very moment goes without a duration, and its event says so.
    pub fn tend(&mut self) -> Result<(), Error> {
        let Some(calls) = &self.maps.calls else { return Ok(()) };
        let untimed = self.maps.counters.sum_u64(counter::UNTIMED)?;
        if untimed == self.untimed_before {
            return Ok(());
        }
        self.untimed_before = untimed;
        let mut freed = 0;
        for key in calls.keys()? {
            let empty = |cell: Vec<u8>| cell.get(..8).is_some_and(|time| time.iter().all(|b| *b == 0));
            if calls.lookup(&key)?.is_some_and(empty) && calls.delete(&key)? {
                freed += 1;
            }
        }
        log::debug!("{untimed} calls could not be timed so far; {freed} cells freed");
        Ok(())
    }

    /// Detaches every probe; what is in the ring can still be drained.
    pub fn detach(&mut self) {
        self.missed_before += missed(&self.attached);
        self.attached.clear();
        self.tracker.clear();
    }

    /// What was lost up to now.
    pub fn losses(&self) -> Result<Losses, Error> {
        let counters = &self.maps.counters;
        Ok(Losses {
            lost: counters.sum_u64(counter::LOST)?,
            untimed: counters.sum_u64(counter::UNTIMED)?,
            unfollowed: counters.sum_u64(counter::UNFOLLOWED)?,
            missed: self.missed_before + missed(&self.attached),
        })
    }
}

impl AsFd for Session {
    /// Readable when the ring has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

fn missed(attached: &[(Program, Link)]) -> u64 {
    attached
        .iter()
        .map(|(program, _)| match program.info() {
            Ok(info) => info.recursion_misses,
            Err(error) => {
                log::warn!("calls missed by recursion are not known: {error}");
                0
            }
        })
        .sum()
}

fn assemble(target: &str, program: &asm::Program) -> Result<Code, Error> {
    program
        .assemble(&asm::Options::default())
        .map_err(|source| Error::Assemble { target: target.into(), source })
}

/// Refusals of the very first map are a matter of permission.
fn permission(error: bpf::Error) -> Error {
    if error.is_permission() { Error::Permission(error) } else { Error::Sys(error) }
}

/// Why a loaded program could not be attached (kernel/bpf/trampoline.c, kernel/trace/ftrace.c).
fn attach_reason(method: Method, errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    let meaning = match errno {
        libc_errno::EBUSY | libc_errno::ENOENT | libc_errno::EINVAL | libc_errno::ENODEV => {
            "its entry cannot be patched (notrace, noinstr, or freed after boot), or something else has patched it"
        }
        libc_errno::E2BIG => "too many programs are attached there",
        _ => return format!("{method} cannot be attached: {error}"),
    };
    format!("{method} cannot be attached: {meaning} ({error})")
}

/// errno values of include/uapi/asm-generic/errno-base.h, the same on every architecture that we run on.
mod libc_errno {
    pub const ENOENT: i32 = 2;
    pub const E2BIG: i32 = 7;
    pub const EBUSY: i32 = 16;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
}

/// BTF names functions by their base name; when the compiler kept no copy of that very name the kernel finds no address
/// to attach to.
fn missing_symbol(target: &Target, log: &str) -> Option<String> {
    if !log.contains("address of function") {
        return None;
    }
    let variants = target::variants(&target.name);
    (!variants.is_empty()).then(|| target::only_variants(&variants))
}

/// The verifier's reason out of its log: its last sentence, and the line of ours that it speaks of.
fn verifier_reason(log: &str, method: &str) -> String {
    // Statistics follow the reason; instructions, register states and our own lines (`; text @ file:line`) precede it.
    let noise = |l: &str| {
        l.is_empty()
            || l.starts_with("processed ")
            || l.starts_with("verification time")
            || l.starts_with("stack depth")
            || l.starts_with("max_states")
            || l.starts_with("arg#")
            || l.starts_with("BPF program is too large")
    };
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    let Some(at) = lines.iter().rposition(|l| !noise(l)) else {
        return format!("the kernel allows no {method} program on it (BPF itself may depend on it)");
    };
    let reason = lines.get(at).copied().unwrap_or_default();
    let ours = lines
        .iter()
        .take(at)
        .rev()
        .find_map(|l| l.strip_prefix("; "))
        .map(|l| l.split(" @ ").next().unwrap_or(l));
    match ours {
        Some(text) => format!("the verifier refuses it at \"{text}\": {reason}"),
        None => format!("the kernel refuses it: {reason}"),
    }
}

/// The layout's size in bytes, for plans that are shown.
impl Layout {
    /// Bytes that one event takes in the ring buffer, header of the ring included.
    pub fn ring_bytes(&self) -> u32 {
        (self.size + 8).next_multiple_of(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_reason_is_found_in_its_log() {
        let log = "func#0 @0\n0: R1=ctx() R10=fp0\n; const char *name @ vfs_open:7\n3: (79) r2 = *(u64 *)(r1 +8)\n\
            func 'vfs_open' arg1 type INT is not a struct\ninvalid bpf_context access off=8 size=8\n\
            processed 4 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n";
        assert_eq!(
            verifier_reason(log, "fentry"),
            "the verifier refuses it at \"const char *name\": invalid bpf_context access off=8 size=8"
        );
        assert_eq!(
            verifier_reason("func 'bpf_fentry_test1' doesn't have enough args\n\n", "fentry"),
            "the kernel refuses it: func 'bpf_fentry_test1' doesn't have enough args"
        );
        assert_eq!(
            verifier_reason("processed 0 insns (limit 1000000)\n", "fexit"),
            "the kernel allows no fexit program on it (BPF itself may depend on it)"
        );
    }
}
