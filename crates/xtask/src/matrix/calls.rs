//! Calls of functions: what an event says of them, in each mode.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Check;
use super::judging::{json, no_loss, unseen};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "1,000 reads by dd, typed, with return values and durations",
        command: "btrace -k vfs_read -c 'dd if=/dev/zero of=/dev/null bs=512 count=1000 2>/dev/null'",
        judge: |ran| {
            no_loss(ran)?;
            let lines: Vec<&str> = ran.stdout.lines().filter(|l| l.contains(":dd)")).collect();
            ensure!(lines.len() == 1000, "{} lines", lines.len());
            for line in lines {
                let rest = line
                    .strip_prefix("vfs_read args=((struct file *)file=0x")
                    .context("start of the line")?;
                let rest = rest.split_once(", (char *)buf=0x").context("buf")?.1;
                let rest =
                    rest.split_once(", (size_t)count=512, (loff_t *)pos=0x").context("count and pos")?.1;
                let rest = rest.split_once(") retval=(ssize_t)512 cpu=").context("retval")?.1;
                let rest = rest.split_once(" process=(").context("process")?.1;
                let (duration, time) = rest
                    .split_once(":dd) duration=")
                    .and_then(|(_, r)| r.split_once(" time="))
                    .context("duration and time")?;
                ensure!(
                    duration.ends_with('s') && duration.starts_with(|c: char| c.is_ascii_digit()),
                    "{duration}"
                );
                ensure!(time.len() == "12:34:56.123456789".len(), "time {time}");
            }
            Ok(())
        },
    },
    Check {
        name: "the same as JSON",
        command: "btrace -k vfs_read --json -c 'dd if=/dev/zero of=/dev/null bs=512 count=1000 2>/dev/null'",
        judge: |ran| {
            no_loss(ran)?;
            let events = json(ran)?;
            let dd: Vec<&Value> = events.iter().filter(|e| e["comm"] == "dd").collect();
            ensure!(dd.len() == 1000, "{} events", dd.len());
            let mut last = 0;
            for event in dd {
                let names: Vec<&str> = event["args"]
                    .as_array()
                    .context("args")?
                    .iter()
                    .filter_map(|a| a["name"].as_str())
                    .collect();
                ensure!(names == ["file", "buf", "count", "pos"], "{names:?}");
                ensure!(event["args"][2]["value"] == 512 && event["args"][2]["type"] == "size_t");
                ensure!(event["retval"]["value"] == 512 && event["retval"]["type"] == "ssize_t");
                ensure!(event["args"][0]["value"].as_str().is_some_and(|v| v.starts_with("0xffff")));
                ensure!(
                    event["duration_ns"].as_u64().is_some_and(|d| d > 0 && d < 10_000_000_000),
                    "duration"
                );
                ensure!(event["method"] == "fexit" || event["method"] == "fsession", "{event}");
                ensure!(event["target"] == "vfs_read" && event["event"] == "exit", "{event}");
                let time = event["time_ns"].as_u64().context("time_ns")?;
                ensure!(time >= last, "one task's events are in order");
                last = time;
            }
            Ok(())
        },
    },
    Check {
        name: "entry mode has no return value",
        command: "btrace -k vfs_read --mode entry -c 'dd if=/dev/zero of=/dev/null bs=7 count=10 2>/dev/null'",
        judge: |ran| {
            no_loss(ran)?;
            let lines: Vec<&str> = ran.stdout.lines().filter(|l| l.contains("(size_t)count=7,")).collect();
            ensure!(lines.len() == 10, "{} lines", lines.len());
            ensure!(lines.iter().all(|l| !l.contains("retval") && !l.contains("duration")));
            Ok(())
        },
    },
    Check {
        name: "what trampolines cannot do a kprobe does",
        command: "btrace -k seq_printf --json -c 'cat /proc/version >/dev/null'",
        judge: |ran| {
            let events = ran.stdout.lines().filter(|l| l.starts_with('{'));
            let events: Vec<Value> = events.map(serde_json::from_str).collect::<Result<_, _>>()?;
            ensure!(events.len() == 1 && ran.status == 0, "{} events", events.len());
            let [m, f] = [&events[0]["args"][0], &events[0]["args"][1]];
            ensure!(events[0]["method"] == "kprobe" && m["name"] == "m", "{}", events[0]);
            ensure!(f["text"].as_str().is_some_and(|t| t.starts_with("%s version %s")), "{f}");
            ensure!(events[0]["duration_ns"].as_u64().is_some_and(|d| d > 0), "{}", events[0]);
            Ok(())
        },
    },
    Check {
        name: "strings, signed integers, negative returns",
        command: "btrace -k do_sys_openat2 -c 'workloads open-missing 3 /no/such/file'",
        judge: |ran| {
            no_loss(ran)?;
            let lines: Vec<&str> = ran.stdout.lines().filter(|l| l.contains("/no/such/file")).collect();
            ensure!(lines.len() == 3, "{} lines", lines.len());
            for line in lines {
                ensure!(
                    line.starts_with("do_sys_openat2 args=((int)dfd=-100, (const char *)filename=0x"),
                    "{line}"
                );
                ensure!(line.contains("(\"/no/such/file\"), (struct open_how *)how=0x"), "{line}");
                // long up to 7.1, int since.
                let types = ["long int", "long", "int"];
                ensure!(types.iter().any(|t| line.contains(&format!(" retval=({t})-2 ENOENT "))), "{line}");
            }
            Ok(())
        },
    },
    Check {
        name: "entries and exits of every call come in pairs, nested calls included",
        command: r"
            mkdir -p /tmp/a/b/c; echo x >/tmp/a/b/c/file
            btrace -k 'vfs_{read,statx,getattr}' --mode both --json -c 'workloads read-zero 300 3; ls -lR /tmp/a >/dev/null; workloads threads 4 100'",
        judge: |ran| {
            no_loss(ran)?;
            // A kernel that preempts our program runs none for the next task on that CPU; the summary counts such calls.
            let unseen = usize::try_from(unseen(&ran.stderr)?)?;
            let mut open = std::collections::HashMap::new();
            let (mut pairs, mut halves) = (0, 0);
            for event in json(ran)? {
                ensure!(event["event"] == "entry" || event["event"] == "exit", "{event}");
                let key = (event["target"].to_string(), event["call"].as_str().context("call")?.to_string());
                if event["event"] == "entry" {
                    ensure!(event["retval"].is_null() && event.get("duration_ns").is_none(), "{event}");
                    halves += usize::from(open.insert(key, event).is_some());
                } else if let Some(entry) = open.remove(&key).filter(|_| !event["duration_ns"].is_null()) {
                    ensure!(
                        entry["tid"] == event["tid"] && entry["args"] == event["args"],
                        "{entry} {event}"
                    );
                    let took = event["time_ns"].as_u64().zip(entry["time_ns"].as_u64()).map(|(b, a)| b - a);
                    ensure!(took.is_some() && took == event["duration_ns"].as_u64(), "duration {event}");
                    pairs += 1;
                } else {
                    halves += 1;
                }
            }
            halves += open.len();
            ensure!(halves <= unseen, "{halves} without their other half, {unseen} said to be unseen");
            ensure!(pairs + unseen >= 700, "{pairs} pairs, {unseen} unseen");
            Ok(())
        },
    },
    Check {
        name: "bools and enums by name",
        command: r#"
            btrace -t sched_switch -c 'workloads sleep-ms 1'
            btrace -k do_send_sig_info -c 'kill -CONT $$'"#,
        judge: |ran| {
            ensure!(ran.stdout.contains("sched_switch args=((bool)preempt=false, "), "bool");
            ensure!(ran.stdout.contains("(int)sig=18, "), "signal number");
            ensure!(ran.stdout.contains("(enum pid_type)type=PIDTYPE_TGID"), "enum");
            Ok(())
        },
    },
    Check {
        name: "programs are named for bpftool: func_info and line_info reach the kernel",
        command: "btrace -vv -k vfs_read --limit-events 1 -c 'workloads read-zero 1 1'",
        judge: |ran| {
            ensure!(ran.stderr.contains("; size_t count"), "the program is shown with the capture's line");
            Ok(())
        },
    },
];
