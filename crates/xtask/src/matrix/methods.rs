//! Attach methods: which one the kernel offers, and that each of them misses no call and no return.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Check;
use super::judging::{NO_MODULE_TYPES, json, refused};
use crate::frames::Ran;

/// `uname -r`, then a command traced in each mode: `== MODE STATUS SUMMARY`, then the events as JSON, through `sed $cut`.
/// (Part of each script, for the prelude is for all checks.)
macro_rules! modes {
    ($modes:literal, $setup:literal, $options:literal, $command:literal) => {
        concat!(
            "modes() { c=$1; shift; for m in ",
            $modes,
            "; do\n",
            "btrace \"$@\" --mode $m --json -o /tmp/o -c \"$c\" >/dev/null 2>/tmp/said\n",
            "echo \"== $m $? $(grep ' printed, ' /tmp/said || tail -n 1 /tmp/said)\"\n",
            "sed \"$cut\" /tmp/o; rm -f /tmp/o; done; }\n",
            "uname -r; cut=\n",
            $setup,
            "\nmodes '",
            $command,
            "' ",
            $options
        )
    };
}

const FILES: Check = Check {
    name: "vfs_* over a file workload, in each mode: every call, every return with its duration, by the method that this kernel has for many",
    command: modes!(
        "entry exit both",
        "",
        "-k 'vfs_*'",
        "dd if=/dev/zero of=/tmp/file bs=13 count=100 2>/dev/null; workloads read-zero 150 11
            for i in $(seq 10); do mkdir /tmp/dir$i; echo >/tmp/dir$i/new; rm /tmp/dir$i/new; rmdir /tmp/dir$i; done"
    ),
    judge: |ran| {
        let (release, modes) = modes(ran, &EACH)?;
        for mode in &modes {
            mode.is_whole()?;
            // Not vfs_rmdir: 5.10 has its body in do_rmdir and vfs_rmdir.part.0, and calls it by neither name.
            for (target, number, wanted) in [
                ("vfs_read", Some(13), 100),
                ("vfs_write", Some(13), 100),
                ("vfs_read", Some(11), 150),
                ("vfs_mkdir", None, 10),
                ("vfs_unlink", None, 10),
            ] {
                mode.has(target, wanted, |e| {
                    let has = |n| args(e).iter().any(|a| a["name"] == "count" && a["value"] == n);
                    e["target"] == target && number.is_none_or(has)
                })?;
            }
            // Opened by the shell for echo's output; what else is opened has other paths.
            mode.has("vfs_open", 10, |e| {
                e["target"] == "vfs_open"
                    && args(e).iter().any(|a| {
                        a["name"] == "path" && a["pointee"]["path"].as_str().is_some_and(|p| p.ends_with("/new"))
                    })
            })?;
            mode.by_many(release, "vfs_read")?;
        }
        Ok(())
    },
};

/// The modes, in the order in which they are tried.
const EACH: [&str; 3] = ["entry", "exit", "both"];

/// A check for each mode: where 500 functions are attached one by one, three times is too long for one check.
macro_rules! network {
    ($mode:literal) => {
        Check {
            name: concat!(
                "tcp_* and ip_* over loopback, --mode ",
                $mode,
                ": every connection's calls, calls within calls too, each return with its duration"
            ),
            command: modes!(
                $mode,
                "cut='s/,\"args\":.*/}/'",
                "-k 'tcp_*' -k 'ip_*'",
                "workloads connect-loopback 8"
            ),
            judge: |ran| network(ran, $mode),
        }
    };
}

pub(super) const CHECKS: &[Check] = &[
    FILES,
    network!("entry"),
    network!("exit"),
    network!("both"),
    RECURSION,
    ONE,
    VARIADIC,
    NAMESAKES,
    FOUND_LATE,
    SUFFIXED,
];

