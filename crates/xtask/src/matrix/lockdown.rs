//! A kernel that is locked down, which lasts until it is booted again: these checks are a boot's last.

use anyhow::ensure;

use super::Check;

pub(super) const CHECKS: &[Check] = &[Check {
    name: "case 12: a kernel that is locked down and lets no program read its memory: what still goes, and one line on what does not",
    command: r"
        echo confidentiality >/sys/kernel/security/lockdown || exit 97
        btrace -k vfs_read; echo $?
        workloads read-zero 1000000 9 & w=$!
        btrace -k vfs_read --no-pointees --limit-events 3; echo $?
        kill $w",
    judge: |ran| {
        ensure!(ran.status == 0, "exit status {}", ran.status);
        let said =
            ran.stderr.lines().filter(|l| l.contains("locked down") && l.contains("lockdown=integrity"));
        ensure!(said.count() == 1, "{}", ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(lines.first() == Some(&"2") && lines.last() == Some(&"0") && lines.len() == 5, "{lines:?}");
        ensure!(lines[1..4].iter().all(|l| l.contains("(size_t)count=")), "{lines:?}");
        Ok(())
    },
}];
