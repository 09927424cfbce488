//! Loading and attaching the programs of a plan, several at a time: an attach waits for the kernel far longer than it
//! computes (text patched on all CPUs, RCU grace periods), and so does a detach.

use crate::error::Error;
use crate::plan::{Method, Plan, Probe};
use crate::program::{self, ArgAccess, maps};
use crate::target::{self, Target};
use asm::{Code, MapId};
use bpf::{AttachType, BtfObject, Link, Load, ProgType, Program};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Attaches and detaches under way at one time.
const AT_ONCE: usize = 32;

/// How long the caller waits between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(5);

/// How far attaching or detaching has come; counted in targets when attaching, in links when detaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Detaching, not attaching.
    pub detaching: bool,
    /// Done so far.
    pub done: usize,
    /// To be done in all.
    pub of: usize,
}

/// Told of progress every few milliseconds; when attaching, an answer of `true` stops it.
pub type Tell<'a> = dyn FnMut(Progress) -> bool + 'a;

/// Descriptors of the session's maps.
#[derive(Clone, Copy, Debug)]
pub struct MapFds {
    pub ring: i32,
    pub counters: i32,
    pub calls: i32,
    pub tasks: i32,
}

impl MapFds {
    fn fd(&self, map: MapId) -> i32 {
        match map {
            maps::RING => self.ring,
            maps::COUNTERS => self.counters,
            maps::CALLS => self.calls,
            maps::TASKS => self.tasks,
            _ => -1,
        }
    }
}

/// A probe, attached.
#[derive(Debug)]
pub struct Attached {
    /// How, in the end.
    pub method: Method,
    /// Its programs: the entry's time or event if there is one, then the event.
    pub programs: Vec<(Program, Link)>,
}

/// What became of a probe; `None` when it was not come to.
type Outcome = Option<Result<Attached, Error>>;

/// What it takes to attach any probe of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Attacher<'a> {
    pub plan: &'a Plan,
    pub maps: MapFds,
    /// The kernel's BTF objects of the modules that targets are in.
    pub modules: &'a BTreeMap<String, BtfObject>,
}

