//! A trace under way: programs loaded and attached, events drained, losses counted.

use crate::attach::{self, Attacher, MapFds, Tell};
use crate::error::Error;
use crate::event::Event;
use crate::plan::{Method, Plan, Probe};
use crate::program::{cell, counter};
use crate::tracker;
use bpf::{BtfObject, Link, Map, MapType, Program, RingBuf};
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
    /// Calls not seen because the program was already running on that CPU; 0 where the kernel does not count
    /// (before 5.12).
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
        let ring = ring(plan.ring_size)?;
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
                let attacher = Attacher { plan, maps: session.map_fds(), modules: &session.modules };
                let loaded = attacher.raw_tracepoint(
                    tracepoint,
                    &format!("{tracepoint}, by which the command is followed"),
                    &program,
                )?;
                let link = bpf::open_raw_tracepoint(&loaded, tracepoint)?;
                session.tracker.push((loaded, link));
            }
        }
        Ok(session)
    }

    /// Loads and attaches every probe of the plan. A target that fails is listed in [`Session::failed`] if another
    /// succeeds; when none does, that is the error.
    ///
    /// `tell` hears of the progress; when it answers `true`, what is attached already is detached, and the answer is `false`.
    pub fn attach(&mut self, plan: &Plan, tell: &mut Tell<'_>) -> Result<bool, Error> {
        self.probes.clone_from(&plan.probes);
        for probe in &plan.probes {
            self.open_module(probe)?;
        }
        let attacher = Attacher { plan, maps: self.map_fds(), modules: &self.modules };
        let (results, stopped) = attacher.all(tell);
        let mut first = None;
        for (probe, result) in self.probes.iter_mut().zip(results) {
            match result {
                None => {}
                Some(Ok(attached)) => {
                    log::debug!("{}: {} attached", probe.target.label(), attached.method);
                    probe.method = attached.method;
                    self.attached.extend(attached.programs);
                }
                Some(Err(Error::Target { target, reason })) => {
                    log::debug!("{target}: {reason}");
                    self.failed.push(Failed { target, reason });
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

    /// The descriptors of the maps; -1, which the kernel refuses, for one that this session has not made.
    fn map_fds(&self) -> MapFds {
        let fd = |m: &Map| m.as_fd().as_raw_fd();
        MapFds {
            ring: fd(self.ring.map()),
            counters: fd(&self.maps.counters),
            calls: self.maps.calls.as_ref().map_or(-1, fd),
            tasks: self.maps.tasks.as_ref().map_or(-1, fd),
        }
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
    pub fn detach(&mut self, tell: &mut Tell<'_>) {
        self.missed_before += missed(&self.attached);
        attach::release(std::mem::take(&mut self.attached), tell);
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

impl Drop for Session {
    fn drop(&mut self) {
        // Side by side, which closing descriptors one by one at the end of the process is not.
        attach::release(std::mem::take(&mut self.attached), &mut |_| false);
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

/// Smallest ring worth having.
const SMALLEST_RING: u32 = 64 << 10;

/// The ring buffer, smaller than asked for when there is no memory for it; that is said.
fn ring(wanted: u32) -> Result<Map, Error> {
    let mut size = wanted;
    loop {
        match Map::create(MapType::RingBuf, "events", 0, 0, size) {
            Err(error) if error.is_out_of_memory() && size > SMALLEST_RING => size /= 2,
            Err(error) => return Err(permission(error)),
            Ok(ring) => {
                if size < wanted {
                    log::warn!("no memory for a ring buffer of {wanted} bytes; it has {size}");
                }
                return Ok(ring);
            }
        }
    }
}

/// Refusals of the very first map are a matter of permission.
fn permission(error: bpf::Error) -> Error {
    if error.is_permission() { Error::Permission(error) } else { Error::Sys(error) }
}
