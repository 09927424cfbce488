//! `cargo xtask demo`: the main job, live where the running kernel allows it, and on a stock kernel in the lab.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::vm::{self, Output, VmOptions};
use crate::{Failure, apt, guest};

/// Show btrace at work: on this kernel as far as it allows, then function calls on a stock kernel under qemu.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only on this kernel
    #[arg(long, conflicts_with = "lab")]
    live: bool,

    /// Only in the lab
    #[arg(long)]
    lab: bool,
}

/// Kernel of the lab's part.
const KERNEL: &str = "6.12";

/// Runs both; gives back the exit status.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let live = if arguments.lab { Ok(true) } else { live() };
    let lab = if arguments.live { Ok(true) } else { lab() };
    // The lab's part runs whatever became of the live one.
    match (live, lab) {
        (Ok(live), Ok(lab)) => Ok(u8::from(!live || !lab)),
        (Err(error), _) | (_, Err(error)) => Err(Failure::new(1, error)),
    }
}

/// Prints a command as one would type it, then runs it.
fn show(program: &std::path::Path, args: &[&str]) -> Result<bool> {
    let quoted = |arg: &&str| {
        if arg.chars().all(|c| c.is_ascii_alphanumeric() || "-_/.".contains(c)) {
            (*arg).to_string()
        } else {
            format!("'{arg}'")
        }
    };
    eprintln!("$ btrace {}", args.iter().map(quoted).collect::<Vec<_>>().join(" "));
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("running {}", program.display()))?;
    Ok(status.success())
}

fn live() -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    eprintln!("== on this machine, kernel {}", release.trim());
    let binaries = guest::build(true)?;
    let btrace = binaries.btrace.context("no btrace was built")?;
    if !apt::is_root() {
        eprintln!(
            "tracing needs root; run this to see it live:\n  sudo {} -t sched_process_exec -c '/bin/true'",
            btrace.display()
        );
        return Ok(true);
    }
    let workload = format!("{} open-missing 3 /no/such/file", binaries.workloads.display());
    if show(&btrace, &["-k", "do_sys_openat2", "-c", &workload])? {
        return Ok(true);
    }
    eprintln!("then tracepoints:");
    show(&btrace, &["-t", "sched_process_exec", "-c", "/bin/true; /bin/echo hello"])
}

fn lab() -> Result<bool> {
    eprintln!("== in the lab: Debian's kernel {KERNEL} under qemu (fetched once by apt, some 100 MB)");
    let commands = [
        "btrace -k vfs_read -c 'dd if=/dev/zero of=/dev/null bs=512 count=3'",
        "btrace -k do_sys_openat2 -c 'workloads open-missing 2 /no/such/file'",
        "btrace -k tcp_connect,inet_csk_accept -c 'workloads connect-loopback 1'",
        "btrace -k vfs_raed",
    ];
    let script: Vec<String> =
        commands.iter().map(|c| format!("echo \"$ {}\" >&2; {c}; s=$?", c.replace('"', "\\\""))).collect();
    // The last command is there to show a refusal, so 2 is what must come of it.
    // One stream, or events and messages would come in any order.
    let script = format!("exec 2>&1; {}; [ $s = 2 ]", script.join("; "));
    let options = VmOptions { output: Output::PassThrough, ..VmOptions::new(KERNEL, script) };
    Ok(vm::run(&options)?.status == 0)
}
