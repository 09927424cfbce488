//! `btrace selftest`: what only the running kernel can tell of btrace itself.

use anyhow::bail;
use btrace::cli::{ModeArg, Selftest};
use btrace::logging::say;
use trace::{Filter, Kernel, Mode, Request};

/// Failures named; the rest are counted.
const NAMED: usize = 50;

/// Runs one; an error when something failed that should not have.
pub fn run(what: &Selftest) -> anyhow::Result<()> {
    match what {
        Selftest::DisasmAll => crate::disassemble::all(),
        Selftest::LoadAll { every, skip, mode } => load_all(*skip as usize, *every as usize, *mode),
    }
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
        force: true,
        stack: false,
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
