//! Attaching hundreds of functions at once, where the kernel has a way: tracing_multi, else kprobe_multi. One program serves
//! many functions, and one link takes them all or none. By kprobe_multi there is one link for all, see [`program::dispatch`].
//!
//! What neither takes is left to be attached one by one, which also gives the reason when that fails too.

use crate::attach::{Attacher, Piece, UNPATCHABLE, assemble};
use crate::batches;
use crate::error::Error;
use crate::layout::Alike;
use crate::plan::{Method, Plan, Probe};
use crate::program::{self, Ends, Group, PART, Part, stack_words};
use crate::request::TargetKind;
use crate::sites::{self, Listed, Site};
use bpf::{AttachType, Link, Load, Map, MapType, ProgType, Program};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewer functions than these are better served by programs of their own: their events cost less.
pub const MANY: usize = 16;

/// Kinds of records that one program of type tracing writes. The verifier walks every one, and a jump in a program has 16 bits.
const GROUPS: usize = 48;

/// Programs being made and loaded at one time, at most.
const LOADS_AT_ONCE: usize = 8;

/// Refused links after which the rest is attached one by one.
const MOST_REFUSALS: usize = 400;

/// What was attached.
#[derive(Debug, Default)]
pub struct Served {
    /// Programs and links.
    pub pieces: Vec<Piece>,
    /// Probes by their indices, and how they are attached.
    pub served: BTreeMap<usize, Method>,
    /// Probes of functions that nothing can attach to, and why.
    pub refused: BTreeMap<usize, String>,
    /// Probes of functions that the kernel's symbol table does not have by their very name.
    pub absent: Vec<usize>,
    /// Why the kernel's way for many did not take the others, where it has one and there are any.
    pub refusal: Option<String>,
    /// The caller asked to stop.
    pub stopped: bool,
}

/// A function to be attached.
#[derive(Clone, Debug)]
struct Place {
    /// Index of its probe.
    index: usize,
    cookie: u64,
    /// Its BTF id, or its addresses.
    at: At,
}

#[derive(Clone, Debug)]
enum At {
    Id(u32),
    Addresses(Vec<u64>),
}

/// Whether a call's beginning is of interest of its own: it has an event, or is asked something.
fn entry_is_asked(probe: &Probe) -> bool {
    probe.pair.is_some() || !probe.layout.asked.tests.at_entry.is_empty()
}

