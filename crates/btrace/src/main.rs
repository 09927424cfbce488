//! btrace: what the kernel really does, call by call.
#![forbid(unsafe_code)]

mod check;
mod doctor;
mod generate;
mod list;
mod namesakes;
mod output;
mod progress;
mod run;

use btrace::{cli, clock, logging, render};
use clap::Parser;
use std::process::ExitCode;

/// Bad input, or a machine that cannot do what was asked; nothing was traced.
const REFUSED: u8 = 2;
/// The trace began and something then failed.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    let verbose = match &args.subcommand {
        Some(cli::Subcommand::List(list)) => list.verbose,
        Some(cli::Subcommand::Doctor(doctor)) => doctor.verbose,
        None => args.verbose,
    };
    logging::init(verbose);
    if let Some(what) = args.generate {
        return finish(generate::run(what).map_err(Stop::Failed));
    }
    match &args.subcommand {
        Some(cli::Subcommand::List(list)) => return finish(list::list(list).map_err(Stop::Refused)),
        Some(cli::Subcommand::Doctor(doctor)) => {
            return match doctor::doctor(doctor) {
                Ok(true) => ExitCode::SUCCESS,
                // It has said so itself.
                Ok(false) => ExitCode::from(REFUSED),
                Err(error) => finish(Err(Stop::Failed(error))),
            };
        }
        None => {}
    }
    finish(trace(&args))
}

/// One trace, from arguments to summary.
fn trace(args: &cli::Args) -> Result<(), Stop> {
    if args.show_func_proto {
        return list::prototypes(args).map_err(Stop::Refused);
    }
    let request = args.request().map_err(Stop::Refused)?;
    if args.dry_run {
        return list::plan(&request).map_err(Stop::Refused);
    }
    check::ids(&request.filter.tgids, &request.filter.tids).map_err(Stop::Refused)?;
    let running = run::Running::start(args, request).map_err(Stop::Refused)?;
    match running {
        Some(running) => running.follow().map_err(Stop::Failed),
        None => Ok(()),
    }
}

/// How a run can end early.
enum Stop {
    Refused(anyhow::Error),
    Failed(anyhow::Error),
}

fn finish(result: Result<(), Stop>) -> ExitCode {
    let (error, status) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Stop::Refused(error)) => (error, REFUSED),
        Err(Stop::Failed(error)) => (error, FAILED),
    };
    if !error.is::<run::Reported>() {
        logging::say(format_args!("btrace: {}", one_line(&error)));
    }
    ExitCode::from(status)
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
