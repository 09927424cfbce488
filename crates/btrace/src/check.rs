//! Checks of the request against the machine, before anything is loaded.

use anyhow::{Context, bail};
use btrace::cli::{Args, ModeArg};

/// Refuses flags that cannot both be meant, or that mean nothing for what is traced: better now than a trace without events.
pub fn flags(args: &Args) -> anyhow::Result<()> {
    let functions = !args.kfunc.is_empty() || !args.prog.is_empty();
    if let (Some(_), false) = (args.mode, functions) {
        bail!(
            "--mode is for functions (-k) and programs (-p); a tracepoint is one moment, without entry or exit"
        );
    }
    if args.errors && !functions {
        bail!("--errors is for functions (-k); a tracepoint returns nothing");
    }
    if args.errors && matches!(args.mode, Some(ModeArg::Entry | ModeArg::Both)) {
        bail!("--errors needs --mode exit: what a function returns is not known at its entry");
    }
    let listing = [
        ("-B", args.disasm_bytes > 0),
        ("--disasm-intel-syntax", args.disasm_intel_syntax),
        ("--disasm-no-bytes", args.disasm_no_bytes),
        ("--xlated", args.xlated),
    ];
    if let (false, Some((flag, _))) = (args.disasm, listing.iter().find(|(_, given)| *given)) {
        bail!("{flag} is for -d, disassembly");
    }
    if args.xlated && args.prog.is_empty() {
        bail!("--xlated is for BPF programs (-d -p): nothing else was translated from BPF");
    }
    paths(args)?;
    let lines = args.output_stack || args.output_lbr || args.output_path || args.path_summary || args.disasm;
    if args.vmlinux.is_some() && !lines {
        bail!(
            "--vmlinux is for --output-stack, --output-lbr, --output-path, --path-summary and -d: nothing else shows source lines"
        );
    }
    if args.filter_branch.is_some() && !args.output_lbr {
        bail!("--filter-branch is for --output-lbr: it says which branches the CPU records");
    }
    match &args.command {
        Some(command) if command.trim().is_empty() => bail!("-c: an empty command"),
        Some(_) if !args.filter_pid.is_empty() || !args.filter_tid.is_empty() => bail!(
            "-c and --filter-pid or --filter-tid exclude each other: -c traces the command and its children, which have not \
             begun yet"
        ),
        _ => {}
    }
    cpus(&args.filter_cpu)
}

/// Refuses executed paths of what has none.
fn paths(args: &Args) -> anyhow::Result<()> {
    let flag = match (args.output_path, args.path_summary) {
        (true, _) => "--output-path",
        (false, true) => "--path-summary",
        (false, false) if args.path_blocks.is_some() => {
            bail!("--path-blocks is for --output-path and --path-summary")
        }
        (false, false) => return Ok(()),
    };
    if !args.tracepoint.is_empty() || !args.prog.is_empty() {
        bail!(
            "{flag} is for kernel functions (-k) alone: neither tracepoints nor BPF programs have blocks that kprobes can be put on"
        );
    }
    if args.mode == Some(ModeArg::Entry) {
        bail!("{flag} needs --mode exit or both: at its entry a call has no path yet");
    }
    if args.path_summary && args.mode == Some(ModeArg::Both) {
        bail!("--path-summary needs --mode exit");
    }
    Ok(())
}

/// Refuses CPUs that this machine cannot have.
fn cpus(wanted: &[u32]) -> anyhow::Result<()> {
    const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
    if wanted.is_empty() {
        return Ok(());
    }
    // Without sysfs they are taken at their word.
    let Ok(text) = std::fs::read_to_string(POSSIBLE) else { return Ok(()) };
    let text = text.trim();
    match wanted.iter().find(|cpu| !listed(text, **cpu)) {
        Some(cpu) => bail!("--filter-cpu {cpu}: no such CPU; this machine has {text}"),
        None => Ok(()),
    }
}

/// Whether a list like `0-3,8` has a number; one that cannot be read has all.
fn listed(list: &str, number: u32) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&number),
            _ => true,
        }
    })
}

/// Refuses process and thread ids that nobody has, and thread ids given for processes: events of a thread carry its process's id.
pub fn ids(pids: &[u32], tids: &[u32]) -> anyhow::Result<()> {
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let status = match std::fs::read_to_string(&path) {
            Ok(status) => status,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                bail!("--filter-pid {pid}: no such process")
            }
            Err(e) => return Err(e).with_context(|| format!("read {path}")),
        };
        let tgid = status.lines().find_map(|l| l.strip_prefix("Tgid:")).map(str::trim);
        if let Some(tgid) = tgid.filter(|t| *t != pid.to_string()) {
            bail!("--filter-pid {pid}: that is a thread of process {tgid}; name the process");
        }
    }
    for tid in tids {
        if !std::path::Path::new(&format!("/proc/{tid}/status")).exists() {
            bail!("--filter-tid {tid}: no such thread");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn refusal(words: &[&str]) -> Option<String> {
        let args = Args::try_parse_from(["btrace"].iter().chain(words)).expect("readable");
        flags(&args).err().map(|e| e.to_string())
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (words, part) in [
            (&["-t", "x", "--mode", "entry"][..], "--mode is for functions"),
            (&["-t", "x", "--errors"], "--errors is for functions"),
            (&["-k", "x", "--errors", "--mode", "both"], "--errors needs --mode exit"),
            (&["-t", "x", "-B", "64"], "-B is for -d"),
            (&["-d", "-k", "x", "--xlated"], "--xlated is for BPF programs"),
            (&["-k", "x", "--vmlinux", "x"], "--vmlinux is for --output-stack"),
            (&["-k", "x", "--filter-branch", "call,ret"], "--filter-branch is for --output-lbr"),
            (&["-k", "x", "-c", " "], "an empty command"),
            (&["-t", "x", "--output-path"], "--output-path is for kernel functions"),
            (&["-k", "x", "-p", "1", "--path-summary"], "--path-summary is for kernel functions"),
            (&["-k", "x", "--output-path", "--mode", "entry"], "needs --mode exit or both"),
            (&["-k", "x", "--path-blocks", "9"], "--path-blocks is for"),
            (&["-k", "x", "-c", "true", "--filter-pid", "1"], "exclude each other"),
            (&["-k", "x", "--filter-cpu", "4000000000"], "no such CPU"),
        ] {
            assert!(refusal(words).is_some_and(|r| r.contains(part)), "{words:?}");
        }
        for words in [
            &["-k", "x", "-t", "y", "--mode", "both"][..],
            &["-k", "x", "--errors"],
            &["-t", "y", "-c", "true"],
            &["-k", "x", "--output-path", "--vmlinux", "x", "--mode", "both"],
        ] {
            assert_eq!(refusal(words), None, "{words:?}");
        }
    }

    #[test]
    fn lists_of_numbers() {
        assert!(listed("0-3,8", 0) && listed("0-3,8", 3) && listed("0-3,8", 8) && listed("5", 5));
        assert!(!listed("0-3,8", 4) && !listed("5", 0));
        assert!(listed("odd", 4));
    }
}
