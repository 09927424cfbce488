//! The lab matrix: what btrace must do on every kernel, checked on each of them.

mod cases;
mod methods;
mod options;
mod programs;
mod rings;
mod shapes;
mod syscalls;
mod values;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::frames::{self, Ran};
use crate::kernels::{STOCK, Stock};
use crate::testmod;
use crate::vm::VmOptions;

/// One command and what must come of it.
struct Check {
    name: &'static str,
    command: &'static str,
    judge: fn(&Ran) -> Result<()>,
}

/// Functions for the checks' scripts. Every wait has an end, so that a defect fails its check and not the whole lab.
const PRELUDE: &str = r#"
# A workload that waits for SIGUSR1; its process id in w.
waiting() { rm -f /tmp/pid; workloads --pid --wait "$@" >/tmp/pid & w=$!; until_said [0-9] /tmp/pid; }
# btrace in the background; its process id in b. It is attached when this returns.
traced() { rm -f /tmp/said; btrace "$@" 2>/tmp/said & b=$!; until_said running /tmp/said; }
# Ends it by a signal, shows what it said, and exits with its status.
ended() { kill -$1 $b; wait $b; s=$?; cat /tmp/said >&2; exit $s; }
# The release, then what was seen of a function of the module of shapes: as text, as JSON, and on stderr why not.
shape() {
    uname -r
    [ -e /sys/kernel/btf/btrace_shapes ] || { btrace -k btrace_shapes:$1; return; }
    grep "^btrace_shapes:$1 " /tmp/shapes.txt; grep "\"target\":\"btrace_shapes:$1\"" /tmp/shapes.json; grep ":$1: " /tmp/shapes.err >&2; return 0
}
until_said() { for i in $(seq 100); do grep -q "$1" "$2" 2>/dev/null && return; sleep 0.1; done; echo "never said: $1" >&2; exit 99; }
"#;

/// Loaded in every guest, for the checks on functions of modules.
const MODULES: &[&str] = &["loop"];

/// Passed and failed checks, over all kernels.
#[derive(Debug, Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
}

/// Guests at one time: each keeps one host thread busy.
const AT_ONCE: usize = 2;

/// For all checks of one kernel, on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// One boot and what is checked in it.
struct Boot {
    stock: &'static Stock,
    /// What its lines begin with.
    label: String,
    cpus: u32,
    checks: Vec<&'static Check>,
}

/// The kernel that is booted with many CPUs as well.
const MANY_CPUS_ON: &str = "6.12";

/// The boots: each kernel, and one of them with many CPUs.
fn boots(only: Option<&str>, words: &[String]) -> Vec<Boot> {
    let usual = [
        CHECKS,
        values::CHECKS,
        programs::CHECKS,
        options::CHECKS,
        methods::CHECKS,
        shapes::CHECKS,
        syscalls::CHECKS,
        cases::CHECKS,
        rings::CHECKS,
    ];
    let asked = |sets: &[&'static [Check]]| -> Vec<&'static Check> {
        let all = sets.iter().copied().flatten();
        all.filter(|check| words.is_empty() || words.iter().any(|word| check.name.contains(word))).collect()
    };
    let mut boots = Vec::new();
    for stock in STOCK.iter().filter(|s| only.is_none_or(|only| only == s.label)) {
        boots.push(Boot { stock, label: stock.label.into(), cpus: 2, checks: asked(&usual) });
        if stock.label == MANY_CPUS_ON {
            let label = format!("{}, {} CPUs", stock.label, rings::CPUS);
            boots.push(Boot { stock, label, cpus: rings::CPUS, checks: asked(&[rings::MANY_CPUS]) });
        }
    }
    boots.retain(|boot| !boot.checks.is_empty());
    boots
}

/// Runs every check on every stock kernel, and says how each went on stderr. With `words`, only the checks whose names
/// contain one of them.
pub fn run(only: Option<&str>, words: &[String]) -> Result<Tally> {
    ensure!(STOCK.iter().any(|s| only.is_none_or(|only| only == s.label)), "the lab has no such kernel");
    let boots = boots(only, words);
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(boot) = boots.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (passed, failed, report) = run_one(boot);
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.passed += passed;
                    tally.failed += failed;
                    eprint!("{report}");
                }
            });
        }
    });
    Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs the checks of one boot: how many passed and failed, and what is to be said. A guest that gave no answer is
