//! Kernel stacks, and the context that a call was made in.

use anyhow::{Context, ensure};

use super::Check;
use super::judging::{json, no_loss, stacks, summary};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "--output-stack: who called, none of our own frames, none lost",
        command: r"
            btrace -k vfs_read --output-stack -c 'dd if=/dev/zero of=/dev/null bs=512 count=3000 2>/dev/null'
            btrace -k vfs_read --mode entry --output-stack -o /tmp/o -c 'dd if=/dev/zero of=/dev/null bs=512 count=3 2>/dev/null'
            cat /tmp/o",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let (_, lost) = summary(ran)?;
            let events = stacks(ran, "vfs_read ")?;
            let dd: Vec<_> = events.iter().filter(|(line, _)| line.contains("(size_t)count=512,")).collect();
            ensure!(dd.len() == 3003 && lost == 0, "{} events, {lost} lost", dd.len());
            for (_, frames) in dd {
                let calls = [" ksys_read+0x", " do_syscall_64+0x"];
                let joined = format!(" {}", frames.join(" "));
                let at = calls.map(|call| joined.find(call));
                ensure!(at.is_sorted() && at.iter().all(Option::is_some), "not in order: {joined}");
                ensure!(
                    frames[0].starts_with("vfs_read+0x") || frames[0].starts_with("ksys_read+0x"),
                    "{joined}"
                );
                ensure!(!joined.contains("bpf"), "our own frames: {joined}");
                ensure!(frames.iter().all(|f| f.contains("+0x") && !f.starts_with("0x")), "{joined}");
            }
            let (_, entry) = events.last().context("entry")?;
            ensure!(entry[0].starts_with("vfs_read+0x"), "{entry:?}");
            Ok(())
        },
    },
    Check {
        name: "--output-stack -v: addresses, and our own frames, marked",
        command: "btrace -v -k vfs_read --output-stack --limit-events 3 -c 'workloads read-zero 5 512'",
        judge: |ran| {
            for (_, frames) in stacks(ran, "vfs_read ")? {
                ensure!(frames.iter().all(|f| f.starts_with("0xffffffff")), "{frames:?}");
                let ours = |f: &&str| {
                    f.contains(":bpf_prog_")
                        && f.contains("_ex_vfs_read+0x")
                        && f.contains(" [bpf] ; vfs_read:")
                };
                ensure!(frames.first().is_some_and(ours), "{frames:?}");
                ensure!(frames[1].contains(":bpf_trampoline_"), "{frames:?}");
                ensure!(frames.iter().any(|f| f.contains(":ksys_read+0x")), "{frames:?}");
            }
            Ok(())
        },
    },
    Check {
        name: "--output-stack without debug information: said once, with the package that has it",
        command: "btrace -k vfs_read --output-stack --limit-events 3 -c 'workloads read-zero 5 512'",
        judge: |ran| {
            ensure!(
                stacks(ran, "vfs_read ")?.iter().all(|(_, frames)| frames.iter().all(|f| !f.contains(';')))
            );
            let said: Vec<&str> = ran.stderr.lines().filter(|l| l.contains("source lines")).collect();
            ensure!(said.len() == 1 && said[0].contains("name the file with --vmlinux"), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "--vmlinux: a file of another build, one that is none, none at all, and without stacks: refused",
        command: r#"
            for f in /bin/busybox /lab/command /no/such/file /dev/zero; do
                btrace -k vfs_read --output-stack --vmlinux $f -c true; echo $?
            done
            btrace -k vfs_read --vmlinux /bin/busybox -c true; echo $?"#,
        judge: |ran| {
            ensure!(ran.stdout == "2\n".repeat(5), "{:?}", ran.stdout);
            let want = [
                "--vmlinux: /bin/busybox: is of another build: its build-id is ",
                "--vmlinux: /lab/command: not a whole 64-bit ELF file: ",
                "--vmlinux: /no/such/file: No such file or directory",
                "--vmlinux: /dev/zero: not a regular file",
                "--vmlinux is for --output-stack",
            ];
            let lines: Vec<&str> = ran.stderr.lines().collect();
            ensure!(
                lines.len() == want.len() && lines.iter().zip(want).all(|(line, part)| line.contains(part)),
                "{lines:#?}"
            );
            Ok(())
        },
    },
    Check {
        name: "stacks as JSON, and the context of a task",
        command: "btrace -k vfs_read,ksys_read --json --output-stack -c 'workloads read-zero 500 512'",
        judge: |ran| {
            no_loss(ran)?;
            let events = json(ran)?;
            ensure!(events.len() >= 1000, "{} events", events.len());
            for event in events {
                ensure!(event["context"].is_null() || event["context"] == "task", "{event}");
                let stack = event["stack"].as_array().context("stack")?;
                ensure!(
                    stack.iter().all(|f| f["address"].as_str().is_some_and(|a| a.starts_with("0xffffffff")))
                );
                let names: Vec<&str> = stack.iter().filter_map(|f| f["symbol"].as_str()).collect();
                ensure!(names.len() == stack.len() && names.contains(&"do_syscall_64"), "{names:?}");
                ensure!(
                    names.iter().filter(|n| **n == "ksys_read").count() <= 1,
                    "one call, one frame: {names:?}"
                );
                ensure!(stack.iter().all(|f| f["offset"].is_u64() && f["module"].is_null()), "{event}");
            }
            Ok(())
        },
    },
    Check {
        name: "contexts: receiving on loopback is a softirq's work, an hrtimer's expiry a hardirq's; stacks of both",
        command: r"
            btrace -k tcp_v4_rcv,tcp_connect --output-stack -c 'workloads connect-loopback 50'
            btrace -t hrtimer_expire_entry --output-stack --limit-events 20 -o /tmp/o & b=$!
            workloads sleep-ms 1000; wait $b; cat /tmp/o; grep -c __preempt_count /sys/kernel/btf/vmlinux; grep -c pcpu_hot /sys/kernel/btf/vmlinux",
        judge: |ran| {
            let received = stacks(ran, "tcp_v4_rcv ")?;
            ensure!(received.len() >= 100, "{} segments", received.len());
            let told = ran.stdout.lines().rev().take(2).any(|n| n != "0");
            let counted = |events: &[(&str, Vec<&str>)], context: &str| {
                events.iter().filter(|(line, _)| line.contains(&format!(" context={context} "))).count()
            };
            let timers = stacks(ran, "hrtimer_expire_entry ")?;
            let connects = stacks(ran, "tcp_connect ")?;
            ensure!(timers.len() == 20 && connects.len() == 50, "{} and {}", timers.len(), connects.len());
            ensure!(connects.iter().all(|(line, _)| !line.contains(" context=")), "a task connects");
            let (soft, hard) = (counted(&received, "softirq"), counted(&timers, "hardirq"));
            if told {
                ensure!(
                    (soft, hard) == (received.len(), 20),
                    "{soft} of {} in softirq, {hard} of 20 in hardirq",
                    received.len()
                );
            } else {
                ensure!((soft, hard) == (0, 0), "this kernel does not tell");
            }
            for (_, frames) in &received {
                ensure!(
                    frames.iter().any(|f| f.starts_with("ip_rcv") || f.starts_with("__netif_receive_skb")),
                    "{frames:?}"
                );
                ensure!(frames.iter().any(|f| f.contains("softirq")), "{frames:?}");
            }
            for (_, frames) in &timers {
                ensure!(frames[0].starts_with("__hrtimer_run_queues+0x"), "{frames:?}");
                ensure!(
                    frames.iter().any(|f| f.starts_with("asm_sysvec_apic_timer_interrupt+0x")),
                    "{frames:?}"
                );
            }
            Ok(())
        },
    },
    Check {
        name: "stacks deeper than the program's own room for them are whole",
        command: r"
            btrace -v -k 'tcp_v4_rcv,inet_stream_connect,__inet_stream_connect,tcp_v4_connect,tcp_connect,ip_queue_xmit,__ip_queue_xmit,ip_output,ip_local_out,ip_finish_output,ip_rcv,ip_local_deliver,ip_rcv_finish,net_rx_action,process_backlog,__sys_connect,__dev_queue_xmit,dev_hard_start_xmit,{handle_softirqs,__napi_poll,__netif_receive_skb*,ip_protocol_deliver_rcu,ip_local_deliver_finish,ip_finish_output2,__sys_connect_file,__local_bh_enable_ip}' --output-stack -c 'workloads connect-loopback 20'",
        judge: |ran| {
            let (_, lost) = summary(ran)?;
            ensure!(lost == 0, "{lost} lost");
            let received = stacks(ran, "tcp_v4_rcv ")?;
            let deepest = received.iter().map(|(_, frames)| frames.len()).max().unwrap_or(0);
            // kprobe_multi adds no frames of trampolines, so there the same path is less deep.
            let deep = if ran.stderr.contains("kprobe_multi") { 20 } else { 44 };
            ensure!(deepest > deep, "{deepest} frames at most");
            let connects = |frames: &Vec<&str>| {
                frames.iter().any(|f| f.contains(":__sys_connect+0x"))
                    && frames.iter().any(|f| f.contains(":do_syscall_64+0x"))
            };
            ensure!(
                received.iter().any(|(_, f)| f.len() > deep && connects(f)),
                "the deepest reach the system call"
            );
            Ok(())
        },
    },
    Check {
        name: "case 12: kallsyms without addresses: stacks without names, and one line that says why",
        command: r"
            echo 2 >/proc/sys/kernel/kptr_restrict
            btrace -k vfs_read --output-stack --limit-events 2 -c 'workloads read-zero 5 512'; s=$?
            echo 0 >/proc/sys/kernel/kptr_restrict; exit $s",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            ensure!(
                ran.stderr
                    .lines()
                    .filter(|l| l.contains("without names") && l.contains("kernel.kptr_restrict=0"))
                    .count()
                    == 1,
                "{}",
                ran.stderr
            );
            let events = stacks(ran, "vfs_read ")?;
            ensure!(events.len() == 2, "{} events", events.len());
            for (_, frames) in events {
                ensure!(
                    frames.len() >= 3
                        && frames.iter().all(|f| f.starts_with("0xffffffff") && !f.contains('+'))
                );
            }
            Ok(())
        },
    },
];
