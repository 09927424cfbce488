//! `cargo xtask test`: everything, in the order in which it fails fastest.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{Failure, apt, matrix, workspace};

/// Run every test: formatting, lints, unit and differential tests, tests against the running kernel, and the lab
/// matrix of stock kernels.
///
/// What the lab lacks is installed by apt when root; otherwise the command to run is printed.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only the lab matrix
    #[arg(long)]
    lab: bool,

    /// Only this kernel of the lab: 5.10, 6.1, 6.12 or 7.2
    #[arg(long, value_name = "VERSION")]
    kernel: Option<String>,

    /// Only the lab's checks whose names contain one of these words
    #[arg(long, value_name = "WORD", num_args = 1.., requires = "lab")]
    check: Vec<String>,
}

/// So many of the slowest checks are named at the end.
const SLOWEST: usize = 12;

/// A step that failed has said why itself.
const FAILED: u8 = 1;

/// Runs the steps; gives back the exit status.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    steps(arguments).map_err(|error| Failure::new(FAILED, error))
}

fn steps(arguments: &Arguments) -> Result<u8> {
    let start = Instant::now();
    let mut failed: Vec<&str> = Vec::new();
    if !arguments.lab {
        for (name, args) in [
            ("formatting", &["fmt", "--all", "--check"][..]),
            ("lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
            ("tests", &["test", "--workspace", "--no-fail-fast"]),
        ] {
            let present = name == "tests" || installed(args[0]);
            if !present {
                eprintln!("SKIP {name}: this toolchain has no cargo {} (rustup component add it)", args[0]);
            } else if !step(name, args)? {
                failed.push(name);
            }
        }
    }
    let tally = matrix::run(arguments.kernel.as_deref(), &arguments.check)?;
    eprintln!("in {} s", start.elapsed().as_secs());
    if !failed.is_empty() {
        eprintln!("FAILED: {}", failed.join(", "));
    }
    for (took, check) in tally.slowest.iter().take(SLOWEST) {
        eprintln!("lab: {:5.1} s of guest time: {check}", took.as_secs_f64());
    }
    for failure in &tally.failures {
        eprintln!("{failure}");
    }
    println!("lab: {} passed, {} failed", tally.passed, tally.failed);
    Ok(u8::from(!failed.is_empty() || tally.failed > 0 || tally.passed == 0))
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace::root()).stdin(Stdio::null());
    command
}

/// Whether cargo knows the subcommand; a minimal toolchain has neither fmt nor clippy.
fn installed(subcommand: &str) -> bool {
    cargo()
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn step(name: &str, args: &[&str]) -> Result<bool> {
    eprintln!("== {name}: cargo {}", args.join(" "));
    apt::ensure(&[("gcc", "gcc"), ("objdump", "binutils"), ("pahole", "pahole")])?;
    let status = cargo().args(args).status().with_context(|| format!("running cargo for {name}"))?;
    Ok(status.success())
}
