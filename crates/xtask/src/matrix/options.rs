//! Options of the command: filters, colours, `doctor`, what is said.

use super::Check;
use anyhow::{Context, ensure};

pub(super) const CHECKS: &[Check] =
    &[DOCTOR, SYSTEMS, NO_TRACEFS, CGROUPS, CGROUP_NAMESPACE, NO_CGROUP, MODULES_IN_JSON, PROCESS_ENDS];

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

const CGROUPS: Check = Check {
    name: "only a cgroup and what is below it, by either of its paths, several, at entry and exit",
    command: r#"
        in_cgroup() { mkdir -p /sys/fs/cgroup/$1; c=$1; shift; sh -c 'echo $$ >/sys/fs/cgroup/'$c'/cgroup.procs; exec "$@"' sh "$@"; }
        reads() { grep -o -E 'count=1[1-4],' /tmp/o | sort | uniq -c | while read n what; do echo -n "$n $what"; done; }
        mkdir -p /sys/fs/cgroup/a/b/c /sys/fs/cgroup/d /sys/fs/cgroup/ab
        work() {
            in_cgroup a workloads read-zero 3 11; in_cgroup a/b/c workloads read-zero 4 12
            in_cgroup d workloads read-zero 5 13; in_cgroup ab workloads read-zero 6 14; workloads read-zero 7 14
        }
        for f in '--filter-cgroup /a' '--filter-cgroup /sys/fs/cgroup/a/b' '--filter-cgroup 0::/a/b/c/ --filter-cgroup /d' \
            '--mode entry --filter-cgroup /d --filter-cgroup /ab' '--filter-cgroup /'; do
            traced -k vfs_read -o /tmp/o $f; work; kill -INT $b; wait $b; echo "$? $(reads)"
        done"#,
    judge: |ran| {
        let lines: Vec<&str> = ran.stdout.lines().collect();
        let want = [
            "0 3 count=11,4 count=12,",
            "0 4 count=12,",
            "0 4 count=12,5 count=13,",
            "0 5 count=13,6 count=14,",
            "0 3 count=11,4 count=12,5 count=13,13 count=14,",
        ];
        ensure!(lines == want, "{lines:?}");
        Ok(())
    },
};

const CGROUP_NAMESPACE: Check = Check {
    name: "cgroups from within a cgroup namespace: its own paths, and folders",
    command: r#"
        cat >/tmp/inside.sh <<'EOF'
            cat /proc/self/cgroup
            mkdir -p /tmp/cg; mount -t cgroup2 none /tmp/cg; mkdir -p /tmp/cg/under
            for f in /under /tmp/cg/under /sys/fs/cgroup/out/in/under; do
                btrace -k vfs_read --filter-cgroup $f -o /tmp/o -c 'workloads read-zero 2 12
                    sh -c "echo \$\$ >/tmp/cg/under/cgroup.procs; exec workloads read-zero 3 11"'
                echo "$? $(grep -c count=11, /tmp/o) $(grep -c count=12, /tmp/o)"
            done
            umount /tmp/cg
EOF
        mkdir -p /sys/fs/cgroup/out/in
        sh -c 'echo $$ >/sys/fs/cgroup/out/in/cgroup.procs; exec workloads cgroup-namespace "sh /tmp/inside.sh"'"#,
    judge: |ran| {
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(ran.status == 0, "{}", ran.status);
        ensure!(lines.contains(&"0::/"), "no namespace: {lines:?}");
        let counts: Vec<&&str> =
            lines.iter().filter(|l| l.starts_with("0 ") || l.starts_with("2 ")).collect();
        ensure!(counts == [&"0 3 0", &"0 3 0", &"0 3 0"], "{lines:?}");
        Ok(())
    },
};

const NO_CGROUP: Check = Check {
    name: "a cgroup that is not there, and no cgroup2: one clear line",
    command: r"
        for c in /not/there relative /sys/fs/cgroup/cgroup.procs; do btrace -k vfs_read --filter-cgroup $c; echo $?; done
        umount /sys/fs/cgroup && { btrace -k vfs_read --filter-cgroup /; echo $?; mount -t cgroup2 none /sys/fs/cgroup; }",
    judge: |ran| {
        ensure!(ran.stdout == "2\n2\n2\n2\n", "{:?}", ran.stdout);
        ensure!(ran.stderr.lines().count() == 4, "{}", ran.stderr);
        let said: Vec<&str> = ran.stderr.lines().collect();
        for part in [
            "cgroup /not/there: there is no such cgroup (/sys/fs/cgroup/not/there)",
            "cgroup relative: a cgroup's path begins with /",
            "is not a cgroup, but a file of one",
            "no cgroup2 file system is mounted",
        ] {
            ensure!(said.iter().any(|l| l.starts_with("btrace: ") && l.contains(part)), "{part}: {said:?}");
        }
        Ok(())
    },
};

