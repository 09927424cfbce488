//! The bench's rows on many targets and many events: attaching and detaching hundreds of functions, a burst that Ctrl-C ends, and
//! events delivered on this machine.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::{Line, numbers};
use crate::frames::{self, Ran};
use crate::vm::VmOptions;
use crate::{apt, guest};

/// `up` prints the guest's seconds; `span` prints those of a start and of a detach, and the targets.
const PRELUDE: &str = r#"
up() { cut -d ' ' -f 1 /proc/uptime; }
span() {
    rm -f /tmp/said; echo "$(up)"
    btrace "$@" -o /dev/null 2>/tmp/said & b=$!
    until grep -qs running /tmp/said; do sleep 0.02; done; echo "$(up)"
    sleep 1; echo "$(up)"; kill -INT $b; wait $b; echo "$(up)"
    sed -n 's/.*running.. (\([0-9]*\) target.*/\1/p' /tmp/said; cat /tmp/said >&2
}
"#;

/// Calls of the burst.
const BURST: u64 = 1_001_000;

/// Rows of the lab: `kernel` under icount for times, with two CPUs for the burst.
pub fn lab(kernel: &str, lines: &mut Vec<Line>) -> Result<()> {
    attach(kernel, lines)?;
    burst(kernel, lines)
}

/// Attaching and detaching many functions, up to all that there are.
pub fn attach(kernel: &str, lines: &mut Vec<Line>) -> Result<()> {
    eprintln!("bench: attaching and detaching hundreds of functions on {kernel} under icount");
    // Of thousands nothing is to be printed: a process that sleeps is the only one traced.
    let scripts = [
        "span -k 'tcp_*'",
        "span -k 'tcp_*' --mode entry",
        "span -k '[a-d]*_{get,put,read,write}*'",
        "sleep 9999 & span -k 's[a-f]*' --mode entry --filter-pid $!",
        "sleep 9999 & span -k '[q-s]*' --mode entry --filter-pid $!",
        "sleep 9999 & span -k '*' --mode entry --filter-pid $!",
        "sleep 9999 & span -k '*' --mode exit --filter-pid $!",
    ]
    .map(|body| format!("{PRELUDE}{body}"));
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let options =
        VmOptions { icount: true, timeout: Duration::from_secs(1200), ..VmOptions::new(kernel, "") };
    let ran = frames::run(&options, &scripts)?;
    let [exits, entries, more, thousand, thousands, all, returns] = ran.as_slice() else {
        anyhow::bail!("seven answers")
    };
    for (ran, start, detach) in [
        (exits, "tcp_*, exits: start", "tcp_*, exits: detach"),
        (entries, "tcp_*, entries: start", "tcp_*, entries: detach"),
        (more, "a wider glob, exits: start", "a wider glob, exits: detach"),
        (thousand, "1,000 and more, entries: start", "1,000 and more, entries: detach"),
        (thousands, "5,000, entries: start", "5,000, entries: detach"),
        (all, "all functions, entries: start", "all functions, entries: detach"),
        (returns, "all functions, exits: start", "all functions, exits: detach"),
    ] {
        let (started, detached, targets) = span(ran)?;
        eprintln!("bench: {targets} targets: {start} {started:.2} s, {detach} {detached:.2} s");
        // The bars, and the rivals' figures, are for tcp_*; for all functions that there are the start has one.
        let few = targets < 1000;
        let rivals = if few { "bpftrace 1.64 / 0.59 by kprobe, bpfsnoop 31.7 / 38.4" } else { "" };
        lines.push(Line { what: start, ours: started, bar: if few { 0.5 } else { 3.0 }, unit: "s", rivals });
        let bar = if few { 0.2 } else { f64::INFINITY };
        lines.push(Line { what: detach, ours: detached, bar, unit: "s", rivals });
    }
    Ok(())
}

