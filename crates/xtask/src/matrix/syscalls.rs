//! System calls: the arguments behind their wrappers.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::Check;
use super::judging::{json, no_loss, refused};
use crate::frames::Ran;

/// The table that btrace goes by.
const TABLE: &str = include_str!("../../../trace/src/syscalls.txt");

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "case 11: a system call's own arguments, with the text in user memory, instead of the wrapper's registers",
        command: r"
            btrace -k __x64_sys_openat -c 'workloads open-missing 3 /no/such/file'
            btrace -k __x64_sys_openat --mode entry --json -o /tmp/o -c 'workloads open-missing 3 /no/such/file'; grep no/such /tmp/o >&2",
        judge: |ran| {
            let lines: Vec<&str> = ran.stdout.lines().filter(|l| l.contains("/no/such/file")).collect();
            ensure!(lines.len() == 3, "{} lines", lines.len());
            for line in lines {
                ensure!(
                    line.starts_with("__x64_sys_openat args=((int)dfd=-100, (const char *)filename=0x")
                        && line.contains("(\"/no/such/file\"), (int)flags=524288, (umode_t)mode=0) retval=(")
                        && line.contains(")-2 ENOENT "),
                    "{line}"
                );
            }
            let entries: Vec<&str> = ran.stderr.lines().filter(|l| l.starts_with('{')).collect();
            ensure!(entries.len() == 3, "{} entries", entries.len());
            for entry in entries {
                let event: serde_json::Value = serde_json::from_str(entry)?;
                ensure!(event["syscall"] == "openat" && event["compat"] == false, "{event}");
                let args = &event["args"];
                ensure!(args[0]["name"] == "dfd" && args[0]["type"] == "int" && args[0]["value"] == -100);
                ensure!(args[1]["type"] == "const char *" && args[1]["text"] == "/no/such/file", "{event}");
                ensure!(args[3]["type"] == "umode_t" && args[3]["value"] == 0, "{event}");
            }
            Ok(())
        },
    },
    Check {
        name: "case 11: the fourth, fifth and sixth arguments: r10 and not rcx, r8, r9",
        command: "btrace -k __x64_sys_mmap -c 'workloads threads 2 1'",
        judge: |ran| {
            no_loss(ran)?;
            // A thread's stack: MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE or MAP_STACK, no file, offset 0.
            let stacks = ran.stdout.lines().filter(|l| {
                ["(unsigned long)flags=131106, ", "(unsigned long)flags=16418, "]
                    .iter()
                    .any(|f| l.contains(f))
                    && ["fd=18446744073709551615, ", "fd=4294967295, "].iter().any(|fd| l.contains(fd))
                    && l.contains("(unsigned long)off=0) retval=(")
            });
            ensure!(stacks.count() >= 2, "no mapping of a thread's stack");
            Ok(())
        },
    },
    Check {
        name: "case 11: a 32-bit program's calls: its own registers, zero-extended, marked; a read is no close",
        command: r"
            F=__ia32_compat_sys_openat,__ia32_sys_read,__ia32_sys_ia32_pread64,__ia32_sys_close,__x64_sys_close
            btrace -k $F -c compat32; btrace -k $F --json -o /tmp/o -c compat32 2>/dev/null; cat /tmp/o >&2",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let of = |name: &str| -> Result<&str> {
                let mut lines =
                    ran.stdout.lines().filter(|l| l.starts_with(name) && l.contains(":compat32)"));
                let line = lines.next().with_context(|| format!("no {name}"))?;
                ensure!(lines.next().is_none(), "{name} twice");
                Ok(line)
            };
            for (name, values) in [
                ("__ia32_compat_sys_openat", "((int)dfd=-100, (const char *)filename=0x"),
                (
                    "__ia32_sys_read",
                    "((unsigned int)fd=9, (char *)buf=0xfffff000, (size_t)count=77) retval=(",
                ),
                (
                    "__ia32_sys_ia32_pread64",
                    "((unsigned int)fd=9, (char *)ubuf=0xfffff000, (u32)count=78, (u32)poslo=591751049, (u32)poshi=1) retval=(",
                ),
                ("__ia32_sys_close", "((unsigned int)fd=9) retval=("),
            ] {
                let line = of(name)?;
                ensure!(line.starts_with(&format!("{name} compat args={values}")), "{line}");
            }
            let opened = of("__ia32_compat_sys_openat")?;
            ensure!(
                opened.contains("(\"/no/such/file32\"), (int)flags=0, (umode_t)mode=420) retval=("),
                "{opened}"
            );
            ensure!(opened.contains(" ENOENT ") && of("__ia32_sys_read")?.contains(" EBADF "), "{opened}");
            let events: Vec<&str> =
                ran.stderr.lines().filter(|l| l.starts_with("{\"target\":\"__ia32")).collect();
            ensure!(events.len() == 4, "{} events", events.len());
            ensure!(events.iter().all(|e| e.contains(",\"compat\":true,")), "{events:?}");
            Ok(())
        },
    },
    Check {
        name: "case 11: the tracepoints of all system calls name the call, by the numbers of the program that made it",
        command: r"
            btrace -t sys_enter,sys_exit -c compat32; btrace -t sys_enter --json -o /tmp/o -c compat32 2>/dev/null; cat /tmp/o >&2
            btrace -t sys_enter -c 'workloads open-missing 1 /no/such/file' | grep 'id=257'",
        judge: |ran| {
            let of = |what: &str| ran.stdout.lines().filter(|l| l.contains(what)).count();
            for (enter, exit) in [
                ("id=295) syscall=openat compat cpu=", "ret=-2) syscall=openat compat cpu="),
                ("id=3) syscall=read compat cpu=", "ret=-9) syscall=read compat cpu="),
                ("id=6) syscall=close compat cpu=", "ret=-9) syscall=close compat cpu="),
            ] {
                ensure!((of(enter), of(exit)) == (1, 1), "{enter} {} and {exit} {}", of(enter), of(exit));
            }
            ensure!(of("id=257) syscall=openat cpu=") >= 1, "a 64-bit program's");
            ensure!(ran.stderr.contains("\"syscall\":\"read\",\"compat\":true,"), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "a call that resets the registers: arguments at the entry, and at the exit no wrong ones",
        command: r"btrace -k __x64_sys_execve --mode both --json -c '/bin/true'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let events = json(ran)?;
            ensure!(events.len() == 2, "{} events", events.len());
            ensure!(events[0]["args"][0]["text"] == "/bin/true", "{}", events[0]);
            ensure!(events[1]["args"][0]["name"] == "regs" || events[1]["args"][0]["name"] == "__unused");
            ensure!(events[1]["retval"]["value"] == 0, "{}", events[1]);
            Ok(())
        },
    },
    Check {
        name: "a system call by its own name: the function is told",
        command: "for k in sys_openat openat; do btrace -k $k; done; exit 2",
        judge: |ran| {
            ensure!(ran.stderr.lines().count() == 2 && ran.stdout.is_empty(), "{:?}", ran.stderr);
            for line in ran.stderr.lines() {
                let one = Ran { status: 2, stdout: String::new(), stderr: format!("{line}\n") };
                refused(&one, "the system call's function is __x64_sys_openat: btrace -k __x64_sys_openat")?;
            }
            Ok(())
        },
    },
    Check {
        name: "list, --show-func-proto and --dry-run have the call's own prototype",
        command: r"
            btrace list -k __x64_sys_openat; btrace --show-func-proto -k __ia32_compat_sys_openat
            btrace --dry-run -k __x64_sys_openat",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.is_empty(), "{} {:?}", ran.status, ran.stderr);
            const PARAMS: &str = "openat(int dfd, const char *filename, int flags, umode_t mode)";
            let lines: Vec<&str> = ran.stdout.lines().collect();
            ensure!(lines[0].ends_with(&format!("  # {PARAMS}")), "{}", lines[0]);
            ensure!(lines[1].ends_with(&format!("; /* compat {PARAMS} */")), "{}", lines[1]);
            ensure!(ran.stdout.contains("(const char *)filename, 8 bytes\n"), "{:?}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "the table of system calls is the kernel's: names and types of every call that has a tracepoint",
        command: r"
            cd /sys/kernel/tracing/events/syscalls && for d in sys_enter_*; do
                echo @ $d; grep 'field:' $d/format | grep -v -e ' common_' -e __syscall_nr -e __data_loc
            done",
        judge: the_tables_lines,
    },
    Check {
        name: "every 64-bit system call that can be traced is in the table",
        command: "btrace --show-func-proto -k '__x64_sys_*' | grep -v '; /\\*'; btrace --show-func-proto -k '__x64_sys_*' | wc -l",
        judge: |ran| {
            // What this architecture does not have is `sys_ni_syscall` under another name.
            const NONE: &[&str] = &[
                "fadvise64_64",
                "io_pgetevents_time32",
                "ipc",
                "old_getrlimit",
                "old_msgctl",
                "old_readdir",
                "old_semctl",
                "old_shmctl",
                "pciconfig_iobase",
                "pciconfig_read",
                "pciconfig_write",
                "ppoll_time32",
                "pselect6_time32",
                "rt_sigtimedwait_time32",
                "rtas",
                "s390_ipc",
                "s390_pci_mmio_read",
                "s390_pci_mmio_write",
                "spu_create",
                "spu_run",
                "subpage_prot",
                "sync_file_range2",
                "vm86",
                "vm86old",
            ];
            let mut lines: Vec<&str> = ran.stdout.lines().collect();
            let count: usize = lines.pop().context("no count")?.trim().parse()?;
            ensure!(count > 300, "{count} calls");
            for line in lines {
                let name = line.split_once("__x64_sys_").and_then(|(_, rest)| rest.split_once('('));
                let name = name.with_context(|| line.to_string())?.0;
                ensure!(NONE.contains(&name) || line.contains("(void)"), "{line} is not in the table");
            }
            Ok(())
        },
    },
];

/// Each tracepoint's fields against the table's line of that name.
fn the_tables_lines(ran: &Ran) -> Result<()> {
    let mut table: BTreeMap<&str, Vec<Vec<String>>> = BTreeMap::new();
    for line in TABLE.lines().filter(|l| !l.starts_with(['#']) && !l.starts_with("compat ")) {
        let Some((name, params)) = line.strip_suffix(')').and_then(|l| l.split_once('(')) else { continue };
        let params = params.split(", ").filter(|p| !p.is_empty()).map(squeezed).collect();
        table.entry(name).or_default().push(params);
    }
    let mut calls: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut last = "";
    for line in ran.stdout.lines() {
        if let Some(name) = line.strip_prefix("@ sys_enter_") {
            last = name;
            calls.insert(name, Vec::new());
        } else if let Some((field, _)) = line.split_once("field:").and_then(|(_, f)| f.split_once(';')) {
            calls.entry(last).or_default().push(squeezed(field));
        }
    }
    ensure!(calls.len() > 300, "{} tracepoints", calls.len());
    let mut unlike = Vec::new();
    for (name, fields) in calls {
        let lines = table.get(name).map_or(&[][..], Vec::as_slice);
        if !lines.contains(&fields) && !RENAMED.contains(&name) {
            unlike.push(format!("{name}({})", fields.join(", ")));
        }
    }
    ensure!(unlike.is_empty(), "not in the table: {}", unlike.join("; "));
    Ok(())
}

/// Calls whose types were spelled otherwise in older kernels, without another meaning: the table has the newest spelling.
const RENAMED: &[&str] = &["futex", "getcpu", "name_to_handle_at", "semop"];

/// A declaration without what is a matter of taste: blanks, and `unsigned` for `unsigned int`.
fn squeezed(declaration: &str) -> String {
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let mut text = words.join(" ").replace(" * ", "*").replace(" *", "*").replace("* ", "*");
    if let Some(rest) = text
        .strip_prefix("unsigned")
        .filter(|rest| ![" int", " long", " char", " short"].iter().any(|integer| rest.starts_with(integer)))
    {
        text = format!("unsigned int{rest}");
    }
    text
}
