//! `cargo xtask bench`: what a trace costs, beside the design's bars and the rivals' figures.
//!
//! In the lab under icount one guest instruction is one nanosecond, so the guest's own clocks count instructions:
//! CLOCK_MONOTONIC around the workload's loop, and each task's run time in `/proc/PID/schedstat`. On the host there are
//! wall-clock times only; they are the least and the median of several runs, for the machine is noisy.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::frames::{self, Ran};
use crate::vm::VmOptions;
use crate::{Failure, apt, bench_code, bench_filters, bench_many, guest};

/// Measure what a trace costs: instructions per call and per printed event under icount, start and memory, here and
/// in the lab.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Kernel of the lab's part
    #[arg(long, value_name = "VERSION", default_value = "6.12")]
    kernel: String,

    /// Only what an event costs: no attaching of hundreds of functions, no bursts
    #[arg(long, conflicts_with = "attach")]
    hooks: bool,

    /// Only disassembly and source lines
    #[arg(long, conflicts_with_all = ["hooks", "attach"])]
    code: bool,

    /// Source lines too, of this stock kernel's debug package (280 MB are fetched on first use)
    #[arg(long, value_name = "VERSION")]
    debuginfo: Option<String>,

    /// Only attaching and detaching: hundreds, thousands, all functions
    #[arg(long)]
    attach: bool,

    /// Only filters and outputs by expressions, beside C compiled by clang
    #[arg(long, conflicts_with_all = ["hooks", "attach", "code"])]
    filters: bool,
}

/// Runs everything; gives back 1 when a bar is missed.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    bench(arguments).map_err(|error| Failure::new(1, error))
}

/// A measured value beside its bar.
pub struct Line {
    pub what: &'static str,
    pub ours: f64,
    /// At most this; negative, at least so much.
    pub bar: f64,
    pub unit: &'static str,
    pub rivals: &'static str,
}

/// Calls in a measured loop.
const CALLS: u64 = 2000;
/// Events in a measured delivery.
const EVENTS: u64 = 40000;

/// Functions for the guest's scripts: `loop` prints the ns of a few loops; `traced` runs btrace in the background.
pub const PRELUDE: &str = r#"
loops() { for i in 1 2 3 4 5; do workloads --time read-zero 2000 512; done; }
traced() {
    rm -f /tmp/said
    btrace "$@" 2>/tmp/said & b=$!
    until grep -qs running /tmp/said; do sleep 0.1; done
    sleep 1
}
ran() { cut -d ' ' -f 1 "/proc/$1/schedstat"; }
done_with() { kill -INT $b; wait $b; cat /tmp/said >&2; }
"#;

fn bench(arguments: &Arguments) -> Result<u8> {
    let mut lines = Vec::new();
    if arguments.attach {
        bench_many::attach(&arguments.kernel, &mut lines)?;
        return Ok(u8::from(table(&lines) > 0));
    }
    if arguments.filters {
        bench_filters::lab(&arguments.kernel, &mut lines)?;
        return Ok(u8::from(table(&lines) > 0));
    }
    if !arguments.code {
        trace(arguments, &mut lines)?;
    }
    if !arguments.hooks {
        eprintln!("bench: code");
        bench_code::host(arguments.debuginfo.as_deref(), &mut lines)?;
    }
    let missed = table(&lines);
    println!("events lost: none");
    Ok(u8::from(missed > 0))
}

