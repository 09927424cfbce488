//! Loading and attaching the programs of a plan, several at a time: an attach waits for the kernel far longer than it
//! computes (text patched on all CPUs, RCU grace periods), and so does a detach.

use crate::error::Error;
use crate::plan::{Method, Plan, Probe};
use crate::program::{self, ArgAccess, cell, maps};
use crate::program_target;
use crate::request::TargetKind;
use crate::target::{self, Target};
use asm::{Code, MapId};
use bpf::{AttachTo, AttachType, BtfObject, KprobeAt, Link, Load, Map, MapType, ProgType, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Attaches and detaches under way at one time.
const AT_ONCE: usize = 32;

/// Functions that are attached one by one, at most, where the kernel has a way for many and that way did not take them.
const MOST_ALONE: usize = 256;

/// Words passed on of a BPF function whose prototype is not confirmed (`MAX_BPF_FUNC_REG_ARGS`, include/linux/bpf.h).
const UNCONFIRMED_SLOTS: u32 = 5;

/// `r2 = *(u64 *)(r1 + 40); r0 = 0; exit`.
const SIXTH_WORD: [u64; 3] = [0x79 | 0x12 << 8 | (UNCONFIRMED_SLOTS as u64 * 8) << 16, 0xb7, 0x95];

/// How long the caller waits between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(5);

/// How far attaching or detaching has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is counted.
    pub counted: Counted,
    /// Detaching, not attaching.
    pub detaching: bool,
    /// Done so far.
    pub done: usize,
    /// To be done in all.
    pub of: usize,
}

/// What a progress counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Targets, when attaching.
    Targets,
    /// Basic blocks, when paths are wanted: each has a probe of its own.
    Blocks,
    /// Places that programs are at, when detaching.
    Links,
}

/// Told of progress every few milliseconds; when attaching, an answer of `true` stops it.
pub type Tell<'a> = dyn FnMut(Progress) -> bool + 'a;

/// The maps of a session but the rings, which their reader owns.
#[derive(Debug)]
pub struct Maps {
    /// Descriptor of [`maps::RING`].
    pub ring: i32,
    /// [`maps::COUNTERS`].
    pub counters: Map,
    /// [`maps::gathered`] by number; those that nothing is gathered by are `None`.
    pub gathered: Vec<Option<Map>>,
    /// [`maps::ZEROS`].
    pub zeros: Option<Map>,
    /// [`maps::CALLS`], made when something may ask for it.
    pub calls: Option<Map>,
    /// [`maps::TASKS`], when a command is followed.
    pub tasks: Option<Map>,
    /// [`maps::CELLS`], where the plan has it.
    pub cells: Option<Map>,
    /// [`maps::SNAPSHOTS`], where branch records are taken.
    pub snapshots: Option<Map>,
    /// [`maps::KEPT`], made when a return probe is first attached.
    pub kept: OnceLock<Map>,
    /// [`maps::PATHS`] and [`maps::BLANK_PATH`], where paths are wanted.
    pub paths: Option<[Map; 2]>,
    /// [`maps::BLANK`], made with it.
    pub blank: OnceLock<Map>,
    /// Words of the stack that a cell of it keeps.
    pub kept_words: u32,
}

/// Places on kernel stacks whose calls can be timed, at one time.
pub const MOST_CALLS: u32 = 16384;

impl Maps {
    /// -1, which the kernel refuses, for one that this session has not made.
    fn fd(&self, map: MapId) -> i32 {
        let fd = |m: Option<&Map>| m.map_or(-1, |m| m.as_fd().as_raw_fd());
        match map {
            maps::RING => self.ring,
            maps::COUNTERS => fd(Some(&self.counters)),
            maps::CALLS => fd(self.calls.as_ref()),
            maps::TASKS => fd(self.tasks.as_ref()),
            maps::KEPT => fd(self.kept.get()),
            maps::BLANK => fd(self.blank.get()),
            maps::CELLS => fd(self.cells.as_ref()),
            maps::PATHS => fd(self.paths.as_ref().map(|[paths, _]| paths)),
            maps::BLANK_PATH => fd(self.paths.as_ref().map(|[_, blank]| blank)),
            maps::SNAPSHOTS => fd(self.snapshots.as_ref()),
            maps::ZEROS => fd(self.zeros.as_ref()),
            MapId(id) => {
                let number = id.checked_sub(maps::GATHERED).map(|n| n as usize);
                fd(number.and_then(|n| self.gathered.get(n)?.as_ref()))
            }
        }
    }

