//! Many functions by one program: what each of them can answer.

use super::{Check, named, outputs, runs};
use crate::frames::Ran;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

pub(in super::super) const CHECKS: &[Check] = &[GLOB, BOTH, KINDS, GATHERED, STOPPED];

const GLOB: Check = Check {
    name: "expressions: vfs_* by the method for many: filters on an argument that not all have: those without are said, the rest go on",
    command: r#"
        cat >/tmp/work.sh <<'EOF'
            workloads read-zero 7 19; dd if=/dev/zero of=/tmp/file bs=19 count=5 2>/dev/null; dd if=/tmp/file of=/dev/null bs=20 count=2 2>/dev/null
EOF
        for m in entry exit both; do
            run $m -k 'vfs_*' --mode $m --filter-arg 'count == 19' --output-arg count --output-arg '$comm' -c 'sh /tmp/work.sh'
            run $m-name -k 'vfs_*' --mode $m --filter-arg 'file->f_path.dentry->d_name.name == "file"' --filter-arg '$comm == "dd"' -c 'sh /tmp/work.sh'
        done
        run returned -k 'vfs_*' --filter-arg '$retval == 19 && $duration > 0' --output-arg '$retval' -c 'sh /tmp/work.sh'
        run bound -k 'vfs_*' --filter-arg 'vfs_read:count == 19' --filter-arg 'vfs_write:count == 19' --filter-arg '$comm == "dd"' -c 'sh /tmp/work.sh'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for (mode, ends) in [("entry", 1), ("exit", 1), ("both", 2)] {
            let run = named(&runs, mode)?;
            let of =
                |run: &super::Run, target: &str| run.events.iter().filter(|e| e["target"] == target).count();
            run.is_well()?;
            // /dev/zero by both programs; written by one.
            ensure!(
                (of(run, "vfs_read"), of(run, "vfs_write")) == (12 * ends, 5 * ends),
                "{mode}: {:?}",
                run.said
            );
            for event in run.events.iter().filter(|e| e["target"] == "vfs_read" || e["target"] == "vfs_write")
            {
                ensure!(
                    outputs(event)[0]["value"] == 19 && outputs(event)[1]["value"] == event["comm"],
                    "{event}"
                );
            }
            let name = named(&runs, &format!("{mode}-name"))?;
            name.is_well()?;
            ensure!(
                (of(name, "vfs_read"), of(name, "vfs_write")) == (2 * ends, 5 * ends),
                "{mode}: {:?}",
                name.said
            );
        }
        let returned = named(&runs, "returned")?;
        returned.is_well()?;
        ensure!(returned.events.iter().all(|e| outputs(e)[0]["value"] == 19), "returned");
        ensure!(
            returned.events.iter().filter(|e| e["target"] == "vfs_read").count() == 12,
            "{:?}",
            returned.said
        );
        let bound = named(&runs, "bound")?;
        bound.is_well()?;
        let of = |target: &str| bound.events.iter().filter(|e| e["target"] == target).count();
        ensure!((of("vfs_read"), of("vfs_write")) == (5, 5), "{:?}", bound.said);
        ensure!(of("vfs_open") > 0, "targets without a filter of their own go on");
        ensure!(
            ran.stderr.contains("has no 'count'"),
            "nothing is said of those that have no such argument: {}",
            ran.stderr
        );
        Ok(())
    },
};

const BOTH: Check = Check {
    name: "expressions: entries and exits of many functions: a call that is rejected at its entry shows no exit, and leaves nothing behind",
    command: r#"
        run pairs -k 'vfs_*' --mode both --filter-arg 'count == 19' --output-arg count -c 'workloads read-zero 100 18; workloads read-zero 50 19; workloads read-zero 1000 18'
        run nested -k 'vfs_*' --mode both --filter-arg '$comm == "ls" || $comm == "workloads"' -c 'workloads read-zero 40 19; ls -lR /proc/self >/dev/null 2>&1; true'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let run = named(&runs, "pairs")?;
        run.is_well()?;
        let reads = run.events.iter().filter(|e| e["comm"] == "workloads" && e["target"] == "vfs_read");
        ensure!(reads.count() == 100, "{:?}", run.said);
        for run in &runs {
            paired(run)?;
        }
        Ok(())
    },
};

/// Each entry has its exit, with a duration, and the other way round.
fn paired(run: &super::Run) -> Result<()> {
    run.is_well()?;
    let mut open = std::collections::HashMap::new();
    for event in &run.events {
        let key = (event["call"].as_str().context("call")?, event["target"].as_str().context("target")?);
        if event["event"] == "entry" {
            ensure!(open.insert(key, event).is_none(), "an entry twice: {event}");
        } else {
            let entry = open
                .remove(&key)
                .with_context(|| format!("{}: an exit without its entry: {event}", run.name))?;
            // What is behind pointers is read anew.
            let values = |e: &Value| {
                e["args"].as_array().map(|args| args.iter().map(|a| a["value"].clone()).collect::<Vec<_>>())
            };
            ensure!(values(entry) == values(event) && event["duration_ns"].is_u64(), "{entry} {event}");
            ensure!(outputs(entry) == outputs(event), "{entry} {event}");
        }
    }
    // A call that the trace ended in has no exit.
    ensure!(open.len() <= 1, "{}: {} entries without exits", run.name, open.len());
    Ok(())
}

