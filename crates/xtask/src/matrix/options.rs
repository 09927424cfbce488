//! Options of the command: filters, colours, `doctor`, what is said.

use super::Check;
use anyhow::{Context, ensure};

pub(super) const CHECKS: &[Check] = &[DOCTOR, SYSTEMS, NO_TRACEFS];

const SYSTEMS: Check = Check {
    name: "tracepoints by system:name, globs, and the right system for a wrong one",
    command: r"
        btrace --dry-run -t 'sched:sched_process_e*' | grep -v '^ '
        btrace -t sched:sched_process_exec --json -c 'workloads exec-true 2' | grep -c sched_process_exec
        btrace list -t 'sched:*' | wc -l; ls -d /sys/kernel/tracing/events/sched/*/ | wc -l
        for t in irq:sched_switch sched:sched_swich syscalls:sys_enter_openat nonsense:x; do btrace -t $t -c true; echo $?; done",
    judge: |ran| {
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(lines.len() == 9, "{lines:?}");
        ensure!(
            lines[0].starts_with("sched_process_exec tp_btf, ") || lines[0].starts_with("sched_process_exit")
        );
        ensure!(lines[2] == "3", "{lines:?}");
        // Some events may share a tracepoint, and some tracepoints of the system have none.
        ensure!(lines[3] == lines[4], "{} tracepoints of {} events", lines[3], lines[4]);
        ensure!(lines[5..] == ["2", "2", "2", "2"], "{lines:?}");
        let said: Vec<&str> =
            ran.stderr.lines().filter(|l| l.contains(':') && l.starts_with("btrace: ")).collect();
        for part in [
            "its system is sched: btrace -t sched:sched_switch",
            "did you mean sched_switch?",
            "btrace -k __x64_sys_openat",
            "neither a tracepoint system nor a loaded module is named nonsense",
        ] {
            ensure!(said.iter().filter(|l| l.contains(part)).count() == 1, "{part}: {}", ran.stderr);
        }
        Ok(())
    },
};

const NO_TRACEFS: Check = Check {
    name: "system:name without tracefs: taken at its word, and that is said",
    command: r"
        umount /sys/kernel/debug/tracing 2>/dev/null; umount /sys/kernel/tracing || exit
        btrace -t irq:softirq_entry --limit-events 1 -o /tmp/o -c 'workloads connect-loopback 3' >/dev/null; wc -l </tmp/o
        btrace list -t 'sched:*' >/tmp/l; grep -c ' sched_' /tmp/l; grep -v -c ' sched_' /tmp/l
        mount -t tracefs none /sys/kernel/tracing",
    judge: |ran| {
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(ran.status == 0 && lines.len() == 3, "{} {lines:?}", ran.status);
        ensure!(lines[0] == "1" && lines[2] == "0", "{lines:?}");
        ensure!(lines[1].parse::<u32>().is_ok_and(|n| n > 10), "{lines:?}");
        ensure!(ran.stderr.contains("whether its system is irq could not be checked"), "{}", ran.stderr);
        ensure!(ran.stderr.contains("taken by the names that begin like the system"), "{}", ran.stderr);
        Ok(())
    },
};

const DOCTOR: Check = Check {
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
};
