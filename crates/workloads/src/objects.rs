//! What BPF objects the kernel holds, whoever made them: what a tracer left behind shows as a difference.

use crate::{Outcome, Trouble};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// `KIND ID` of every program, map and link, in that order and by ascending id.
pub fn list() -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    for (kind, ids) in [("program", bpf::program_ids()), ("map", bpf::map_ids()), ("link", bpf::link_ids())] {
        let ids = ids.map_err(|error| Trouble::Unexpected(error.to_string()))?;
        lines.extend(ids.iter().map(|id| format!("{kind} {id}")));
    }
    Ok(lines)
}

/// How long the kernel may take to let go of what was closed: it does so after its grace periods, in a worker of its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until there is nothing but what `path` lists, as [`list`] printed it; an error names what is left over. Some of what
/// is listed may be gone: it was on its way out already, of whoever came before.
pub fn wait_for(path: &str) -> Outcome<()> {
    let before = std::fs::read_to_string(path)?;
    let before: BTreeSet<String> = before.lines().map(ToString::to_string).collect();
    let begin = Instant::now();
    loop {
        let now: BTreeSet<String> = list()?.into_iter().collect();
        let left: Vec<&str> = now.difference(&before).map(String::as_str).collect();
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(Trouble::Unexpected(format!("left over: {}", left.join(", "))));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