const KINDS: Check = Check {
    name: "expressions: more than 48 kinds of records by one trace, each with its outputs; on older kernels fewer functions",
    command: r#"
        grep -q -E ' bpf_(session_cookie|kprobe_multi_link_attach)$' /proc/kallsyms && grep -q ' bpf_session_is_return$' /proc/kallsyms &&
            functions='tcp_*,ip_*,inet_*,sk_*,sock_*' || functions='tcp_v*,tcp_s*,tcp_connect,inet_*'
        for m in entry exit; do
            run $m -k "$functions" --mode $m --filter-arg '$comm == "workloads"' --filter-arg 'tcp_v4_connect:addr_len == 16' --output-arg '$pid' --output-arg '$comm' \
                --output-arg '$task->comm' --output-arg 'tcp_v4_connect:addr_len' --output-arg 'tcp_connect:port(sk->__sk_common.skc_dport)' -c 'workloads connect-loopback 6 >/tmp/ports'
            echo "== ports 0 -"; cat /tmp/ports | cut -d ' ' -f 2 | head -n 1
        done >/tmp/kinds; sed '/^{/s/"args":\[.*\],"out"/"args":[],"out"/; /^{/s/"retval":{.*},"out"/"out"/' /tmp/kinds"#,
    judge: kinds,
};

fn kinds(ran: &Ran) -> Result<()> {
    let (mut ports, mut rest) = (Vec::new(), String::new());
    for line in ran.stdout.lines() {
        match line.parse::<u64>() {
            Ok(port) => ports.push(port),
            Err(_) if line.starts_with("== ports") => {}
            Err(_) => rest += &format!("{line}\n"),
        }
    }
    ensure!(ports.len() == 2, "{ports:?}");
    let ran = Ran { status: ran.status, stdout: rest, stderr: ran.stderr.clone() };
    let (_, runs) = runs(&ran)?;
    for (mode, port) in ["entry", "exit"].iter().zip(ports) {
        let run = named(&runs, mode)?;
        run.is_well()?;
        let of = |target: &str| run.events.iter().filter(|e| e["target"] == target).collect::<Vec<_>>();
        ensure!(of("tcp_v4_connect").len() == 6 && of("tcp_connect").len() <= 6, "{}", run.said);
        for event in &run.events {
            let own: Vec<_> = outputs(event).iter().map(|o| &o["value"]).collect();
            ensure!(
                own.len() >= 3
                    && *own[0] == event["pid"]
                    && *own[1] == event["comm"]
                    && *own[2] == event["comm"],
                "{event}"
            );
            match event["target"].as_str() {
                Some("tcp_v4_connect") => ensure!(own[3..] == [&json!(16)], "{event}"),
                Some("tcp_connect") => ensure!(own[3..] == [&json!(port)], "{event}"),
                _ => ensure!(own.len() == 3, "{event}"),
            }
        }
        let targets: std::collections::BTreeSet<_> =
            run.events.iter().filter_map(|e| e["target"].as_str()).collect();
        ensure!(targets.len() > 10, "{targets:?}");
    }
    Ok(())
}

const GATHERED: Check = Check {
    name: "expressions: gathered over many functions: one table, counts right",
    command: r#"
        run all -k 'vfs_*' --filter-arg '$comm == "workloads"' --output-arg 'count()' --output-arg 'sum($retval == 19)' -c 'workloads read-zero 300 19'
        run read -k 'vfs_read,vfs_write' --filter-arg 'count in (19, 23)' --output-arg 'count() by (count)' --output-arg 'sum($retval) by ($comm)' --output-arg 'max(count)' \
            -c 'workloads read-zero 300 19; dd if=/dev/zero of=/dev/null bs=23 count=10 2>/dev/null'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let entries = |run: &str, text: &str| -> Result<Vec<serde_json::Value>> {
            let tally = named(&runs, run)?.tally(text)?;
            Ok(tally["entries"].as_array().context("entries")?.clone())
        };
        ensure!(
            entries("all", "sum($retval == 19)")?[0]["value"] == 300,
            "{:?}",
            entries("all", "sum($retval == 19)")?
        );
        ensure!(entries("all", "count()")?[0]["value"].as_u64().is_some_and(|n| n >= 300));
        let counts: Vec<_> = entries("read", "count() by (count)")?
            .iter()
            .map(|e| (e["keys"][0]["value"].as_u64(), e["value"].as_u64()))
            .collect();
        ensure!(counts == [(Some(19), Some(300)), (Some(23), Some(20))], "{counts:?}");
        let sums: Vec<_> = entries("read", "sum($retval) by ($comm)")?
            .iter()
            .map(|e| (e["keys"][0]["value"].as_str().unwrap_or("?").to_string(), e["value"].as_u64()))
            .collect();
        ensure!(sums == [("workloads".to_string(), Some(5700)), ("dd".to_string(), Some(460))], "{sums:?}");
        ensure!(entries("read", "max(count)")?[0]["value"] == 23);
        Ok(())
    },
};

const STOPPED: Check = Check {
    name: "expressions: Ctrl-C while the programs of many targets with many expressions are written: it ends, the command never ran, nothing is left",
    command: r#"
        workloads bpf-objects >/tmp/before
        for n in $(seq 40); do set -- "$@" --output-arg "\$task->mm->exe_file->f_flags + $n"; done
        btrace -k 'tcp_*,vfs_*' "$@" -c 'echo ran >/tmp/ran; sleep 1000' >/dev/null 2>/tmp/said & b=$!
        workloads sleep-ms 700; kill -INT $b; wait $b; echo "status $?"
        cat /tmp/said; [ -e /tmp/ran ] && echo ran
        workloads only-objects /tmp/before && echo same"#,
    judge: |ran| {
        let lines: Vec<&str> = ran.stdout.lines().collect();
        let stopped = "btrace: ended before everything was attached; nothing was traced";
        ensure!(lines.first() == Some(&"status 0") && lines.last() == Some(&"same"), "{lines:?}");
        ensure!(lines.contains(&stopped) && !lines.contains(&"ran"), "{lines:?}");
        Ok(())
    },
};