fn network(ran: &Ran, mode: &str) -> Result<()> {
    let (release, modes) = modes(ran, &[mode])?;
    for mode in &modes {
        mode.is_whole()?;
        mode.has("tcp_v4_connect", 8, |e| e["target"] == "tcp_v4_connect")?;
        mode.has("tcp_connect", 8, |e| e["target"] == "tcp_connect")?;
        // Both ends of each, and the listener.
        mode.has("tcp_close", 17, |e| e["target"] == "tcp_close")?;
        mode.by_many(release, "tcp_v4_connect")?;
        if mode.name == "both" {
            // The answer to a packet is sent while the packet is: the loopback device is its own peer.
            let mut open: HashMap<u64, u64> = HashMap::new();
            let mut within = 0;
            for event in mode.events.iter().filter(|e| e["target"] == "ip_output") {
                let depth = open.entry(event["tid"].as_u64().context("tid")?).or_default();
                if is_exit(event) {
                    *depth = depth.saturating_sub(1);
                } else {
                    within += u64::from(*depth > 0);
                    *depth += 1;
                }
            }
            ensure!(within + mode.unseen >= 8, "{within} calls of ip_output within calls of it");
        }
    }
    Ok(())
}

/// Runs of the module's functions.
const RUNS: usize = 5;

const RECURSION: Check = Check {
    name: "through the methods for many: a function that calls itself, one that jumps to another, both events of every call",
    command: r#"
        uname -r
        [ -e /sys/module/btrace_shapes ] || { insmod /lab/btrace_shapes.ko || exit 98; mine=1; }
        btrace -k 'btrace_shapes:bs_*' --mode both --json -o /tmp/o \
            -c 'for i in 1 2 3 4 5; do echo 1 >/sys/module/btrace_shapes/parameters/run; done'
        s=$?; grep -E '"btrace_shapes:bs_(factorial|tail|tail_called|other)"' /tmp/o
        [ "$mine" ] && rmmod btrace_shapes; exit $s"#,
    judge: |ran| {
        let (release, events) = released(ran)?;
        if ran.status == 2 {
            let ran = Ran { status: 2, stdout: String::new(), stderr: ran.stderr.clone() };
            return refused(&ran, NO_MODULE_TYPES);
        }
        let (_, lost) = super::judging::summary(ran)?;
        ensure!(ran.status == 0 && lost == 0, "status {}, {lost} lost", ran.status);
        ensure!(!ran.stderr.contains(" not seen"), "{}", ran.stderr);
        let of = |target: &str, exit: bool| -> Vec<&Value> {
            let target = format!("btrace_shapes:{target}");
            events.iter().filter(|e| e["target"] == target && is_exit(e) == exit).collect()
        };
        let argument = |e: &&Value| args(e).first().and_then(|a| a["value"].as_u64());
        let result = |e: &&Value| e["retval"]["value"].as_u64();
        let every = |one: &[u64]| one.repeat(RUNS).into_iter().map(Some).collect::<Vec<_>>();
        for (target, entered, left, returned) in [
            ("bs_factorial", &[5, 4, 3, 2, 1][..], &[1, 2, 3, 4, 5][..], &[1, 2, 6, 24, 120][..]),
            ("bs_tail", &[20], &[20], &[41]),
            ("bs_tail_called", &[40], &[40], &[41]),
            ("bs_other", &[2], &[2], &[202]),
        ] {
            let (entries, exits) = (of(target, false), of(target, true));
            let seen: Vec<_> = entries.iter().map(argument).collect();
            ensure!(seen == every(entered), "{target}: entries with {seen:?}");
            let seen: Vec<_> = exits.iter().map(argument).collect();
            ensure!(seen == every(left), "{target}: exits with {seen:?}");
            let seen: Vec<_> = exits.iter().map(result).collect();
            ensure!(seen == every(returned), "{target}: returned {seen:?}");
            ensure!(
                exits.iter().all(|e| e["duration_ns"].is_u64()),
                "{target}: an exit without its duration"
            );
            let methods = [&entries, &exits].map(|some| some.first().map(|e| e["method"].clone()));
            let wanted = [many(release, false), many(release, true)].map(|m| Some(m.into()));
            ensure!(methods == wanted, "{target}: by {methods:?}");
        }
        Ok(())
    },
};

const ONE: Check = Check {
    name: "one function, in each mode: by the method that this kernel has for one",
    command: modes!("entry exit both", "", "-k vfs_read", "workloads read-zero 20 11"),
    judge: |ran| {
        let (release, modes) = modes(ran, &EACH)?;
        for mode in &modes {
            mode.is_whole()?;
            mode.has("vfs_read", 20, |e| args(e).iter().any(|a| a["name"] == "count" && a["value"] == 11))?;
            let fsession = release >= (7, 0) && mode.name != "entry";
            for event in &mode.events {
                let wanted = match is_exit(event) {
                    _ if fsession => "fsession",
                    true => "fexit",
                    false => "fentry",
                };
                ensure!(event["method"] == wanted, "{}: {event}", mode.name);
            }
        }
        Ok(())
    },
};

