//! Attaching hundreds of functions at once, where the kernel has a way: tracing_multi, else kprobe_multi. One program serves
//! many functions, and one link takes them all or none.
//!
//! What neither takes is left to be attached one by one, which also gives the reason when that fails too.

use crate::attach::{Attacher, Piece, assemble};
use crate::batches;
use crate::error::Error;
use crate::plan::{Method, Probe};
use crate::program::{self, Group, Many, has_stack_arguments};
use crate::request::TargetKind;
use crate::sites::{self, Site};
use bpf::{AttachType, Link, Load, ProgType, Program};
use std::collections::{BTreeMap, HashMap};

/// Fewer functions than these are better served by programs of their own: their events cost less.
const MANY: usize = 16;

/// Kinds of records that one program writes. The verifier walks every one, and a jump in a program has 16 bits.
const GROUPS: usize = 48;

/// Refused links after which the rest is attached one by one.
const MOST_REFUSALS: usize = 400;

/// What was attached.
#[derive(Debug, Default)]
pub struct Served {
    /// Programs and links.
    pub pieces: Vec<Piece>,
    /// Probes by their indices, and how they are attached.
    pub served: BTreeMap<usize, Method>,
    /// Probes of functions that nothing can attach to.
    pub refused: Vec<usize>,
    /// Probes of functions that the kernel's symbol table does not have by their very name.
    pub absent: Vec<usize>,
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

impl Attacher<'_> {
    /// Attaches what it can of these probes, exits or entries.
    pub fn many(&self, work: &[usize], stop: &mut dyn FnMut() -> bool) -> Served {
        let mut served = Served::default();
        let functions: Vec<(usize, &Probe)> = work
            .iter()
            .filter_map(|i| Some((*i, self.plan.probes.get(*i)?)))
            .filter(|(_, p)| p.target.kind == TargetKind::Function && p.obstacle.is_none())
            .collect();
        if functions.len() < MANY {
            return served;
        }
        let at_exit = functions.first().is_some_and(|(_, p)| p.at_exit);
        let newer = &self.plan.newer;
        let (tracing, kprobes) = match at_exit {
            true => (newer.tracing_multi.map(Many::Sessions), newer.kprobe_session.map(Many::KprobeSessions)),
            false => {
                (newer.tracing_multi.map(|_| Many::Entries), newer.kprobe_multi.then_some(Many::Kprobes))
            }
        };
        let known = patchable(functions);
        served.refused = known.refused;
        served.absent = known.absent;
        let functions = known.functions;
        for how in tracing.into_iter().chain(kprobes) {
            let left: Vec<(usize, &Probe)> =
                functions.iter().filter(|(i, _)| !served.served.contains_key(i)).copied().collect();
            if left.is_empty() || served.stopped {
                break;
            }
            if let Err(error) = self.all_by(how, &left, &known.addresses, &mut served, stop) {
                log::debug!("{how:?} for {} functions: {error}", left.len());
            }
        }
        served
    }

    /// Attaches probes at further addresses; gives the programs, and which probes they serve.
    pub fn many_at(&self, places: &[(usize, Vec<u64>)]) -> (Vec<Piece>, Vec<usize>) {
        let probes = places.iter().filter_map(|(i, _)| Some((*i, self.plan.probes.get(*i)?)));
        let functions: Vec<(usize, &Probe)> = probes.filter(|(_, p)| p.obstacle.is_none()).collect();
        let Some((_, first)) = functions.first() else { return (Vec::new(), Vec::new()) };
        let newer = &self.plan.newer;
        let how = match first.at_exit {
            true => newer.kprobe_session.map(Many::KprobeSessions),
            false => newer.kprobe_multi.then_some(Many::Kprobes),
        };
        let Some(how) = how else { return (Vec::new(), Vec::new()) };
        let mut served = Served::default();
        let known = places.iter().cloned().collect();
        if let Err(error) = self.all_by(how, &functions, &known, &mut served, &mut || false) {
            log::debug!("{how:?} for {} functions: {error}", functions.len());
        }
        (served.pieces, served.served.into_keys().collect())
    }

