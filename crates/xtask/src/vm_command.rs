//! The command line of `cargo xtask vm`.

use std::path::PathBuf;
use std::time::Duration;

use crate::Failure;
use crate::initramfs::Addition;
use crate::vm::{self, Output, VmOptions};

/// Exit status of the lab's own failures, as in `docker run`, `timeout` and `xargs`.
const LAB_FAILED: u8 = 125;

/// Boot a kernel in a virtual machine, run COMMAND there as root, and exit with its status.
///
/// The guest holds busybox, btrace and the test workloads in /bin; /proc, /sys, tracefs, debugfs, bpffs, cgroup2 and
/// /tmp are mounted; loopback is up. stdout and stderr are the command's, byte for byte; its stdin is /dev/null.
/// When it ends, whatever it left running is killed. A failure of the lab itself, such as a guest that panics or
/// hangs, exits with 125 and shows the end of the guest's console.
///
/// Kernels are Debian's for virtual machines (amd64), fetched once through apt into target/lab/kernels and used from
/// there; delete a folder there to fetch its newest.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// 5.10, 6.1, 6.12, 7.2 (the newest of Debian sid), or the path of a kernel image. Modules beside it
    /// (lib/modules/RELEASE) are used when they are there
    #[arg(long, value_name = "VERSION|PATH", default_value = "6.12")]
    kernel: String,

    /// One CPU, on which each instruction takes one nanosecond: elapsed time in the guest is a count of instructions
    #[arg(long)]
    icount: bool,

    /// CPUs, which take turns on one of the host's
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "icount", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,

    /// Guest memory
    #[arg(long, value_name = "MiB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..))]
    memory: u32,

    /// Give the guest a file, or a folder with all in it: FILE goes to /NAME, FILE:PATH to PATH, FILE:PATH/ to
    /// PATH/NAME
    #[arg(long, value_name = "FILE[:PATH]", num_args = 1..)]
    add: Vec<Addition>,

    /// Load a kernel module, and what it depends on, before COMMAND
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,

    /// Use this btrace (static, or with its libraries added) rather than build the workspace's
    #[arg(long, value_name = "FILE")]
    btrace: Option<PathBuf>,

    /// Further words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    append: String,

    /// A further argument for qemu (repeatable)
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu: Vec<String>,

    /// Give up when COMMAND takes longer
    #[arg(long, value_name = "SECONDS", default_value_t = 1200)]
    timeout: u64,

    /// Show the guest's console on stderr
    #[arg(long)]
    console: bool,

    /// Say on stderr how long the boot took
    #[arg(short, long)]
    verbose: bool,

    /// One word is a shell's text; several are one program and its arguments, kept as they are
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command in the guest; gives back its status.
pub fn run(arguments: Arguments) -> Result<u8, Failure> {
    let verbose = arguments.verbose;
    let outcome = vm::run(&options(arguments)).map_err(|error| Failure::new(LAB_FAILED, error))?;
    if verbose {
        eprintln!(
            "lab: kernel {}, {:.2} s from qemu's start to the command's",
            outcome.release,
            outcome.boot.as_secs_f64()
        );
    }
    Ok(outcome.status)
}

fn options(arguments: Arguments) -> VmOptions {
    VmOptions {
        icount: arguments.icount,
        cpus: arguments.cpus,
        memory_mib: arguments.memory,
        additions: arguments.add,
        modules: arguments.modules,
        btrace: arguments.btrace,
        kernel_arguments: arguments.append,
        qemu_arguments: arguments.qemu,
        timeout: Duration::from_secs(arguments.timeout),
        output: Output::PassThrough,
        show_console: arguments.console,
        ..VmOptions::new(arguments.kernel, shell_text(&arguments.command))
    }
}

/// One word as it is; several each in quotes.
fn shell_text(words: &[String]) -> String {
    match words {
        [text] => text.clone(),
        words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    }
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(words: &[&str]) -> Result<VmOptions, clap::Error> {
        Line::try_parse_from([&["vm"], words].concat()).map(|line| options(line.arguments))
    }

    #[test]
    fn the_usual_line() {
        let given =
            parse(&["--kernel", "5.10", "--icount", "--memory", "2048", "--", "echo out; exit 7"]).unwrap();
        assert_eq!((given.kernel.as_str(), given.icount, given.memory_mib), ("5.10", true, 2048));
        assert_eq!(given.command, "echo out; exit 7");
        assert_eq!(given.output, Output::PassThrough);
        assert_eq!(parse(&["--cpus", "8", "--", "true"]).unwrap().cpus, 8);
        let plain = parse(&["--", "true"]).unwrap();
        assert_eq!(plain.cpus, 2);
        assert_eq!((plain.kernel.as_str(), plain.icount, plain.timeout.as_secs()), ("6.12", false, 1200));
    }

    #[test]
    fn several_words_stay_what_they_are() {
        assert_eq!(parse(&["--", "echo", "a  b", "it's"]).unwrap().command, r"'echo' 'a  b' 'it'\''s'");
        assert_eq!(parse(&["--", "btrace", "--", "x"]).unwrap().command, "'btrace' '--' 'x'");
    }

    #[test]
    fn several_files_at_once() {
        let given =
            parse(&["--add", "/bin/sh", "/bin/cat:/opt/cat", "--add", "/bin/ls", "--", "true"]).unwrap();
        let destinations: Vec<_> =
            given.additions.iter().map(|addition| addition.destination.as_str()).collect();
        assert_eq!(destinations, ["/sh", "/opt/cat", "/ls"]);
    }

    #[test]
    fn what_is_refused() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--"]).is_err());
        assert!(parse(&["true"]).is_err());
        assert!(parse(&["--memory", "64", "--", "true"]).is_err());
        assert!(parse(&["--cpus", "0", "--", "true"]).is_err());
        assert!(parse(&["--cpus", "2", "--icount", "--", "true"]).is_err());
        assert!(parse(&["--add", "/no/such/file", "--", "true"]).is_err());
    }
}
