//! What begins with a dollar, and names of the kernel: each beside what the event says of it, or what /proc and sysctl say.

use super::{Check, named, outputs, runs};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

pub(in super::super) const CHECKS: &[Check] = &[SPECIALS, UNTOLD, FILTERED, VARIABLES, FAILURES, CODE];

const SPECIALS: Check = Check {
    name: "expressions: $pid, $tid, $comm, $cpu, $ns, $duration, $ctx, $cgroup, $task, $args, $retval are what the event says",
    command: r#"
        mkdir -p /sys/fs/cgroup/words
        # Where the kernel tells no context, see the check of what it does not tell.
        c='$ctx'; btrace -k vfs_read --dry-run --output-arg '$ctx' >/dev/null 2>&1 || c='-1'
        for m in entry exit; do
            d='$ns'; [ $m = exit ] && d='$duration'
            run $m -k vfs_read --mode $m --filter-arg 'count == 19' --output-arg '$pid' --output-arg '$tid' --output-arg '$comm' --output-arg '$cpu' \
                --output-arg '$ns' --output-arg "$d" --output-arg "$c" --output-arg '$cgroup' --output-arg '$task->pid' --output-arg '$task->tgid' \
                --output-arg '$task->comm' --output-arg '$args[2]' --output-arg '$args[0] == file' --output-arg '$task->real_parent->pid' \
                --output-arg '$task' -c 'echo $$ >/sys/fs/cgroup/words/cgroup.procs; echo $$ >/tmp/shell; workloads --pid read-zero 3 19 >/tmp/w; true'
            echo "== of-$m $(stat -c %i /sys/fs/cgroup/words) $(cat /tmp/shell) $(cat /tmp/w)" >>/tmp/said.words
        done
        sed 's/^== of/=/' /tmp/said.words >&2"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for mode in ["entry", "exit"] {
            let run = named(&runs, mode)?;
            run.has(3)?;
            let said =
                ran.stderr.lines().find_map(|l| l.strip_prefix(&format!("=-{mode} "))).context("ids")?;
            let said: Vec<u64> = said.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            let [cgroup, shell, pid] = said.as_slice() else { anyhow::bail!("{said:?}") };
            for event in &run.events {
                let [p, t, comm, cpu, ns, last, ctx, cg, tid, tgid, name, size, same, parent, task] =
                    outputs(event)
                else {
                    anyhow::bail!("{event}")
                };
                let value = |of: &Value| of["value"].clone();
                ensure!(value(p) == event["pid"] && value(t) == event["tid"] && value(p) == *pid, "{event}");
                ensure!(value(comm) == event["comm"] && value(name) == "workloads", "{event}");
                ensure!(value(cpu) == event["cpu"] && value(ns) == event["time_ns"], "{event}");
                let end = if mode == "exit" { "duration_ns" } else { "time_ns" };
                ensure!(value(last) == event[end], "{event}");
                match event["context"].is_null() {
                    true => ensure!(value(ctx) == -1, "{event}"),
                    false => ensure!(
                        ctx["text"] == "task" && ctx["type"] == "enum context" && event["context"] == "task",
                        "{event}"
                    ),
                }
                ensure!(value(cg) == *cgroup && value(parent) == *shell, "{event}");
                ensure!(value(tid) == event["tid"] && value(tgid) == event["pid"], "{event}");
                ensure!(value(size) == 19 && value(same) == 1, "{event}");
                ensure!(
                    task["type"] == "struct task_struct *" && task["pointee"]["comm"] == "workloads",
                    "{event}"
                );
            }
        }
        Ok(())
    },
};