    /// Attaches by one way, a program for every [`GROUPS`] layouts.
    fn all_by(
        &self,
        how: Many,
        functions: &[(usize, &Probe)],
        known: &HashMap<usize, Vec<u64>>,
        served: &mut Served,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let by_address = matches!(how, Many::Kprobes | Many::KprobeSessions(_));
        if matches!(how, Many::KprobeSessions(_)) {
            self.maps.keep()?;
        }
        let addresses = match by_address {
            false => HashMap::new(),
            true if functions.iter().all(|(i, _)| known.contains_key(i)) => known.clone(),
            true => addresses(functions)?,
        };
        // By the BTF that the ids are of, and within it by layout.
        let mut places: BTreeMap<Option<&str>, BTreeMap<String, Group>> = BTreeMap::new();
        for (index, probe) in functions {
            let fits = match how {
                Many::KprobeSessions(_) => !has_stack_arguments(&probe.layout),
                _ => true,
            };
            let found = !by_address || addresses.contains_key(index);
            if fits && found {
                let place = if by_address { None } else { probe.target.module.as_deref() };
                let groups = places.entry(place).or_default();
                groups.entry(probe.layout.filled_alike()).or_default().push(*index as u32);
            }
        }
        for (module, groups) in places {
            let mut groups: Vec<Group> = groups.into_values().collect();
            while !groups.is_empty() {
                let rest = groups.split_off(groups.len().min(GROUPS));
                let some = std::mem::replace(&mut groups, rest);
                if stop() {
                    served.stopped = true;
                    return Ok(());
                }
                self.some(how, module, &some, &addresses, served)?;
            }
        }
        Ok(())
    }

    /// Loads one program and attaches it to all functions of its groups.
    fn some(
        &self,
        how: Many,
        module: Option<&str>,
        groups: &[Group],
        addresses: &HashMap<usize, Vec<u64>>,
        served: &mut Served,
    ) -> Result<(), Error> {
        let (ty, attach_type, method) = match how {
            Many::Entries => (ProgType::Tracing, AttachType::FentryMulti, Method::TracingMulti),
            Many::Sessions(_) => (ProgType::Tracing, AttachType::FsessionMulti, Method::TracingMulti),
            Many::Kprobes => (ProgType::Kprobe, AttachType::KprobeMulti, Method::KprobeMulti),
            Many::KprobeSessions(_) => (ProgType::Kprobe, AttachType::KprobeSession, Method::KprobeMulti),
        };
        let began = std::time::Instant::now();
        let code = assemble("many", &program::many(self.plan, groups, how))?;
        let assembled = began.elapsed();
        log::trace!("{} groups:\n{}", groups.len(), code.dump());
        let name = if matches!(how, Many::Entries | Many::Kprobes) { "en_many" } else { "ex_many" };
        let attach_to = self.module(module);
        let load = Load { attach_type, attach_to, ..Load::new(name, ty, &[]) };
        let program = self.load_as(&code, load)?;
        let loaded = began.elapsed();
        let site = |group: usize, index: u32| {
            let probe = self.plan.probes.get(index as usize)?;
            let at = match addresses.get(&(index as usize)) {
                Some(addresses) => At::Addresses(addresses.clone()),
                None => At::Id(probe.target.btf_id.0),
            };
            Some(Place { index: index as usize, cookie: program::cookie(group, index), at })
        };
        let all =
            groups.iter().enumerate().flat_map(|(group, indices)| indices.iter().map(move |i| (group, *i)));
        let mut sites: Vec<Place> = all.filter_map(|(group, index)| site(group, index)).collect();
        // The kernel looks ids up in the order that it is given.
        sites.sort_by_key(|s| s.index);
        let batches = batches::attach(&sites, MOST_REFUSALS, |some| link_all(&program, attach_type, some));
        let short_of_memory = batches.short_of_memory;
        let mut piece = Piece { program, links: Vec::new() };
        let mut attached = Vec::new();
        for (link, served) in batches.links {
            piece.links.push(link);
            attached.extend(served.iter().map(|site| site.index));
        }
        if short_of_memory {
            log::warn!(
                "the kernel had no memory for {} functions at once by {method}: {} are attached, in {} parts",
                sites.len(),
                attached.len(),
                piece.links.len()
            );
        }
        log::debug!(
            "{method}: {} functions by {} links; {} instructions assembled in {assembled:?}, loaded by {loaded:?}, attached by {:?}",
            attached.len(),
            piece.links.len(),
            code.insns.len(),
            began.elapsed()
        );
        if !piece.links.is_empty() {
            served.pieces.push(piece);
        }
        served.served.extend(attached.into_iter().map(|index| (index, method)));
        Ok(())
    }
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
    /// Those that ftrace cannot patch: one of them would make the kernel refuse all.
    refused: Vec<usize>,
    /// Those that the kernel has no symbol of.
    absent: Vec<usize>,
}

fn patchable<'a>(functions: Vec<(usize, &'a Probe)>) -> Known<'a> {
    // A module's function may have a namesake in the kernel, which is what the kernel finds by the name.
    let (of_modules, own): (Vec<_>, Vec<_>) =
        functions.into_iter().partition(|(_, p)| p.target.module.is_some());
    let names: Vec<&str> = own.iter().map(|(_, p)| p.target.name.as_str()).collect();
    let mut known = Known { functions: of_modules, ..Known::default() };
    match sites::sites(&names) {
        Ok(sites) => {
            for ((index, probe), site) in own.into_iter().zip(sites) {
                match site {
                    Site::Patchable(address) => {
                        known.functions.push((index, probe));
                        known.addresses.insert(index, vec![address]);
                    }
                    Site::Fixed(_) => known.refused.push(index),
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
