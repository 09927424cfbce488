//! Disassembly of live code.

use super::Check;
use super::judging::refused;
use anyhow::{Context, ensure};
use serde_json::Value;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "disassembly: a function by name, from its address in kallsyms on, to its end, and what it calls by name",
        command: r"
            grep ' vfs_read$' /proc/kallsyms | cut -d ' ' -f 1
            btrace -v -d -k vfs_read",
        judge: |ran| {
            ensure!(
                ran.status == 0 && ran.stderr.contains("the bytes are live, from /proc/kcore"),
                "{}",
                ran.stderr
            );
            let mut lines = ran.stdout.lines();
            let address = lines.next().context("address")?;
            let head = lines.next().context("heading")?;
            ensure!(head.starts_with(&format!("; vfs_read at 0x{address} (")), "{head}");
            let code: Vec<&str> = lines.filter(|l| l.starts_with("0x")).collect();
            ensure!(
                code.len() > 50 && code[0].starts_with(&format!("0x{address}: ")),
                "{} lines",
                code.len()
            );
            ensure!(code.iter().take(2).any(|l| l.ends_with("  ; fentry")), "{code:#?}");
            ensure!(code.iter().any(|l| l.contains(" call ") && l.ends_with("  ; rw_verify_area+0x0")));
            ensure!(code.iter().all(|l| !l.contains("(bad)")));
            ensure!(code.iter().any(|l| l.contains("  ; L1 vfs_read+0x")) && ran.stdout.contains("\nL1:\n"));
            // The next function's code is not taken for this one's.
            // One may guard the return against speculation.
            let padding = code.iter().rev().take_while(|l| l.ends_with("; padding")).count();
            ensure!(padding <= 1, "padding is trimmed");
            Ok(())
        },
    },
    Check {
        name: "disassembly: a function that is traced shows the call to its trampoline, and the trampoline what it calls",
        command: r"
            traced -k vfs_read --filter-comm nobody -o /dev/null
            btrace -d -k vfs_read | grep -m 2 '^0x'
            btrace -d -k 'bpf_trampoline_[0-9]*' | grep -E 'call|^; bpf'; kill -INT $b; wait $b",
        judge: |ran| {
            ensure!(ran.status == 0, "{}", ran.stderr);
            let (entry, trampoline): (Vec<&str>, Vec<&str>) =
                ran.stdout.lines().partition(|l| l.ends_with(" [bpf] (fentry call)"));
            // Newer kernels jump there.
            let goes =
                |l: &&str| (l.contains(" call ") || l.contains(" jmp ")) && l.contains("; bpf_trampoline_");
            ensure!(entry.iter().any(goes), "{:?}", ran.stdout);
            let all = trampoline.join("\n");
            for part in [
                "; bpf_trampoline_",
                " [bpf] at 0x",
                "__bpf_prog_enter",
                "_vfs_read+0x0 [bpf ",
                "__bpf_prog_exit",
                "; vfs_read+0x",
            ] {
                ensure!(all.contains(part), "no {part:?} in {all}");
            }
            Ok(())
        },
    },
    Check {
        name: "disassembly: every function of a name, one inside, an address, a module's, so many bytes, JSON",
        command: r"
            btrace -d -k s_next | grep -c '^; s_next at '
            grep -c ' [tT] s_next$' /proc/kallsyms
            btrace -d -k vfs_read+0x1 -B 20 2>/dev/null | head -1
            btrace -d -k 0x$(grep ' vfs_read$' /proc/kallsyms | cut -d ' ' -f 1) -B 1 2>/dev/null | head -1
            btrace -d -k loop:loop_queue_rq 2>/dev/null | head -1
            btrace -d -k loop_queue_rq --json 2>/dev/null",
        judge: |ran| {
            let lines: Vec<&str> = ran.stdout.lines().collect();
            ensure!(lines.len() == 6, "{lines:?}");
            ensure!(lines[0] == lines[1] && lines[0].parse::<u32>().is_ok_and(|n| n > 1), "{lines:?}");
            ensure!(
                lines[2].starts_with("; vfs_read at 0x") || lines[2].starts_with("; vfs_read+0x"),
                "{lines:?}"
            );
            ensure!(lines[3].starts_with("; vfs_read at 0x"), "{lines:?}");
            ensure!(lines[4].starts_with("; loop_queue_rq [loop] at 0x"), "{lines:?}");
            let function: Value = serde_json::from_str(lines[5])?;
            ensure!(function["function"] == "loop_queue_rq" && function["module"] == "loop", "{function}");
            let instructions = function["instructions"].as_array().context("instructions")?;
            let bytes: usize =
                instructions.iter().map(|i| i["bytes"].as_str().map_or(0, |b| b.len() / 2)).sum();
            ensure!(function["size"] == bytes, "{} and {bytes}", function["size"]);
            ensure!(instructions.iter().any(|i| i["targets"][0]["symbol"]["name"].is_string()));
            Ok(())
        },
    },
    Check {
        name: "disassembly of programs: prototype, source text, subprograms, helpers and maps by name; --xlated",
        command: r"
            waiting bpf-programs 0; btrace -d -p pid:$w:weigh --xlated >/tmp/o; cat /tmp/o
            btrace -d -p pid:$w --xlated; s=$?
            btrace -v -d -p pid:$w --xlated 2>&1 >/dev/null | grep ' stand before their own '
            kill -USR1 $w; wait $w && exit $s",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.is_empty(), "{} {:?}", ran.status, ran.stderr);
            let weigh =
                "; int weigh(struct __sk_buff *skb, int delta, __u64 factor, enum side side)\n; weigh [bpf:";
            ensure!(ran.stdout.starts_with(weigh), "{}", ran.stdout);
            for part in [
                "; int weigh_every_packet_twice(struct __sk_buff *skb)\n",
                "; weigh_every_packet_twice.bpf.c:10:2  ",
                ": call weigh\n",
                "  ; weigh+0x0 [bpf]\n",
                "  ; add_pair+0x0 [bpf]\n",
                "] jumps\n",
                "  ; jumps+0x0 [map ",
                "; untyped [bpf:",
            ] {
                ensure!(ran.stdout.contains(part), "no {part:?} in {}", ran.stdout);
            }
            // Each instruction of BPF stands above its own machine code.
            let shares: Vec<&str> =
                ran.stdout.lines().filter(|l| l.contains(" stand before their own ")).collect();
            let is_whole = |line: &&str| {
                let words: Vec<&str> = line.split(' ').collect();
                matches!(words.as_slice(), [_, own, "of", all, ..] if own == all && own.parse::<u32>().is_ok_and(|n| n > 0))
            };
            ensure!(shares.len() > 3 && shares.iter().all(is_whole), "{shares:#?}");
            ensure!(!ran.stdout.contains("(bad)") && !ran.stdout.contains("unknown#"), "{}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "disassembly: static branches and per-CPU data by name, once each place's table and area are known",
        command: "btrace -d -k __schedule,tcp_v4_rcv,vfs_read",
        judge: |ran| {
            ensure!(ran.status == 0, "{}", ran.stderr);
            let code: Vec<&str> = ran.stdout.lines().collect();
            let count = |part: &str| code.iter().filter(|l| l.contains(part)).count();
            ensure!(count(" (off), to __schedule+0x") > 2, "static branches: {}", ran.stdout);
            ensure!(
                count("; static branch, key __tracepoint_sched_switch+0x8 (off), to ") == 1,
                "{}",
                ran.stdout
            );
            // Where data has no other name than that of what precedes it, the name is wrong.
            ensure!(count("handshake_exit") == 0 && count("key without a name") == 0, "{}", ran.stdout);
            let own: Vec<&&str> =
                code.iter().filter(|l| l.contains("%gs:") && l.contains("(%rip)")).collect();
            ensure!(own.len() > 5 && own.iter().all(|l| l.contains("  ; per-CPU ")), "{own:#?}");
            let known = ["per-CPU __preempt_count+0x0", "per-CPU pcpu_hot+0x8", "per-CPU const_pcpu_hot+0x8"];
            ensure!(known.iter().any(|name| count(name) > 0), "{own:#?}");
            Ok(())
        },
    },
    Check {
        name: "disassembly: an unknown name gets the right one",
        command: "btrace -d -k vfs_raed",
        judge: |ran| refused(ran, "did you mean vfs_read"),
    },
    Check {
        name: "disassembly: of several names a wrong one is said first, and the others are shown",
        command: "exec 2>&1; btrace -d -k vfs_read,vfs_raed -B 1",
        judge: |ran| {
            ensure!(ran.status == 2, "exit status {}", ran.status);
            let lines: Vec<&str> = ran.stdout.lines().collect();
            let shown = lines.iter().position(|l| l.starts_with("; vfs_read at 0x"));
            ensure!(lines[0].starts_with("btrace: vfs_raed: ") && shown.is_some(), "{lines:#?}");
            ensure!(lines.iter().filter(|l| l.contains("vfs_raed")).count() == 1, "{lines:#?}");
            Ok(())
        },
    },
    Check {
        name: "disassembly: without addresses in kallsyms: one line says why",
        command: r"
            echo 2 >/proc/sys/kernel/kptr_restrict
            btrace -d -k vfs_read; s=$?
            echo 0 >/proc/sys/kernel/kptr_restrict; exit $s",
        judge: |ran| refused(ran, "kernel.kptr_restrict=0"),
    },
];
