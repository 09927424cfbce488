//! A kernel that is locked down, which lasts until it is booted again: these checks are a boot's last.

use anyhow::ensure;

use super::Check;

pub(super) const CHECKS: &[Check] = &[Check {
    name: "case 12: a kernel that is locked down and lets no program read its memory: what still goes, and one line on what does not",
    command: r"
        echo confidentiality >/sys/kernel/security/lockdown || exit 97
        btrace -k vfs_read; echo $?
        (while :; do workloads sleep-ms 1; done) & w=$!
        btrace -k do_nanosleep --no-pointees --limit-events 3; echo $?
        btrace -d -k vfs_read; echo $?
        kill $w; btrace doctor | grep '^Not with'; true",
    judge: |ran| {
        ensure!(ran.status == 0, "exit status {}", ran.status);
        for flag in ["-c", "-d"] {
            let begins = [format!("Not with {flag}: "), format!("Not with {flag}, ")];
            let told = ran.stdout.lines().any(|l| begins.iter().any(|begin| l.starts_with(begin)));
            ensure!(told, "no {flag} in {}", ran.stdout);
        }
        let said = ran
            .stderr
            .lines()
            .filter(|l| l.starts_with("btrace: vfs_read: ") && l.contains("lockdown=integrity"));
        ensure!(said.count() == 1, "{}", ran.stderr);
        // Nor is there a file that has the code.
        let why = "by a BPF program: ";
        let said = ran
            .stderr
            .lines()
            .filter(|l| l.contains(why) && l.ends_with("; no file of this kernel with its code was found"));
        ensure!(said.count() == 1, "{}", ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(
            lines.first() == Some(&"2") && lines.get(4..6) == Some(&["0", "2"]) && lines.len() >= 8,
            "{lines:?}"
        );
        ensure!(lines.iter().skip(6).all(|line| line.starts_with("Not with ")), "{lines:?}");
        ensure!(
            lines[1..4]
                .iter()
                .all(|l| l.starts_with("do_nanosleep args=((struct hrtimer_sleeper *)t=0xffff")),
            "{lines:?}"
        );
        Ok(())
    },
}];
