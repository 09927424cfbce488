//! `btrace selftest`: what only the running kernel can tell of btrace itself.

use anyhow::{Context, bail};
use btrace::cli::{ModeArg, Selftest};
use btrace::logging::say;
use std::fmt::Write;
use std::path::Path;
use symbols::lines::lines_in;
use trace::{Filter, Kernel, Mode, Request};

/// Failures named; the rest are counted.
const NAMED: usize = 50;

/// Runs one; an error when something failed that should not have.
pub fn run(what: &Selftest) -> anyhow::Result<()> {
    match what {
        Selftest::DisasmAll => crate::disassemble::all(),
        Selftest::LoadAll { every, skip, mode } => load_all(*skip as usize, *every as usize, *mode),
        Selftest::Lines { file } => lines(file),
    }
}

/// Nanoseconds that this process has been running, whatever else the machine does.
fn own_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Prints lines in addr2line's manner, and says what they cost.
fn lines(file: &Path) -> anyhow::Result<()> {
    let image = bpf::FileMap::open(file).with_context(|| file.display().to_string())?;
    let mut addresses = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.context("stdin")?;
        let digits = line.trim().trim_start_matches("0x");
        addresses.push(u64::from_str_radix(digits, 16).with_context(|| format!("not an address: {line:?}"))?);
    }
    let failed = |reason: String| anyhow::anyhow!("{}: {reason}", file.display());
    let started = own_time();
    let first = addresses.get(addresses.len() / 2..).and_then(|rest| rest.get(..1)).unwrap_or_default();
    lines_in(&image, first).map_err(failed)?;
    let first = own_time() - started;
    let started = own_time();
    let found = lines_in(&image, &addresses).map_err(failed)?;
    let all = own_time() - started;
    let mut out = String::new();
    for (address, lines) in addresses.iter().zip(&found) {
        let _ = writeln!(out, "{address:#x}");
        if lines.chain.is_empty() {
            out.push_str("??\n??:?\n");
        }
        for line in &lines.chain {
            let _ =
                writeln!(out, "{}\n{}:{}", line.function.as_deref().unwrap_or("??"), line.file, line.line);
        }
    }
    print!("{out}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    say(format_args!(
        "opened, and one of the addresses: {} ms; opened again, and all {}: {} ms on the CPU; {} MiB of memory, {} MiB of the file touched",
        first / 1_000_000,
        addresses.len(),
        all / 1_000_000,
        kib("RssAnon") >> 10,
        kib("RssFile") >> 10
    ));
    Ok(())
}

fn load_all(skip: usize, every: usize, mode: ModeArg) -> anyhow::Result<()> {
    let kernel = Kernel::running()?;
    let request = Request {
        targets: Vec::new(),
        programs: Vec::new(),
        pointees: true,
        mode: match mode {
            ModeArg::Entry => Mode::Entry,
            ModeArg::Exit => Mode::Exit,
            ModeArg::Both => Mode::Both,
        },
        filter: Filter { not_tgid: Some(std::process::id()), ..Filter::default() },
        expressions: Default::default(),
        force: true,
        path: None,
        stack: false,
        branches: false,
        string_size: btrace::cli::STRING_SIZE,
        ring_size: 64 << 10,
    };
    let verdicts = trace::load_all(&kernel, &request, (skip, every), &mut |tried| {
        log::debug!("{tried} tried");
    })?;
    for (function, reason) in verdicts.failed.iter().take(NAMED) {
        say(format_args!("btrace: {function}: {reason}"));
    }
    let denied: usize = verdicts.denied.values().sum();
    for (reason, count) in &verdicts.denied {
        say(format_args!("btrace: {count} denied by the kernel: {reason}"));
    }
    println!(
        "{} functions described, {} traceable, {} tried, {} loaded, {denied} denied by the kernel, {} failed",
        verdicts.described,
        verdicts.traceable,
        verdicts.tried,
        verdicts.loaded,
        verdicts.failed.len()
    );
    if !verdicts.failed.is_empty() {
        bail!("{} programs did not load", verdicts.failed.len());
    }
    Ok(())
}
