//! Branch records. The lab's machines have no hardware for them: the module of `crates/xtask/testmod_lbr` hands known ones to the
//! kernel's helper, from where they go the whole way. Debian's 5.10 has no such helper.

use anyhow::{Context, Result, ensure};

use super::Check;
use super::judging::{refused, summary, unseen};
use crate::frames::Ran;

/// What kernels before 5.16 say, whose checks end here.
const NO_HELPER: &str = "no bpf_get_branch_snapshot; since 5.16";

/// Whether the kernel has no branch snapshots; then that must be what was said, each time.
fn has_none(ran: &Ran) -> Result<bool> {
    if !ran.stdout.starts_with("5.") {
        return Ok(false);
    }
    let said: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("btrace: ")).collect();
    ensure!(!said.is_empty() && said.iter().all(|line| line.contains(NO_HELPER)), "{}", ran.stderr);
    Ok(true)
}

/// The lines under each `LBR stack:`, blanks folded.
fn stacks(ran: &Ran) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut inside = false;
    for line in ran.stdout.lines() {
        if line == "LBR stack:" {
            all.push(Vec::new());
            inside = true;
        } else if inside && line.contains(" -> ") && !line.contains(" args=(") {
            if let Some(stack) = all.last_mut() {
                stack.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        } else {
            inside = false;
        }
    }
    all
}

/// Loads the module once for all checks, and hands records to it.
macro_rules! feeding {
    ($script:literal) => {
        concat!(
            r#"
            uname -r
            export BTRACE_LBR=unopened
            p=/sys/module/btrace_lbr/parameters
            if [ -e /lab/btrace_lbr.ko ]; then [ -d $p ] || insmod /lab/btrace_lbr.ko || exit 98; else p=/tmp; fi
            # Each is given as many as there are.
            feed() { echo -1 >$p/returned; echo "$*" >$p/records || exit 97; }
            # What runs between a function's call of its trampoline and our program, and the snapshot.
            own="tramp>__bpf_prog_enter_recur+0 __bpf_prog_enter_recur+0xd>__rcu_read_lock+0 __rcu_read_lock+0x5>__bpf_prog_enter_recur+0x12
                __bpf_prog_enter_recur+0x20>tramp tramp>prog prog>bpf_get_branch_snapshot+0"
            "#,
            $script
        )
    };
}