/// What a trace costs.
fn trace(arguments: &Arguments, lines: &mut Vec<Line>) -> Result<()> {
    let kernel = arguments.kernel.as_str();
    let bodies = [
        "loops",
        "workloads empty-fentry vfs_read >/tmp/empty & b=$!; until grep -q attached /tmp/empty; do sleep 0.1; done; loops; kill $b",
        "traced -k vfs_read --mode entry --no-pointees -o /dev/null; kill -STOP $b; loops; kill -CONT $b; done_with",
        "traced -k vfs_read --mode exit --no-pointees -o /dev/null; kill -STOP $b; loops; kill -CONT $b; done_with",
        "traced -k vfs_read --mode both --no-pointees -o /dev/null; kill -STOP $b; loops; kill -CONT $b; done_with",
        "traced -k vfs_read --mode entry --filter-pid 1 -o /dev/null; loops; done_with",
        "traced -k vfs_read --mode entry --buffer-size 32M -o /tmp/out; ran $b; workloads read-zero 40000 512; sleep 1; ran $b; done_with",
        "traced -k vfs_read --mode entry --buffer-size 32M --json -o /tmp/out; ran $b; workloads read-zero 40000 512; sleep 1; ran $b; done_with",
        "traced -k vfs_read --mode entry --no-pointees --output-stack -o /dev/null; kill -STOP $b; loops; kill -CONT $b; done_with",
        "traced -k vfs_read --mode entry -o /tmp/out; workloads read-zero 1 1; sleep 0.1; ran $b; grep VmHWM /proc/$b/status; done_with",
        "traced -k vfs_read --mode entry -o /dev/null; kill -STOP $b; loops; kill -CONT $b; done_with",
    ];
    let scripts: Vec<String> = bodies.iter().map(|body| format!("{PRELUDE}\n{body}")).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let options = VmOptions { icount: true, timeout: Duration::from_secs(600), ..VmOptions::new(kernel, "") };
    eprintln!("bench: counting instructions on {kernel} under icount");
    let ran = frames::run(&options, &scripts)?;
    let [bare, empty, entry, exit, both, filtered, text, json, stack, start, path] = ran.as_slice() else {
        bail!("eleven answers")
    };
    for ran in [entry, exit, both, filtered, text, json, stack, start, path] {
        ensure!(ran.stderr.contains(" 0 lost"), "events were lost: {}", ran.stderr);
    }

    let bare = per_call(bare)?;
    let hook = |ran| Ok::<f64, anyhow::Error>(per_call(ran)? - bare);
    lines.extend([
        Line {
            what: "hook: an empty fentry program",
            ours: hook(empty)?,
            bar: f64::INFINITY,
            unit: "insns",
            rivals: "(137)",
        },
        Line {
            what: "hook: entry, four arguments, pid, comm",
            ours: hook(entry)?,
            bar: 400.0,
            unit: "insns",
            rivals: "bpftrace 592, bpfsnoop 1,156",
        },
        Line {
            what: "hook: the same with the file's path",
            ours: hook(path)?,
            // The rivals' figures are without.
            bar: f64::INFINITY,
            unit: "insns",
            rivals: "",
        },
        Line {
            what: "hook: exit, return value, duration",
            ours: hook(exit)?,
            // The bar of 480 is for an exit without its duration.
            bar: f64::INFINITY,
            unit: "insns",
            rivals: "bpftrace 674, bpfsnoop 1,321 (neither with duration)",
        },
        Line {
            what: "hook: entry and exit, both printed",
            ours: hook(both)?,
            bar: 1000.0,
            unit: "insns",
            rivals: "bpfsnoop 3,789",
        },
        Line {
            what: "hook: entry with kernel stack",
            ours: hook(stack)?,
            bar: 5500.0,
            unit: "insns",
            rivals: "bpftrace 7,250, bpfsnoop 5,918 (99 % of the stacks lost)",
        },
        Line {
            what: "hook: rejected by --filter-pid",
            ours: hook(filtered)?,
            // The bar of 150 is for a test on an argument, which needs no helper call: see `bench_filters.rs`.
            bar: f64::INFINITY,
            unit: "insns",
            rivals: "on an argument: bpftrace 150, bpfsnoop 527",
        },
        Line {
            what: "reader: one event as text",
            ours: per_event(text)?,
            bar: 3000.0,
            unit: "insns",
            rivals: "bpftrace 20,800, bpfsnoop 62,000",
        },
        Line {
            what: "reader: one event as JSON",
            ours: per_event(json)?,
            bar: 4000.0,
            unit: "insns",
            rivals: "",
        },
        Line {
            what: "start to first event",
            ours: numbers(&start.stdout).next().context("start")? / 1e9,
            bar: 0.1,
            unit: "G insns",
            rivals: "bpftrace 1.26, bpfsnoop 4.3",
        },
        Line {
            what: "peak memory",
            ours: numbers(&start.stdout).nth(1).context("memory")? / 1024.0,
            bar: 16.0,
            unit: "MiB",
            rivals: "bpftrace 178, bpfsnoop 235",
        },
    ]);
    bench_filters::lab(&arguments.kernel, lines)?;
    if !arguments.hooks {
        bench_many::lab(&arguments.kernel, lines)?;
    }
    eprintln!("bench: starting on this machine");
    host(lines)?;
    if !arguments.hooks {
        bench_many::host(lines)?;
    }
    Ok(())
}

