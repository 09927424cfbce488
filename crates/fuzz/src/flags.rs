//! Command lines: read, or refused in words.

use crate::Fuzz;
use crate::random::Random;
use btrace::cli::Args;
use clap::Parser;

const FLAGS: &[&str] = &[
    "-k",
    "-t",
    "-m",
    "-c",
    "-o",
    "-v",
    "-vv",
    "--kfunc",
    "--tracepoint",
    "--kfunc-all-kmods",
    "--show-func-proto",
    "--dry-run",
    "--mode",
    "--output-stack",
    "--vmlinux",
    "-d",
    "-B",
    "--xlated",
    "--disasm-intel-syntax",
    "--filter-pid",
    "--filter-tid",
    "--filter-comm",
    "--filter-cpu",
    "--filter-cgroup",
    "--errors",
    "--command",
    "--limit-events",
    "--json",
    "--output",
    "--buffer-size",
    "--force",
    "--verbose",
    "--help",
    "--version",
    "list",
    "doctor",
    "types",
    "--btf",
    "--expand",
    "--",
    "-p",
    "--prog",
    "-kvfs_read",
    "--mode=entry",
    "--buffer-size=8M",
    "-",
];

const VALUES: &[&str] = &[
    "vfs_read",
    "vfs_*,tcp_{a,b}",
    "sched:*",
    "entry",
    "exit",
    "both",
    "0",
    "1",
    "-1",
    "123",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "8M",
    "4K",
    "2G",
    "3G",
    "9999999999999G",
    "1.5M",
    "M",
    "",
    " ",
    "é",
    "8é",
    "dd",
    "sixteen_letters_",
    "/tmp/x",
    "/",
    "0::/a",
    "sh -c true",
    "\u{202e}",
    "a\nb",
    "{",
    "[",
    ",",
    "a,,b",
    "*",
    "!x",
    "--",
];

/// Nothing to prepare.
pub struct FlagFuzz;

impl Fuzz for FlagFuzz {
    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let mut words: Vec<String> = vec!["btrace".into()];
        for _ in 0..random.below(10) {
            let from = if random.one_in(2) { FLAGS } else { VALUES };
            let mut word = random.pick(from).map_or(String::new(), ToString::to_string);
            if random.one_in(6) {
                random.mutate_text(&mut word, VALUES);
            }
            words.push(word);
        }
        match Args::try_parse_from(&words) {
            Ok(args) => {
                let said = match (&args.subcommand, args.request()) {
                    (None, Err(error)) => format!("{error:#}"),
                    (None, Ok(request)) if request.targets.is_empty() && request.programs.is_empty() => {
                        return Err(format!("{words:?}: no targets"));
                    }
                    (None, Ok(request)) if !request.ring_size.is_power_of_two() => {
                        return Err(format!("{words:?}: a ring of {} bytes", request.ring_size));
                    }
                    _ => String::new(),
                };
                match said.chars().any(char::is_control) {
                    true => Err(format!("{words:?} is refused by {said:?}")),
                    false => Ok(()),
                }
            }
            Err(error) => match error.to_string().is_empty() {
                true => Err(format!("{words:?} is refused without a word")),
                false => Ok(()),
            },
        }
    }
}
