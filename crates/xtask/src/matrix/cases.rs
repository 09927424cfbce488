//! Faults that users of tools like this one have met, each a check named for its number in the field's list. Those on values
//! stand in `shapes.rs` and `syscalls.rs`.

use anyhow::{Context, Result, ensure};

use super::Check;
use super::judging::{NO_MODULE_TYPES, json, no_loss, refused, stacks, summary};
use crate::frames::Ran;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "cases 4 and 20: functions with and without endbr64 are traced, and their addresses have their names",
        command: r"
            btrace -k do_sys_openat2,hrtimer_nanosleep,vfs_read --mode entry --output-stack -c 'workloads open-missing 3 /no/such/file; workloads sleep-ms 1; workloads read-zero 3 7'",
        judge: |ran| {
            let (_, lost) = summary(ran)?;
            ensure!(ran.status == 0 && lost == 0, "exit status {}, {lost} lost", ran.status);
            for name in ["do_sys_openat2", "hrtimer_nanosleep", "vfs_read"] {
                let events = stacks(ran, &format!("{name} "))?;
                for (line, frames) in events {
                    let first = frames.first().context("no frames")?;
                    ensure!(first.starts_with(&format!("{name}+0x")), "{first} in {line}");
                }
            }
            Ok(())
        },
    },
    Check {
        name: "cases 12 and 19: without tracefs and debugfs, and so without available_filter_functions",
        command: r"
            for at in /sys/kernel/debug /sys/kernel/tracing; do mount -t tmpfs none $at || exit 97; done
            btrace -k vfs_read --mode both -c 'workloads read-zero 4 17'; s=$?
            btrace -t sched_process_exec -c /bin/true >&2
            for at in /sys/kernel/tracing /sys/kernel/debug; do umount $at; done; exit $s",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            ensure!(ran.stdout.matches("(size_t)count=17,").count() == 8, "{}", ran.stdout);
            ensure!(ran.stderr.contains("sched_process_exec args=("), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "case 15: Ctrl-C is heard although no event ever comes",
        command: r"
            traced -k orderly_poweroff -o /dev/null
            kill -INT $b
            for i in $(seq 100); do [ -d /proc/$b ] || break; grep -q '^State:.Z' /proc/$b/status && break; sleep 0.1; done
            [ $i -lt 100 ] || { kill -KILL $b; echo 'still there'; }
            wait $b; echo $?; cat /tmp/said >&2",
        judge: |ran| {
            ensure!(ran.stdout == "0\n", "{:?}", ran.stdout);
            ensure!(summary(ran)? == (0, 0), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "case 16: a thread's whole name is compared, not its beginning",
        command: r"
            cp /bin/workloads /tmp/work; cp /bin/workloads /tmp/workloadsX
            btrace -k vfs_read --mode entry --filter-comm workloads -c '/tmp/work read-zero 5 21; /tmp/workloadsX read-zero 5 21; workloads read-zero 5 21'
            s=$?; rm /tmp/work /tmp/workloadsX; exit $s",
        judge: |ran| {
            no_loss(ran)?;
            let of = |name: &str| ran.stdout.lines().filter(|l| l.contains(name)).count();
            ensure!(
                of("count=21,") == 5 && of(":workloads) ") == ran.stdout.lines().count(),
                "{}",
                ran.stdout
            );
            Ok(())
        },
    },
    Check {
        name: "case 18: nothing of an earlier event is left in a later one: texts that are shorter, empty, NULL",
        command: r"
            btrace -k btrace_shapes:bs_strings,btrace_shapes:bs_odd_strings --buffer-size 64K --json \
                -c 'for i in $(seq 200); do echo 1 >/sys/module/btrace_shapes/parameters/run; done'",
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let events = json(ran)?;
            let (printed, lost) = summary(ran)?;
            ensure!(printed + lost == 400, "{printed} + {lost}");
            let odd: Vec<_> =
                events.iter().filter(|e| e["target"] == "btrace_shapes:bs_odd_strings").collect();
            ensure!(!odd.is_empty(), "none printed");
            for event in odd {
                let args = &event["args"];
                ensure!(
                    args[1]["text"] == "" && args[2]["text"].is_null() && args[2]["value"] == "0x0",
                    "{event}"
                );
                ensure!(args[3]["text"] == "writable", "{event}");
            }
            Ok(())
        },
    },
    Check {
        name: "case 21: a sleep lasts as long as it did, by the kernel's clock and not the printer's",
        command: r"btrace -k hrtimer_nanosleep --mode both --json -c 'workloads sleep-ms 5000'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let events = json(ran)?;
            let exit = events.iter().rev().find(|e| !e["duration_ns"].is_null()).context("no exit")?;
            let entry = events.iter().find(|e| e["call"] == exit["call"]).context("no entry")?;
            let at = |event: &serde_json::Value| event["time_ns"].as_u64().context("time_ns");
            // More than 2^32 ns.
            let duration = exit["duration_ns"].as_u64().context("duration")?;
            ensure!(duration >= 5_000_000_000, "{duration}");
            ensure!(at(exit)? - at(entry)? == duration, "{entry} {exit}");
            Ok(())
        },
    },
    Check {
        name: "case 22: a buffer in user memory is not taken for a text; one that cannot be read is said",
        command: "btrace -k vfs_read --json -c 'workloads read-zero 2 23'; btrace -k __ia32_sys_read -c compat32 >&2",
        judge: buffers,
    },
];

fn buffers(ran: &Ran) -> Result<()> {
    let lines: Vec<&str> = ran.stdout.lines().filter(|l| l.contains("\"value\":23}")).collect();
    ensure!(lines.len() == 2, "{} reads", lines.len());
    for line in lines {
        let event: serde_json::Value = serde_json::from_str(line)?;
        let buf = &event["args"][1];
        ensure!(buf["name"] == "buf" && buf["text"].is_null() && buf["value"] != "0x0", "{event}");
    }
    ensure!(ran.stderr.contains("(char *)buf=0xfffff000, (size_t)count=77)"), "{}", ran.stderr);
    Ok(())
}