/// Prints the table; gives back how many bars are missed.
fn table(lines: &[Line]) -> usize {
    println!("{:<42} {:>10} {:>8}  {:<8} rivals", "what", "ours", "bar", "unit");
    let mut missed = 0;
    for line in lines {
        let bar = if line.bar.is_finite() { format!("{}", line.bar.abs()) } else { "-".into() };
        let number = if line.ours < 10.0 { format!("{:.3}", line.ours) } else { format!("{:.0}", line.ours) };
        let missing = if line.bar < 0.0 { line.ours < -line.bar } else { line.ours > line.bar };
        let mark = if missing {
            missed += 1;
            " MISSED"
        } else {
            ""
        };
        println!("{:<42} {number:>10} {bar:>8}  {:<8} {}{mark}", line.what, line.unit, line.rivals);
    }
    missed
}

pub fn numbers(text: &str) -> impl Iterator<Item = f64> + '_ {
    text.split_ascii_whitespace().filter_map(|w| w.parse().ok())
}

/// ns of a call, which are instructions: the least of the loops, for a timer tick falls into some.
pub fn per_call(ran: &Ran) -> Result<f64> {
    let least = numbers(&ran.stdout).fold(f64::INFINITY, f64::min);
    ensure!(least.is_finite(), "no times: {ran:?}");
    Ok(least / CALLS as f64)
}

/// Instructions of the reader for one event, all that it does in the kernel included.
fn per_event(ran: &Ran) -> Result<f64> {
    let mut ran_for = numbers(&ran.stdout);
    match (ran_for.next(), ran_for.next()) {
        (Some(before), Some(after)) => Ok((after - before) / EVENTS as f64),
        _ => bail!("no run times: {ran:?}"),
    }
}

/// Start to the first event on this machine, through a tracepoint, which the least willing kernels allow.
fn host(lines: &mut Vec<Line>) -> Result<()> {
    const RUNS: usize = 15;
    let btrace = guest::build(true)?.btrace.context("no btrace was built")?;
    if !apt::is_root() {
        eprintln!("SKIP the host's part: tracing needs root");
        return Ok(());
    }
    let (mut times, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        // The command holds the trace open so that its peak can be read after the event.
        let mut child = Command::new(&btrace)
            .args(["-t", "sched_process_exec", "-c", "/bin/true; sleep 0.2", "--limit-events", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("running btrace")?;
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().context("stdout")?);
        std::io::BufRead::read_line(&mut stdout, &mut line)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("VmHWM")?;
        peaks.push(numbers(peak).next().context("VmHWM")? / 1024.0);
        child.wait()?;
        ensure!(line.starts_with("sched_process_exec "), "no event: {line:?}");
    }
    times.sort_by(f64::total_cmp);
    peaks.sort_by(f64::total_cmp);
    let middle = |values: &[f64]| values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    lines.push(Line {
        what: "host: start to first event, median",
        ours: middle(&times),
        bar: 100.0,
        unit: "ms",
        rivals: "bpftrace 400",
    });
    lines.push(Line {
        what: "host: peak memory",
        ours: middle(&peaks),
        bar: 16.0,
        unit: "MiB",
        rivals: "bpftrace 164",
    });
    Ok(())
}