    /// Makes the map of kept arguments unless there is one.
    pub fn keep(&self) -> Result<(), Error> {
        let size = cell::kept_size(self.kept_words);
        // Another thread's will do as well as this one's.
        if self.blank.get().is_none() {
            let _ = self.blank.set(Map::create(MapType::Array, "blank", 4, size, 1)?);
        }
        if self.kept.get().is_none() {
            let made = Map::create(MapType::Hash, "kept", cell::KEPT_KEY, size, MOST_CALLS)?;
            let _ = self.kept.set(made);
        }
        Ok(())
    }
}

/// A program and where it is attached.
#[derive(Debug)]
pub struct Piece {
    /// The program.
    pub program: Program,
    /// Its links: several where one program serves several functions of one name, or whole groups.
    pub links: Vec<Link>,
    /// The programs that it goes to by tail call, which are pieces of their own: emptied when it is closed, so after the links.
    #[expect(dead_code, reason = "held for its drop")]
    pub parts: Option<Map>,
}

impl Piece {
    /// A program that goes to no other.
    pub fn new(program: Program, links: Vec<Link>) -> Piece {
        Piece { program, links, parts: None }
    }
}

/// A probe, attached.
#[derive(Debug)]
pub struct Attached {
    /// How, in the end.
    pub method: Method,
    /// Its programs: the entry's time or event if there is one, then the event. None if a program of many serves it.
    pub pieces: Vec<Piece>,
    /// What is to be said of it.
    pub remark: Option<String>,
    /// What is at its function's blocks, if its paths are wanted.
    pub path: Option<AtBlocks>,
}

/// What became of a function's blocks.
#[derive(Debug, Default)]
pub struct AtBlocks {
    /// Those that have no probe.
    pub unprobed: BTreeSet<usize>,
    /// Steps to those that the jump there tells.
    pub told: BTreeSet<(usize, usize)>,
    /// The programs.
    pub pieces: Vec<Piece>,
}

/// What became of a probe; `None` when it was not come to.
type Outcome = Option<Result<Attached, Error>>;

