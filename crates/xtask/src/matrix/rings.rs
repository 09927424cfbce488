//! A ring buffer for each CPU: the programs on every kernel, forced; the merge where there are many CPUs.

use super::Check;
use super::judging::{json, no_loss, summary, unseen};
use crate::frames::Ran;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// CPUs of the guest that runs [`MANY_CPUS`]: enough to have a ring each unasked.
pub(super) const CPUS: u32 = 8;

/// Reads of /dev/zero on each CPU.
const READS: usize = 2000;

/// In every guest: that each form of our programs is accepted, and says what the one with a single ring says.
pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "rings, one for each CPU: exits with durations, in order, none lost",
        command: r#"
            export BTRACE_RINGS=percpu
            btrace -v -k vfs_read --json -c 'taskset 1 workloads read-zero 2000 512 & taskset 2 workloads read-zero 2000 512; wait'"#,
        judge: |ran| {
            ensure!(ran.stderr.contains("2 ring buffers of 4194304 bytes each"), "{}", ran.stderr);
            in_order(ran, 2)?;
            ensure!(json(ran)?.iter().all(|e| e["duration_ns"].is_u64()), "every call has its duration");
            Ok(())
        },
    },
    Check {
        name: "rings, one for each CPU: both ends, stacks, tracepoints, methods for many functions",
        command: r"
            export BTRACE_RINGS=percpu
            btrace -k vfs_read --mode both --output-stack -o /tmp/both -c 'workloads read-zero 300 512'; s=$?
            grep -c 'count=512,' /tmp/both; grep -c 'do_syscall_64+0x' /tmp/both
            btrace -t sched_process_exec --output-stack -o /tmp/exec -c 'workloads exec-true 5'; s=$s$?
            grep -c '^sched_process_exec ' /tmp/exec
            btrace -k 'vfs_re*' -o /tmp/many -c 'workloads read-zero 300 512'; s=$s$?
            grep '^vfs_read ' /tmp/many | grep -c 'count=512,'
            echo $s",
        judge: |ran| {
            let numbers: Vec<u64> = ran.stdout.lines().filter_map(|l| l.parse().ok()).collect();
            let [calls, stacks, execs, many, 0] = numbers.as_slice() else {
                anyhow::bail!("{:?}", ran.stdout);
            };
            ensure!(*calls == 600 && *stacks >= 600, "{calls} events, {stacks} stacks");
            ensure!(*execs >= 5 && *many == 300, "{execs} execs, {many} reads");
            ensure!(ran.stderr.matches(" 0 lost").count() == 3, "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "rings, one for each CPU, tiny, and a stopped reader: printed + lost = produced",
        command: r"
            export BTRACE_RINGS=percpu
            waiting threads 4 2500
            traced -k vfs_read --mode entry --buffer-size 64K --filter-pid $w
            kill -STOP $b; kill -USR1 $w; wait $w; kill -CONT $b; ended INT",
        judge: |ran| adds_up(ran, 10_000),
    },
    Check {
        name: "rings, one for each CPU: the first event of a quiet trace comes at once, --limit-events is exact",
        command: r"
            export BTRACE_RINGS=percpu
            btrace -k vfs_read --limit-events 7 -c 'workloads read-zero 100 512'
            traced -k do_nanosleep --mode entry -o /tmp/one --filter-comm workloads
            workloads sleep-ms 1; sleep 0.3; wc -l </tmp/one; ended INT",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let lines: Vec<&str> = ran.stdout.lines().collect();
            ensure!(lines.len() == 8 && lines[7].trim() == "1", "{lines:?}");
            Ok(())
        },
    },
];

/// In the guest with many CPUs, nothing forced.
pub(super) const MANY_CPUS: &[Check] = &[
    Check {
        name: "rings: eight CPUs at once, each event once, in order, none lost",
        command: r#"
            for m in 1 2 4 8 10 20 40 80; do echo "taskset $m workloads read-zero 2000 512 &"; done >/tmp/w.sh; echo wait >>/tmp/w.sh
            btrace -v -k vfs_read --json -c 'sh /tmp/w.sh'"#,
        judge: |ran| {
            ensure!(ran.stderr.contains("8 ring buffers of 1048576 bytes each"), "{}", ran.stderr);
            in_order(ran, CPUS as usize)
        },
    },
    Check {
        name: "rings: eight CPUs, a tiny buffer and a stopped reader: printed + lost = produced",
        command: r"
            waiting threads 8 2500
            traced -k vfs_read --mode entry --buffer-size 64K --filter-pid $w
            kill -STOP $b; kill -USR1 $w; wait $w; kill -CONT $b; ended INT",
        judge: |ran| adds_up(ran, 20_000),
    },
    Check {
        name: "rings: eight CPUs, Ctrl-C straight after a burst: what is in the buffers is still printed",
        command: r"
            waiting threads 8 1000
            traced -k vfs_read --filter-pid $w
            kill -USR1 $w; wait $w; ended INT",
        judge: |ran| {
            no_loss(ran)?;
            let printed = summary(ran)?.0;
            ensure!(
                printed + unseen(&ran.stderr)? == 8000 && !ran.stdout.contains("duration=?"),
                "{printed}"
            );
            Ok(())
        },
    },
];

/// Each of so many CPUs has made [`READS`] reads of 512 bytes; all are there, once, and in the order of time.
fn in_order(ran: &Ran, cpus: usize) -> Result<()> {
    no_loss(ran)?;
    let events = json(ran)?;
    let mut reads: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut newest, mut late) = (0, 0);
    for event in &events {
        let time = event["time_ns"].as_u64().context("time_ns")?;
        if time < newest {
            late += 1;
        }
        newest = newest.max(time);
        if event["args"][2]["value"] == 512 {
            *reads.entry(event["cpu"].as_u64().context("cpu")?).or_default() += 1;
        }
    }
    ensure!(reads.len() == cpus && reads.values().all(|n| *n == READS), "{reads:?}");
    // The guest's CPUs take turns of up to 100 ms (qemu's `TCG_KICK_PERIOD`). One that is stopped between the time and the
    // record, a few instructions of thousands, makes that one event late.
    ensure!(late <= 2, "{late} of {} events came after younger ones", events.len());
    Ok(())
}

/// What was printed, what was lost, and what was not seen (where threads are preempted in our program, as on 7.2, others on
/// that CPU cannot run it) are together what there was; and there was a loss.
fn adds_up(ran: &Ran, produced: u64) -> Result<()> {
    ensure!(ran.status == 0, "exit status {}", ran.status);
    let (printed, lost) = summary(ran)?;
    ensure!(lost > 0, "64 KiB rings must have overrun");
    let unseen = unseen(&ran.stderr)?;
    ensure!(printed + lost + unseen == produced, "{printed} + {lost} + {unseen}");
    ensure!(ran.stdout.lines().count() as u64 == printed, "the summary tells what was printed");
    Ok(())
}
