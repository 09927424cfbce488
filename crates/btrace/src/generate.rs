//! Completion scripts and the manual page, from the command line's own definition.

use crate::cli::{Args, Generate};
use clap::CommandFactory;
use clap_complete::Shell;

/// Prints one of them.
pub fn run(what: Generate) -> anyhow::Result<()> {
    let mut command = Args::command();
    let mut text = Vec::new();
    let shell = match what {
        Generate::Man => None,
        Generate::Bash => Some(Shell::Bash),
        Generate::Zsh => Some(Shell::Zsh),
        Generate::Fish => Some(Shell::Fish),
    };
    match shell {
        Some(shell) => clap_complete::generate(shell, &mut command, "btrace", &mut text),
        None => clap_mangen::Man::new(command).section("8").render(&mut text)?,
    }
    crate::list::print(&text)
}
