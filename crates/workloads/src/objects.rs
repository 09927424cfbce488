//! What BPF objects the kernel holds, whoever made them: what a tracer left behind shows as a difference.

use crate::{Outcome, Trouble};

/// `KIND ID` of every program, map and link, in that order and by ascending id.
pub fn list() -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    for (kind, ids) in [("program", bpf::program_ids()), ("map", bpf::map_ids()), ("link", bpf::link_ids())] {
        let ids = ids.map_err(|error| Trouble::Unexpected(error.to_string()))?;
        lines.extend(ids.iter().map(|id| format!("{kind} {id}")));
    }
    Ok(lines)
}