pub(super) use feeding;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "lbr: without hardware one line says what was found, exit status 2, as text and as JSON",
        command: r"
            btrace -k vfs_read --output-lbr -c true; echo $?
            btrace -k vfs_read --output-lbr --json -c true; echo $?
            btrace -k vfs_read --output-lbr --filter-branch call,ret -c true; echo $?
            btrace -k vfs_read --output-lbr --dry-run; echo $?
            btrace -t sched_switch --output-lbr -c true; echo $?",
        judge: |ran| {
            ensure!(ran.stdout == "2\n".repeat(5), "{:?}", ran.stdout);
            let lines: Vec<&str> = ran.stderr.lines().collect();
            ensure!(lines.len() == 5, "{lines:#?}");
            for (at, line) in lines.into_iter().enumerate() {
                // A tracepoint has no path.
                ensure!(line.contains("; --output-path shows the way") == (at < 4), "{line}");
                let found = line.contains("no PMU of the CPU") || line.contains("records no branches");
                let found = found && line.contains("this is a virtual machine");
                ensure!(found || line.contains(NO_HELPER), "{line}");
            }
            Ok(())
        },
    },
    Check {
        name: "lbr: kinds of branches that there are not, and without --output-lbr: refused",
        command: r"btrace -k vfs_read --output-lbr --filter-branch call,jumps -c true",
        judge: |ran| refused(ran, r#"no kind of branch is named "jumps""#),
    },
    Check {
        name: "lbr: known records, oldest first, chains, cycles and mispredictions, tracing's own left out",
        command: feeding!(
            r#"
            feed "do_syscall_64+0x40>ksys_read+0x0/c2 ksys_read+0x20>vfs_read+0x0/11 vfs_read+0x30>vfs_read+0x50 \
                rw_verify_area+0x8>vfs_read+0x58/2 vfs_read+0x60>tramp $own"
            btrace -k vfs_read --output-lbr -c 'workloads read-zero 100 512'"#
        ),
        judge: |ran| {
            if has_none(ran)? {
                return Ok(());
            }
            let (printed, lost) = summary(ran)?;
            let all = stacks(ran);
            ensure!(all.len() as u64 == printed && printed >= 100 && lost == 0, "{} of {printed}", all.len());
            for stack in all {
                let [first, second, third, fourth, last] = stack.as_slice() else {
                    anyhow::bail!("{stack:#?}");
                };
                ensure!(first == "[#10] do_syscall_64+0x40 -> ksys_read+0x0 ; 12 cycles", "{first}");
                ensure!(second == "ksys_read+0x20 -> vfs_read+0x0 ; 1 cycle, mispredicted", "{second}");
                ensure!(third == "vfs_read+0x30 -> vfs_read+0x50", "{third}");
                ensure!(fourth == "[#09] rw_verify_area+0x8 -> vfs_read+0x58", "{fourth}");
                ensure!(last.starts_with("vfs_read+0x60 -> bpf_trampoline_"), "{last}");
            }
            Ok(())
        },
    },
    Check {
        name: "lbr: -v shows addresses and tracing's own branches, 32 of them",
        command: feeding!(
            r#"
            few="vfs_read+0x30>vfs_read+0x50 vfs_read+0x58>vfs_read+0x30"
            feed "$few $few $few $few $few $few $few $few $few $few $few $few vfs_read+0x60>tramp vfs_read+0x0>enter $own"
            btrace -v -k vfs_read --output-lbr --limit-events 3 -c 'workloads read-zero 5 512'"#
        ),
        judge: |ran| {
            if has_none(ran)? {
                return Ok(());
            }
            let all = stacks(ran);
            ensure!(all.len() == 3, "{} stacks", all.len());
            for stack in all {
                ensure!(stack.len() == 32, "{} records", stack.len());
                ensure!(
                    stack[0].starts_with("[#31] 0xffffffff") && stack[0].contains(":vfs_read+0x30 -> "),
                    "{}",
                    stack[0]
                );
                ensure!(
                    stack
                        .iter()
                        .skip(1)
                        .all(|line| line.starts_with("0xffffffff") || line.starts_with("[#30]"))
                );
                let shown = |words: &str| stack.iter().any(|line| line.contains(words));
                ensure!(
                    shown(":__bpf_prog_enter_recur+0xd -> 0x") && shown(":bpf_get_branch_snapshot+0x0"),
                    "{stack:#?}"
                );
                ensure!(shown(":bpf_trampoline_"), "{stack:#?}");
            }
            Ok(())
        },
    },
    Check {
        name: "lbr: an entry's branches end with the call of the function; both ends have theirs",
        command: feeding!(
            r#"
            feed "ksys_read+0x20>vfs_read+0x0 vfs_read+0x0>enter $own"
            btrace -k vfs_read --mode entry --output-lbr --limit-events 5 -c 'workloads read-zero 9 512'
            btrace -k vfs_read --mode both --output-lbr --limit-events 4 -c 'workloads read-zero 9 512'"#
        ),
        judge: |ran| {
            if has_none(ran)? {
                return Ok(());
            }
            let all = stacks(ran);
            ensure!(all.len() == 9, "{} stacks: {}", all.len(), ran.stderr);
            for stack in all {
                ensure!(stack == ["[#07] ksys_read+0x20 -> vfs_read+0x0"], "{stack:#?}");
            }
            Ok(())
        },
    },
    Check {
        name: "lbr: tracepoints, kprobes, many functions, with stacks and filters",
        command: feeding!(
            r#"
            feed "ksys_read+0x20>vfs_read+0x0/2 vfs_read+0x30>vfs_read+0x50/2"
            btrace -t sched_process_exec --output-lbr --output-stack -c 'workloads exec-true 3'
            btrace -k 'vfs_re*,vfs_w*,vfs_s*' --output-lbr --filter-arg 'vfs_read:count == 512' --limit-events 5 -c 'workloads read-zero 9 512'
            btrace -k vfs_read --mode both --output-lbr --output-stack --limit-events 4 -c 'workloads read-zero 9 512'
            btrace -k tcp_v4_connect --output-lbr --output-stack -c 'workloads connect-loopback 2'
            btrace -k seq_printf --mode both --output-lbr --limit-events 6 -c 'cat /proc/self/limits /proc/self/maps >/dev/null'"#
        ),
        judge: |ran| {
            if has_none(ran)? {
                return Ok(());
            }
            let all = stacks(ran);
            ensure!(all.len() >= 20, "{} stacks: {}", all.len(), ran.stderr);
            for stack in &all {
                ensure!(
                    *stack == ["[#01] ksys_read+0x20 -> vfs_read+0x0", "vfs_read+0x30 -> vfs_read+0x50"],
                    "{stack:#?}"
                );
            }
            let of = |name: &str| {
                ran.stdout.lines().filter(|l| l.trim_start_matches(['→', '←', ' ']).starts_with(name)).count()
            };
            ensure!(
                of("sched_process_exec ") >= 3
                    && of("vfs_read ") >= 4
                    && of("tcp_v4_connect ") == 2
                    && of("seq_printf ") == 6,
                "{}",
                ran.stdout
            );
            ensure!(ran.stdout.matches("\nFunc stack:\n").count() >= 9, "stacks of calls too");
            Ok(())
        },
    },
    Check {
        name: "lbr: as JSON",
        command: feeding!(
            r#"
            feed "0xffff000000001234>do_syscall_64+0x10/1000000 do_syscall_64+0x40>ksys_read+0x0/4000c2 ksys_read+0x20>vfs_read+0x0/5"
            btrace -k vfs_read --output-lbr --json -c 'workloads read-zero 50 512' >/tmp/lbr.json; s=$?
            echo -1 >$p/returned; cat /tmp/lbr.json >&2; exit $s"#
        ),
        judge: |ran| {
            if ran.stdout.starts_with("5.") {
                ensure!(ran.stderr.contains(NO_HELPER), "{}", ran.stderr);
                return Ok(());
            }
            let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with('{')).collect();
            ensure!(lines.len() >= 50, "{} events", lines.len());
            for line in lines {
                let event: serde_json::Value = serde_json::from_str(line).context("JSON")?;
                let lbr = event["lbr"].as_array().context("lbr")?;
                let [third, first, second] = lbr.as_slice() else { anyhow::bail!("{event}") };
                ensure!(
                    first["from"]["symbol"] == "do_syscall_64" && first["from"]["offset"] == 0x40,
                    "{first}"
                );
                ensure!(first["to"]["symbol"] == "ksys_read" && first["to"]["module"].is_null(), "{first}");
                ensure!(
                    first["cycles"] == 12 && first["mispredicted"] == false && first["type"] == "call",
                    "{first}"
                );
                ensure!(second["mispredicted"] == true && second["in_transaction"] == true, "{second}");
                ensure!(second["cycles"].is_null() && second["type"].is_null(), "{second}");
                ensure!(
                    third["from"]["address"] == "0xffff000000001234" && third["wrong_path"] == true,
                    "{third}"
                );
                ensure!(third["mispredicted"].is_null(), "{third}");
            }
            Ok(())
        },
    },
    Check {
        name: "lbr: short snapshots, none (ENOENT), and an error that the helper takes for a length",
        command: feeding!(
            r#"
            feed "do_syscall_64+0x40>ksys_read+0x0 ksys_read+0x20>vfs_read+0x0 0x0>0x0 0x0>0x0"
            for n in 4 3 1 0 -95 33; do
                echo $n >$p/returned
                btrace -k vfs_read --output-lbr --limit-events 1 -c 'workloads read-zero 2 512'
            done
            btrace -k vfs_read --output-lbr --json --limit-events 1 -c 'workloads read-zero 2 512' | grep -o '"lbr":.*'
            echo 0 >$p/returned
            btrace -k vfs_read --output-lbr --json --limit-events 1 -c 'workloads read-zero 2 512' | grep -o '"lbr":.*'
            echo -1 >$p/returned"#
        ),
        judge: |ran| {
            if has_none(ran)? {
                return Ok(());
            }
            // Newest first: the two that are empty, ksys_read's, do_syscall_64's.
            let shown: Vec<&str> = ran
                .stdout
                .lines()
                .filter(|l| l.starts_with("LBR stack:") || l.contains(" -> ") || l.starts_with("\"lbr\""))
                .map(str::trim_start)
                .collect();
            let fold = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let shown: Vec<String> = shown.into_iter().map(fold).collect();
            let want = [
                "LBR stack:",
                "[#01] do_syscall_64+0x40 -> ksys_read+0x0",
                "ksys_read+0x20 -> vfs_read+0x0",
                "LBR stack:",
                "[#00] ksys_read+0x20 -> vfs_read+0x0",
                "LBR stack: no branches recorded",
                "LBR stack: not taken: ENOENT (the kernel had no branch records to give)",
                "LBR stack: not taken: EPROTO",
                "LBR stack: not taken: EPROTO",
                "\"lbr\":{\"error\":\"EPROTO\"}}",
                "\"lbr\":{\"error\":\"ENOENT\"}}",
            ];
            ensure!(shown == want, "{shown:#?}");
            Ok(())
        },
    },
    Check {
        name: "lbr: the snapshot is asked for once an event, also by two CPUs and preempted threads; none is another's",
        command: feeding!(
            r#"
            feed "ksys_read+0x20>vfs_read+0x0"
            before=$(cat $p/asked 2>/dev/null)
            btrace -k vfs_read --mode entry --output-lbr --json -c 'taskset 1 workloads threads 4 500 & taskset 2 workloads threads 4 500; wait' >/tmp/lbr.json || exit
            echo $(( $(cat $p/asked) - before )); grep -c . /tmp/lbr.json; grep -c '"lbr":\[{' /tmp/lbr.json; grep -c '"lbr":{"error":"EBUSY"}' /tmp/lbr.json"#
        ),
        judge: |ran| {
            if has_none(ran)? {
                return Ok(());
            }
            let numbers: Vec<u64> = ran.stdout.lines().skip(1).filter_map(|l| l.parse().ok()).collect();
            let [asked, events, taken, busy] = numbers.as_slice() else { anyhow::bail!("{:?}", ran.stdout) };
            // Where threads are preempted in our program, as on 7.2, others on that CPU cannot run it.
            ensure!(*events + unseen(&ran.stderr)? >= 4000 && taken + busy == *events, "{numbers:?}");
            // Those of tasks that are not the command's ask as well, for nothing is known yet of whose they are.
            ensure!(asked >= events, "{numbers:?}");
            ensure!(*busy * 100 <= *events, "{busy} of {events} met another's");
            Ok(())
        },
    },
];
