//! `cargo xtask fuzz`: runs the targets, one after the other, and reports.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use fuzz::{Target, Until};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Fuzz everything that parses bytes or text
#[derive(Debug, Parser)]
#[command(name = "cargo xtask fuzz", bin_name = "cargo xtask fuzz")]
struct Arguments {
    /// What to fuzz; all of it when nothing is named
    #[arg(value_enum)]
    targets: Vec<Target>,

    /// How long, each
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,

    /// The first seed; by default the time of day
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,

    /// So many executions, however long they take
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    executions: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = arguments.seed.unwrap_or(now.as_nanos() as u64);
    let until = match arguments.executions {
        Some(most) => Until::Executions(most),
        None => Until::Elapsed(Duration::from_secs(arguments.seconds)),
    };
    let all = Target::value_variants();
    let targets = if arguments.targets.is_empty() { all } else { arguments.targets.as_slice() };
    let mut findings = 0;
    for target in targets {
        let report = match fuzz::run(*target, seed, until) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("fuzz: {target:?}: {error:#}");
                return ExitCode::from(2);
            }
        };
        println!(
            "{target:?}: {} executions from seed {seed}, {} findings; the slowest took {:?} (seed {})",
            report.executions,
            report.findings.len(),
            report.slowest.0,
            report.slowest.1
        );
        for (seed, what) in &report.findings {
            println!("  seed {seed}: {what}");
        }
        findings += report.findings.len();
    }
    ExitCode::from(u8::from(findings > 0))
}
