//! Whether everything loads: a program for every traceable function, with all its arguments decoded, shown to the verifier and
//! never attached. For the lab.

use crate::attach::Attacher;
use crate::context::PreemptCount;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::plan::Plan;
use crate::request::Request;
use crate::request::TargetKind;
use crate::session::Session;
use crate::sites::{self, Site};
use crate::target::{self, Resolved, Target};
use btf::Kind;
use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Functions planned at one time.
const AT_ONCE: usize = 512;

/// What came of it.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// Functions that the kernel's types describe.
    pub described: usize,
    /// Those of them that ftrace can patch, so that they can be traced at all.
    pub traceable: usize,
    /// Those of them that were tried.
    pub tried: usize,
    /// Those whose program passed the verifier.
    pub loaded: usize,
    /// Those that the kernel allows no tracing program on, whatever it does, by its reason.
    pub denied: BTreeMap<String, usize>,
    /// Those whose program was refused, with the reason.
    pub failed: Vec<(String, String)>,
}

/// Tries every `every`th traceable function, from the `from`th on. `tell` hears how many were tried.
///
/// # Errors
/// What is not about one function.
pub fn load_all(
    kernel: &Kernel,
    request: &Request,
    (from, every): (usize, usize),
    tell: &mut dyn FnMut(usize),
) -> Result<Verdicts, Error> {
    let mut verdicts = Verdicts::default();
    let mut names = HashSet::new();
    let all: Vec<(btf::TypeId, &str)> =
        kernel.btf.names(Kind::Func).filter(|(_, name)| names.insert(*name)).collect();
    verdicts.described = all.len();
    let patchable = patchable(&all)?;
    let traceable: Vec<&(btf::TypeId, &str)> =
        all.iter().filter(|(_, name)| patchable.contains(*name)).collect();
    verdicts.traceable = traceable.len();
    let preempt_count = PreemptCount::of(&kernel.btf);
    let newer = kernel.newer();
    let mut targets = Vec::new();
    for (id, _) in traceable.into_iter().skip(from).step_by(every.max(1)) {
        match target::target(&kernel.btf, TargetKind::Function, None, *id) {
            Ok(target) => targets.push(target),
            Err(error) => verdicts.failed.push((format!("type {}", id.0), error.to_string())),
        }
    }
    // Maps of the right kinds for the programs to name.
    let empty = Plan::of(kernel, request, Resolved::default(), preempt_count, newer, &mut || false)?;
    let session = Session::for_loading(&empty)?;
    let mut targets = targets.into_iter();
    loop {
        let some: Vec<Target> = targets.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return Ok(verdicts);
        }
        verdicts.tried += some.len();
        let resolved = Resolved { targets: some, ..Resolved::default() };
        let plan = Plan::of(kernel, request, resolved, preempt_count, newer, &mut || false)?;
        verdicts.failed.extend(plan.refused.iter().cloned());
        let outcomes = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        let attacher = Attacher {
            plan: &plan,
            maps: session.maps(),
            modules: session.modules(),
            stop: None,
            blocks: None,
        };
        let worker = || {
            while let Some(probe) = plan.probes.get(next.fetch_add(1, Ordering::Relaxed)) {
                let index = plan.probes.iter().position(|p| std::ptr::eq(p, probe)).unwrap_or(0);
                let outcome = attacher.load_only(index as u32, probe);
                if let Ok(mut outcomes) = outcomes.lock() {
                    outcomes.push((probe.target.label(), outcome));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
                scope.spawn(worker);
            }
        });
        for (label, outcome) in outcomes.into_inner().unwrap_or_default() {
            match outcome {
                Ok(()) => verdicts.loaded += 1,
                Err(Error::Target { reason, .. }) if is_denial(&reason) => {
                    *verdicts.denied.entry(reason).or_default() += 1;
                }
                Err(Error::Target { reason, .. }) => verdicts.failed.push((label, reason)),
                Err(error) => return Err(error),
            }
        }
        tell(verdicts.tried);
    }
}

/// Whether the kernel refuses any tracing program there: its own list of what must not be traced (`btf_id_deny`), and
/// functions that have no symbol of their name.
fn is_denial(reason: &str) -> bool {
    // Newer kernels name the function: "Attaching tracing programs to function 'migrate_disable' is rejected."
    let named = reason.contains("Attaching tracing programs to function") && reason.contains("is rejected");
    named || reason.contains("the kernel allows no") || reason.contains("symbol table has")
}

/// The functions that ftrace can patch: those that it lists, else those whose code has the room.
fn patchable(all: &[(btf::TypeId, &str)]) -> Result<HashSet<String>, Error> {
    let listed = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .find_map(|folder| std::fs::read_to_string(format!("{folder}/available_filter_functions")).ok());
    if let Some(listed) = listed {
        return Ok(listed
            .lines()
            .filter_map(|l| Some(l.split_ascii_whitespace().next()?.to_string()))
            .collect());
    }
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    let found = sites::sites(&names)?;
    let patchable = names.iter().zip(found).filter(|(_, site)| matches!(site, Site::Patchable(_)));
    Ok(patchable.map(|(name, _)| name.to_string()).collect())
}
