//! The executed path of calls, by a kprobe on each basic block. `cargo xtask paths` holds it against what qemu executed.

use std::collections::BTreeSet;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::Check;
use super::judging::{json, refused, summary};
use crate::frames::Ran;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "--output-path: an open that fails goes another way than one that works, each path whole",
        command: "btrace -k path_openat --output-path --json -c 'cat /proc/version /nonexistent >/dev/null 2>&1; true'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let (mut good, mut bad) = (BTreeSet::new(), Vec::new());
            for event in json(ran)? {
                let path = whole(&event)?;
                match event["retval"]["error"].as_str() {
                    None => good.extend(path),
                    Some("ENOENT") => bad.push(path),
                    Some(_) => {}
                }
            }
            let fails_alone = |path: &Vec<u64>| path.iter().any(|offset| !good.contains(offset));
            ensure!(!good.is_empty() && !bad.is_empty(), "{} failed", bad.len());
            ensure!(bad.iter().all(fails_alone), "the same blocks");
            Ok(())
        },
    },
    Check {
        name: "--output-path: a line for each branch taken, the last one from where it returned",
        command: "btrace -k vfs_read --output-path --limit-events 3 -c 'workloads read-zero 3 512' && btrace -v -k vfs_read --output-path \
                  --limit-events 1 -c 'workloads read-zero 3 512'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let events: Vec<&str> = ran.stdout.split("vfs_read args=").skip(1).collect();
            ensure!(events.len() == 4, "{} events", events.len());
            for (at, event) in events.iter().enumerate() {
                let mut lines = event.lines().skip(1);
                ensure!(lines.next() == Some("Path:"), "{event}");
                let rows: Vec<&str> = lines.collect();
                let (last, jumps) = rows.split_last().context("no rows")?;
                ensure!(last.contains("vfs_read+0x") && last.ends_with(" -> returned"), "{last}");
                ensure!(!jumps.is_empty(), "no branch");
                let verbose = at == 3;
                for row in jumps {
                    let (from, to) = row.split_once(" -> ").unwrap_or((row, ""));
                    let stays = verbose && row.ends_with(" not taken");
                    ensure!(from.contains("vfs_read+0x") && (stays || to.contains("vfs_read+0x")), "{row}");
                    ensure!(row.starts_with("0xffffffff") == verbose, "{row}");
                }
            }
            Ok(())
        },
    },
    Check {
        name: "--path-summary --errors: where a bind on a used port, and an unknown netlink message, go wrong",
        command: "btrace -k __inet_bind --path-summary --errors -c 'workloads bind-used' && btrace -k rtnetlink_rcv_msg --path-summary --errors -c \
                  'workloads netlink-bad'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            for function in ["__inet_bind", "rtnetlink_rcv_msg"] {
                let head = format!("; {function}: 2 calls, 1 of them failed; ");
                ensure!(ran.stdout.contains(&head), "no {head:?}");
                let came = format!("; 1 of 1 failing calls, and no other, came to {function}");
                ensure!(ran.stdout.contains(&came), "no {came:?}");
            }
            // EOPNOTSUPP, 95, is made there.
            ensure!(ran.stdout.contains("$0xffffffa1"), "the error's number is in none of the blocks");
            let made = "; 1 of 1 failing calls had the error from rtnetlink_rcv_msg+0x";
            let line = ran.stdout.lines().find(|line| line.starts_with(made)).context("no origin")?;
            ensure!(line.ends_with("mov $0xffffffa1,%eax") || line.contains("$0xffffffa1,"), "{line}");
            ensure!(!ran.stdout.contains(" args=("), "events are printed");
            Ok(())
        },
    },
    Check {
        name: "--path-summary --errors: an error that a callee returned is told as that callee's, as text and as JSON",
        command: "btrace -k filename_lookup --path-summary --errors -c 'ls /nonexistent; true' && btrace -k filename_lookup --path-summary --errors --json \
                  -c 'ls /nonexistent; true'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let said =
                "; 1 of 1 failing calls returned what path_lookupat returned, called at filename_lookup+0x";
            ensure!(ran.stdout.contains(said), "{}", ran.stdout);
            let object: Value = serde_json::from_str(ran.stdout.lines().last().context("no JSON")?)?;
            let error = &object["errors"][0];
            ensure!(
                error["from"] == "call" && error["call"]["to"] == "path_lookupat" && error["calls"] == 1,
                "{error}"
            );
            Ok(())
        },
    },
    Check {
        name: "--path-summary: two signals at once end it, and it is printed all the same, to a reader that takes its time",
        command: r#"
            mkfifo /tmp/p; (sleep 3; exec cat) </tmp/p >/tmp/out & c=$!
            rm -f /tmp/said; btrace -k vfs_read --path-summary >/tmp/p 2>/tmp/said & b=$!
            for i in $(seq 600); do grep -q running /tmp/said 2>/dev/null && break; sleep 0.1; done
            workloads read-zero 3 512
            kill -STOP $b; kill -TERM $b; kill -INT $b; kill -CONT $b
            wait $b; echo $?; wait $c; grep -c '^; vfs_read: ' /tmp/out; cat /tmp/said >&2; rm /tmp/p"#,
        judge: |ran| {
            ensure!(
                ran.stdout
                    == "0
1
",
                "{:?}",
                ran.stdout
            );
            ensure!(ran.stderr.contains(" summed up, 0 lost"), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "--path-summary: how often each block ran, as text and JSON",
        command: "btrace -k vfs_read --path-summary -c 'workloads read-zero 7 512' && btrace -k vfs_read --path-summary --json -c 'workloads read-zero 7 512'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let calls = |text: &str| {
                let line = text.lines().find(|l| l.starts_with("; vfs_read: "))?;
                line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok()
            };
            let calls = calls(&ran.stdout).context("no head")?;
            ensure!(calls >= 7, "{calls} calls");
            let first = ran.stdout.lines().find(|line| line.contains(" | 0x")).context("no listing")?;
            ensure!(first.trim_start().starts_with(&format!("{calls} | 0x")), "{first}");
            ensure!(ran.stdout.lines().any(|line| line.trim_start().starts_with("- | 0x")), "all blocks ran");
            let last = ran.stdout.lines().last().context("no JSON")?;
            let object: Value = serde_json::from_str(last)?;
            ensure!(object["path_summary"] == "vfs_read" && object["partial"] == 0, "{object}");
            let entry = &object["blocks"][0];
            ensure!(
                entry["offset"] == 0 && entry["hits"] == object["calls"] && entry["calls"] == object["calls"],
                "{entry}"
            );
            Ok(())
        },
    },
    Check {
        name: "--output-path: of a function that everything sleeps in each call is shown, or said to be unseen",
        command: "run both -k schedule --mode both --output-path -c 'for i in 1 2 3 4 5; do sleep 0.1; done'",
        judge: |ran| {
            let mut lines = ran.stdout.lines();
            ensure!(lines.next().is_some_and(|head| head.starts_with("== both 0 ")), "{}", ran.stdout);
            let (mut entries, mut exits) = (0, 0);
            for line in lines {
                let event: serde_json::Value = serde_json::from_str(line)?;
                *if event["event"] == "entry" { &mut entries } else { &mut exits } += 1;
            }
            let unseen = super::judging::unseen(&ran.stderr)?;
            // Of five processes at least their sleeps, and the shell's waits.
            ensure!(entries >= 10 && exits <= entries, "{entries} entries, {exits} exits");
            ensure!(entries <= exits + unseen, "{entries} entries, {exits} exits: {}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "--output-path of a score of functions: each has its own path",
        command: "btrace -k '{vfs_read,vfs_write,ksys_read,ksys_write,rw_verify_area,do_dentry_open,vfs_open,vfs_statx,cp_new_stat,filename_lookup,path_lookupat,\
                  complete_walk,may_open,getname_flags,vfs_fstat,ksys_lseek,__fdget_pos,fput,dput,path_put,set_root,nd_jump_root}' --path-blocks 4000 \
                  --output-path --json -c 'cat /proc/version /nonexistent >/dev/null 2>&1; true'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let unprobed = announced(ran);
            let mut functions = BTreeSet::new();
            let mut partly = BTreeSet::new();
            for event in json(ran)? {
                let name = event["target"].as_str().unwrap_or_default().to_string();
                ensure!(event["method"] == "kprobe", "{name}: {}", event["method"]);
                // Only where a block without probe was named may a path lack a step.
                if event["path"]["whole"] == false && unprobed.contains(&name) {
                    partly.insert(name);
                    continue;
                }
                whole(&event).with_context(|| name.clone())?;
                functions.insert(name);
            }
            functions.retain(|name| !partly.contains(name));
            // Where several functions have a name, one line says so.
            let untraced: Vec<&str> =
                ran.stderr.lines().filter(|line| line.contains(": not traced: ")).collect();
            let named: BTreeSet<&str> =
                untraced.iter().filter_map(|line| line.split(": not traced: ").next()).collect();
            ensure!(named.len() == untraced.len(), "twice: {untraced:?}");
            // Where attaching takes long enough for a line, it counts blocks.
            let mut counts = ran.stderr.lines().filter(|line| line.starts_with("btrace: attaching "));
            ensure!(counts.all(|line| line.contains(" blocks")), "{}", ran.stderr);
            ensure!(partly.len() <= 2, "not whole: {partly:?}");
            ensure!(functions.len() >= 10, "{functions:?}");
            Ok(())
        },
    },
    Check {
        name: "--output-path: memory of a program that is not there: the step by the exception is known",
        command: "btrace -k filldir64 --output-path --json -c 'workloads list-fault 2' && btrace -k filldir64 --output-path -c 'workloads list-fault 1' >&2",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let mut faults = 0;
            for event in json(ran)? {
                whole(&event)?;
                let blocks = event["path"]["blocks"].as_array().context("no blocks")?;
                faults += blocks.iter().filter(|block| block["by"] == "exception").count();
            }
            ensure!(faults == 2, "{faults} steps by exceptions");
            ensure!(
                ran.stderr.lines().filter(|line| line.ends_with("  [an exception]")).count() == 1,
                "{}",
                ran.stderr
            );
            Ok(())
        },
    },
    Check {
        name: "--output-path: a jump over nothing but a static branch is asked which way it goes",
        command: "btrace -k '{__inet_bind,inet_create}' --output-path --json -c 'workloads bind-used >/dev/null'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let mut functions = BTreeSet::new();
            for event in json(ran)? {
                whole(&event)?;
                functions.insert(event["target"].to_string());
            }
            ensure!(functions.len() == 2, "{functions:?}");
            Ok(())
        },
    },
    Check {
        name: "--output-path: where another tracer's kprobes are, no blocks are told by their breakpoints",
        command: "traced -k vfs_read --output-path -o /dev/null; btrace -k vfs_read --output-path; s=$?; kill $b; wait $b; exit $s",
        judge: |ran| refused(ran, "there is a kprobe at vfs_read+0x"),
    },
    Check {
        name: "--output-path: Ctrl-C is heard while hundreds of blocks are attached",
        command: r#"
            btrace -k 'tcp_v4_rcv,tcp_ack,tcp_sendmsg_locked,path_openat,link_path_walk,do_sys_poll' --path-blocks 9999 --output-path 2>/tmp/said & b=$!
            for i in $(seq 500); do [ $(wc -l </sys/kernel/debug/kprobes/list) -gt 3 ] && break; sleep 0.02; done
            kill -INT $b; wait $b; echo "status $? left $(wc -l </sys/kernel/debug/kprobes/list)"; grep -c 'is running' /tmp/said"#,
        judge: |ran| {
            ensure!(ran.stdout.ends_with(" left 0\n0\n"), "{} {}", ran.stdout, ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "--output-path: too many blocks are refused, with how many there are",
        command: "btrace -k path_openat --output-path --path-blocks 5",
        judge: |ran| refused(ran, "at most 5 are probed (--path-blocks "),
    },
    Check {
        name: "--output-path: of many functions those with too many blocks are told of in one line",
        command: "btrace -k '{vfs_read,path_openat,link_path_walk,tcp_ack,tcp_v4_rcv,do_sys_poll,tcp_sendmsg_locked,inet_csk_get_port}' --output-path \
                  --path-blocks 80 -o /dev/null -c true",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let refused: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("not traced")).collect();
            let [line] = refused.as_slice() else { anyhow::bail!("{}", ran.stderr) };
            let told = line.matches(" blocks than are left of 80 beside the ").count();
            ensure!(
                told == 1 && line.contains(" (--path-blocks ") && line.ends_with(" probes all)"),
                "{line}"
            );
            Ok(())
        },
    },
    Check {
        name: "--output-path: Ctrl-C and SIGKILL leave no probe",
        command: r#"
            probes() { wc -l </sys/kernel/debug/kprobes/list; }
            for signal in INT KILL; do
                traced -k vfs_read --output-path -o /dev/null
                [ $(probes) -gt 10 ] && echo attached
                kill -$signal $b; wait $b; echo "status $?"
                for i in $(seq 50); do [ $(probes) = 0 ] && break; sleep 0.2; done
                echo "left $(probes)"
            done"#,
        judge: |ran| {
            ensure!(
                ran.stdout == "attached\nstatus 0\nleft 0\nattached\nstatus 137\nleft 0\n",
                "{}",
                ran.stdout
            );
            Ok(())
        },
    },
    Check {
        name: "--output-path under load: thousands of calls, all printed or said to be unseen, every path whole",
        command: "btrace -k vfs_read --output-path --json --buffer-size 64M -o /tmp/o -c 'workloads threads 4 1000'; s=$?; \
                  wc -l </tmp/o; grep -c '\"whole\":true' /tmp/o; exit $s",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let (printed, lost) = summary(ran)?;
            let mut numbers = ran.stdout.lines().map(|line| line.trim().parse::<u64>());
            let (lines, whole) = (numbers.next().context("lines")??, numbers.next().context("whole")??);
            // Return probes have room for a few calls at a time; those that find none are counted and said.
            let unseen = super::judging::unseen(&ran.stderr)?;
            ensure!(lines == printed && lost == 0 && printed > 0, "{lines} of {printed}, {lost} lost");
            ensure!(printed + unseen >= 4000, "{printed} printed, {unseen} not seen");
            ensure!(whole == lines, "{whole} of {lines} paths are whole");
            Ok(())
        },
    },
];

