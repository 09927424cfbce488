//! Expressions at targets of every kind: system calls, kprobes, tracepoints, BPF programs.

use super::{Check, named, outputs, runs};
use anyhow::ensure;
use serde_json::json;

pub(in super::super) const CHECKS: &[Check] = &[SYSCALLS, KPROBES, TRACEPOINTS, PROGRAMS];

const SYSCALLS: Check = Check {
    name: "expressions: system calls' own arguments, texts in user memory, at entry, exit and both",
    command: r#"
        for m in entry exit both; do
            run $m -k __x64_sys_openat --mode $m --filter-arg 'str(filename) == "/tmp/no/x"' --output-arg 'str(filename)' --output-arg dfd \
                --output-arg 'flags & 0x80000' --output-arg 'filename' -c 'workloads open-missing 3 /tmp/no/x; workloads open-missing 2 /tmp/no/y; workloads open-fault 1'
        done
        run read -k __x64_sys_read --filter-arg 'count == 19 && $retval == count' --output-arg fd --output-arg 'buf(buf, 4)' -c 'workloads read-zero 4 19; workloads read-zero 4 20'
        run nowhere -k __x64_sys_openat --filter-arg '$comm == "workloads" && (long)filename == 8' --output-arg filename -c 'workloads open-fault 2'
        run connect -k __x64_sys_connect --filter-arg '((struct sockaddr_in *)uservaddr)->sin_family == 2 && addrlen == 16' \
            --output-arg 'ip4(((struct sockaddr_in *)uservaddr)->sin_addr)' -c 'workloads connect-loopback 3'
        run compat -k __ia32_sys_read --filter-arg 'count == 77' --output-arg fd -c compat32
        run enter -t sys_enter --filter-arg 'id == 257 && $comm == "workloads"' --output-arg 'regs->di == -100u' -c 'workloads open-missing 2 /no/such'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for (mode, ends) in [("entry", 1), ("exit", 1), ("both", 2)] {
            let run = named(&runs, mode)?;
            run.has(3 * ends)?;
            run.shows(&[json!("/tmp/no/x"), json!(-100), json!(0x80000), json!("/tmp/no/x")])?;
        }
        let read = named(&runs, "read")?;
        read.has(4)?;
        ensure!(read.events.iter().all(|e| outputs(e)[1]["value"] == "00000000"), "{:?}", read.events[0]);
        let nowhere = named(&runs, "nowhere")?;
        nowhere.has(2)?;
        ensure!(nowhere.events.iter().all(|e| outputs(e)[0]["error"] == "EFAULT"), "{:?}", nowhere.events[0]);
        let connect = named(&runs, "connect")?;
        connect.has(3)?;
        ensure!(
            connect.events.iter().all(|e| outputs(e)[0]["text"] == "127.0.0.1"),
            "{:?}",
            connect.events[0]
        );
        named(&runs, "compat")?.has(1)?;
        // open's, and those of the start of the program.
        let enter = named(&runs, "enter")?;
        enter.is_well()?;
        ensure!(enter.events.len() >= 2, "{}", enter.events.len());
        Ok(())
    },
};

const KPROBES: Check = Check {
    name: "expressions: functions that only a kprobe takes, in each mode",
    command: r#"
        for m in entry exit both; do
            run $m -k seq_printf --mode $m --filter-arg 'str(f, 13) == "%s version %s"' --output-arg 'm->count' --output-arg 'str(f, 13)' --output-arg 'm->private == 0' \
                --output-arg '$comm' -c 'cat /proc/version /proc/self/limits >/dev/null'
        done
        run none -k seq_printf --filter-arg 'm->count > 100000' -c 'cat /proc/version >/dev/null'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for (mode, ends) in [("entry", 1), ("exit", 1), ("both", 2)] {
            let run = named(&runs, mode)?;
            run.has(ends)?;
            for event in &run.events {
                let [count, text, _, comm] = outputs(event) else { anyhow::bail!("{event}") };
                ensure!(event["method"] == "kprobe" && comm["value"] == "cat", "{event}");
                ensure!(count["value"].is_u64() && text["value"] == "%s version %s…", "{event}");
            }
        }
        named(&runs, "none")?.has(0)
    },
};

const TRACEPOINTS: Check = Check {
    name: "expressions: tracepoints, their arguments and the objects behind them",
    command: r#"
        run exec -t sched_process_exec --filter-arg 'p->comm == "true" && str(bprm->filename) == "/bin/true"' --output-arg 'p->pid == $pid' --output-arg 'bprm->filename' \
            --output-arg 'p->real_parent->comm' -c 'workloads exec-true 3; ls / >/dev/null'
        run fork -t sched_process_fork --filter-arg 'parent->comm == "workloads"' --output-arg 'child->real_parent == parent' --output-arg 'child->pid != parent->pid' -c 'workloads fork 4'
        run gathered -t sched_process_exec --output-arg 'count() by (p->comm)' -c 'workloads exec-true 3'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let exec = named(&runs, "exec")?;
        exec.has(3)?;
        exec.shows(&[json!(1), json!("/bin/true"), json!("workloads")])?;
        let fork = named(&runs, "fork")?;
        fork.has(4)?;
        fork.shows(&[json!(1), json!(1)])?;
        let entries = &named(&runs, "gathered")?.tally("count() by (p->comm)")?["entries"];
        let of = |name: &str| {
            entries.as_array().and_then(|all| all.iter().find(|e| e["keys"][0]["value"] == name))
        };
        ensure!(of("true").is_some_and(|e| e["value"] == 3), "{entries}");
        Ok(())
    },
};

const PROGRAMS: Check = Check {
    name: "expressions: functions of BPF programs: their arguments by name and type, contexts, values at both ends",
    command: r#"
        for m in entry exit both; do
            waiting bpf-programs 20
            traced -p "pid:$w:weigh" --mode $m --filter-arg 'delta == -3 && factor == 1ull << 40 && side == RIGHT' --output-arg 'delta * 2' --output-arg side \
                --output-arg factor --output-arg 'skb->len' --output-arg '$args[1]' --json -o /tmp/o
            kill -USR1 $w; wait $w; kill -INT $b; wait $b; seen $m $?
        done
        waiting bpf-programs 20
        traced -p "pid:$w:*" --filter-arg 'weigh_every_packet_twice:$retval == 42' --filter-arg 'weigh:$retval == 97' --filter-arg 'add_pair:*pair == 2 && pair[1] == 3 && $retval == 5' \
            --filter-arg 'settle:weight != 97' --output-arg '$retval' --json -o /tmp/o
        kill -USR1 $w; wait $w; kill -INT $b; wait $b; seen returned $?"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for (mode, ends) in [("entry", 1), ("exit", 1), ("both", 2)] {
            let run = named(&runs, mode)?;
            run.has(20 * ends)?;
            for event in &run.events {
                let [delta, side, factor, len, arg] = outputs(event) else { anyhow::bail!("{event}") };
                ensure!(delta["value"] == -6 && arg["value"] == -3, "{event}");
                ensure!(side["value"] == json!({"value": 1, "name": "RIGHT"}), "{event}");
                ensure!(factor["value"] == 1_u64 << 40 && len["value"].is_u64(), "{event}");
            }
        }
        let returned = named(&runs, "returned")?;
        returned.has(60)?;
        for (target, value) in [("weigh_every_packet_twice", 42), ("weigh", 97), ("add_pair", 5)] {
            let of =
                returned.events.iter().filter(|e| e["target"] == target && outputs(e)[0]["value"] == value);
            ensure!(of.count() == 20, "{target}");
        }
        Ok(())
    },
};