/// A burst of calls that Ctrl-C ends.
fn burst(kernel: &str, lines: &mut Vec<Line>) -> Result<()> {
    eprintln!("bench: {BURST} calls and Ctrl-C on {kernel}, 2 CPUs");
    let burst = format!(
        r#"rm -f /tmp/pid /tmp/said; workloads --pid --wait read-zero {BURST} 512 >/tmp/pid & w=$!
        until grep -qs '[0-9]' /tmp/pid; do sleep 0.1; done
        btrace -k vfs_read --mode entry --no-pointees --filter-pid $w -o /dev/null 2>/tmp/said & b=$!
        until grep -qs running /tmp/said; do sleep 0.1; done
        kill -USR1 $w; wait $w; kill -INT $b; wait $b; cat /tmp/said >&2"#
    );
    let options = VmOptions { timeout: Duration::from_secs(1200), ..VmOptions::new(kernel, "") };
    let ran = frames::run(&options, &[&burst])?;
    let ran = ran.first().context("an answer")?;
    let summary = ran.stderr.lines().rev().find(|l| l.contains(" printed, ")).context("no summary")?;
    let mut counts = summary.split_ascii_whitespace().filter_map(|w| w.parse::<u64>().ok());
    let (printed, lost) = (counts.next().context("printed")?, counts.next().context("lost")?);
    eprintln!("bench: {summary}");
    ensure!(printed + lost >= BURST, "{printed} printed and {lost} lost of {BURST}");
    lines.push(Line {
        what: "1,001,000 calls, then Ctrl-C: unaccounted",
        ours: (printed + lost).abs_diff(BURST) as f64,
        bar: 0.0,
        unit: "events",
        rivals: "bpftrace: 102,209 printed; bpfsnoop: 43,946, loss unsaid",
    });
    lines.push(Line {
        what: "1,001,000 calls, then Ctrl-C: lost, said",
        ours: lost as f64,
        bar: f64::INFINITY,
        unit: "events",
        rivals: "",
    });
    Ok(())
}

/// Seconds to start and to detach, and the number of targets.
fn span(ran: &Ran) -> Result<(f64, f64, u64)> {
    let told: Vec<f64> = numbers(&ran.stdout).collect();
    let [begun, running, ending, ended, targets] = told.as_slice() else {
        anyhow::bail!("no times: {ran:?}")
    };
    Ok((running - begun, ended - ending, *targets as u64))
}

/// Events that one call of the workload makes at this tracepoint: one.
const EVENTS: u64 = 1_000_000;

/// Events of a tracepoint delivered to a file on this machine, as text and as JSON.
pub fn host(lines: &mut Vec<Line>) -> Result<()> {
    if !apt::is_root() {
        eprintln!("SKIP delivery on this machine: tracing needs root");
        return Ok(());
    }
    let binaries = guest::build(true)?;
    let btrace = binaries.btrace.context("no btrace was built")?;
    let folder = tempfile::tempdir().context("a folder for the events")?;
    for (json, what, bar) in
        [(false, "host: events a second as text", 1e6), (true, "host: events a second as JSON", 0.7e6)]
    {
        let mut rates = Vec::new();
        for _ in 0..3 {
            let file = folder.path().join("events");
            let command = format!("{} read-zero {EVENTS} 1", binaries.workloads.display());
            let mut run = Command::new(&btrace);
            run.args(["-t", "sys_enter", "--buffer-size", "64M", "-c", &command, "-o"]).arg(&file);
            if json {
                run.arg("--json");
            }
            let start = Instant::now();
            let output = run.stdin(Stdio::null()).output().context("running btrace")?;
            let took = start.elapsed().as_secs_f64();
            let said = String::from_utf8_lossy(&output.stderr);
            let summary = said.lines().rev().find(|l| l.contains(" printed, ")).context("no summary")?;
            let mut counts = summary.split_ascii_whitespace().filter_map(|w| w.parse::<u64>().ok());
            let (printed, lost) = (counts.next().context("printed")?, counts.next().context("lost")?);
            ensure!(printed + lost >= EVENTS, "{summary}");
            eprintln!("bench: {what}: {printed} printed, {lost} lost in {took:.2} s");
            // What was lost was not delivered.
            rates.push(if lost == 0 { printed as f64 / took } else { 0.0 });
        }
        let best = rates.iter().copied().fold(0.0, f64::max);
        lines.push(Line { what, ours: best, bar: -bar, unit: "1/s", rivals: "" });
    }
    Ok(())
}
