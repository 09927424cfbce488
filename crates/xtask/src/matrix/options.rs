//! Options of the command: filters, colours, `doctor`, what is said.

use super::Check;
use anyhow::{Context, ensure};

pub(super) const CHECKS: &[Check] = &[Check {
    name: "doctor tells what the kernel has, and trying it leaves no trace",
    command: r"
        warnings() { dmesg | grep -c -E 'WARNING:|BUG:|Oops'; }
        before=$(warnings)
        btrace doctor >/tmp/d || exit; grep -E '^(ok|no|\?) ' /tmp/d | wc -l; tail -n 1 /tmp/d
        btrace doctor --json
        cat /sys/kernel/tracing/enabled_functions /sys/kernel/debug/kprobes/list | wc -l
        [ $(warnings) = $before ]",
    judge: |ran| {
        ensure!(ran.status == 0, "status {}: {}", ran.status, ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(lines.len() == 4, "{lines:?}");
        ensure!(
            lines[1] == "btrace works here with -k, -p, -t, -c, --output-stack, --filter-cgroup.",
            "{}",
            lines[1]
        );
        let all: serde_json::Value = serde_json::from_str(lines[2])?;
        let findings = all["findings"].as_array().context("findings")?;
        ensure!(lines[0] == findings.len().to_string(), "{} and {}", lines[0], findings.len());
        let state = |what: &str| findings.iter().find(|f| f["what"] == what).map(|f| f["state"].clone());
        for what in ["fentry", "fexit", "kprobe", "kretprobe", "tp_btf", "raw_tp", "ring buffer", "cgroup2"] {
            ensure!(state(what) == Some("ok".into()), "{what}: {:?}", state(what));
        }
        ensure!(lines[3] == "0", "{} still attached", lines[3]);
        // What came at one time is there together or not at all.
        ensure!(state("kprobe_multi") == Some("ok".into()) || state("fsession") == Some("no".into()));
        ensure!(state("tracing_multi") == Some("ok".into()) || state("bpf_session_cookie").is_some());
        Ok(())
    },
}];
