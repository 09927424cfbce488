//! `cargo xtask fuzz`: builds the fuzzer, with optimisation and every check on, and runs it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Context;

use crate::{Failure, workspace};

/// Fuzz everything that parses bytes or text: BTF, events, patterns of targets, command lines, files
/// with debug information, machine code, expressions.
///
/// The arguments are the fuzzer's: [btf|events|targets|flags|lines|disasm|expr]... --seconds N --seed SEED --executions N.
/// Exit status: 0 when nothing was found, 1 when something was, with the seeds that make it again.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// What to fuzz, and how long
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Runs it; gives back its status.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let failed = |error| Failure::new(2, error);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = cargo
        .current_dir(workspace::root())
        .args(["run", "--quiet", "--profile", "fuzz", "-p", "fuzz", "--"])
        .args(&arguments.arguments)
        .status()
        .context("running cargo for the fuzzer")
        .map_err(failed)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2))
}
