//! `cargo xtask`: the project's chores. Run `cargo xtask --help`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apt;
mod bench;
mod bench_code;
mod bench_cost;
mod bench_filters;
mod bench_many;
mod cpio;
mod debuginfo;
mod demo;
mod dist;
mod frames;
mod fuzz;
mod guest;
mod initramfs;
mod kernels;
mod matrix;
mod modules;
mod paths;
mod soak;
mod test;
mod testmod;
mod untangle;
mod vm;
mod vm_command;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    Demo(demo::Arguments),
    Test(test::Arguments),
    Vm(vm_command::Arguments),
    Bench(bench::Arguments),
    Debuginfo(debuginfo::Arguments),
    Dist(dist::Arguments),
    Fuzz(fuzz::Arguments),
    Paths(paths::Arguments),
    Soak(soak::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Demo(arguments) => demo::run(&arguments),
        Chore::Test(arguments) => test::run(&arguments),
        Chore::Vm(arguments) => vm_command::run(arguments),
        Chore::Bench(arguments) => bench::run(&arguments),
        Chore::Debuginfo(arguments) => debuginfo::run(&arguments),
        Chore::Dist(arguments) => dist::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Paths(arguments) => paths::run(&arguments),
        Chore::Soak(arguments) => soak::run(&arguments),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}

/// A chore that failed, with the exit status it has for that.
#[derive(Debug)]
struct Failure {
    status: u8,
    error: anyhow::Error,
}

impl Failure {
    /// What is missing and may not be installed is the user's to mend (2); all else is the chore's own status.
    fn new(status: u8, error: anyhow::Error) -> Self {
        let status = if error.is::<apt::NeedsRoot>() { 2 } else { status };
        Failure { status, error }
    }

    fn report(&self) -> ExitCode {
        eprintln!("xtask: {:#}", self.error);
        ExitCode::from(self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }
}