/// What it takes to attach any probe of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Attacher<'a> {
    pub plan: &'a Plan,
    pub maps: &'a Maps,
    /// The kernel's BTF objects of the modules that targets are in.
    pub modules: &'a BTreeMap<String, BtfObject>,
    /// Set when a probe that takes long is to end early, attached in part.
    pub stop: Option<&'a AtomicBool>,
    /// Counts the blocks of functions whose paths are wanted, as each is done.
    pub blocks: Option<&'a AtomicUsize>,
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
        let of = work.len();
        let blocks: usize = self.plan.codes.iter().flatten().map(|code| code.blocks.list().len()).sum();
        let blocks_done = AtomicUsize::new(0);
        let progress = |targets_done: usize| match blocks {
            0 => Progress { counted: Counted::Targets, detaching: false, done: targets_done, of },
            of => {
                let done = blocks_done.load(Ordering::Relaxed);
                Progress { counted: Counted::Blocks, detaching: false, done, of }
            }
        };
        let many = self.many(&work, &mut || tell(progress(0)));
        let settled = |i: &usize| {
            many.served.contains_key(i) || many.refused.contains_key(i) || many.absent.contains(i)
        };
        let work: Vec<usize> = work.into_iter().filter(|i| !settled(i)).collect();
        // A way that took none may not be there at all.
        let refusal = many.refusal.as_deref().filter(|_| !many.served.is_empty());
        let (given_up, work) = self.given_up(work, refusal);
        let outcomes: Vec<Mutex<Outcome>> = probes.iter().map(|_| Mutex::new(None)).collect();
        let set = |index: usize, result| {
            if let Some(Ok(mut outcome)) = outcomes.get(index).map(Mutex::lock) {
                *outcome = Some(result);
            }
        };
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let ended = AtomicBool::new(false);
        let attacher = Attacher { stop: Some(&ended), blocks: Some(&blocks_done), ..*self };
        let worker = || {
            while !ended.load(Ordering::Relaxed) {
                let Some(index) = work.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let Some(probe) = probes.get(*index) else { break };
                let result = attacher.one(*index as u32, probe);
                if matches!(&result, Err(error) if !matches!(error, Error::Target { .. } | Error::Assemble { .. }))
                {
                    ended.store(true, Ordering::Relaxed);
                }
                set(*index, result);
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut stopped = many.stopped;
        ended.store(stopped, Ordering::Relaxed);
        // One is attached at once; unless it is at hundreds of blocks, when somebody may lose patience.
        let at_once = work.len() == 1 && self.plan.codes.is_empty();
        if at_once {
            worker();
        }
        std::thread::scope(|scope| {
            let threads = if at_once { 0 } else { AT_ONCE.min(work.len()) };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            while workers.iter().any(|w| !w.is_finished()) {
                if !stopped && tell(progress(of - work.len() + done.load(Ordering::Relaxed))) {
                    stopped = true;
                    ended.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK);
            }
        });
        let mut outcomes: Vec<Outcome> =
            outcomes.into_iter().map(|o| o.into_inner().unwrap_or(None)).collect();
        for (index, reason) in many.refused {
            if let (Some(outcome), Some(probe)) = (outcomes.get_mut(index), probes.get(index)) {
                *outcome = Some(Err(Error::Target { target: probe.target.label(), reason }));
            }
        }
        for index in given_up {
            if let (Some(outcome), Some(probe)) = (outcomes.get_mut(index), probes.get(index)) {
                let reason = many.refusal.clone().unwrap_or_default();
                *outcome = Some(Err(Error::Target { target: probe.target.label(), reason }));
            }
        }
        for index in many.absent {
            if let Some(outcome) = outcomes.get_mut(index) {
                let method = Method::Kprobe;
                *outcome = Some(Ok(Attached { method, pieces: Vec::new(), remark: None, path: None }));
            }
        }
        let mut pieces = many.pieces;
        for (index, method) in many.served {
            if let Some(outcome) = outcomes.get_mut(index) {
                let pieces = std::mem::take(&mut pieces);
                *outcome = Some(Ok(Attached { method, pieces, remark: None, path: None }));
            }
        }
        (outcomes, stopped)
    }

    /// Of what no program of many serves, what is not to be tried one by one: thousands would take minutes. And the rest.
    fn given_up(&self, work: Vec<usize>, refusal: Option<&str>) -> (Vec<usize>, Vec<usize>) {
        let is_function = |i: &usize| {
            let target = self.plan.probes.get(*i).map(|p| &p.target);
            target.is_some_and(|t| t.kind == TargetKind::Function && t.address.is_none())
        };
        match refusal {
            Some(_) if work.iter().filter(|i| is_function(i)).count() > MOST_ALONE => {
                work.into_iter().partition(is_function)
            }
            _ => (Vec::new(), work),
        }
    }

    /// Attaches probes at further addresses: by kprobe_multi where the kernel has it, else by kprobes.
    pub fn further(&self, places: &[(usize, Vec<u64>)]) -> Vec<(usize, Result<Attached, Error>)> {
        let (mut pieces, served) = self.many_at(places);
        let mut results = Vec::new();
        for (index, addresses) in places {
            if served.contains(index) {
                let pieces = std::mem::take(&mut pieces);
                results.push((
                    *index,
                    Ok(Attached { method: Method::KprobeMulti, pieces, remark: None, path: None }),
                ));
            } else if let Some(probe) = self.plan.probes.get(*index) {
                results.push((*index, self.by_kprobe(*index as u32, probe, Some(addresses))));
            }
        }
        results
    }

    /// Attaches a probe by the first way that the kernel grants.
    fn one(&self, index: u32, probe: &Probe) -> Result<Attached, Error> {
        let ways: &[Method] = match (probe.target.kind, &probe.obstacle, probe.at_exit) {
            (TargetKind::Tracepoint, ..) if probe.method == Method::RawTp => &[Method::RawTp],
            (TargetKind::Tracepoint, ..) => &[Method::TpBtf, Method::RawTp],
            (TargetKind::Program, _, false) => &[Method::Fentry],
            (TargetKind::Program, _, true) if self.plan.newer.fsession.is_some() => {
                &[Method::Fsession, Method::Fexit]
            }
            (TargetKind::Program, _, true) => &[Method::Fexit],
            (_, Some(_), _) => &[Method::Kprobe],
            (_, None, false) => &[Method::Fentry, Method::Kprobe],
            (_, None, true) if self.plan.newer.fsession.is_some() => {
                &[Method::Fsession, Method::Fexit, Method::Kprobe]
            }
            (_, None, true) => &[Method::Fexit, Method::Kprobe],
        };
        let settled = self.return_slot(probe);
        let probe = settled.as_ref().unwrap_or(probe);
        let mut refusal = None;
        for method in ways {
            match self.by(*method, index, probe) {
                Ok(attached) => return Ok(attached),
                Err(error @ (Error::Target { .. } | Error::MethodRefused { .. })) => {
                    log::debug!("{}: not by {method}: {error}", probe.target.label());
                    let never =
                        matches!(&error, Error::Target { reason, .. } if reason.starts_with(NEVER_RETURNS));
                    // What is preferred has the better reason.
                    refusal.get_or_insert(error);
                    if never {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(match (refusal, &probe.obstacle) {
            (Some(Error::Target { target, reason }), Some(obstacle)) => {
                Error::Target { target, reason: format!("{obstacle}; {reason}") }
            }
            (Some(refusal), _) => refusal,
            (None, _) => {
                Error::Target { target: probe.target.label(), reason: "no way to attach to it".into() }
            }
        })
    }

    /// Loads what a probe takes, all of it before any is attached, so that nothing is left of one that fails.
    fn by(&self, method: Method, index: u32, probe: &Probe) -> Result<Attached, Error> {
        let mut pieces = Vec::new();
        match method {
            Method::RawTp => {
                let program = program::event(self.plan, index, probe, ArgAccess::Plain);
                let name = program::name(probe, &probe.target.name);
                let program = self.raw_tracepoint(&name, &probe.target.label(), &program)?;
                let link = bpf::open_raw_tracepoint(&program, &probe.target.name)?;
                pieces.push(Piece::new(program, vec![link]));
            }
            Method::TpBtf | Method::Fentry => {
                pieces.push(link(self.load_event(index, probe, method)?, probe, method)?);
            }
            Method::Fsession => pieces.push(link(self.load_event(index, probe, method)?, probe, method)?),
            Method::Fexit => {
                let event = self.load_event(index, probe, method)?;
                let paired =
                    probe.pair.and_then(|entry| Some((entry, self.plan.probes.get(entry as usize)?)));
                let entry = match paired {
                    Some((index, entry)) => self.load_event(index, entry, Method::Fentry)?,
                    None => self.load_entry_time(index, probe)?,
                };
                // The entry first, so that every exit seen after it has a duration.
                pieces.push(link(entry, probe, method)?);
                pieces.push(link(event, probe, method)?);
            }
            Method::Kprobe => {
                if probe.layout.path.is_some() {
                    return self.by_path(index, probe);
                }
                let address = probe.target.address.as_ref().map(std::slice::from_ref);
                return self.by_kprobe(index, probe, address);
            }
            Method::TracingMulti | Method::KprobeMulti => {
                let reason = format!("{method} is for many functions");
                return Err(Error::Target { target: probe.target.label(), reason });
            }
        }
        Ok(Attached { method, pieces, remark: None, path: None })
    }

    /// The programs of a kprobe: the entry's, and at exits the return's.
    fn kprobe_programs(&self, index: u32, probe: &Probe) -> Result<Vec<Program>, Error> {
        let load = |program: &asm::Program| {
            let name = program::name(probe, &probe.target.name);
            let code = assemble(&probe.target.name, program)?;
            log::trace!("{}:\n{}", probe.target.name, code.dump());
            self.load(&code, &name, ProgType::Kprobe, AttachType::None, None)
                .map_err(|error| refusal(error, probe, "kprobe"))
        };
        let mut programs = Vec::new();
        if probe.at_exit {
            if program::stack_words(&probe.layout) > self.maps.kept_words {
                let reason =
                    "its arguments on the stack are more than a return probe keeps; --mode entry shows them";
                return Err(Error::Target { target: probe.target.label(), reason: reason.into() });
            }
            self.maps.keep()?;
            programs.push(load(&program::keep(self.plan, index, probe))?);
            programs.push(load(&program::kretprobe(self.plan, index, probe))?);
        } else {
            programs.push(load(&program::kprobe(self.plan, index, probe))?);
        }
        Ok(programs)
    }

    /// Shows the verifier what a probe takes, by the way that is preferred, and attaches nothing.
    pub fn load_only(&self, index: u32, probe: &Probe) -> Result<(), Error> {
        if probe.obstacle.is_some() {
            self.kprobe_programs(index, probe)?;
            return Ok(());
        }
        match self.load_event(index, probe, probe.method) {
            // What a trampoline does not pass on a kprobe sees, see [`Attacher::one`].
            Err(Error::Target { reason, .. }) if reason.contains(BY_VALUE) || reason.contains(TOO_MANY) => {
                self.kprobe_programs(index, probe)?;
            }
            Err(Error::Target { reason, .. }) if reason.starts_with(NEVER_RETURNS) => {
                self.load_entry_time(index, probe)?;
            }
            loaded => drop(loaded?),
        }
        Ok(())
    }

    /// A kprobe, and for exits the return's: at these addresses, or where the kernel finds the name.
    pub fn by_kprobe(&self, index: u32, probe: &Probe, addresses: Option<&[u64]>) -> Result<Attached, Error> {
        let programs = self.kprobe_programs(index, probe)?;
        let mut remark = None;
        let mut pieces: Vec<Piece> =
            programs.into_iter().map(|program| Piece::new(program, Vec::new())).collect();
        let attach = |pieces: &mut Vec<Piece>, at: KprobeAt<'_>| {
            for (n, piece) in pieces.iter_mut().enumerate() {
                let link = bpf::attach_kprobe(&piece.program, at, probe.at_exit && n == 1)?;
                piece.links.push(link);
            }
            Ok::<(), bpf::Error>(())
        };
        if let Some(addresses) = addresses {
            for address in addresses {
                attach(&mut pieces, KprobeAt::Address(*address)).map_err(|error| Error::Target {
                    target: probe.target.label(),
                    reason: kprobe_reason(&error),
                })?;
            }
            return Ok(Attached { method: Method::Kprobe, pieces, remark, path: None });
        }
        match attach(&mut pieces, KprobeAt::Symbol(&probe.target.name)) {
            Ok(()) => {}
            Err(error) if matches!(error.errno(), Some(libc_errno::ENOENT | libc_errno::EADDRNOTAVAIL)) => {
                // No function has that very name, or several have.
                let places = target::places_of(&probe.target);
                if places.is_empty() {
                    return Err(Error::Target {
                        target: probe.target.label(),
                        reason: kprobe_reason(&error),
                    });
                }
                for place in &places {
                    attach(&mut pieces, KprobeAt::Address(place.address)).map_err(|error| Error::Target {
                        target: probe.target.label(),
                        reason: kprobe_reason(&error),
                    })?;
                }
                remark = target::remark(&probe.target, &places);
            }
            Err(error) => {
                return Err(Error::Target { target: probe.target.label(), reason: kprobe_reason(&error) });
            }
        }
        Ok(Attached { method: Method::Kprobe, pieces, remark, path: None })
    }

    /// A BPF program's probe with its return value where the kernel puts it, if that is not where the prototype says.
    ///
    /// Of functions whose prototype its verifier could not confirm (a static one that takes a pointer, a main one whose
    /// context is declared as something else) the kernel passes on five words, whatever they are declared to take, and the
    /// return value after them (`func_info_aux.unreliable`, kernel/bpf/btf.c). It tells nobody which those are; but of them
    /// alone a program may read the sixth word.
    fn return_slot(&self, probe: &Probe) -> Option<Probe> {
        probe.layout.ret.as_ref().filter(|ret| ret.slot < UNCONFIRMED_SLOTS)?;
        probe.target.program.as_ref()?;
        let look = Load {
            attach_type: AttachType::Fexit,
            attach_btf_id: probe.target.btf_id.0,
            attach_to: self.attach_to(&probe.target),
            ..Load::new("sixth_word", ProgType::Tracing, &SIXTH_WORD)
        };
        if let Err(error) = Program::load(&look) {
            // If it is for another reason, the event's own program will be refused for it too.
            log::trace!("{}: prototype confirmed: {error}", probe.target.label());
            return None;
        }
        log::debug!("{}: the kernel could not confirm its prototype", probe.target.label());
        let mut moved = probe.clone();
        if let Some(ret) = &mut Arc::make_mut(&mut moved.layout).ret {
            ret.slot = UNCONFIRMED_SLOTS;
        }
        Some(moved)
    }

    /// The program that keeps the time of an entry, where the entry has no event.
    fn load_entry_time(&self, index: u32, probe: &Probe) -> Result<Program, Error> {
        let load = |access| {
            let code = assemble(&probe.target.name, &program::entry_time(self.plan, index, probe, access))?;
            log::trace!("{}, entry:\n{}", probe.target.name, code.dump());
            self.load_probe(&code, probe, AttachType::Fentry)
        };
        match load(ArgAccess::Plain) {
            // What is asked of its arguments may take probe reads.
            Err(Error::Target { reason, .. }) if !probe.layout.asked.tests.at_entry.is_empty() => {
                log::debug!("{}: plain loads of arguments refused: {reason}", probe.target.label());
                load(ArgAccess::Copied)
            }
            loaded => loaded,
        }
    }

    fn load_event(&self, index: u32, probe: &Probe, method: Method) -> Result<Program, Error> {
        let mut refusal = None;
        for access in [ArgAccess::Plain, ArgAccess::Copied] {
            let (program, attach_type) = match (method, self.plan.newer.fsession) {
                (Method::Fsession, Some(kfuncs)) => {
                    (program::session(self.plan, kfuncs, index, probe, access), AttachType::Fsession)
                }
                (Method::Fexit, _) => (program::event(self.plan, index, probe, access), AttachType::Fexit),
                (Method::TpBtf, _) => (program::event(self.plan, index, probe, access), AttachType::TpBtf),
                _ => (program::event(self.plan, index, probe, access), AttachType::Fentry),
            };
            let code = assemble(&probe.target.name, &program)?;
            log::trace!("{}:\n{}", probe.target.name, code.dump());
            match self.load_probe(&code, probe, attach_type) {
                // The verifier had a reason: perhaps it dislikes a plain load of some argument.
                Err(error @ Error::Target { .. }) => {
                    if access == ArgAccess::Plain {
                        log::debug!(
                            "{}: plain loads of arguments refused, trying one probe read",
                            probe.target.label()
                        );
                    }
                    log::trace!("{access:?}: {error}");
                    // What is preferred has the better reason, unless it is that nothing may be read at all.
                    let locked =
                        matches!(&error, Error::Target { reason, .. } if reason.starts_with(LOCKED_DOWN));
                    if locked || refusal.is_none() {
                        refusal = Some(error);
                    }
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
            AttachType::Fsession => "fsession",
            _ => "tp_btf",
        };
        let name = program::name(probe, &probe.target.name);
        self.load(code, &name, ProgType::Tracing, attach_type, Some(&probe.target))
            .map_err(|error| refusal(error, probe, method))
    }

    /// What a target's id is of.
    fn attach_to<'a>(&'a self, target: &'a Target) -> AttachTo<'a> {
        match &target.program {
            Some(function) => AttachTo::Program(function.program.handle.as_fd()),
            None => self.module(target.module.as_deref()),
        }
    }

    /// A module's types, or the kernel's own.
    pub fn module(&self, module: Option<&str>) -> AttachTo<'_> {
        let object = module.and_then(|module| self.modules.get(module));
        object.map_or(AttachTo::Kernel, |object| AttachTo::Module(object.as_fd()))
    }

    pub fn load(
        &self,
        code: &Code,
        name: &str,
        ty: ProgType,
        attach_type: AttachType,
        target: Option<&Target>,
    ) -> Result<Program, Error> {
        let attach_to = target.map_or(AttachTo::Kernel, |t| self.attach_to(t));
        let attach_btf_id = target.map_or(0, |t| t.btf_id.0);
        self.load_as(code, Load { attach_type, attach_btf_id, attach_to, ..Load::new(name, ty, &[]) })
    }

    /// Loads code as `load` says, which lacks only what the code has.
    pub fn load_as(&self, code: &Code, load: Load<'_>) -> Result<Program, Error> {
        self.load_with(code, load, None)
    }

    /// The same, of code that goes to other programs: those in `parts`.
    pub fn load_with(&self, code: &Code, load: Load<'_>, parts: Option<&Map>) -> Result<Program, Error> {
        let fd = |map| match (map, parts) {
            (maps::PARTS, Some(parts)) => parts.as_fd().as_raw_fd(),
            _ => self.maps.fd(map),
        };
        let insns =
            code.relocate(fd).map_err(|source| Error::Assemble { target: load.name.into(), source })?;
        let btf = bpf::load_btf(&code.btf)?;
        let func_info: Vec<[u32; 2]> = code.func_info.iter().map(|f| [f.insn_off, f.type_id]).collect();
        let line_info: Vec<[u32; 4]> =
            code.line_info.iter().map(|l| [l.insn_off, l.file_name_off, l.line_off, l.line_col]).collect();
        let (insns, btf) = (insns.as_slice(), Some(btf.as_fd()));
        Ok(Program::load(&Load { insns, btf, func_info: &func_info, line_info: &line_info, ..load })?)
    }
}

/// Detaches, several at a time; `tell` cannot stop it. What is `last` goes when all before it has gone.
pub fn release(first: Vec<Piece>, last: Vec<Piece>, tell: &mut Tell<'_>) {
    // A program without a link of its own, which others go to, takes its time too.
    let places = |all: &[Piece]| all.iter().map(|piece| piece.links.len().max(1)).sum::<usize>();
    let of = places(&first) + places(&last);
    let done = AtomicUsize::new(0);
    for attached in [first, last] {
        // Few are gone sooner than threads have begun.
        if attached.len() <= 2 {
            done.fetch_add(places(&attached), Ordering::Relaxed);
            continue;
        }
        release_all(attached, &done, &mut || {
            let done = done.load(Ordering::Relaxed);
            tell(Progress { counted: Counted::Links, detaching: true, done, of });
        });
    }
}

fn release_all(attached: Vec<Piece>, done: &AtomicUsize, look: &mut dyn FnMut()) {
    let share = attached.len().div_ceil(AT_ONCE);
    let detach = |part: Vec<Piece>| {
        for mut one in part {
            let links = std::mem::take(&mut one.links);
            let alone = usize::from(links.is_empty());
            for link in links {
                drop(link);
                done.fetch_add(1, Ordering::Relaxed);
            }
            drop(one);
            done.fetch_add(alone, Ordering::Relaxed);
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
            look();
            std::thread::sleep(LOOK);
        }
    });
}

/// A load that was refused, in terms of the probe.
pub fn refusal(error: Error, probe: &Probe, method: &'static str) -> Error {
    match error {
        Error::Sys(source @ bpf::Error::Load { .. }) => match source.log() {
            Some(log) => Error::Target {
                target: probe.target.label(),
                reason: missing_symbol(&probe.target, log)
                    .or_else(|| program_target::refusal(log).map(str::to_string))
                    .or_else(|| by_value(probe, log))
                    .unwrap_or_else(|| verifier_reason(log, method)),
            },
            None if source.is_permission() => Error::MethodRefused { method, cause: source },
            None => Error::Target { target: probe.target.label(), reason: source.to_string() },
        },
        other => other,
    }
}

fn link(program: Program, probe: &Probe, method: Method) -> Result<Piece, Error> {
    let link = bpf::attach_trampoline(&program, &probe.target.name).map_err(|error| match error.errno() {
        Some(errno) => Error::Target { target: probe.target.label(), reason: attach_reason(method, errno) },
        None => error.into(),
    })?;
    Ok(Piece::new(program, vec![link]))
}

pub fn assemble(target: &str, program: &asm::Program) -> Result<Code, Error> {
    program
        .assemble(&asm::Options::default())
        .map_err(|source| Error::Assemble { target: target.into(), source })
}

/// Why a function has no room for ftrace's call.
pub const UNPATCHABLE: &str = "it is notrace, noinstr, or was freed after boot";

/// What a way to attach takes of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An entry that can be patched to go to a trampoline.
    Trampoline,
    /// An entry that ftrace knows.
    Ftrace,
    /// Code that kprobes are allowed in.
    Kprobe,
    /// It is no function.
    Tracepoint,
}

/// Why the kernel attached nothing there though the program was loaded, where that is about the function and not about the kernel;
/// for kernels without a way for many see [`crate::abilities`].
pub fn place_reason(place: Place, error: &bpf::Error) -> Option<String> {
    let errno = error.errno()?;
    match (place, errno) {
        (Place::Trampoline, errno) => {
            place_meaning(errno).map(|meaning| format!("{meaning} ({})", named(errno)))
        }
        (Place::Ftrace, libc_errno::EINVAL | libc_errno::ENOENT | libc_errno::ESRCH | libc_errno::ENODEV) => {
            Some(format!("ftrace does not have it: {UNPATCHABLE} ({})", named(errno)))
        }
        (Place::Kprobe, libc_errno::EINVAL | libc_errno::EOPNOTSUPP | libc_errno::EILSEQ) => {
            Some(format!("{NO_KPROBES} ({})", named(errno)))
        }
        _ => None,
    }
}

fn named(errno: i32) -> String {
    btf::errno_name(errno.unsigned_abs()).map_or_else(|| format!("error {errno}"), str::to_string)
}

/// What an errno of attaching to a trampoline says of the function.
fn place_meaning(errno: i32) -> Option<String> {
    matches!(errno, libc_errno::EBUSY | libc_errno::ENOENT | libc_errno::EINVAL | libc_errno::ENODEV)
        .then(|| format!("its entry cannot be patched ({UNPATCHABLE}), or something else has patched it"))
}

/// Why a loaded program could not be attached (kernel/bpf/trampoline.c, kernel/trace/ftrace.c).
fn attach_reason(method: Method, errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    if let Some(meaning) = place_meaning(errno) {
        return format!("{method} cannot be attached: {meaning} ({error})");
    }
    let meaning = match errno {
        libc_errno::E2BIG => "too many programs are attached there",
        libc_errno::ENOTSUPP => "this kernel's trampolines take at most 6 arguments",
        _ => return format!("{method} cannot be attached: {error}"),
    };
    format!("{method} cannot be attached: {meaning} ({error})")
}

/// What a kprobe that is refused in so many words as EINVAL has: `within_kprobe_blacklist`, `within_notrace_func`.
const NO_KPROBES: &str = "kprobes are not allowed on it: noinstr, notrace, or one of kprobes' own";

/// Why a kprobe could not be made (kernel/kprobes.c, kernel/trace/trace_kprobe.c).
fn kprobe_reason(error: &bpf::Error) -> String {
    match error.errno() {
        Some(libc_errno::ENOENT) => format!("a kprobe cannot be had: {error}"),
        Some(libc_errno::EINVAL | libc_errno::EOPNOTSUPP | libc_errno::EILSEQ) => {
            format!("{NO_KPROBES} ({error})")
        }
        _ => format!("a kprobe cannot be attached: {error}"),
    }
}

/// How the reason begins where no program may read the kernel's memory.
const LOCKED_DOWN: &str = "the kernel is locked down";

/// How the reason begins for exits of functions that have none.
const NEVER_RETURNS: &str = "it never returns";

/// errno values of include/uapi/asm-generic/errno-base.h, the same on every architecture that we run on.
mod libc_errno {
    pub const ENOENT: i32 = 2;
    pub const ESRCH: i32 = 3;
    pub const E2BIG: i32 = 7;
    pub const EBUSY: i32 = 16;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const EILSEQ: i32 = 84;
    pub const EOPNOTSUPP: i32 = 95;
    pub const EADDRNOTAVAIL: i32 = 99;
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

/// Which argument it is that this kernel's trampolines do not pass on (`btf_distill_func_proto`, kernel/bpf/btf.c):
/// structures by value before 6.0, unions for longer.
fn by_value(probe: &Probe, log: &str) -> Option<String> {
    let (number, kind) = unsupported_argument(log)?;
    let arg = probe.target.syscall.is_none().then(|| probe.layout.args.get(number)).flatten()?;
    Some(format!("{} {} {BY_VALUE} ({kind})", arg.type_name, arg.name))
}

/// Part of the kernel's reason for functions whose arguments no trampoline passes on (`btf_distill_func_proto`).
const TOO_MANY: &str = "arguments. Too many";

/// Part of the reason for such functions.
const BY_VALUE: &str = "is passed by value, which this kernel's tracing programs do not see";

/// `The function NAME argN type KIND is unsupported.`
fn unsupported_argument(log: &str) -> Option<(usize, &str)> {
    let line = log.lines().find_map(|l| l.trim().strip_suffix(" is unsupported."))?;
    let (number, kind) = line.split_once(" arg")?.1.split_once(" type ")?;
    Some((number.parse().ok()?, kind))
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
        return "the kernel is locked down (confidentiality) and lets no BPF program read its memory; booted with lockdown=integrity, or \
                without, it does"
            .into();
    }
    if reason.contains("__noreturn") || reason.contains("to __noreturn functions is rejected") {
        return format!("{NEVER_RETURNS} ({reason}); --mode entry traces its start");
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
    fn that_a_function_takes_no_probe_is_not_taken_for_a_kernel_that_has_none() {
        let error = |errno| bpf::Error::Sys {
            action: "attach".into(),
            source: std::io::Error::from_raw_os_error(errno),
        };
        let said = |place, errno| place_reason(place, &error(errno)).unwrap_or_default();
        assert!(said(Place::Kprobe, 22).starts_with("kprobes are not allowed on it: noinstr, notrace"));
        assert!(said(Place::Kprobe, 22).ends_with("(EINVAL)"));
        assert!(said(Place::Trampoline, 16).starts_with("its entry cannot be patched (it is notrace"));
        assert!(said(Place::Ftrace, 3).starts_with("ftrace does not have it: it is notrace"));
        for (place, errno) in
            [(Place::Kprobe, 1), (Place::Trampoline, 1), (Place::Ftrace, 95), (Place::Tracepoint, 22)]
        {
            assert_eq!(said(place, errno), "", "{place:?} {errno}");
        }
    }

    #[test]
    fn an_argument_that_is_not_passed_on_is_found_in_the_log() {
        let log = "The function bs_union arg0 type UNION is unsupported.\nprocessed 0 insns\n";
        assert_eq!(unsupported_argument(log), Some((0, "UNION")));
        assert_eq!(unsupported_argument("The function f return type STRUCT is unsupported.\n"), None);
    }

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