const MODULES_IN_JSON: Check = Check {
    name: "JSON names the module of what is in one, and says of the rest that it is in none; a module's by its name",
    command: r"
        dd if=/dev/zero of=/tmp/img bs=4096 count=10 2>/dev/null
        btrace -k loop:lo_ioctl,vfs_read --json -c 'losetup /dev/loop0 /tmp/img'; s=$?
        losetup -d /dev/loop0 2>/dev/null; exit $s",
    judge: |ran| {
        if ran.status == 2 {
            return super::judging::refused(ran, super::judging::NO_MODULE_TYPES);
        }
        super::judging::no_loss(ran)?;
        let events = super::judging::json(ran)?;
        let of = |target: &str| events.iter().find(|e| e["target"] == target).cloned();
        let module = of("loop:lo_ioctl").context("loop:lo_ioctl")?;
        ensure!(module["module"] == "loop", "{module}");
        ensure!(events.iter().filter(|e| e["target"] != "loop:lo_ioctl").all(|e| e["module"].is_null()));
        Ok(())
    },
};

const PROCESS_ENDS: Check = Check {
    name: "a trace of processes ends by itself when the last of them has ended, nothing of them missing",
    command: r"
        waiting read-zero 4000 11; first=$w
        waiting read-zero 500 12; second=$w
        traced -k vfs_read --filter-pid $first --filter-pid $second -o /tmp/o
        kill -USR1 $first; wait $first; sleep 0.3; kill -0 $b && echo 'goes on'
        kill -USR1 $second; wait $second
        for i in $(seq 100); do kill -0 $b 2>/dev/null || break; sleep 0.1; done
        kill -9 $b 2>/dev/null && echo 'had to be killed'
        wait $b; echo $?; cat /tmp/said >&2
        grep -c count=11, /tmp/o; grep -c count=12, /tmp/o; grep -c 'has ended$' /tmp/said",
    judge: |ran| {
        ensure!(ran.stdout == "goes on\n0\n4000\n500\n2\n", "{:?}", ran.stdout);
        let (_, lost) = super::judging::summary(ran)?;
        ensure!(lost == 0, "{lost} lost");
        Ok(())
    },
};

const DOCTOR: Check = Check {
    name: "doctor tells what the kernel has, and trying it leaves no trace",
    command: r"
        warnings() { dmesg | grep -c -E 'WARNING:|BUG:|Oops'; }
        before=$(warnings)
        btrace doctor >/tmp/d || exit; grep -E '^(ok|no|\?) ' /tmp/d | wc -l; grep '^btrace works' /tmp/d; grep -c '^Not with --output-lbr: ' /tmp/d
        btrace doctor --json
        cat /sys/kernel/tracing/enabled_functions /sys/kernel/debug/kprobes/list | wc -l
        [ $(warnings) = $before ]",
    judge: |ran| {
        ensure!(ran.status == 0, "status {}: {}", ran.status, ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(lines.len() == 5, "{lines:?}");
        ensure!(
            lines[1]
                == "btrace works here with -k, -p, -t, -c, -d, --output-stack, --output-path, --filter-cgroup.",
            "{}",
            lines[1]
        );
        ensure!(lines[2] == "1", "{lines:?}");
        let all: serde_json::Value = serde_json::from_str(lines[3])?;
        let findings = all["findings"].as_array().context("findings")?;
        ensure!(lines[0] == findings.len().to_string(), "{} and {}", lines[0], findings.len());
        let state = |what: &str| findings.iter().find(|f| f["what"] == what).map(|f| f["state"].clone());
        for what in ["fentry", "fexit", "kprobe", "kretprobe", "tp_btf", "raw_tp", "ring buffer", "cgroup2"] {
            ensure!(state(what) == Some("ok".into()), "{what}: {:?}", state(what));
        }
        ensure!(lines[4] == "0", "{} still attached", lines[4]);
        // What came at one time is there together or not at all.
        ensure!(state("kprobe_multi") == Some("ok".into()) || state("fsession") == Some("no".into()));
        ensure!(state("tracing_multi") == Some("ok".into()) || state("bpf_session_cookie").is_some());
        Ok(())
    },
};
