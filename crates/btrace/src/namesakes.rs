//! Functions that share their name: the kernel attaches a tracing program to the first that its symbol table has of the
//! name. That more calls go unseen than one would think must be said.
//!
//! Only kallsyms knows, and reading it takes longer than everything else at the start (70 to 97 ms). So it is read on a
//! thread of its own, of the lowest priority, once the first events have been printed, or when none came for 200 ms; a trace that ends sooner
//! waits for it, so that it never ends unsaid.

use crate::logging::say;
use std::collections::BTreeMap;
use std::thread::JoinHandle;
use trace::{Probe, TargetKind};

/// At most so many names are told without `-v`.
const NAMED: usize = 5;

/// A traced function.
struct Traced {
    name: String,
    module: Option<String>,
}

/// The question, put or not yet.
pub struct Namesakes {
    functions: Vec<Traced>,
    asked: Option<JoinHandle<()>>,
}

impl Namesakes {
    /// For the functions among these probes.
    pub fn of(probes: &[Probe]) -> Namesakes {
        let functions = probes.iter().filter(|p| p.target.kind == TargetKind::Function);
        let functions =
            functions.map(|p| Traced { name: p.target.name.clone(), module: p.target.module.clone() });
        Namesakes { functions: functions.collect(), asked: None }
    }

    /// Whether there is still something to ask.
    pub fn is_open(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Begins to look, unless that was done.
    pub fn look(&mut self) {
        let functions = std::mem::take(&mut self.functions);
        if functions.is_empty() {
            return;
        }
        let work = move || {
            // The reader and what is traced come first.
            bpf::lower_thread_priority();
            for line in lines(&functions) {
                say(format_args!("btrace: {line}"));
            }
        };
        match std::thread::Builder::new().name("namesakes".into()).spawn(work) {
            Ok(thread) => self.asked = Some(thread),
            Err(error) => {
                log::warn!("whether functions share their names is not known: start a thread: {error}")
            }
        }
    }

    /// Waits until all has been said.
    pub fn finish(&mut self) {
        self.look();
        if let Some(thread) = self.asked.take()
            && thread.join().is_err()
        {
            log::error!(
                "whether functions share their names is not known: please report this as a defect of btrace"
            );
        }
    }
}

fn lines(functions: &[Traced]) -> Vec<String> {
    // A name may be traced in several places; a place that is traced is not missing.
    let mut traced: BTreeMap<&str, Vec<Option<&str>>> = BTreeMap::new();
    for f in functions {
        traced.entry(&f.name).or_default().push(f.module.as_deref());
    }
    let names: Vec<&str> = traced.keys().copied().collect();
    let found = match symbols::namesakes(&names) {
        Ok(found) => found,
        Err(error) => {
            return vec![format!("whether other functions have the same name is not known: {error}")];
        }
    };
    let shared: Vec<String> = traced
        .iter()
        .zip(&found)
        .filter_map(|((name, places), symbols)| {
            let found: Vec<Option<&str>> = symbols.iter().map(|s| s.module.as_deref()).collect();
            sentence(name, places, &found)
        })
        .collect();
    let named = if log::log_enabled!(log::Level::Debug) { shared.len() } else { NAMED };
    let more = shared.len().saturating_sub(named);
    let mut lines: Vec<String> = shared.into_iter().take(named).collect();
    if more > 0 {
        lines.push(format!("and {more} more functions that share their names (-v names them)"));
    }
    lines
}

/// What to say of one name: where it is traced, and all places where functions have it.
fn sentence(name: &str, traced: &[Option<&str>], found: &[Option<&str>]) -> Option<String> {
    if found.len() <= traced.len() {
        return None;
    }
    let mut places: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for place in found {
        *places.entry(*place).or_default() += 1;
    }
    let said: Vec<String> = places
        .iter()
        .map(|(place, n)| match (place, traced.contains(place)) {
            (None, true) => format!("{n} in the kernel itself"),
            (None, false) => format!("{n} in the kernel itself (-k vmlinux:{name})"),
            (Some(m), true) => format!("{n} in {m}"),
            (Some(m), false) => format!("{n} in {m} (-k {m}:{name})"),
        })
        .collect();
    if places.keys().all(Option::is_none) && traced.len() == 1 {
        return Some(format!("{name}: {} functions have this name; only the first is traced", found.len()));
    }
    let where_ = traced.iter().map(|p| p.map_or("the kernel itself".to_string(), |m| m.to_string()));
    let where_: Vec<String> = where_.collect();
    Some(format!(
        "{name}: {} functions have this name: {}; only the first in {} is traced",
        found.len(),
        said.join(", "),
        where_.join(" and in ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_traced_is_named_with_the_way_to_it() {
        assert_eq!(sentence("vfs_read", &[None], &[None]), None);
        assert_eq!(sentence("hidden", &[None], &[]), None);
        assert_eq!(sentence("s_next", &[None, Some("nf")], &[None, Some("nf")]), None, "both are traced");
        assert_eq!(
            sentence("s_next", &[None], &[None, None, Some("nf_tables")]).as_deref(),
            Some(
                "s_next: 3 functions have this name: 2 in the kernel itself, 1 in nf_tables (-k nf_tables:s_next); only \
                the first in the kernel itself is traced"
            )
        );
        assert_eq!(
            sentence("s_next", &[Some("nf")], &[None, Some("nf")]).as_deref(),
            Some(
                "s_next: 2 functions have this name: 1 in the kernel itself (-k vmlinux:s_next), 1 in nf; only the first in nf is traced"
            )
        );
    }
}