impl Attacher<'_> {
    /// Attaches every probe; says what became of each, in order, and whether `tell` stopped it.
    ///
    /// An error that is not about one target ends it early.
    pub fn all(&self, tell: &mut Tell<'_>) -> (Vec<Outcome>, bool) {
        let probes = &self.plan.probes;
        // The entry of a pair is attached with its exit.
        let work: Vec<usize> =
            (0..probes.len()).filter(|i| probes.get(*i).is_some_and(|p| !p.is_paired_entry())).collect();
        let outcomes: Vec<Mutex<Outcome>> = probes.iter().map(|_| Mutex::new(None)).collect();
        let set = |index: usize, result| {
            if let Some(Ok(mut outcome)) = outcomes.get(index).map(Mutex::lock) {
                *outcome = Some(result);
            }
        };
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let ended = AtomicBool::new(false);
        let worker = || {
            while !ended.load(Ordering::Relaxed) {
                let Some(index) = work.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let Some(probe) = probes.get(*index) else { break };
                let result = self.one(*index as u32, probe);
                if matches!(&result, Err(error) if !matches!(error, Error::Target { .. })) {
                    ended.store(true, Ordering::Relaxed);
                }
                set(*index, result);
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut stopped = false;
        if work.len() == 1 {
            worker();
        }
        std::thread::scope(|scope| {
            let threads = if work.len() == 1 { 0 } else { AT_ONCE.min(work.len()) };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            while workers.iter().any(|w| !w.is_finished()) {
                let progress =
                    Progress { detaching: false, done: done.load(Ordering::Relaxed), of: work.len() };
                if !stopped && tell(progress) {
                    stopped = true;
                    ended.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK);
            }
        });
        let outcomes = outcomes.into_iter().map(|o| o.into_inner().unwrap_or(None)).collect();
        (outcomes, stopped)
    }

    /// Loads what a probe takes, all of it before any is attached, so that nothing is left of one that fails.
    fn one(&self, index: u32, probe: &Probe) -> Result<Attached, Error> {
        let event = match probe.method {
            Method::RawTp => return self.raw(index, probe),
            Method::TpBtf => match self.load_event(index, probe) {
                Ok(event) => event,
                // Untyped it may pass; if not, the typed program's refusal says more.
                Err(refusal @ (Error::Target { .. } | Error::MethodRefused { .. })) => {
                    log::debug!("{}: trying raw_tp, for tp_btf is refused: {refusal}", probe.target.label());
                    let raw = Probe { method: Method::RawTp, ..probe.clone() };
                    return self.raw(index, &raw).map_err(|_| refusal);
                }
                Err(error) => return Err(error),
            },
            Method::Fentry | Method::Fexit => self.load_event(index, probe)?,
        };
        let mut programs = Vec::new();
        if probe.method == Method::Fexit {
            let paired = probe.pair.and_then(|entry| Some((entry, self.plan.probes.get(entry as usize)?)));
            let entry = match paired {
                Some((index, entry)) => self.load_event(index, entry)?,
                None => {
                    let code = assemble(&probe.target.name, &program::entry_time(self.plan, index, probe))?;
                    self.load_probe(&code, probe, AttachType::Fentry)?
                }
            };
            // The entry first, so that every exit seen after it has a duration.
            programs.push(link(entry, probe)?);
        }
        programs.push(link(event, probe)?);
        Ok(Attached { method: probe.method, programs })
    }

    /// Attaches a tracepoint's program without types.
    fn raw(&self, index: u32, probe: &Probe) -> Result<Attached, Error> {
        let program = program::event(self.plan, index, probe, ArgAccess::Plain);
        let name = program::name(AttachType::None, &probe.target.name);
        let loaded = self.raw_tracepoint(&name, &probe.target.label(), &program)?;
        let link = bpf::open_raw_tracepoint(&loaded, &probe.target.name)?;
        Ok(Attached { method: Method::RawTp, programs: vec![(loaded, link)] })
    }

    fn load_event(&self, index: u32, probe: &Probe) -> Result<Program, Error> {
        let mut refusal = None;
        for access in [ArgAccess::Plain, ArgAccess::Copied] {
            let code = assemble(&probe.target.name, &program::event(self.plan, index, probe, access))?;
            log::trace!("{}:\n{}", probe.target.name, code.dump());
            match self.load_probe(&code, probe, probe.method.attach_type()) {
                // The verifier had a reason: perhaps it dislikes a plain load of some argument.
                Err(error @ Error::Target { .. }) => {
                    if access == ArgAccess::Plain {
                        log::debug!(
                            "{}: plain loads of arguments refused, trying one probe read",
                            probe.target.label()
                        );
                    }
                    log::trace!("{access:?}: {error}");
                    refusal.get_or_insert(error);
                }
                loaded => return loaded,
            }
        }
        Err(refusal.unwrap_or_else(|| Error::Target {
            target: probe.target.label(),
            reason: "no way to read its arguments".into(),
        }))
    }

    /// Loads a program for a tracepoint, untyped; `target` is what a refusal is said of.
    pub fn raw_tracepoint(&self, name: &str, target: &str, program: &asm::Program) -> Result<Program, Error> {
        let code = assemble(target, program)?;
        self.load(&code, name, ProgType::RawTracepoint, AttachType::None, None).map_err(|error| match error {
            Error::Sys(source @ bpf::Error::Load { .. }) => match source.log() {
                Some(log) => {
                    Error::Target { target: target.into(), reason: verifier_reason(log, "raw tracepoint") }
                }
                None => Error::Sys(source),
            },
            other => other,
        })
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
            .relocate(|map| self.maps.fd(map))
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
}

/// Detaches, several at a time; `tell` cannot stop it.
pub fn release(attached: Vec<(Program, Link)>, tell: &mut Tell<'_>) {
    if attached.len() <= 2 {
        return;
    }
    let of = attached.len();
    let share = of.div_ceil(AT_ONCE);
    let done = AtomicUsize::new(0);
    let detach = |part: Vec<(Program, Link)>| {
        for one in part {
            drop(one);
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut attached = attached.into_iter();
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        loop {
            let part: Vec<_> = attached.by_ref().take(share).collect();
            if part.is_empty() {
                break;
            }
            let detach = &detach;
            workers.push(scope.spawn(move || detach(part)));
        }
        while workers.iter().any(|w| !w.is_finished()) {
            tell(Progress { detaching: true, done: done.load(Ordering::Relaxed), of });
            std::thread::sleep(LOOK);
        }
    });
}

fn link(loaded: Program, probe: &Probe) -> Result<(Program, Link), Error> {
    let link = bpf::attach_trampoline(&loaded, &probe.target.name).map_err(|error| match error.errno() {
        Some(errno) => {
            Error::Target { target: probe.target.label(), reason: attach_reason(probe.method, errno) }
        }
        None => error.into(),
    })?;
    Ok((loaded, link))
}

fn assemble(target: &str, program: &asm::Program) -> Result<Code, Error> {
    program
        .assemble(&asm::Options::default())
        .map_err(|source| Error::Assemble { target: target.into(), source })
}

/// Why a loaded program could not be attached (kernel/bpf/trampoline.c, kernel/trace/ftrace.c).
fn attach_reason(method: Method, errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    let meaning = match errno {
        libc_errno::EBUSY | libc_errno::ENOENT | libc_errno::EINVAL | libc_errno::ENODEV => {
            "its entry cannot be patched (notrace, noinstr, or freed after boot), or something else has patched it"
        }
        libc_errno::E2BIG => "too many programs are attached there",
        libc_errno::ENOTSUPP => "this kernel's trampolines take at most 6 arguments",
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
    /// include/linux/errno.h: the kernel's own, and yet it comes out here.
    pub const ENOTSUPP: i32 = 524;
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
    // Every program may use these helpers, unless the kernel is locked down (kernel/trace/bpf_trace.c).
    if reason.contains("bpf_probe_read")
        && (reason.contains("cannot use helper") || reason.contains("unknown func"))
    {
        return "the kernel is locked down (confidentiality) and lets no BPF program read its memory".into();
    }
    if reason.contains("__noreturn") || reason.contains("to __noreturn functions is rejected") {
        return format!("it never returns ({reason}); --mode entry traces its start");
    }
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
