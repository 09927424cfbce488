//! A trace under way: programs loaded and attached, events drained, losses counted.

use crate::attach::{self, Attacher, MOST_CALLS, Maps, Piece, Tell};
use crate::elsewhere::{Elsewhere, Function, Remark};
use crate::error::Error;
use crate::event::Event;
use crate::gathering::{self, Tally};
use crate::path::Code;
use crate::plan::{Method, Plan, Probe};
use crate::program::{cell, counter, quick, snapshots_size, stack_words, state};
use crate::program_target;
use crate::request::TargetKind;
use crate::rings::Rings;
use crate::tracker;
use bpf::{BtfObject, Map, MapType};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

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
    /// Events that were not gathered, for a key or the value could not be read.
    pub unread: u64,
    /// Events that were not gathered, for the table was full.
    pub no_room: u64,
    /// Events of which something was gathered, or was to be: no loss, but counted beside them.
    pub gathered: u64,
    /// Calls whose executed path could not be kept: too many under way, or too deep within each other.
    pub pathless: u64,
    /// Calls not seen because the program was already running on that CPU; 0 where the kernel does not count
    /// (before 5.12).
    pub missed: u64,
}

/// Programs attached, and the rings they write to.
///
/// Dropping it detaches everything; so does the end of the process, whatever ends it.
#[derive(Debug)]
pub struct Session {
    probes: Vec<Probe>,
    rings: Rings,
    maps: Maps,
    attached: Vec<Piece>,
    /// Programs at the blocks of functions whose paths are wanted: detached after the others, lest a path lacks its end.
    at_blocks: Vec<Piece>,
    /// By probe, the code of those functions.
    codes: Vec<Option<Code>>,
    tracker: Vec<Piece>,
    /// The kernel's BTF objects of the modules that targets are in.
    modules: BTreeMap<String, BtfObject>,
    /// Probes of functions that have no symbol of their very name, so that nothing is attached yet.
    absent: Vec<usize>,
    /// Calls missed by programs that are no longer attached.
    missed_before: u64,
    /// Calls that found no cell when [`Session::tend`] last looked.
    refused_before: u64,
    /// The plan is of thousands of functions.
    vast: bool,
    /// Targets that failed while others went on.
    pub failed: Vec<Failed>,
    /// What is to be said of targets that are traced, a line each.
    pub remarks: Vec<String>,
}

impl Session {
    /// Makes the maps and, if the filter asks for it, attaches the tracker. Events flow after [`Session::attach`].
    ///
    /// Given up with [`Error::Stopped`] once `stop` says so: it is asked before each table.
    pub fn start(plan: &Plan, own_tgid: u32, stop: &mut dyn FnMut() -> bool) -> Result<Session, Error> {
        bpf::raise_limits();
        let rings = Rings::create(plan.rings, plan.ring_size)?;
        let counters = Map::create(MapType::PerCpuArray, "counters", 4, 8, counter::COUNT)?;
        let exits = plan.probes.iter().any(|p| p.at_exit);
        let calls =
            exits.then(|| Map::create(MapType::Hash, "calls", 8, cell::SIZE, MOST_CALLS)).transpose()?;
        let followed = plan.filter.followed;
        let tasks =
            followed.then(|| Map::create(MapType::Hash, "tasks", 8, 4, tracker::MOST_TASKS)).transpose()?;
        let cells = match exits && plan.quick_calls {
            true => Some(Map::create(MapType::Array, "cells", 4, quick::SIZE, quick::CELLS)?),
            false => None,
        };
        let snapshots = |bits| Map::create(MapType::Array, "snapshots", 4, snapshots_size(bits), 1);
        let snapshots = plan.branches.map(snapshots).transpose()?;
        let words = plan.probes.iter().filter(|p| p.at_exit).map(|p| stack_words(&p.layout)).max();
        let (gathered, zeros) = gathering::maps(plan, stop)?;
        let has_paths = plan.probes.iter().any(|p| p.layout.path.is_some());
        let paths = match has_paths {
            true => Some([
                Map::create(MapType::Hash, "paths", state::KEY, state::SIZE, state::MOST)?,
                Map::create(MapType::Array, "blank_path", 4, state::SIZE, 1)?,
            ]),
            false => None,
        };
        let maps = Maps {
            ring: rings.map_fd(),
            counters,
            gathered,
            zeros,
            calls,
            tasks,
            cells,
            paths,
            snapshots,
            kept: OnceLock::new(),
            blank: OnceLock::new(),
            kept_words: words.unwrap_or(0).min(cell::MOST_WORDS),
        };
        let mut session = Session {
            probes: Vec::new(),
            rings,
            maps,
            attached: Vec::new(),
            at_blocks: Vec::new(),
            codes: Vec::new(),
            tracker: Vec::new(),
            modules: BTreeMap::new(),
            absent: Vec::new(),
            missed_before: 0,
            refused_before: 0,
            vast: plan.vast,
            failed: Vec::new(),
            remarks: Vec::new(),
        };
        if followed {
            for (tracepoint, program) in
                [(tracker::FORK, tracker::fork(plan.task, own_tgid)), (tracker::FREE, tracker::free())]
            {
                let attacher = Attacher {
                    plan,
                    maps: &session.maps,
                    modules: &session.modules,
                    stop: None,
                    blocks: None,
                };
                let program = attacher.raw_tracepoint(
                    tracepoint,
                    &format!("{tracepoint}, by which the command is followed"),
                    &program,
                )?;
                let link = bpf::open_raw_tracepoint(&program, tracepoint)?;
                session.tracker.push(Piece::new(program, vec![link]));
            }
        }
        Ok(session)
    }

