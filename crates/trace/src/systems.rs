//! Tracepoints as perf and bpftrace name them, `system:name`.
//!
//! A tracepoint's name alone is unambiguous, for its symbol is global (`__tracepoint_NAME`); its system is a matter of tracefs
//! (`events/SYSTEM/NAME`), of which BTF knows nothing. So where tracefs is mounted it decides; where it is not, a plain name is
//! taken at its word and a pattern by the names that begin like the system, and that is said.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::pattern::Pattern;
use crate::request::TargetSpec;
use crate::suggest;
use crate::target::{Found, TRACEPOINT_TYPEDEF, ids, modules};
use btf::{Btf, Kind, TypeId};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The system whose events are made of two tracepoints of another.
const SYSCALLS: &str = "syscalls";

/// Looks for tracepoints of a system; `Ok(None)` when none of that name is known, and perhaps a module is meant.
pub(crate) fn find(
    kernel: &Kernel,
    spec: &TargetSpec,
    system: &Pattern,
) -> Result<Option<Vec<Found>>, Error> {
    let events = kernel.is_running.then(events).flatten();
    find_in(kernel, spec, system, events.as_deref())
}

/// `events` of a mounted tracefs that we may read.
fn events() -> Option<PathBuf> {
    let events = tracefs()?.join("events");
    events.read_dir().is_ok().then_some(events)
}

/// Where tracefs is mounted.
pub(crate) fn tracefs() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let point = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let point = fields.nth(1)?;
        (fields.next()? == "tracefs").then_some(point)
    })?;
    Some(PathBuf::from(point))
}

fn find_in(
    kernel: &Kernel,
    spec: &TargetSpec,
    system: &Pattern,
    events: Option<&Path>,
) -> Result<Option<Vec<Found>>, Error> {
    let wrong = |reason| Error::Target { target: format!("{system}:{}", spec.pattern), reason };
    let Some(events) = events else {
        return match unchecked(kernel, spec, system) {
            None => begun(kernel, spec, system).map_or(Ok(None), |reason| Err(wrong(reason))),
            found => Ok(found),
        };
    };
    let wanted = members(events, system, &spec.pattern);
    let found = among(kernel, spec, &|name| wanted.contains(name), wanted.len());
    if !found.is_empty() {
        return Ok(Some(found));
    }
    match refusal(kernel, spec, system, events, !wanted.is_empty()) {
        Some(reason) => Err(wrong(reason)),
        None => Ok(None),
    }
}

/// The tracepoints that tracefs has in systems that match.
fn members(events: &Path, system: &Pattern, name: &Pattern) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for system in folders(events).into_iter().filter(|s| system.matches(s)) {
        let folder = events.join(&system);
        if name.is_glob() {
            all.extend(folders(&folder).into_iter().filter(|n| name.matches(n)));
        } else if folder.join(name.as_str()).is_dir() {
            all.insert(name.as_str().into());
        }
    }
    all
}