impl Attacher<'_> {
    /// Attaches what it can of these probes, exits or entries.
    pub fn many(&self, work: &[usize], stop: &mut dyn FnMut() -> bool) -> Served {
        let mut served = Served::default();
        let functions: Vec<(usize, &Probe)> = work
            .iter()
            .filter_map(|i| Some((*i, self.plan.probes.get(*i)?)))
            .filter(|(_, p)| p.target.kind == TargetKind::Function && p.target.address.is_none())
            // Those have a program at each of their blocks besides.
            .filter(|(_, p)| !p.layout.has_path())
            .collect();
        if functions.len() < MANY {
            return served;
        }
        let at_exit = functions.first().is_some_and(|(_, p)| p.at_exit);
        let mut ways: Vec<Many> =
            self.tracing_multi(at_exit).into_iter().chain(self.kprobe_multi(at_exit)).collect();
        if ways.is_empty() {
            return served;
        }
        if self.plan.vast {
            // A trampoline for each of 40,000 functions takes the kernel ten times as long; and 7.2 crashes when it takes them away
            // (a trampoline that is still called is freed).
            ways.reverse();
        }
        let known = patchable(functions, self.plan.vast);
        served.refused = known.refused;
        served.absent = known.absent;
        let functions = known.functions;
        log::debug!(
            "{} functions can be patched, {} cannot, {} have no symbol",
            functions.len(),
            served.refused.len(),
            served.absent.len()
        );
        for how in ways {
            let fits = |p: &Probe| match how {
                Many::Tracing(_) => p.obstacle.is_none(),
                Many::Kprobes(_) => true,
            };
            let left = functions.iter().filter(|(i, p)| !served.served.contains_key(i) && fits(p));
            let left: Vec<(usize, &Probe)> = left.copied().collect();
            if left.is_empty() {
                continue;
            }
            if let Err(error) = self.all_by(how, &left, &known.addresses, &mut served, stop) {
                log::debug!("{how:?} for {} functions: {error}", left.len());
                served.refusal = Some(format!("{} does not take it: {error}", how.method()));
            }
            if served.stopped {
                break;
            }
        }
        served
    }

    fn tracing_multi(&self, at_exit: bool) -> Option<Many> {
        let kfuncs = self.plan.newer.tracing_multi?;
        Some(Many::Tracing(if at_exit { Ends::Both(kfuncs) } else { Ends::Entries }))
    }

    fn kprobe_multi(&self, at_exit: bool) -> Option<Many> {
        let newer = &self.plan.newer;
        match at_exit {
            true => newer.kprobe_session.map(|kfuncs| Many::Kprobes(Ends::Both(kfuncs))),
            false => newer.kprobe_multi.then_some(Many::Kprobes(Ends::Entries)),
        }
    }

    /// Attaches probes at further addresses; gives the programs, and which probes they serve.
    pub fn many_at(&self, places: &[(usize, Vec<u64>)]) -> (Vec<Piece>, Vec<usize>) {
        let probes = places.iter().filter_map(|(i, _)| Some((*i, self.plan.probes.get(*i)?)));
        let functions: Vec<(usize, &Probe)> = probes.collect();
        let Some(how) = functions.first().and_then(|(_, first)| self.kprobe_multi(first.at_exit)) else {
            return (Vec::new(), Vec::new());
        };
        let mut served = Served::default();
        let known = places.iter().cloned().collect();
        if let Err(error) = self.all_by(how, &functions, &known, &mut served, &mut || false) {
            log::debug!("{how:?} for {} functions: {error}", functions.len());
        }
        (served.pieces, served.served.into_keys().collect())
    }

    /// Attaches by one way.
    fn all_by(
        &self,
        how: Many,
        functions: &[(usize, &Probe)],
        known: &HashMap<usize, Vec<u64>>,
        served: &mut Served,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let ends = match how {
            Many::Tracing(ends) => ends,
            Many::Kprobes(ends) => return self.by_kprobes(ends, functions, known, served, stop),
        };
        let errors = self.plan.filter.errors;
        // By the BTF that the ids are of, and within it by layout.
        let mut places: BTreeMap<Option<&str>, BTreeMap<Alike, Group>> = BTreeMap::new();
        for (index, probe) in functions {
            let groups = places.entry(probe.target.module.as_deref()).or_default();
            groups.entry(probe.layout.filled_alike(errors)).or_default().push(*index as u32);
        }
        let mut refused = None;
        for (module, groups) in places {
            let mut groups: Vec<Group> = groups.into_values().collect();
            // Few kinds of records are those of most functions: so most are in the first link.
            groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
            log::debug!("{} kinds of records", groups.len());
            if stop() {
                served.stopped = true;
                return Ok(());
            }
            let result = match groups.len() {
                0..=GROUPS => self.by_tracing(ends, module, &groups, served),
                _ => self.by_tracing_parts(ends, module, &groups, served, stop),
            };
            if let Err(error) = result {
                log::debug!("tracing_multi for {} kinds of records: {error}", groups.len());
                refused.get_or_insert(error);
            }
            if served.stopped {
                return Ok(());
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Loads one program of type tracing and attaches it to all functions of its groups.
    fn by_tracing(
        &self,
        ends: Ends,
        module: Option<&str>,
        groups: &[Group],
        served: &mut Served,
    ) -> Result<(), Error> {
        let code = assemble("many", &program::many(self.plan, groups, ends))?;
        log::trace!("{} groups:\n{}", groups.len(), code.dump());
        let attach_type = match ends {
            Ends::Entries => AttachType::FentryMulti,
            Ends::Both(_) => AttachType::FsessionMulti,
        };
        let attach_to = self.module(module);
        let load = Load { attach_type, attach_to, ..Load::new(ends.name(), ProgType::Tracing, &[]) };
        let program = self.load_as(&code, load)?;
        let at = |index: u32| {
            let probe = self.plan.probes.get(index as usize)?;
            Some(At::Id(probe.target.btf_id.0))
        };
        let sites = sites_of(groups.iter().enumerate(), &at);
        attach(Piece::new(program, Vec::new()), attach_type, Method::TracingMulti, sites, self.plan, served);
        Ok(())
    }

    /// Loads a program for each few groups and one that goes to them, and attaches that to all functions by one link.
    fn by_tracing_parts(
        &self,
        ends: Ends,
        module: Option<&str>,
        groups: &[Group],
        served: &mut Served,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let parts: Vec<Part<'_>> =
            groups.chunks(PART).enumerate().map(|(number, groups)| Part { number, groups }).collect();
        let paired =
            groups.iter().flatten().any(|i| self.plan.probes.get(*i as usize).is_some_and(entry_is_asked));
        let attach_type = match ends {
            Ends::Entries => AttachType::FentryMulti,
            Ends::Both(_) => AttachType::FsessionMulti,
        };
        let attach_to = self.module(module);
        let load = Load { attach_type, attach_to, ..Load::new(ends.name(), ProgType::Tracing, &[]) };
        let mut wanted: Vec<(usize, asm::Program)> = Vec::new();
        for part in &parts {
            if stop() {
                served.stopped = true;
                return Ok(());
            }
            wanted.push((part.number, program::branch(self.plan, *part, ends)));
            if let (Ends::Both(kfuncs), true) = (ends, paired) {
                wanted.push((parts.len() + part.number, program::branch_entry(self.plan, *part, kfuncs)));
            }
        }
        let Some(Loaded { table, mut pieces, missing }) = self.parts(&wanted, parts.len(), load, stop)?
        else {
            served.stopped = true;
            return Ok(());
        };
        let code = assemble("many", &program::fork(self.plan, ends, parts.len(), paired))?;
        log::trace!("{} parts:\n{}", parts.len(), code.dump());
        let program = self.load_with(&code, load, Some(&table))?;
        let at = |index: u32| {
            let probe = self.plan.probes.get(index as usize)?;
            Some(At::Id(probe.target.btf_id.0))
        };
        let sites = sites_of(there(&parts, &missing), &at);
        let piece = Piece { program, links: Vec::new(), parts: Some(table) };
        if attach(piece, attach_type, Method::TracingMulti, sites, self.plan, served) {
            served.pieces.append(&mut pieces);
        }
        Ok(())
    }

    /// The same of kprobes.
    fn by_kprobes(
        &self,
        ends: Ends,
        functions: &[(usize, &Probe)],
        known: &HashMap<usize, Vec<u64>>,
        served: &mut Served,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        if matches!(ends, Ends::Both(_)) {
            self.maps.keep()?;
        }
        let addresses = match functions.iter().all(|(i, _)| known.contains_key(i)) {
            true => known.clone(),
            false => addresses(functions)?,
        };
        let errors = self.plan.filter.errors;
        // Those with arguments on the stack last: their entries have programs of their own.
        let mut groups: BTreeMap<(bool, Alike), Group> = BTreeMap::new();
        for (index, probe) in functions.iter().filter(|(i, _)| addresses.contains_key(i)) {
            let words = match ends {
                Ends::Both(_) => stack_words(&probe.layout),
                Ends::Entries => 0,
            };
            if words <= self.maps.kept_words {
                let alike = (words > 0, probe.layout.filled_alike(errors));
                groups.entry(alike).or_default().push(*index as u32);
            }
        }
        log::debug!("{} kinds of records", groups.len());
        let (on_stack, plain): (Vec<_>, Vec<_>) = groups.into_iter().partition(|((words, _), _)| *words);
        let [plain, on_stack] = [plain, on_stack].map(|g| g.into_iter().map(|(_, g)| g).collect::<Vec<_>>());
        let first_on_stack = plain.chunks(PART).len();
        let parts: Vec<Part<'_>> = plain
            .chunks(PART)
            .chain(on_stack.chunks(PART))
            .enumerate()
            .map(|(number, groups)| Part { number, groups })
            .collect();
        if parts.is_empty() {
            return Ok(());
        }
        let paired = functions.iter().any(|(_, p)| entry_is_asked(p));
        // From which part on entries have programs of their own.
        let entries = match ends {
            Ends::Entries => parts.len(),
            Ends::Both(_) if paired => 0,
            Ends::Both(_) => first_on_stack,
        };
        let attach_type = match ends {
            Ends::Entries => AttachType::KprobeMulti,
            Ends::Both(_) => AttachType::KprobeSession,
        };
        let load = Load { attach_type, ..Load::new(ends.name(), ProgType::Kprobe, &[]) };
        let mut wanted: Vec<(usize, asm::Program)> = Vec::new();
        for part in &parts {
            if stop() {
                served.stopped = true;
                return Ok(());
            }
            wanted.push((part.number, program::part(self.plan, *part, ends)));
            if let (Ends::Both(kfuncs), true) = (ends, part.number >= entries) {
                wanted.push((parts.len() + part.number, program::part_entry(self.plan, *part, kfuncs)));
            }
        }
        let Some(Loaded { table, mut pieces, missing }) = self.parts(&wanted, parts.len(), load, stop)?
        else {
            served.stopped = true;
            return Ok(());
        };
        let code = assemble("many", &program::dispatch(self.plan, ends, parts.len(), entries))?;
        log::trace!("{} parts:\n{}", parts.len(), code.dump());
        let program = self.load_with(&code, load, Some(&table))?;
        let at = |index: u32| addresses.get(&(index as usize)).cloned().map(At::Addresses);
        let sites = sites_of(there(&parts, &missing), &at);
        let piece = Piece { program, links: Vec::new(), parts: Some(table) };
        if attach(piece, attach_type, Method::KprobeMulti, sites, self.plan, served) {
            served.pieces.append(&mut pieces);
        }
        Ok(())
    }

    /// Loads the programs of `parts` parts, each for its place in the table that it comes to be in; `None` when that was stopped.
    fn parts(
        &self,
        wanted: &[(usize, asm::Program)],
        parts: usize,
        load: Load<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Loaded>, Error> {
        let Some(programs) = self.side_by_side(wanted, load, stop) else { return Ok(None) };
        let table = Map::create(MapType::ProgArray, "parts", 4, 4, 2 * parts as u32)?;
        let mut loaded = Loaded { table, pieces: Vec::new(), missing: Vec::new() };
        for ((place, _), program) in wanted.iter().zip(programs) {
            match program {
                Ok(program) => {
                    let fd = program.as_fd().as_raw_fd();
                    loaded.table.update(&(*place as u32).to_ne_bytes(), &fd.to_ne_bytes())?;
                    loaded.pieces.push(Piece::new(program, Vec::new()));
                }
                Err(error) => {
                    log::debug!("a part: {error}");
                    loaded.missing.push(place % parts);
                }
            }
        }
        Ok(Some(loaded))
    }

    /// Assembles and loads programs; `None` when that was stopped.
    fn side_by_side(
        &self,
        programs: &[(usize, asm::Program)],
        load: Load<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Option<Vec<Result<Program, Error>>> {
        let one = |program: &asm::Program| {
            let code = assemble("many", program)?;
            log::trace!("a part:\n{}", code.dump());
            let program = self.load_as(&code, load)?;
            log::debug!("a part of {} instructions", code.insns.len());
            Ok(program)
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cpus.min(LOADS_AT_ONCE).min(programs.len());
        let next = AtomicUsize::new(0);
        let loaded: Vec<Mutex<Option<Result<Program, Error>>>> =
            programs.iter().map(|_| Mutex::new(None)).collect();
        let work = |ended: &dyn Fn() -> bool| {
            while !ended() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((_, program)) = programs.get(at) else { break };
                let result = one(program);
                if let Some(Ok(mut place)) = loaded.get(at).map(Mutex::lock) {
                    *place = Some(result);
                }
            }
        };
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let is_ended = || ended.load(Ordering::Relaxed) > 0;
            for _ in 1..threads {
                scope.spawn(move || work(&is_ended));
            }
            let stop = std::cell::RefCell::new(stop);
            work(&|| {
                if (stop.borrow_mut())() {
                    ended.store(1, Ordering::Relaxed);
                }
                is_ended()
            });
        });
        loaded.into_iter().map(|one| one.into_inner().ok().flatten()).collect()
    }
}

/// How functions are attached.
#[derive(Clone, Copy, Debug)]
enum Many {
    /// tracing_multi: by BTF ids.
    Tracing(Ends),
    /// kprobe_multi: by addresses.
    Kprobes(Ends),
}

impl Many {
    fn method(self) -> Method {
        match self {
            Many::Tracing(_) => Method::TracingMulti,
            Many::Kprobes(_) => Method::KprobeMulti,
        }
    }
}

/// Programs that another goes to.
struct Loaded {
    table: Map,
    pieces: Vec<Piece>,
    /// Parts that were refused, by number.
    missing: Vec<usize>,
}

/// The groups of the parts that are not missing, with their numbers.
fn there<'a>(parts: &'a [Part<'a>], missing: &'a [usize]) -> impl Iterator<Item = (usize, &'a Group)> {
    let there = parts.iter().filter(|p| !missing.contains(&p.number));
    there.flat_map(|p| p.groups.iter().enumerate().map(|(at, g)| (p.first() + at, g)))
}

/// Every function of the groups, each with its cookie. The kernel looks ids up in the order that it is given.
fn sites_of<'a>(
    groups: impl Iterator<Item = (usize, &'a Group)>,
    at: &dyn Fn(u32) -> Option<At>,
) -> Vec<Place> {
    let all = groups.flat_map(|(group, indices)| indices.iter().map(move |i| (group, *i)));
    let site = |(group, index): (usize, u32)| {
        Some(Place { index: index as usize, cookie: program::cookie(group, index), at: at(index)? })
    };
    let mut sites: Vec<Place> = all.filter_map(site).collect();
    sites.sort_by_key(|s| s.index);
    sites
}

/// Attaches a program to all of these that it can; whether there was any.
fn attach(
    mut piece: Piece,
    attach_type: AttachType,
    method: Method,
    mut sites: Vec<Place>,
    plan: &Plan,
    served: &mut Served,
) -> bool {
    let mut attached = Vec::new();
    match link_all(&piece.program, attach_type, &sites) {
        Ok(link) => {
            piece.links.push(link);
            attached.extend(sites.iter().map(|s| s.index));
        }
        Err(error) => {
            log::debug!("{method}: {} functions: {error}", sites.len());
            // Each link of a search by halves would have to be detached.
            if !error.is_out_of_memory()
                && sites.len() >= MANY
                && let Some(listed) = Listed::read()
            {
                let named =
                    |index: usize| plan.probes.get(index).is_some_and(|p| listed.has_name(&p.target.name));
                sites.retain(|s| match &s.at {
                    At::Id(_) => named(s.index),
                    At::Addresses(all) => {
                        all.iter().all(|a| listed.has_address(*a).unwrap_or_else(|| named(s.index)))
                    }
                });
                log::debug!("of which ftrace lists {}", sites.len());
            }
            let link = |some: &[Place]| {
                let result = link_all(&piece.program, attach_type, some);
                if let (Err(error), [one]) = (&result, some)
                    && let Some(probe) = plan.probes.get(one.index)
                {
                    log::debug!("{}: not by {method}: {error}", probe.target.label());
                }
                result
            };
            let batches = batches::attach(&sites, MOST_REFUSALS, link);
            for (link, served) in batches.links {
                piece.links.push(link);
                attached.extend(served.iter().map(|site| site.index));
            }
            if attached.len() < sites.len() {
                served.refusal = Some(format!("{method} does not take it: {error}"));
            }
            if batches.short_of_memory {
                log::warn!(
                    "the kernel had no memory for {} functions at once by {method}: {} are attached, in {} parts",
                    sites.len(),
                    attached.len(),
                    piece.links.len()
                );
            }
        }
    }
    log::debug!("{method}: {} functions by {} links", attached.len(), piece.links.len());
    let any = !piece.links.is_empty();
    if any {
        served.pieces.push(piece);
    }
    served.served.extend(attached.into_iter().map(|index| (index, method)));
    any
}

fn link_all(program: &Program, attach_type: AttachType, sites: &[Place]) -> bpf::Result<Link> {
    let (mut ids, mut addresses, mut cookies) = (Vec::new(), Vec::new(), Vec::new());
    for site in sites {
        match &site.at {
            At::Id(id) => {
                ids.push(*id);
                cookies.push(site.cookie);
            }
            At::Addresses(all) => {
                addresses.extend_from_slice(all);
                cookies.extend(all.iter().map(|_| site.cookie));
            }
        }
    }
    if addresses.is_empty() {
        bpf::attach_tracing_multi(program, attach_type, &ids, &cookies)
    } else {
        bpf::attach_kprobe_multi(program, attach_type, &addresses, &cookies)
    }
}

/// The addresses of functions, by their probes: every function of a name, in the module that was meant.
fn addresses(functions: &[(usize, &Probe)]) -> Result<HashMap<usize, Vec<u64>>, Error> {
    let names: Vec<&str> = functions.iter().map(|(_, p)| p.target.name.as_str()).collect();
    let found = symbols::namesakes(&names).map_err(|error| Error::Target {
        target: format!("{} functions", functions.len()),
        reason: format!("their addresses are not known: {error}"),
    })?;
    let all = functions.iter().zip(found).map(|((index, probe), symbols)| {
        let of_it = symbols
            .into_iter()
            .filter(|s| s.module == probe.target.module && s.address != 0 && s.name == probe.target.name);
        (*index, of_it.map(|s| s.address).collect::<Vec<u64>>())
    });
    Ok(all.filter(|(_, addresses)| !addresses.is_empty()).collect())
}

/// What is known of functions before they are attached.
#[derive(Default)]
struct Known<'a> {
    /// Those that may be attached.
    functions: Vec<(usize, &'a Probe)>,
    /// Their addresses, where the kernel was asked.
    addresses: HashMap<usize, Vec<u64>>,
    /// Those that ftrace cannot patch, and why: one of them would make the kernel refuse all.
    refused: BTreeMap<usize, String>,
    /// Those that the kernel has no symbol of.
    absent: Vec<usize>,
}

/// From so many names on reading the kernel's lists is faster than asking for each.
const MANY_NAMES: usize = 16384;

/// Asks which functions can be attached to; `vast`: of thousands, of which none is tried alone.
fn patchable<'a>(functions: Vec<(usize, &'a Probe)>, vast: bool) -> Known<'a> {
    // A module's function may have a namesake in the kernel, which is what the kernel finds by the name.
    let (of_modules, own): (Vec<_>, Vec<_>) =
        functions.into_iter().partition(|(_, p)| p.target.module.is_some());
    let names: Vec<&str> = own.iter().map(|(_, p)| p.target.name.as_str()).collect();
    let mut known = Known { functions: of_modules, ..Known::default() };
    let by_lists = names.len() > MANY_NAMES;
    let sites = match if by_lists { sites::listed(&names) } else { None } {
        Some(sites) => Ok(sites),
        None => sites::sites(&names),
    };
    match sites {
        Ok(sites) => {
            for ((index, probe), site) in own.into_iter().zip(sites) {
                match site {
                    Site::Patchable(address) => {
                        known.functions.push((index, probe));
                        known.addresses.insert(index, vec![address]);
                    }
                    // A kprobe may be had all the same.
                    Site::Fixed(_) | Site::Absent if probe.obstacle.is_some() && !vast => {}
                    Site::Fixed(_) => {
                        known.refused.insert(index, format!("its entry cannot be patched: {UNPATCHABLE}"));
                    }
                    Site::Absent if vast => {
                        known.refused.insert(index, ABSENT.into());
                    }
                    Site::Absent => known.absent.push(index),
                }
            }
        }
        Err(error) => {
            log::debug!("which functions can be patched is not known: {error}");
            known.functions.extend(own);
        }
    }
    known
}

/// Why a function of the types is not there.
const ABSENT: &str =
    "the kernel has no function of that very name (it was inlined everywhere, or copied under other names)";