/// one failure.
fn run_one(boot: &Boot) -> (usize, usize, String) {
    let Boot { stock, label, cpus, checks } = boot;
    let (mut passed, mut failed, mut report) = (0, 0, String::new());
    // Written once: all commands together are one argument, of which the kernel takes 128 KiB (`MAX_ARG_STRLEN`).
    let prelude = format!("cat >/tmp/prelude.sh <<'END_OF_PRELUDE'\n{PRELUDE}\nEND_OF_PRELUDE");
    let scripts = checks.iter().map(|c| format!(". /tmp/prelude.sh\n{}", c.command));
    let commands: Vec<String> = std::iter::once(prelude).chain(scripts).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let additions = match testmod::additions(stock) {
        Ok(additions) => additions,
        Err(error) => {
            return (0, 1, format!("lab {:<5} FAILED  the module of shapes: {error:#}\n", label));
        }
    };
    let options = VmOptions {
        additions,
        cpus: *cpus,
        modules: MODULES.iter().map(ToString::to_string).collect(),
        timeout: TIMEOUT,
        ..VmOptions::new(stock.label, "")
    };
    let ran = match frames::run(&options, &commands) {
        Ok(ran) => ran,
        Err(error) => return (0, 1, format!("lab {:<5} FAILED  {error:#}\n", label)),
    };
    for (check, ran) in checks.iter().zip(ran.iter().skip(1)) {
        match (check.judge)(ran) {
            Ok(()) => {
                passed += 1;
                report += &format!("lab {:<5} ok      {}\n", label, check.name);
            }
            Err(error) => {
                failed += 1;
                report += &format!("lab {:<5} FAILED  {}: {error:#}\n", label, check.name);
                report +=
                    &format!("  status {}\n{}\n{}\n", ran.status, excerpt(&ran.stdout), excerpt(&ran.stderr));
            }
        }
    }
    (passed, failed, report)
}

fn excerpt(text: &str) -> String {
    text.lines().take(12).map(|l| format!("  | {l}")).collect::<Vec<_>>().join("\n")
}

