//! Checks of the request against the machine, before anything is loaded.

use anyhow::{Context, bail};

/// Refuses process and thread ids that nobody has, and thread ids given for processes: events of a thread carry its process's id.
pub fn ids(pids: &[u32], tids: &[u32]) -> anyhow::Result<()> {
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let status = match std::fs::read_to_string(&path) {
            Ok(status) => status,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                bail!("--filter-pid {pid}: no such process")
            }
            Err(e) => return Err(e).with_context(|| format!("read {path}")),
        };
        let tgid = status.lines().find_map(|l| l.strip_prefix("Tgid:")).map(str::trim);
        if let Some(tgid) = tgid.filter(|t| *t != pid.to_string()) {
            bail!("--filter-pid {pid}: that is a thread of process {tgid}; name the process");
        }
    }
    for tid in tids {
        if !std::path::Path::new(&format!("/proc/{tid}/status")).exists() {
            bail!("--filter-tid {tid}: no such thread");
        }
    }
    Ok(())
}