/// Names of the folders in a folder; none when it cannot be read.
fn folders(path: &Path) -> Vec<String> {
    let Ok(entries) = path.read_dir() else { return Vec::new() };
    let folders = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    folders.filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// What of the pattern has a name that is wanted: in the kernel itself, and if that is not all of them, in modules.
fn among(kernel: &Kernel, spec: &TargetSpec, wanted: &dyn Fn(&str) -> bool, all: usize) -> Vec<Found> {
    let pick = |btf: &Arc<Btf>, split: bool| -> Vec<TypeId> {
        let mut ids = ids(btf, spec, split);
        ids.retain(|id| name(btf, *id).is_some_and(wanted));
        ids
    };
    let mut found = Vec::new();
    let own = pick(&kernel.btf, false);
    let mut count = own.len();
    if !own.is_empty() {
        found.push(((None, Arc::clone(&kernel.btf)), own));
    }
    if count < all {
        for (module, btf) in modules(kernel, &|_| true) {
            let ids = pick(&btf, true);
            count += ids.len();
            if !ids.is_empty() {
                found.push(((module, btf), ids));
            }
            if count >= all {
                break;
            }
        }
    }
    found
}

fn name(btf: &Btf, typedef: TypeId) -> Option<&str> {
    btf.get(typedef).ok()?.name()?.strip_prefix(TRACEPOINT_TYPEDEF)
}

/// Without tracefs.
fn unchecked(kernel: &Kernel, spec: &TargetSpec, system: &Pattern) -> Option<Vec<Found>> {
    let exact = !spec.pattern.is_glob() && !system.is_glob();
    if exact && kernel.modules.names().iter().any(|module| system.matches(module)) {
        // A module is meant, which has no such tracepoint.
        return None;
    }
    // `sched_*` for `sched`; a glob of systems is taken as the beginning of a name.
    let begins = Pattern::new(&format!("{system}_*")).ok();
    let wanted =
        |name: &str| exact || system.matches(name) || begins.as_ref().is_some_and(|b| b.matches(name));
    let found = among(kernel, spec, &wanted, usize::from(exact));
    if found.is_empty() {
        return None;
    }
    match exact {
        true => log::warn!(
            "{}: whether its system is {system} could not be checked, for tracefs is not mounted or not readable",
            spec.pattern
        ),
        false => log::warn!(
            "{system}:{}: taken by the names that begin like the system, for tracefs, which knows, is not mounted or not \
             readable",
            spec.pattern
        ),
    }
    Some(found)
}

/// Why there is no such tracepoint where tracefs cannot be asked, if names tell that a system is meant rather than a module.
fn begun(kernel: &Kernel, spec: &TargetSpec, system: &Pattern) -> Option<String> {
    let scope = system.as_str();
    let is_module = Path::new("/sys/module").join(scope).exists()
        || kernel.modules.names().iter().any(|module| system.matches(module));
    if system.is_glob() || is_module {
        return None;
    }
    let names: Vec<&str> = kernel
        .btf
        .names_from(Kind::Typedef, TRACEPOINT_TYPEDEF)
        .filter_map(|(_, name)| name.strip_prefix(TRACEPOINT_TYPEDEF))
        .collect();
    if scope == SYSCALLS && names.contains(&"sys_enter") {
        return Some(of_a_call(spec));
    }
    let begins = format!("{scope}_");
    let own = || names.iter().copied().filter(|name| name.starts_with(&begins));
    own().next()?;
    Some(no_such(spec, system, own))
}

/// What is said of a name, or a pattern, that a system does not have.
fn no_such<'a, I: Iterator<Item = &'a str>>(
    spec: &TargetSpec,
    system: &Pattern,
    names: impl Fn() -> I,
) -> String {
    if spec.pattern.is_glob() {
        return format!("system {system} has no tracepoint that the pattern matches");
    }
    // `sched:swtich` is as likely as `sched:sched_swtich`.
    let name = spec.pattern.as_str();
    let mut near = suggest::near(name, names());
    let whole = format!("{system}_{name}");
    if near.is_empty() {
        near = suggest::near(&whole, names());
    }
    format!("system {system} has no such tracepoint{}", suggest::hint(&near))
}

/// What to trace for an event of a system call.
fn of_a_call(spec: &TargetSpec) -> String {
    let name = spec.pattern.as_str();
    let call = name.strip_prefix("sys_enter_").or_else(|| name.strip_prefix("sys_exit_"));
    let way = call
        .filter(|_| !spec.pattern.is_glob())
        .map_or(String::new(), |call| format!(", and its own function: btrace -k __x64_sys_{call}"));
    format!(
        "events of system calls are no tracepoints; all calls go through two: btrace -t \
         raw_syscalls:sys_enter,raw_syscalls:sys_exit{way}"
    )
}

/// Why tracefs knows no such tracepoint; `None` when it is a module that was named.
fn refusal(
    kernel: &Kernel,
    spec: &TargetSpec,
    system: &Pattern,
    events: &Path,
    is_event: bool,
) -> Option<String> {
    let name = spec.pattern.as_str();
    if system.as_str() == SYSCALLS && (is_event || folders(events).iter().any(|s| s == SYSCALLS)) {
        return Some(of_a_call(spec));
    }
    if is_event {
        // A module's tracepoint is in the module's types, which this kernel may not show.
        if Path::new("/sys/module").join(system.as_str()).join("initstate").exists() {
            return None;
        }
        return Some("that is an event of tracefs without a tracepoint of its own".into());
    }
    let systems = folders(events);
    if !spec.pattern.is_glob() {
        if let Some(right) = systems.iter().find(|s| events.join(s).join(name).is_dir()) {
            return Some(format!("its system is {right}: btrace -t {right}:{name}"));
        }
        if kernel.btf.find(Kind::Typedef, &format!("{TRACEPOINT_TYPEDEF}{name}")).is_some() {
            return Some(format!("that tracepoint is in no system: btrace -t {name}"));
        }
    }
    if system.is_glob() {
        return systems.iter().any(|s| system.matches(s)).then(|| "the pattern matches nothing".into());
    }
    if systems.iter().any(|s| s == system.as_str()) {
        let names = folders(&events.join(system.as_str()));
        return Some(no_such(spec, system, || names.iter().map(String::as_str)));
    }
    if Path::new("/sys/module").join(system.as_str()).exists() {
        // A module, of which the caller knows more.
        return None;
    }
    let near = suggest::near(system.as_str(), systems.iter().map(String::as_str));
    Some(format!("neither a tracepoint system nor a loaded module is named {system}{}", suggest::hint(&near)))
}

#[cfg(test)]
#[path = "systems_tests.rs"]
mod tests;