const CHECKS: &[Check] = &[
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
                ensure!(event["target"] == "vfs_read");
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
        name: "a process that is not there",
        command: "btrace -k vfs_read --filter-pid 4000000",
        judge: |ran| refused(ran, "no such process"),
    },
    Check {
        name: "Ctrl-C and SIGKILL leave nothing attached",
        command: r#"
            attached() { grep -c vfs_read /sys/kernel/tracing/enabled_functions; }
            gone() { for i in 1 2 3 4 5 6 7 8 9 10; do [ "$(attached)" = 0 ] && { echo gone; return; }; sleep 0.2; done; echo left; }
            for signal in INT TERM KILL; do
                traced -k vfs_read -o /dev/null
                echo "while $(attached)"
                kill -$signal $b; wait $b; echo "status $?"
                gone
            done"#,
        judge: |ran| {
            let want = "while 1\nstatus 0\ngone\nwhile 1\nstatus 0\ngone\nwhile 1\nstatus 137\ngone\n";
            ensure!(ran.stdout == want, "got {:?}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "a tiny buffer and a stopped reader: printed + lost = produced",
        command: r"
            waiting read-zero 5000 512
            traced -k vfs_read --mode entry --buffer-size 64K --filter-pid $w
            kill -STOP $b; kill -USR1 $w; wait $w; kill -CONT $b; ended INT",
        judge: |ran| {
            ensure!(ran.status == 0);
            let (printed, lost) = summary(ran)?;
            ensure!(lost > 0, "a 64 KiB ring must have overrun");
            ensure!(printed + lost == 5000, "{printed} + {lost}");
            ensure!(ran.stdout.lines().count() as u64 == printed, "the summary tells what was printed");
            Ok(())
        },
    },
    Check {
        name: "case 23: Ctrl-C straight after a burst: what is in the buffer is still printed",
        command: r"
            waiting read-zero 20000 512
            traced -k vfs_read --filter-pid $w
            kill -USR1 $w; wait $w; ended INT",
        judge: |ran| {
            let (printed, lost) = summary(ran)?;
            ensure!(
                printed + lost == 20000 && ran.stdout.lines().count() as u64 == printed,
                "{printed} + {lost}"
            );
            ensure!(ran.status == 0 && !ran.stdout.contains("duration=?"), "every call has its duration");
            Ok(())
        },
    },
    Check {
        name: "exactly as many events as asked for",
        command: "btrace -k vfs_read --limit-events 7 -c 'dd if=/dev/zero of=/dev/null bs=512 count=100 2>/dev/null'",
        judge: |ran| {
            ensure!(
                ran.status == 0 && ran.stdout.lines().count() == 7,
                "{} lines",
                ran.stdout.lines().count()
            );
            Ok(())
        },
    },
    Check {
        name: "a command's children are followed, and nobody else",
        command: r"
            (while :; do /bin/true; workloads read-zero 10 1; done) & noise=$!
            btrace -t sched_process_exec --json -c 'workloads exec-true 3; (workloads exec-true 2)'
            s=$?; kill $noise; exit $s",
        judge: |ran| {
            no_loss(ran)?;
            let files: Vec<String> = json(ran)?
                .iter()
                .map(|e| e["args"][2]["pointee"]["filename"].as_str().unwrap_or("?").to_string())
                .collect();
            let of = |name: &str| files.iter().filter(|f| f.ends_with(name)).count();
            ensure!(of("/true") == 5 && of("/workloads") == 2 && files.len() == 7, "{files:?}");
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
        name: "only errors, only one name, only one thread",
        command: r"
            btrace -k do_sys_openat2 --errors -c 'workloads open-missing 4 /no/such/file'
            btrace -k vfs_read --filter-comm dd -c 'workloads read-zero 5 9; dd if=/dev/zero of=/dev/null bs=9 count=6 2>/dev/null'
            waiting read-zero 3 11; traced -k vfs_read --filter-tid $w --filter-cpu 0 --filter-cpu 1
            kill -USR1 $w; wait $w; ended TERM",
        judge: |ran| {
            let of = |what: &str| ran.stdout.lines().filter(|l| l.contains(what)).count();
            ensure!(of("do_sys_openat2") == 4 && of(" ENOENT ") == 4, "errors");
            ensure!(of("count=9,") == 6 && of(":dd)") == 6, "comm: {} {}", of("count=9,"), of(":dd)"));
            ensure!(of("count=11,") == 3 && of(":workloads)") == 7, "tid");
            Ok(())
        },
    },
    Check {
        name: "an error filter that cannot apply is an error",
        command: "btrace -k vfs_read --mode entry --errors",
        judge: |ran| refused(ran, "--errors needs --mode exit"),
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
        name: "process ids are those of the pid namespace",
        command: r#"
            cat >/tmp/inside.sh <<'EOF'
                workloads --pid --wait read-zero 5 13 >/tmp/pid & w=$!
                for i in $(seq 100); do grep -q '[0-9]' /tmp/pid && break; sleep 0.1; done
                [ $w -lt 20 ] && echo "small number"
                btrace -k vfs_read --filter-pid $w 2>/tmp/said & b=$!
                for i in $(seq 100); do grep -qs running /tmp/said && break; sleep 0.1; done
                kill -USR1 $w; wait $w; kill -INT $b; wait $b; cat /tmp/said >&2
EOF
            rm -f /tmp/pid /tmp/said; unshare -pf --mount-proc sh /tmp/inside.sh"#,
        judge: |ran| {
            let reads =
                ran.stdout.lines().filter(|l| l.contains("count=13,") && l.contains(":workloads)")).count();
            ensure!(ran.stdout.starts_with("small number\n") && reads == 5, "{reads} reads");
            Ok(())
        },
    },
    Check {
        name: "case 13: a ring buffer that does not fit is made smaller, and that is said",
        command: "btrace -k vfs_read --buffer-size 2G -o /tmp/o -c 'workloads read-zero 2 3'",
        judge: |ran| {
            ensure!(
                ran.status == 0
                    && ran.stderr.contains("no memory for a ring buffer of 2147483648 bytes; it has")
            );
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
            let line = ran.stderr.lines().find(|l| l.contains(" printed, ")).context("no summary")?;
            let unseen: usize =
                match line.split_once(" lost, ").and_then(|(_, rest)| rest.split_once(" call")) {
                    Some((number, _)) => number.parse().with_context(|| line.to_string())?,
                    None => 0,
                };
            let mut open = std::collections::HashMap::new();
            let (mut pairs, mut halves) = (0, 0);
            for event in json(ran)? {
                let key = (event["target"].to_string(), event["call"].as_str().context("call")?.to_string());
                if event.get("duration_ns").is_none() {
                    ensure!(event["retval"].is_null(), "an entry: {event}");
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
        name: "programs are named for bpftool: func_info and line_info reach the kernel",
        command: "btrace -vv -k vfs_read --limit-events 1 -c 'workloads read-zero 1 1'",
        judge: |ran| {
            ensure!(ran.stderr.contains("; size_t count"), "the program is shown with the capture's line");
            Ok(())
        },
    },
    Check {
        name: "the command's own failure is said",
        command: "btrace -k vfs_read -o /tmp/o -c 'exit 3'",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.contains("exit status: 3"), "{:?}", ran.stderr);
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

/// What kernels before 5.11 are said to lack.
const NO_MODULE_TYPES: &str = "this kernel shows no types of modules";

/// A run that ended well, with nothing lost.
fn no_loss(ran: &Ran) -> Result<()> {
    ensure!(ran.status == 0, "exit status {}", ran.status);
    let (printed, lost) = summary(ran)?;
    ensure!(lost == 0, "{lost} lost");
    let lines = ran.stdout.lines().count() as u64;
    ensure!(lines == printed, "{lines} lines, and {printed} said to be printed");
    Ok(())
}

/// Events printed and lost, from the summary line.
fn summary(ran: &Ran) -> Result<(u64, u64)> {
    let line = ran.stderr.lines().rev().find(|l| l.contains(" printed, ")).context("no summary")?;
    let mut numbers = line.split_ascii_whitespace().filter_map(|w| w.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(printed), Some(lost)) => Ok((printed, lost)),
        _ => bail!("summary {line:?}"),
    }
}

/// The lines of events that begin like this, each with the frames under it.
fn stacks<'a>(ran: &'a Ran, head: &str) -> Result<Vec<(&'a str, Vec<&'a str>)>> {
    let mut events: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut lines = ran.stdout.lines().peekable();
    while let Some(line) = lines.next() {
        if lines.next_if_eq(&"Func stack:").is_none() {
            continue;
        }
        let mut frames = Vec::new();
        while let Some(frame) =
            lines.next_if(|l| !l.contains(" args=(") && (l.contains("+0x") || l.starts_with("0x")))
        {
            frames.push(frame);
        }
        if line.starts_with(head) {
            ensure!(!frames.is_empty(), "no frames under {line}");
            events.push((line, frames));
        }
    }
    ensure!(!events.is_empty(), "no events with a stack");
    Ok(events)
}

/// A refusal: exit status 2, nothing on stdout, one line that says why.
fn refused(ran: &Ran, why: &str) -> Result<()> {
    ensure!(ran.status == 2, "exit status {}", ran.status);
    ensure!(ran.stdout.is_empty(), "stdout {:?}", ran.stdout);
    ensure!(ran.stderr.lines().count() == 1 && ran.stderr.contains(why), "stderr {:?}", ran.stderr);
    Ok(())
}

fn json(ran: &Ran) -> Result<Vec<Value>> {
    ran.stdout.lines().map(|l| serde_json::from_str(l).map_err(|e| anyhow!("{e}: {l}"))).collect()
}