const UNTOLD: Check = Check {
    name: "expressions: $ctx where the kernel does not tell it is refused wherever it stands, else it is what the event says",
    command: r#"
        btrace -k vfs_read --json --limit-events 1 -c 'workloads read-zero 1 1' 2>/dev/null | grep -c '"context":"task"'
        run out -k vfs_read --output-arg '$ctx' -c 'workloads read-zero 3 19'
        run filter -k vfs_read --filter-arg 'count == 19 && $ctx == "task"' -c 'workloads read-zero 3 19'
        run nmi -k vfs_read --filter-arg 'count == 19 && $ctx == "nmi"' -c 'workloads read-zero 3 19'
        run key -k vfs_read --filter-arg 'count == 19' --output-arg 'count() by ($ctx)' -c 'workloads read-zero 3 19'
        run gathered -k vfs_read --filter-arg 'count == 19' --output-arg 'max($ctx)' -c 'workloads read-zero 3 19'
        run many -k 'vfs_read,vfs_write' --filter-arg '$ctx in ("task", "softirq")' -c 'workloads read-zero 3 19'"#,
    judge: |ran| {
        let (before, runs) = runs(ran)?;
        if before == ["0"] {
            for run in &runs {
                let said = "$ctx: this kernel does not tell where its preempt count is";
                ensure!(
                    run.status == 2
                        && run.said.contains(said)
                        && run.events.is_empty()
                        && run.tallies.is_empty(),
                    "{}: {}: {}",
                    run.name,
                    run.status,
                    run.said
                );
            }
            return Ok(());
        }
        ensure!(before == ["1"], "{before:?}");
        for (name, events) in [("filter", 3), ("nmi", 0)] {
            named(&runs, name)?.has(events)?;
        }
        for name in ["out", "many"] {
            named(&runs, name)?.is_well()?;
        }
        let key = &named(&runs, "key")?.tally("count() by ($ctx)")?["entries"];
        ensure!(key[0]["keys"][0]["text"] == "task" && key[0]["value"] == 3, "{key}");
        ensure!(named(&runs, "gathered")?.tally("max($ctx)")?["entries"][0]["value"] == 0, "max");
        Ok(())
    },
};

const FILTERED: Check = Check {
    name: "expressions: filters on what begins with a dollar",
    command: r#"
        work='workloads read-zero 4 19; workloads threads 3 5; (exec -a x true); dd if=/dev/zero of=/dev/null bs=19 count=2 2>/dev/null'
        run comm -k vfs_read --filter-arg '$comm == "dd" && count == 19' -c "$work"
        run comms -k vfs_read --filter-arg '$comm in ("dd", "workloads") && count == 19' -c "$work"
        run threads -k vfs_read --filter-arg '$pid != $tid && count == 512' -c "$work"
        run task -k vfs_read --filter-arg '$task->tgid != $task->pid && count == 512' -c "$work"
        run leader -k vfs_read --filter-arg '$task->group_leader == $task && $retval == 19' -c "$work"
        run slow -k hrtimer_nanosleep --filter-arg '$duration >= 60000000 && rqtp == 60000000' --output-arg '$duration / 1000000 >= 60' -c 'workloads sleep-ms 60; workloads sleep-ms 1'
        run quick -k hrtimer_nanosleep --filter-arg '$duration < 60000000 && rqtp == 60000000' -c 'workloads sleep-ms 60; workloads sleep-ms 1'
        run cpu -k vfs_read --filter-arg '$cpu > 1 || $cpu < 0' -c "$work""#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for (name, events) in [
            ("comm", 2),
            ("comms", 6),
            ("threads", 15),
            ("task", 15),
            ("leader", 6),
            ("slow", 1),
            ("quick", 0),
            ("cpu", 0),
        ] {
            named(&runs, name)?.has(events)?;
        }
        named(&runs, "slow")?.shows(&[json!(1)])
    },
};

const VARIABLES: Check = Check {
    name: "expressions: variables of the kernel, each CPU's and global ones, by address and type; enumerators; constants of C",
    command: r#"
        echo 17 >/proc/sys/kernel/panic
        run all -k vfs_read --mode entry --filter-arg 'count == 19 && *(int *)&panic_timeout == 17' \
            --output-arg '*(int *)&panic_timeout' \
            --output-arg '((struct task_struct *)&init_task)->comm' \
            --output-arg 'TCP_ESTABLISHED + TCP_LISTEN' --output-arg 'ksym(file->f_op->llseek)' --output-arg "'a' + 0x10 + 010 + 1ull" \
            --output-arg 'sizeof(struct list_head)' --output-arg '-7 / 2' --output-arg '-1 > 0u' --output-arg '(unsigned char)300' --output-arg '1 << 33' \
            --output-arg 'count > 5 ? count * 2 : 0' --output-arg '(s8)0x80' --output-arg 'hex(count)' -c 'workloads read-zero 2 19'
        echo 0 >/proc/sys/kernel/panic
        run cpu -k vfs_read --mode entry --filter-arg 'count == 19 && runqueues.cpu == $cpu' --output-arg 'runqueues.cpu' --output-arg '(&runqueues)->nr_running > 0' \
            --output-arg 'runqueues.curr == $task' -c 'workloads read-zero 2 19'
        run none -k vfs_read --mode entry --filter-arg 'count == 19 && *(int *)&panic_timeout == 17' -c 'workloads read-zero 2 19'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let all = named(&runs, "all")?;
        all.has(2)?;
        named(&runs, "none")?.has(0)?;
        let cpu = named(&runs, "cpu")?;
        // 5.10's BTF has no variables.
        if cpu.status != 2
            || !cpu
                .said
                .contains("of 'runqueues' each CPU has its own, and this kernel's BTF does not tell its type")
        {
            cpu.has(2)?;
            for event in &cpu.events {
                let seen: Vec<&Value> = outputs(event).iter().map(|o| &o["value"]).collect();
                ensure!(seen == [&event["cpu"], &json!(1), &json!(1)], "{event}");
            }
        }
        for event in &all.events {
            let seen: Vec<&Value> = outputs(event).iter().map(|o| &o["value"]).collect();
            let (names, numbers) = seen.split_at(4);
            ensure!(names[..3] == [&json!(17), &json!("swapper/0"), &json!(11)], "{event}");
            ensure!(outputs(event)[3]["symbol"].as_str().is_some_and(|s| s.contains("lseek")), "{event}");
            let wanted = [
                json!(122),
                json!(16),
                json!(-3),
                json!(1),
                json!(44),
                json!(2),
                json!(38),
                json!(-128),
                json!(19),
            ];
            ensure!(numbers == wanted.iter().collect::<Vec<_>>(), "{event}");
        }
        Ok(())
    },
};

