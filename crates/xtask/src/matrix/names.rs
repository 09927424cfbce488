//! What a name means: globs, modules, namesakes, copies, what there is and what there is not.

use anyhow::{Context, ensure};

use super::Check;
use super::judging::{NO_MODULE_TYPES, no_loss, refused};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "no BTF: one clear line",
        command: "mount -t tmpfs none /sys/kernel/btf && { btrace -k vfs_read; s=$?; umount /sys/kernel/btf; exit $s; }",
        judge: |ran| refused(ran, "no kernel type information at /sys/kernel/btf/vmlinux"),
    },
    Check {
        name: "an unknown function gets the right name",
        command: "btrace -k vfs_raed",
        judge: |ran| refused(ran, "did you mean vfs_read"),
    },
    Check {
        name: "an unknown tracepoint gets the right name",
        command: "btrace -t sched_process_exce",
        judge: |ran| refused(ran, "did you mean sched_process_exec"),
    },
    Check {
        name: "functions that the tracer itself needs are refused, and their neighbours traced",
        command: r"
            btrace -k _raw_spin_unlock_irqrestore; echo $?
            btrace -k '_raw_spin_unlock_irqrestore,vfs_read' --mode entry -o /tmp/o -c 'workloads read-zero 2000 9'; echo $?
            grep -c count=9, /tmp/o",
        judge: |ran| {
            ensure!(ran.stdout == "2\n0\n2000\n", "{:?}", ran.stdout);
            ensure!(ran.stderr.matches("can wait for itself").count() == 2, "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "globs and lists",
        command: "btrace -k 'vfs_{read,write},vfs_w*' -c 'dd if=/dev/zero of=/dev/null bs=512 count=5 2>/dev/null'",
        judge: |ran| {
            let of = |name: &str| {
                ran.stdout.lines().filter(|l| l.starts_with(name) && l.contains("count=512")).count()
            };
            ensure!(
                (of("vfs_read "), of("vfs_write ")) == (5, 5),
                "{} and {}",
                of("vfs_read "),
                of("vfs_write ")
            );
            Ok(())
        },
    },
    Check {
        name: "a module's functions by module:name, with its own types; none before 5.11",
        command: r"
            dd if=/dev/zero of=/tmp/img bs=4096 count=10 2>/dev/null
            btrace -k 'loop:loop_conf*,loop:lo_ioctl' -c 'losetup /dev/loop0 /tmp/img'; s=$?
            losetup -d /dev/loop0 2>/dev/null; exit $s",
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, "no loaded module whose types are known")
                    .or_else(|_| refused(ran, NO_MODULE_TYPES));
            }
            no_loss(ran)?;
            let configured: Vec<&str> =
                ran.stdout.lines().filter(|l| l.starts_with("loop:loop_configure ")).collect();
            ensure!(configured.len() == 1, "{} calls of loop_configure", configured.len());
            for part in [
                "args=((struct loop_device *)lo=0xffff",
                "(const struct loop_config *)config=0xffff",
                "retval=(int)0 ",
            ] {
                ensure!(configured[0].contains(part), "{part} in {}", configured[0]);
            }
            ensure!(ran.stdout.lines().any(|l| l.starts_with("loop:lo_ioctl ")), "lo_ioctl");
            Ok(())
        },
    },
    Check {
        name: "a module's function by its plain name",
        command: r"
            dd if=/dev/zero of=/tmp/img bs=4096 count=10 2>/dev/null
            btrace -k lo_ioctl -c 'losetup /dev/loop0 /tmp/img 2>/dev/null'; s=$?
            losetup -d /dev/loop0 2>/dev/null; exit $s",
        judge: |ran| {
            no_loss(ran)?;
            // Kernels before 5.11 have no types of modules: the registers are what there is to show.
            let typed = "loop:lo_ioctl args=((struct block_device *)bdev=0xffff";
            let registers = "loop:lo_ioctl args=((unsigned long)di=0xffff";
            let told = ran.stderr.contains("lo_ioctl: no prototype is known for");
            ensure!(ran.stdout.contains(if told { registers } else { typed }), "lo_ioctl: {}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "a module that is not loaded, one without the function, one that is built in",
        command: "for k in dumy:dummy_xmit loop:vfs_read printk:vfs_read vmlinux:vfs_raed; do btrace -k $k; done; exit 0",
        judge: |ran| {
            let lines: Vec<&str> = ran.stderr.lines().collect();
            ensure!(lines.len() == 4 && ran.stdout.is_empty(), "{lines:?}");
            ensure!(lines[0].contains("no module dumy is loaded"), "{}", lines[0]);
            ensure!(
                lines[1].contains("the kernel itself has it: btrace -k vfs_read")
                    || lines[1].contains(NO_MODULE_TYPES),
                "{}",
                lines[1]
            );
            ensure!(lines[2].contains("printk is built into this kernel"), "{}", lines[2]);
            ensure!(lines[3].contains("did you mean vfs_read"), "{}", lines[3]);
            Ok(())
        },
    },
    Check {
        name: "case 1: functions that share their name: the others are told of",
        command: "btrace -k s_next -c true",
        judge: |ran| match ran.status {
            2 => refused(ran, "s_next"),
            _ => {
                no_loss(ran)?;
                // Newer BTF leaves out what has several addresses; kallsyms has them all.
                let words = ["functions have this name", "no prototype is known for s_next, s_next"];
                let said = ran.stderr.lines().filter(|l| words.iter().any(|w| l.contains(w))).count();
                ensure!(said == 1, "said {said} times");
                Ok(())
            }
        },
    },
    Check {
        name: "case 2: a function of which only a suffixed copy is left: traced by its base name, and what is shown is said",
        command: r#"
            # The first may be one of those that no probe may be set on.
            grep -E ' t [a-z][a-z_0-9]+\.(constprop|isra)\.0$' /proc/kallsyms | head -20 | while read a t name; do
                base=${name%%.*}
                grep -q -E " $base\$" /proc/kallsyms && continue
                btrace -k $base -c true; s=$?; echo "$s $name"; [ $s = 0 ] && break
            done"#,
        judge: |ran| {
            let (last, others) = {
                let mut lines: Vec<&str> = ran.stdout.lines().filter(|l| !l.contains(" args=(")).collect();
                (lines.pop().context("no such function was found")?, lines)
            };
            let (status, name) = last.split_once(' ').context(last.to_string())?;
            ensure!(status == "0", "{last}");
            ensure!(ran.stderr.contains(&format!("no prototype is known for {name}")), "{}", ran.stderr);
            for refused in others {
                let name = refused.strip_prefix("2 ").context(refused.to_string())?;
                let why = format!("{name}: no prototype is known for it; kprobes are not allowed on it");
                ensure!(ran.stderr.contains(&why), "{}", ran.stderr);
            }
            Ok(())
        },
    },
    Check {
        name: "list: methods, prototypes, reasons",
        command: "btrace list -k seq_printf,vfs_read && btrace list -t sched_process_exec && btrace list vfs_read",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.is_empty(), "{} {:?}", ran.status, ran.stderr);
            let lines: Vec<&str> = ran.stdout.lines().collect();
            ensure!(lines.len() == 4, "{lines:?}");
            ensure!(
                lines[0].starts_with("kprobe        void seq_printf(")
                    && lines[0].contains("...)  # takes a variable"),
                "{}",
                lines[0]
            );
            // Newer kernels have more ways.
            let read = " ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos)";
            ensure!(
                lines[1].starts_with("fentry,fexit,") && lines[1].ends_with(read) && lines[1] == lines[3],
                "{}",
                lines[1]
            );
            ensure!(
                lines[2]
                    == "tp_btf        sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)",
                "{}",
                lines[2]
            );
            Ok(())
        },
    },
    Check {
        name: "case 24: every function and tracepoint there is, modules' too: none ends the listing",
        command: r"
            btrace list --kfunc-all-kmods >/tmp/all || exit
            wc -l </tmp/all; grep -c '^fentry,fexit,' /tmp/all; grep -c '^tp_btf ' /tmp/all
            grep '^-' /tmp/all | grep -c -v '  # '; grep '^-' /tmp/all | grep -i -E 'malformed|cannot' | head
            btrace --show-func-proto -k 'tcp_*' | grep -c ';$'",
        judge: |ran| {
            let numbers: Vec<u64> = ran.stdout.lines().filter_map(|l| l.parse().ok()).collect();
            ensure!(
                ran.status == 0 && numbers.len() == 5 && ran.stdout.lines().count() == 5,
                "{:?}",
                ran.stdout
            );
            ensure!(numbers[0] > 20_000 && numbers[1] > 20_000 && numbers[2] > 300, "{numbers:?}");
            ensure!(numbers[3] == 0, "each refusal has its reason");
            ensure!(numbers[4] > 100, "tcp_*");
            Ok(())
        },
    },
    Check {
        name: "--dry-run tells the plan and loads nothing",
        command: "btrace --dry-run -k vfs_read -t sched_switch",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.is_empty(), "{:?}", ran.stderr);
            for part in
                ["vfs_read f", " bytes an event\n", " (size_t)count, 8 bytes\n", "sched_switch tp_btf, "]
            {
                ensure!(ran.stdout.contains(part), "{part:?} in {:?}", ran.stdout);
            }
            Ok(())
        },
    },
];