/// The functions that were said to have blocks without a probe.
fn announced(ran: &Ran) -> BTreeSet<String> {
    let said = ran.stderr.lines().filter(|line| line.contains(" blocks cannot be probed; "));
    said.filter_map(|line| line.strip_prefix("btrace: ")?.split(':').next()).map(str::to_string).collect()
}

/// The offsets of a path's blocks, which must be one, from the entry to the return.
fn whole(event: &Value) -> Result<Vec<u64>> {
    schema::Schema::event().and_then(|schema| schema.check(event)).map_err(|e| anyhow!("{e}: {event}"))?;
    let path = &event["path"];
    ensure!(path["whole"] == true, "not whole: {path}");
    let blocks = path["blocks"].as_array().context("no blocks")?;
    let (first, last) = (blocks.first().context("no block")?, blocks.last().context("no block")?);
    ensure!(first["by"] == "entry" && first["from"]["offset"] == 0, "{first}");
    let instruction = last["instruction"].as_str().unwrap_or_default();
    ensure!(instruction.starts_with("ret") || instruction.starts_with("jmp"), "{last}");
    let seen = blocks.iter().filter(|block| block["seen"] == true).count() as u64;
    ensure!(path["hits"].as_u64() == Some(seen), "{seen} blocks seen: {path}");
    blocks.iter().map(|block| block["from"]["offset"].as_u64().context("no offset")).collect()
}