const VARIADIC: Check = Check {
    name: "a function with a variable number of arguments, in each mode: by kprobe on every kernel",
    command: modes!(
        "entry exit both",
        "",
        "-k seq_printf",
        "cat /proc/self/maps /proc/self/limits /proc/swaps /proc/partitions"
    ),
    judge: |ran| {
        for mode in &modes(ran, &EACH)?.1 {
            mode.is_whole()?;
            let count = mode.events.iter().filter(|e| e["comm"] == "cat").count() as u64;
            // What is in those files differs; that something is does not.
            ensure!(count + mode.unseen >= 10, "{}: {count} events", mode.name);
            for event in &mode.events {
                ensure!(event["target"] == "seq_printf" && event["method"] == "kprobe", "{event}");
                let names: Vec<&str> = args(event).iter().filter_map(|a| a["name"].as_str()).collect();
                ensure!(names.starts_with(&["m", "f"]), "{event}");
            }
        }
        Ok(())
    },
};

const NAMESAKES: Check = Check {
    name: "functions that share their name: all of them traced, from when they are found on, and that is said",
    command: r"
        grep -c ' [tT] m_start$' /proc/kallsyms
        traced -k m_start --filter-comm cat -o /tmp/o
        for i in $(seq 100); do grep -q -E 'm_start' /tmp/said && break; sleep 0.1; done; sleep 1
        for f in /proc/self/maps /proc/modules /proc/self/mounts; do
            : >/tmp/o; cat $f >/dev/null; sleep 0.3; kill -0 $b || exit 97; echo $(grep -c m_start /tmp/o) $f
        done
        kill -INT $b; wait $b; s=$?; cat /tmp/said >&2; exit $s",
    judge: |ran| {
        ensure!(ran.status == 0, "status {}: {}", ran.status, ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        let [count, files @ ..] = lines.as_slice() else { bail!("{lines:?}") };
        let count: u32 = count.parse()?;
        ensure!(count >= 2 && files.len() == 3, "{lines:?}");
        for file in files {
            let calls: u32 = file.split(' ').next().unwrap_or_default().parse()?;
            ensure!(calls > 0, "no call for {file}: {lines:?}");
        }
        let said = format!("{count} functions have this name");
        ensure!(
            ran.stderr.contains(&said) || ran.stderr.contains("no prototype is known for m_start"),
            "{}",
            ran.stderr
        );
        Ok(())
    },
};

const FOUND_LATE: Check = Check {
    name: "functions found late: their events say by what they come, entries and exits in pairs, and their stacks have none of our frames",
    command: r#"
        [ -e /sys/module/btrace_shapes ] || { insmod /lab/btrace_shapes.ko || exit 98; mine=1; }
        run=/sys/module/btrace_shapes/parameters/run
        btrace -k btrace_shapes:bs_same --mode both --json --output-stack -o /tmp/o \
            -c "echo 1 >$run; workloads sleep-ms 4000; for i in 1 2 3; do echo 1 >$run; done"
        s=$?; [ $s = 0 ] && cat /tmp/o && btrace -k btrace_shapes:bs_same --json --output-stack -c "workloads sleep-ms 4000; echo 1 >$run"
        [ "$mine" ] && rmmod btrace_shapes; exit $s"#,
    judge: |ran| {
        if ran.status == 2 {
            ensure!(ran.stderr.contains(super::judging::NO_MODULE_TYPES), "{}", ran.stderr);
            return Ok(());
        }
        ensure!(ran.status == 0, "exit status {}", ran.status);
        let events = json(ran)?;
        let (mut methods, mut open) = (BTreeMap::new(), BTreeMap::new());
        for event in &events {
            let n = event["args"][0]["value"].as_u64().context("n")?;
            let method = event["method"].as_str().context("method")?;
            // An entry beside an fexit is an fentry.
            let method = if method == "fentry" { "fexit" } else { method };
            ensure!(*methods.entry(n).or_insert(method) == method, "{event}");
            let frames = event["stack"].as_array().context("stack")?;
            let symbols: Vec<&str> = frames.iter().filter_map(|f| f["symbol"].as_str()).collect();
            ensure!(symbols.contains(&"param_attr_store"), "{event}");
            for ours in ["bpf_", "kprobe", "ftrace", "fprobe", "arch_rethook", "__fprobe"] {
                ensure!(!symbols.iter().any(|s| s.starts_with(ours)), "{ours}: {event}");
            }
            let Some(call) = event["call"].as_str() else { continue };
            if event["event"] == "entry" {
                ensure!(open.insert(call, event).is_none(), "an entry twice: {event}");
            } else {
                let entry = open.remove(call).with_context(|| format!("no entry of {event}"))?;
                ensure!(entry["args"] == event["args"] && event["duration_ns"].is_u64(), "{entry} {event}");
            }
        }
        ensure!(open.is_empty(), "{} entries without exits", open.len());
        let [one, other] = [1, 2].map(|n| methods.get(&n).copied().unwrap_or("none"));
        let late = |method: &str| method == "kprobe" || method == "kprobe_multi";
        ensure!(late(one) != late(other), "{one} and {other}");
        let said = if late(one) { one } else { other };
        ensure!(ran.stderr.contains(&format!("are traced too, by {said}, from now on")), "{}", ran.stderr);
        Ok(())
    },
};

const SUFFIXED: Check = Check {
    name: "functions of the kernel of which only copies are left that the compiler made: found by their base names, traced, and it is said",
    command: r#"
        awk 'NF == 3 && ($2 == "t" || $2 == "T") { here[$3] }
            END { for (n in here) if (n ~ /\.(isra|constprop)\.[0-9]+$/ && n !~ /part|cold/) {
                b = n; sub(/\..*/, "", b); if (!(b in here) && b ~ /^(path|vma|vm_|mm_|do_|dentry|inode|sock|inet|tcp|ip_|copy|free|alloc|page|file|get|put|proc|pid|shmem|exec|load|elf)/) print b } }' \
            /proc/kallsyms | sort -u | head -n 40 >/tmp/only
        wc -l </tmp/only
        btrace -k "$(tr '\n' ',' </tmp/only | sed 's/,$//')" -o /tmp/o \
            -c 'workloads exec-true 3; ls -lR /proc/self >/dev/null 2>&1; workloads connect-loopback 3 >/dev/null; cp /bin/busybox /tmp/x'
        s=$?; cut -d ' ' -f 1 /tmp/o | sort | uniq -c; exit $s"#,
    judge: |ran| {
        ensure!(ran.status == 0, "status {}: {}", ran.status, ran.stderr);
        let (printed, lost) = super::judging::summary(ran)?;
        let mut lines = ran.stdout.lines();
        let asked: u32 = lines.next().context("how many")?.trim().parse()?;
        let seen: Vec<&str> = lines.filter_map(|l| l.split_ascii_whitespace().nth(1)).collect();
        ensure!(
            asked > 5 && printed > 0 && lost == 0 && !seen.is_empty(),
            "{asked} asked, {seen:?} seen, {lost} lost"
        );
        ensure!(seen.iter().all(|name| name.contains('.')), "{seen:?}");
        ensure!(
            ran.stderr.contains("no prototype is known for ") && ran.stderr.contains('.'),
            "{}",
            ran.stderr
        );
        Ok(())
    },
};

/// A trace in one mode.
struct Mode {
    name: String,
    /// Calls that the kernel says it did not let us see.
    unseen: u64,
    events: Vec<Value>,
}

/// What the guest runs and what there was in each mode. Nothing may be lost, and all that was printed must be here.
fn modes(ran: &Ran, wanted: &[&str]) -> Result<((u32, u32), Vec<Mode>)> {
    let mut modes: Vec<(Mode, u64)> = Vec::new();
    let mut lines = ran.stdout.lines();
    let release = release(lines.next().context("no release")?);
    for line in lines {
        if let Some(head) = line.strip_prefix("== ") {
            let (name, rest) = head.split_once(' ').context("mode")?;
            let (status, summary) = rest.split_once(' ').context("status")?;
            ensure!(status == "0", "{name}: status {status}: {summary}");
            let summary = Ran { status: 0, stdout: String::new(), stderr: summary.to_string() };
            let (printed, lost) = super::judging::summary(&summary)?;
            ensure!(lost == 0, "{name}: {lost} lost");
            let unseen = super::judging::unseen(&summary.stderr)?;
            ensure!(!summary.stderr.contains(" without a duration"), "{name}: {}", summary.stderr);
            modes.push((Mode { name: name.to_string(), unseen, events: Vec::new() }, printed));
        } else {
            let (mode, _) = modes.last_mut().with_context(|| format!("before any mode: {line}"))?;
            mode.events.push(serde_json::from_str(line).with_context(|| line.to_string())?);
        }
    }
    let names: Vec<&str> = modes.iter().map(|m| m.0.name.as_str()).collect();
    ensure!(names == wanted, "{names:?}");
    for (mode, printed) in &modes {
        let here = mode.events.len() as u64;
        ensure!(here == *printed, "{}: {here} events, {printed} said to be printed", mode.name);
    }
    Ok((release, modes.into_iter().map(|m| m.0).collect()))
}

impl Mode {
    /// Exits have durations, entries have none, and with both each entry has its exit; but for the calls that the
    /// kernel says were not seen.
    fn is_whole(&self) -> Result<()> {
        let exits = self.events.iter().filter(|e| is_exit(e)).count();
        match self.name.as_str() {
            "entry" => ensure!(exits == 0, "{exits} exits with --mode entry"),
            "exit" => ensure!(exits == self.events.len(), "entries with --mode exit"),
            _ => {}
        }
        let untimed = self.events.iter().filter(|e| is_exit(e) && !e["duration_ns"].is_u64()).count() as u64;
        ensure!(untimed <= self.unseen, "{}: {untimed} exits without duration", self.name);
        if self.name == "both" {
            let mut open: HashMap<(String, String), i64> = HashMap::new();
            for event in &self.events {
                let call = event["call"].as_str().context("call")?;
                let step = if is_exit(event) { -1 } else { 1 };
                *open.entry((event["target"].to_string(), call.to_string())).or_default() += step;
            }
            let halves: u64 = open.values().map(|n| n.unsigned_abs()).sum();
            ensure!(
                halves <= self.unseen,
                "{halves} events without their other half, {} unseen",
                self.unseen
            );
        }
        Ok(())
    }

    /// So many calls, at each end that the mode shows; but for the calls that were not seen.
    fn has(&self, what: &str, wanted: u64, which: impl Fn(&Value) -> bool) -> Result<()> {
        let count = |exit| self.events.iter().filter(|e| which(e) && is_exit(e) == exit).count() as u64;
        let fine = |count: u64| count <= wanted && wanted <= count + self.unseen;
        let (entries, exits) = (count(false), count(true));
        let (at_entry, at_exit) = (self.name != "exit", self.name != "entry");
        ensure!(
            (!at_entry || fine(entries)) && (!at_exit || fine(exits)),
            "{}: {what}: {entries} entries and {exits} exits, not {wanted}; {} unseen",
            self.name,
            self.unseen
        );
        Ok(())
    }

    /// The events of a function came by the method that this kernel has for many functions.
    fn by_many(&self, release: (u32, u32), target: &str) -> Result<()> {
        for event in self.events.iter().filter(|e| e["target"] == target) {
            let wanted = many(release, is_exit(event));
            ensure!(event["method"] == wanted, "{}: not by {wanted}: {event}", self.name);
        }
        Ok(())
    }
}

/// What the lab's kernels have for many functions: the older two have no multi-attach, nor the middle one a session of it.
fn many(release: (u32, u32), exit: bool) -> &'static str {
    match (release, exit) {
        ((7.., _), _) => "tracing_multi",
        ((6, 10..), _) => "kprobe_multi",
        (_, true) => "fexit",
        (_, false) => "fentry",
    }
}

fn is_exit(event: &Value) -> bool {
    event["event"] == "exit"
}

fn args(event: &Value) -> &[Value] {
    event["args"].as_array().map_or(&[], Vec::as_slice)
}

/// Major and minor number.
fn release(line: &str) -> (u32, u32) {
    let mut numbers = line.split('.').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The first line's release, then JSON.
fn released(ran: &Ran) -> Result<((u32, u32), Vec<Value>)> {
    let (first, rest) = ran.stdout.split_once('\n').context("no release")?;
    let rest = Ran { status: ran.status, stdout: rest.to_string(), stderr: String::new() };
    Ok((release(first), json(&rest)?))
}