const FAILURES: Check = Check {
    name: "expressions: NULL on the way, and addresses that cannot be read: told from 0, and no comparison holds",
    command: r#"
        e='*(int *)8'; d='*(int *)0xdead000000000000'
        run shown -k vfs_read --mode entry --filter-arg 'count == 19' --output-arg "$e" --output-arg "$d" --output-arg '((struct task_struct *)0)->pid' \
            --output-arg '((struct file *)0)->f_path.dentry->d_name.name' --output-arg "$d + 1" --output-arg 'str((char *)8)' \
            --output-arg '*(struct list_head *)0xffffffffff000000' -c 'workloads read-zero 2 19'
        p='((struct task_struct *)0)->pid'
        t="$e == 0 || $e != 0 || $d == 0 || $d != 0 || $p == 0 || $p != 0 || !$p || $d < 5 || $d > 5 || $d in (0) || ((struct file *)0)->f_path.dentry->d_name.name != \"x\""
        run refused -k vfs_read --mode entry --filter-arg "count == 19 && ($t)" -c 'workloads read-zero 2 19'
        run other -k vfs_read --mode entry --filter-arg "$t || count == 19" -c 'workloads read-zero 2 19'
        btrace -k vfs_read --mode entry --filter-arg 'count == 19' --output-arg "$e" --output-arg '((struct task_struct *)0)->pid' -o /tmp/o -c 'workloads read-zero 1 19'
        cat /tmp/o >&2"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        named(&runs, "refused")?.has(0)?;
        named(&runs, "other")?.has(2)?;
        let shown = named(&runs, "shown")?;
        shown.has(2)?;
        for event in &shown.events {
            let seen: Vec<(&str, &str)> = outputs(event)
                .iter()
                .map(|o| (o["error"].as_str().unwrap_or("none"), o["at"].as_str().unwrap_or_default()))
                .collect();
            let places = ["*(int *)8", "*(int *)0xdead000000000000"];
            ensure!(seen[..2] == places.map(|at| ("EFAULT", at)), "{seen:?}");
            ensure!(seen[2..4].iter().all(|(error, _)| *error == "NULL"), "{seen:?}");
            ensure!(seen[4..].iter().all(|(error, _)| *error == "EFAULT"), "{seen:?}");
            ensure!(outputs(event).iter().all(|o| o["value"].is_null()), "{event}");
        }
        ensure!(ran.stderr.contains("*(int *)8=EFAULT@*(int *)8, "), "{}", ran.stderr);
        ensure!(ran.stderr.contains("->pid=NULL@"), "{}", ran.stderr);
        Ok(())
    },
};

const CODE: Check = Check {
    name: "expressions: pointers to functions in a structure that is printed have their symbols",
    command: "btrace -k vfs_read --mode entry --filter-arg 'count == 19' --output-arg '*file->f_op' -c 'workloads read-zero 2 19'",
    judge: |ran| {
        ensure!(ran.status == 0, "{}", ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        ensure!(lines.len() == 2, "{lines:?}");
        for line in lines {
            let read = line.split_once("read_iter=0x").context("no read_iter")?.1;
            let (address, rest) = read.split_once('(').with_context(|| line.to_string())?;
            ensure!(address.len() == 16 && rest.starts_with("read_iter_zero)"), "{line}");
            ensure!(line.contains("fsync=0x0, "), "{line}");
        }
        Ok(())
    },
};