    /// A session whose programs are loaded only: it has every map that one can name.
    pub(crate) fn for_loading(plan: &Plan) -> Result<Session, Error> {
        let mut session = Session::start(plan, 0, &mut || false)?;
        if session.maps.calls.is_none() {
            session.maps.calls = Some(Map::create(MapType::Hash, "calls", 8, cell::SIZE, MOST_CALLS)?);
        }
        session.maps.cells = Some(Map::create(MapType::Array, "cells", 4, quick::SIZE, quick::CELLS)?);
        session.maps.kept_words = cell::MOST_WORDS;
        session.maps.keep()?;
        Ok(session)
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    pub(crate) fn modules(&self) -> &BTreeMap<String, BtfObject> {
        &self.modules
    }

    /// Loads and attaches every probe of the plan. A target that fails is listed in [`Session::failed`] if another
    /// succeeds; when none does, that is the error.
    ///
    /// `tell` hears of the progress; when it answers `true`, what is attached already is detached, and the answer is `false`.
    pub fn attach(&mut self, plan: &Plan, tell: &mut Tell<'_>) -> Result<bool, Error> {
        self.probes.clone_from(&plan.probes);
        self.remarks.clone_from(&plan.remarks);
        self.codes.clone_from(&plan.codes);
        for probe in &plan.probes {
            self.open_module(probe)?;
        }
        let attacher = Attacher { plan, maps: &self.maps, modules: &self.modules, stop: None, blocks: None };
        let (results, stopped) = attacher.all(tell);
        // Of thousands a line each says nothing.
        let each = if plan.vast { log::Level::Trace } else { log::Level::Debug };
        let mut first = None;
        for (index, result) in results.into_iter().enumerate() {
            let Some(probe) = self.probes.get(index) else { continue };
            match result {
                None => {}
                Some(Ok(attached)) => {
                    log::log!(each, "{}: {} attached", probe.target.label(), attached.method);
                    if attached.pieces.is_empty() && attached.method == Method::Kprobe {
                        self.absent.push(index);
                    }
                    self.set_method(index, attached.method);
                    self.attached.extend(attached.pieces);
                    self.remarks.extend(attached.remark);
                    if let (Some(at), Some(Some(code))) = (attached.path, self.codes.get_mut(index)) {
                        (code.unprobed, code.told) = (at.unprobed, at.told);
                        self.at_blocks.extend(at.pieces);
                    }
                }
                Some(Err(Error::Target { target, reason })) => {
                    log::log!(each, "{target}: {reason}");
                    self.failed.push(Failed { target, reason });
                }
                // A defect of ours, and no reason to trace nothing.
                Some(Err(error @ Error::Assemble { .. })) => {
                    log::error!("{error}: please report this as a defect of btrace");
                    self.failed.push(Failed { target: probe.target.label(), reason: error.to_string() });
                }
                Some(Err(error)) => {
                    first.get_or_insert(error);
                }
            }
        }
        if stopped {
            self.detach(tell);
            return Ok(false);
        }
        // Not about one target: the next would fare no better.
        if let Some(error) = first {
            return Err(error);
        }
        if !self.attached.is_empty() {
            return Ok(true);
        }
        match self.failed.as_slice() {
            [one] => Err(Error::Target { target: one.target.clone(), reason: one.reason.clone() }),
            all => Err(Error::AllFailed {
                count: all.len(),
                first: all.first().map_or_else(String::new, |f| format!("{}: {}", f.target, f.reason)),
            }),
        }
    }

    /// Gets hold of the BTF object that the target's id is of, once for each module.
    fn open_module(&mut self, probe: &Probe) -> Result<(), Error> {
        // What is traced by its address has no type, and kernels before 5.11 have no objects of modules to ask for.
        let by_type = probe.target.module.as_ref().filter(|_| probe.target.address.is_none());
        let Some(module) = by_type.filter(|m| !self.modules.contains_key(*m)) else {
            return Ok(());
        };
        let object = bpf::module_btf(module).map_err(permission)?.ok_or_else(|| Error::Target {
            target: probe.target.label(),
            reason: format!("the kernel has no types of module {module} any more: was it unloaded just now?"),
        })?;
        self.modules.insert(module.clone(), object);
        Ok(())
    }

    /// Tags of the programs that are attached, 16 hexadecimal digits each: the kernel's symbol table has them in the names
    /// of programs, `bpf_prog_TAG_NAME`.
    pub fn tags(&self) -> Result<BTreeSet<String>, Error> {
        let tag = |piece: &Piece| Ok(program_target::hexadecimal(&piece.program.details()?.tag));
        self.attached.iter().map(tag).collect()
    }

    /// The functions that are traced by their names, for [`crate::elsewhere`]; none of thousands, whose trace slows down the search.
    pub fn functions(&self) -> Vec<Function> {
        // A path is one function's, which was found by then.
        if self.vast || self.codes.iter().any(Option::is_some) {
            return Vec::new();
        }
        let named = self.probes.iter().enumerate().filter(|(_, p)| {
            p.target.kind == TargetKind::Function && !p.is_paired_entry() && p.target.address.is_none()
        });
        let failed: HashSet<&str> = self.failed.iter().map(|f| f.target.as_str()).collect();
        let absent: HashSet<usize> = self.absent.iter().copied().collect();
        named
            .filter(|(_, p)| !failed.contains(p.target.label().as_str()))
            .map(|(index, p)| Function {
                index,
                name: p.target.name.clone(),
                module: p.target.module.clone(),
                attached: !absent.contains(&index),
            })
            .collect()
    }

    /// Attaches probes at further places, found meanwhile; says what is to be said. The events from there are of probes of
    /// their own, which [`Session::probes`] has from then on, for they come by another method.
    pub fn attach_further(&mut self, plan: &mut Plan, found: &[Elsewhere]) -> Vec<Remark> {
        let (found, hidden): (Vec<&Elsewhere>, Vec<&Elsewhere>) = found.iter().partition(|e| !e.is_hidden());
        let mut remarks: Vec<Remark> = hidden.iter().map(|e| e.hidden()).collect();
        let known = plan.probes.len();
        let added = found.into_iter().filter_map(|one| Some((plan.again(one.function.index)?, one)));
        let added: BTreeMap<usize, &Elsewhere> = added.collect();
        self.probes.extend(plan.probes.iter().skip(known).cloned());
        let attacher = Attacher { plan, maps: &self.maps, modules: &self.modules, stop: None, blocks: None };
        let places: Vec<(usize, Vec<u64>)> = added
            .iter()
            .map(|(index, one)| (*index, one.symbols.iter().map(|s| s.address).collect()))
            .collect();
        for (index, result) in attacher.further(&places) {
            let Some(one) = added.get(&index) else { continue };
            match result {
                Ok(attached) => {
                    log::debug!("{}: {} attached at further places", one.function.name, attached.method);
                    self.set_method(index, attached.method);
                    self.attached.extend(attached.pieces);
                    remarks.push(one.attached_by(attached.method));
                }
                Err(error) => remarks.push(one.failed(&error)),
            }
        }
        remarks
    }

    /// Notes how a probe, and with it the one at the call's other end, was attached.
    fn set_method(&mut self, index: usize, method: Method) {
        let Some(probe) = self.probes.get_mut(index) else { return };
        probe.method = method;
        // An entry beside an fexit is an fentry.
        let other = probe.pair.filter(|_| method != Method::Fexit);
        if let Some(other) = other.and_then(|i| self.probes.get_mut(i as usize)) {
            other.method = method;
        }
    }

    /// By probe, the code of functions whose paths are taken.
    pub fn codes(&self) -> &[Option<Code>] {
        &self.codes
    }

    /// The probes, each with the method that it was attached by in the end.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Targets attached.
    pub fn attached(&self) -> usize {
        let targets = self.probes.iter().filter(|probe| !probe.is_paired_entry()).count();
        targets - self.failed.len()
    }

    /// Hands over what is in the rings now, oldest first, until they are empty or `each` breaks. Of several rings what is
    /// younger than 2 ms stays, see [`Session::holds_back`].
    ///
    /// Returns how many events were handed over.
    pub fn drain(&mut self, mut each: impl FnMut(&Event<'_>) -> ControlFlow<()>) -> Result<usize, Error> {
        let probes = &self.probes;
        let mut foreign = 0usize;
        let done = self.rings.drain(|record| match Event::new(probes, record) {
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

    /// Throws away what is in the rings now; says how many events that was.
    pub fn discard(&mut self) -> Result<u64, Error> {
        Ok(self.rings.discard()? as u64)
    }

    /// Whether the rings hold nothing.
    pub fn is_drained(&self) -> bool {
        self.rings.is_drained()
    }

    /// Whether events wait for older ones of other CPUs: then there is a next [`Session::drain`] to be made soon, rather than
    /// to be waited for by [`Session::fds`].
    pub fn holds_back(&self) -> bool {
        self.rings.hold_back()
    }

    /// Descriptors of which one is readable when an event has come.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.fds()
    }

    /// To be called now and then, every second or so: when the cells for entry times have run out, gives back those
    /// that hold no call under way.
    ///
    /// A call that takes such a cell at this very moment goes without a duration, and its event says so.
    pub fn tend(&mut self) -> Result<(), Error> {
        let counters = &self.maps.counters;
        let refused = counters.sum_u64(counter::UNTIMED)?
            + counters.sum_u64(counter::UNSEEN)?
            + counters.sum_u64(counter::PATHLESS)?;
        if refused == self.refused_before {
            return Ok(());
        }
        self.refused_before = refused;
        let mut freed = 0;
        let paths = self.maps.paths.as_ref().map(|[paths, _]| paths);
        for calls in self.maps.calls.iter().chain(self.maps.kept.get()).chain(paths) {
            calls.each_key(|key| {
                let empty = |cell: Vec<u8>| cell.get(..8).is_some_and(|time| time.iter().all(|b| *b == 0));
                if calls.lookup(key)?.is_some_and(empty) && calls.delete(key)? {
                    freed += 1;
                }
                Ok(())
            })?;
        }
        log::debug!("{refused} calls found no cell so far; {freed} cells freed");
        Ok(())
    }

    /// Detaches every probe; what is in the ring can still be drained.
    pub fn detach(&mut self, tell: &mut Tell<'_>) {
        self.missed_before += missed(&self.attached);
        attach::release(std::mem::take(&mut self.attached), std::mem::take(&mut self.at_blocks), tell);
        self.tracker.clear();
        match self.never_returned() {
            Ok(calls) => self.missed_before += calls,
            Err(error) => log::warn!("calls whose returns were not seen are not known: {error}"),
        }
    }

    /// Calls that were kept for a return probe and that ended without one: the kernel has room for the returns of a few calls of
    /// a function at a time only (`maxactive`, kernel/kprobes.c).
    fn never_returned(&self) -> Result<u64, Error> {
        let Some(kept) = self.maps.kept.get() else { return Ok(0) };
        let mut calls: BTreeMap<u64, Vec<KeptCall>> = BTreeMap::new();
        kept.each_key(|key| {
            let cell = kept.lookup(key)?.unwrap_or_default();
            let word = |bytes: &[u8], at: usize| {
                let word = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
                word.map_or(0, u64::from_ne_bytes)
            };
            let time = word(&cell, cell::TIME as usize);
            if time != 0 {
                let owner = word(&cell, cell::OWNER as usize);
                calls.entry(owner).or_default().push(KeptCall { time, place: word(key, 0) });
            }
            Ok(())
        })?;
        // Cells hold ids of the first pid namespace, which another does not know.
        let is_known = bpf::pid_namespace_is_initial();
        let of = |(owner, calls): (&u64, &Vec<KeptCall>)| {
            let (tgid, tid) = (owner >> 32, owner & u64::from(u32::MAX));
            // All idle tasks are process 0, which /proc does not have.
            match *owner {
                0 => 0,
                _ if is_known && has_ended(tgid, tid) => calls.len() as u64,
                _ => over(calls),
            }
        };
        Ok(calls.iter().map(of).sum())
    }

    /// What was gathered up to now, in the order of the request's outputs.
    pub fn tallies(&self) -> Result<Vec<Tally<'_>>, Error> {
        let mut tallies = Vec::new();
        for (number, table) in self.maps.gathered.iter().enumerate() {
            let mut all = self.probes.iter().flat_map(|probe| &probe.layout.asked.gathered);
            if let (Some(table), Some(gathered)) = (table, all.find(|g| g.number == number)) {
                tallies.push(gathering::tally(gathered, table)?);
            }
        }
        Ok(tallies)
    }

    /// What was lost up to now.
    pub fn losses(&self) -> Result<Losses, Error> {
        let counters = &self.maps.counters;
        Ok(Losses {
            lost: counters.sum_u64(counter::LOST)?,
            untimed: counters.sum_u64(counter::UNTIMED)?,
            unread: counters.sum_u64(counter::UNREAD)?,
            no_room: counters.sum_u64(counter::NO_ROOM)?,
            gathered: counters.sum_u64(counter::GATHERED)?,
            unfollowed: counters.sum_u64(counter::UNFOLLOWED)?,
            pathless: counters.sum_u64(counter::PATHLESS)?,
            missed: self.missed_before + missed(&self.attached) + counters.sum_u64(counter::UNSEEN)?,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Side by side, which closing descriptors one by one at the end of the process is not.
        let (attached, at_blocks) = (std::mem::take(&mut self.attached), std::mem::take(&mut self.at_blocks));
        attach::release(attached, at_blocks, &mut |_| false);
    }
}

/// A call that is kept for its return.
struct KeptCall {
    /// ns, of its entry
    time: u64,
    /// Of its return address on the stack.
    place: u64,
}

/// Bytes of a stack, which begins at a multiple of them (THREAD_SIZE and THREAD_ALIGN, arch/x86/include/asm/page_64_types.h).
const STACK: u64 = 16 << 10;

/// How many of one thread's calls are over although no return was seen: since then the thread has entered another from further up the
/// same stack, where it cannot have been before it had left them.
fn over(calls: &[KeptCall]) -> u64 {
    let is_over = |call: &&KeptCall| {
        calls.iter().any(|later| {
            later.time > call.time && later.place > call.place && later.place / STACK == call.place / STACK
        })
    };
    calls.iter().filter(is_over).count() as u64
}

/// Whether a thread runs no more: gone, or a zombie that nobody has waited for yet, as the command of `-c` is when it has ended
/// (proc_pid_stat(5): the state stands behind the name, which may hold parentheses itself).
fn has_ended(tgid: u64, tid: u64) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/{tgid}/task/{tid}/stat")) else { return true };
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    matches!(state, None | Some(b'Z' | b'X' | b'x'))
}

fn missed(attached: &[Piece]) -> u64 {
    let known = |result: bpf::Result<u64>| {
        result.unwrap_or_else(|error| {
            log::warn!("calls that were not seen are not known: {error}");
            0
        })
    };
    let of = |piece: &Piece| {
        let links: u64 = piece.links.iter().map(|link| known(link.missed())).sum();
        known(piece.program.info().map(|info| info.recursion_misses)) + links
    };
    attached.iter().map(of).sum()
}

/// Refusals of the very first map are a matter of permission.
fn permission(error: bpf::Error) -> Error {
    if error.is_permission() { Error::Permission(error) } else { Error::Sys(error) }
}

#[cfg(test)]
mod tests {
    use super::{KeptCall, STACK, has_ended, over};
    use std::process::{Command, Stdio};

    #[test]
    fn calls_that_are_over_without_a_return_are_told_by_those_that_came_after() {
        let of = |calls: &[(u64, u64)]| {
            over(&calls.iter().map(|&(time, place)| KeptCall { time, place }).collect::<Vec<_>>())
        };
        let base = 0xffff_c900_0000_0000;
        // Within each other; one after the other from further down, the same with one that is under way within the last.
        assert_eq!(of(&[(1, base + 300), (2, base + 200), (3, base + 100)]), 0);
        assert_eq!(of(&[(1, base + 100), (2, base + 200), (3, base + 300)]), 2);
        assert_eq!(of(&[(1, base + 100), (2, base + 200), (3, base + 150)]), 1);
        // An interrupt's stack is another; two functions of which one jumped to the other have one place.
        assert_eq!(of(&[(1, base + STACK - 8), (2, base + STACK)]), 0);
        assert_eq!(of(&[(1, base), (2, base)]), 0);
    }

    #[test]
    fn a_thread_that_runs_has_not_ended_and_one_that_nobody_waited_for_has() {
        let id = u64::from(std::process::id());
        assert!(!has_ended(id, id) && has_ended(id, u64::MAX));
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
        let id = u64::from(child.id());
        assert!(!has_ended(id, id));
        let mut out = child.stdout.take().expect("stdout");
        drop(child.stdin.take());
        // Its output ends when it has closed it, on its way out.
        std::io::Read::read_to_end(&mut out, &mut Vec::new()).expect("read");
        while !has_ended(id, id) {
            std::thread::yield_now();
        }
        assert!(child.wait().expect("wait").success());
    }
}
