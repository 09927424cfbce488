//! btrace: what the kernel really does, call by call.
#![forbid(unsafe_code)]

mod branch_records;
mod check;
mod cost;
mod disassemble;
mod doctor;
mod generate;
mod list;
mod namesakes;
mod origin;
mod output;
mod path_summary;
mod privilege;
mod progress;
mod run;
mod selftest;
mod types;

use btrace::{cli, clock, logging, render, words};
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// Bad input, or a machine that cannot do what was asked; nothing was traced.
const REFUSED: u8 = 2;
/// The trace began and something then failed.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let args = match cli::Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let verbose = match &args.subcommand {
        Some(cli::Subcommand::List(list)) => list.verbose,
        Some(cli::Subcommand::Types(types)) => types.verbose,
        Some(cli::Subcommand::Doctor(doctor)) => doctor.verbose,
        // Once is for the table alone.
        Some(cli::Subcommand::Cost(cost)) => cost.verbose.saturating_sub(1),
        Some(cli::Subcommand::Selftest(_)) | None => args.verbose,
    };
    logging::init(verbose);
    if let Some(what) = args.generate {
        return finish(generate::run(what).map_err(Stop::Failed));
    }
    match &args.subcommand {
        Some(cli::Subcommand::List(list)) => return finish(list::list(list).map_err(Stop::early)),
        Some(cli::Subcommand::Types(types)) => return finish(types::types(types).map_err(Stop::early)),
        Some(cli::Subcommand::Doctor(doctor)) => {
            return match doctor::doctor(doctor) {
                Ok(true) => ExitCode::SUCCESS,
                // It has said so itself.
                Ok(false) => ExitCode::from(REFUSED),
                Err(error) => finish(Err(Stop::Failed(error))),
            };
        }
        Some(cli::Subcommand::Cost(cost)) => return finish(cost::run(cost).map_err(Stop::early)),
        Some(cli::Subcommand::Selftest(what)) => return finish(selftest::run(what).map_err(Stop::Failed)),
        None => {}
    }
    finish(trace(&args))
}

/// One trace, from arguments to summary.
fn trace(args: &cli::Args) -> Result<(), Stop> {
    check::flags(args).map_err(Stop::early)?;
    if args.disasm {
        return disassemble::run(args).map_err(Stop::early);
    }
    if args.show_func_proto {
        return list::prototypes(args).map_err(Stop::early);
    }
    let request = args.request().map_err(Stop::early)?;
    check::ids(&request.filter.tgids, &request.filter.tids).map_err(Stop::early)?;
    if args.dry_run {
        return list::plan(args, &request).map_err(Stop::early);
    }
    let running = run::Running::start(args, request).map_err(Stop::early)?;
    match running {
        Some(running) => running.follow().map_err(Stop::Failed),
        None => Ok(()),
    }
}

/// Help and version as they are; an error of the command line as one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            // Help for somebody who has gone is no error.
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                logging::say(format_args!("btrace: write to standard output: {e}"));
                ExitCode::from(FAILED)
            }
            _ => ExitCode::SUCCESS,
        };
    }
    logging::say(format_args!("btrace: {}", one_usage_line(error)));
    ExitCode::from(REFUSED)
}

/// What clap says in several lines.
fn one_usage_line(error: &clap::Error) -> String {
    let unknown = |kind| error.get(kind).map(ToString::to_string);
    // Where commands may follow, clap takes any word for one.
    if let (ErrorKind::ArgumentConflict, Some(word)) = (error.kind(), unknown(ContextKind::InvalidSubcommand))
        && cli::Args::command().find_subcommand(&word).is_none()
    {
        return format!("unexpected argument '{word}' (see btrace --help)");
    }
    let text = error.to_string();
    let said =
        text.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"));
    let parts: Vec<&str> = said.filter(|l| !l.is_empty()).map(|l| l.trim_start_matches("error: ")).collect();
    format!("{} (see btrace --help)", parts.join("; ").replace(": ; ", ": ").replace(":; ", ": "))
}

/// How a run can end early.
enum Stop {
    Refused(anyhow::Error),
    Failed(anyhow::Error),
}

impl Stop {
    /// Of what ended before anything was traced: what could not be written had begun all the same.
    fn early(error: anyhow::Error) -> Stop {
        if error.is::<output::WriteFailed>() { Stop::Failed(error) } else { Stop::Refused(error) }
    }
}

fn finish(result: Result<(), Stop>) -> ExitCode {
    let (error, status) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Stop::Refused(error)) => (error, REFUSED),
        Err(Stop::Failed(error)) => (error, FAILED),
    };
    if !error.is::<run::Reported>() {
        say_error(&error);
    }
    ExitCode::from(status)
}

/// Says an error, in one line: what is wanting if it is a right, else what it is.
fn say_error(error: &anyhow::Error) {
    let line = privilege::wanting(error).unwrap_or_else(|| one_line(error));
    logging::say(format_args!("btrace: {line}"));
}

/// An error with its causes, each once: some name their cause in their own words already.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    line
}
