//! The command line, and the request it amounts to.

use anyhow::{Context, bail};
use bpf::BranchFilter;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use trace::path::{MOST_ASKED, MOST_BLOCKS, Wanted};
use trace::{
    Comm, Expressions, Filter, Mode, ProgramSpec, Request, TargetKind, TargetSpec, Written, split_list,
};

/// Flags that are about a trace under way.
const NOT_TRACING: [&str; 4] = ["command", "output", "json", "limit_events"];

/// Flags that are about a trace, for `-d`, which is none.
const TRACING: [&str; 25] = [
    "tracepoint",
    "kfunc_all_kmods",
    "show_func_proto",
    "dry_run",
    "mode",
    "output_stack",
    "output_path",
    "path_summary",
    "path_blocks",
    "output_lbr",
    "filter_branch",
    "filter_pid",
    "filter_tid",
    "filter_comm",
    "filter_cpu",
    "filter_cgroup",
    "errors",
    "filter_arg",
    "output_arg",
    "interval",
    "command",
    "limit_events",
    "no_pointees",
    "force",
    "buffer_size",
];

/// Show what the kernel really does: every call of a kernel function, BPF program or tracepoint, with typed arguments, return
/// value, who called and how long it took.
#[derive(Debug, Parser)]
#[command(
    name = "btrace",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  \
        btrace -k vfs_read -c 'dd if=/dev/zero of=/dev/null bs=512 count=10'\n  \
        btrace -k 'tcp_{connect,close}' --filter-pid 1234\n  \
        btrace -p 'n:handle_*' --output-stack\n  \
        btrace -t sched_process_exec --json -o execs.json\n  \
        btrace list -k 'tcp_*'\n  \
        btrace types 'struct sk_buff'\n  \
        btrace -d -k vfs_read\n\n\
        Exit status: 0 when the trace ended as asked (Ctrl-C included), 1 when it failed on the way,\n\
        2 when it could not begin: bad input, or a kernel that does not allow it."
)]
pub struct Args {
    /// Something else than a trace.
    #[command(subcommand)]
    pub subcommand: Option<Subcommand>,

    /// Kernel functions to trace: names or globs (*, ?, [...], {a,b}), separated by commas; module:name names a
    /// module's. A name that the kernel itself does not have is looked for in all loaded modules
    #[arg(short = 'k', long = "kfunc", value_name = "[MODULE:]NAME|GLOB")]
    pub kfunc: Vec<String>,

    /// BPF programs to trace: ID, n:NAME or glob, t:TAG, p:PATH of a pin, pid:PID for all that a process holds, * for all;
    /// separated by commas, each with :FUNCTION (or glob) for a subprogram
    #[arg(short = 'p', long = "prog", value_name = "PROGRAM[:FUNCTION]")]
    pub prog: Vec<String>,

    /// Tracepoints to trace: names or globs, separated by commas; with a system or a module: sched:sched_switch
    #[arg(short = 't', long = "tracepoint", value_name = "[SYSTEM:]NAME|GLOB")]
    pub tracepoint: Vec<String>,

    /// Let patterns without a module match in all loaded modules too
    #[arg(long)]
    pub kfunc_all_kmods: bool,

    /// Disassemble instead of tracing: what -k names (functions and other code of /proc/kallsyms, NAME+0x40, addresses) and -p
    #[arg(short = 'd', long, conflicts_with_all = TRACING)]
    pub disasm: bool,

    /// With -d: so many bytes of each; by default and with 0, to the function's end
    #[arg(short = 'B', long, value_name = "N", default_value_t = 0, requires = "disasm", value_parser = disasm_bytes)]
    pub disasm_bytes: u32,

    /// With -d: Intel's syntax; AT&T's otherwise
    #[arg(long, requires = "disasm")]
    pub disasm_intel_syntax: bool,

    /// With -d: leave the bytes of the instructions out
    #[arg(long, requires = "disasm")]
    pub disasm_no_bytes: bool,

    /// With -d -p: each instruction of BPF above the machine code that it became
    #[arg(long, requires = "disasm")]
    pub xlated: bool,

    /// Print the C prototypes of what -k, -p and -t match, and load nothing
    #[arg(long, conflicts_with_all = NOT_TRACING)]
    pub show_func_proto: bool,

    /// Print the plan (methods, captures, bytes an event), and load nothing
    #[arg(long, conflicts_with = "show_func_proto", conflicts_with_all = NOT_TRACING)]
    pub dry_run: bool,

    /// When a function's event is taken: entry (arguments), exit (arguments, return value, duration), or both
    ///
    /// By default exit.
    #[arg(short, long, value_enum, value_name = "MODE")]
    pub mode: Option<ModeArg>,

    /// Show the kernel stack of each event, with source lines where debug information is found; with -v addresses, and our own
    /// frames, too
    #[arg(long)]
    pub output_stack: bool,

    /// Show the path of each call through its function: which branches were taken, oldest first; by a kprobe on each basic block, without
    /// hardware. With -v addresses, and the branches that were not taken
    #[arg(long)]
    pub output_path: bool,

    /// At the end, show which blocks of the functions ran, how often, beside the disassembly; with --errors, those that only failing
    /// calls came to
    #[arg(long)]
    pub path_summary: bool,

    /// Probe so many basic blocks at most, of all functions together
    ///
    /// By default 512.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ASKED)))]
    pub path_blocks: Option<u32>,

    /// Show the last branches that the CPU took before each event (LBR of Intel, and of AMD from Zen 4 on); with -v addresses, and
    /// the branches of tracing itself, too
    #[arg(long)]
    pub output_lbr: bool,

    /// With --output-lbr: record only such branches: any, call, ret, cond, ind_call, ind_jump, direct_call, call_stack, in_tx, no_tx,
    /// abort_tx; several, separated by commas, are any of them
    #[arg(long, value_name = "KIND[,KIND]", value_parser = branch_filter)]
    pub filter_branch: Option<BranchFilter>,

    /// The running kernel's file with debug information, for source lines, and with -d for code that cannot be read live; by
    /// default it is looked for where distributions put it
    #[arg(long, value_name = "PATH")]
    pub vmlinux: Option<PathBuf>,

    /// Only this process; the trace ends when it has ended (repeatable)
    #[arg(long, value_name = "PID", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub filter_pid: Vec<u32>,

    /// Only this thread (repeatable)
    #[arg(long, value_name = "TID", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub filter_tid: Vec<u32>,

    /// Only threads of this name, whole: as in ps -o comm, 15 bytes at most (repeatable)
    #[arg(long, value_name = "NAME", value_parser = comm)]
    pub filter_comm: Vec<Comm>,

    /// Only events on this CPU (repeatable)
    #[arg(long, value_name = "CPU", allow_negative_numbers = true)]
    pub filter_cpu: Vec<u32>,

    /// Only tasks in this cgroup (version 2) or below it: its path as in /proc/PID/cgroup, or its folder (repeatable)
    #[arg(long, value_name = "PATH")]
    pub filter_cgroup: Vec<String>,

    /// Only events of which this C expression holds: 'skb->len > 100 && skb->dev->ifindex == 1'; F:EXPR is for target F alone
    /// (repeatable: all must hold)
    ///
    /// It can name the arguments, $retval, $duration (ns), $pid, $tid, $comm, $cpu, $cgroup (its id), $ns (the event's time, CLOCK_MONOTONIC),
    /// $ctx ("task", "softirq", "hardirq", "nmi"), $task, enumerators and variables of the kernel. What cannot be read, or has NULL on
    /// the way, compares as false.
    #[arg(long, value_name = "[F:]EXPR", allow_hyphen_values = true)]
    pub filter_arg: Vec<String>,

    /// Show what this C expression comes to: 'sk->__sk_common.skc_dport', 'str(name)', '*skb'; F:EXPR is for target F alone
    /// (repeatable)
    ///
    /// Functions that say how: str(e[,n]), buf(e,n), hex(e[,n]), ip4, ip6, mac, port, ksym, path. Functions that gather events in the
    /// kernel instead of showing each: count(), sum(e), min(e), max(e), avg(e), hist(e), lhist(e,low,high,step), each with by (keys), of
    /// which there is room for 16384 combinations (--dry-run tells).
    #[arg(long, value_name = "[F:]EXPR", allow_hyphen_values = true)]
    pub output_arg: Vec<String>,

    /// Print what --output-arg gathers every so many seconds, not at the end alone
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<u64>,

    /// Only calls that returned an error
    #[arg(long)]
    pub errors: bool,

    /// Run CMD through sh -c and trace only it and its children, from their first instruction to its end
    #[arg(short = 'c', long = "command", value_name = "CMD")]
    pub command: Option<String>,

    /// End after this many printed events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit_events: Option<u64>,

    /// Print each event as one JSON object on a line of its own
    #[arg(long)]
    pub json: bool,

    /// Colour events: on a terminal unless NO_COLOR is set, always, or never
    #[arg(long, value_enum, default_value_t = ColorArg::Auto, value_name = "WHEN")]
    pub color: ColorArg,

    /// Show pointers to structures as addresses only: nothing is read of what is behind them
    #[arg(long)]
    pub no_pointees: bool,

    /// Write events to FILE instead of the standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Size of the ring buffer, or of all of them together: bytes, or with K, M or G; rounded up to a power of two
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = buffer_size)]
    pub buffer_size: u32,

    /// Trace even functions that btrace's own programs depend on; the machine may hang
    #[arg(long)]
    pub force: bool,

    /// Say more on stderr; twice: the generated programs too
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Print a shell completion script or the manual page, for packagers
    #[arg(long, value_enum, hide = true, value_name = "WHAT")]
    pub generate: Option<Generate>,
}

/// What btrace does besides tracing.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// List what can be traced: attach methods that this kernel offers, and C prototype
    ///
    /// The first column names the attach methods, `-` where there is none; then the reason follows the prototype.
    List(ListArgs),

    /// Print types of the kernel as C declares them, with offsets, sizes and holes, and prototypes of functions
    ///
    /// It needs no root.
    Types(TypesArgs),

    /// Tell what this kernel can and cannot do for btrace, and what would change it
    ///
    /// Everything is tried, nothing is changed. Exit status: 0 if anything can be traced, 2 if not.
    Doctor(DoctorArgs),

    /// Measure what each way of tracing a place costs: calls on the way, time of a hit
    ///
    /// A program that does nothing is attached in each way that the kernel offers, and the place is hit many times, with it and
    /// without.
    Cost(CostArgs),

    /// Tests of btrace on the running kernel, for its developers
    #[command(hide = true, subcommand)]
    Selftest(Selftest),
}

/// `btrace selftest`.
#[derive(Debug, clap::Subcommand)]
pub enum Selftest {
    /// Disassemble every symbol of code in /proc/kallsyms; fail on bytes that cannot be decoded
    DisasmAll,

    /// Show the verifier a program for every traceable function, all arguments decoded; attach none
    LoadAll {
        /// Only every Nth function
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,

        /// Leave out so many at first
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: u32,

        /// Entries, exits or both
        #[arg(short, long, value_enum, default_value_t = ModeArg::Exit, value_name = "MODE")]
        mode: ModeArg,
    },

    /// Print the functions and source lines of addresses, read from stdin, in an ELF file, as addr2line -a -i -f does
    Lines {
        /// A file with debug information, whatever runs
        file: PathBuf,
    },
}

/// `btrace doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Say more on stderr
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `btrace cost`.
#[derive(Debug, clap::Args)]
pub struct CostArgs {
    /// A kernel function or a tracepoint
    #[arg(value_name = "TARGET", required_unless_present_any = ["kfunc", "tracepoint"], conflicts_with_all = ["kfunc", "tracepoint"])]
    pub target: Option<String>,

    /// A kernel function: name, or module:name
    #[arg(short = 'k', long, value_name = "[MODULE:]NAME", conflicts_with = "tracepoint")]
    pub kfunc: Option<String>,

    /// A tracepoint: name, or system:name
    #[arg(short = 't', long, value_name = "[SYSTEM:]NAME")]
    pub tracepoint: Option<String>,

    /// Run CMD through sh -c each time, to hit the target; its output is thrown away. By default btrace hits it itself, where
    /// it knows how
    #[arg(short = 'c', long = "command", value_name = "CMD")]
    pub command: Option<String>,

    /// Rounds, in each of which every way is measured once
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// The clock counts instructions, one a nanosecond (qemu -icount shift=0): the least of all rounds counts, and is exact
    #[arg(long)]
    pub exact: bool,

    /// Show the machine code on the way, of each way while it is attached
    #[arg(long, conflicts_with = "json")]
    pub disasm: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Name the frames between the target and the program; say more on stderr
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `btrace types`.
#[derive(Debug, clap::Args)]
pub struct TypesArgs {
    /// Print one JSON object a line for each type
    #[arg(long)]
    pub json: bool,

    /// Write out members that are structs or unions too, so many inside one another
    #[arg(short, long, value_name = "LEVELS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=16))]
    pub expand: u32,

    /// A file of BTF to look into, instead of the running kernel's and its modules'
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,

    /// Say more on stderr
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Names or globs, separated by commas, with or without struct, union, enum, typedef, func or var before; module:name for
    /// a module's. A name without a keyword may be of any kind, an enumerator's too; a glob is about types
    #[arg(value_name = "PATTERN", required = true)]
    pub patterns: Vec<String>,
}

/// `btrace list`.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Kernel functions
    #[arg(short = 'k', long)]
    pub kfunc: bool,

    /// BPF programs: patterns as after btrace -p; with their subprograms, unless :FUNCTION names some
    #[arg(short = 'p', long)]
    pub prog: bool,

    /// Tracepoints; without any of these flags, functions and tracepoints
    #[arg(short = 't', long)]
    pub tracepoint: bool,

    /// Let patterns without a module match in all loaded modules too
    #[arg(long)]
    pub kfunc_all_kmods: bool,

    /// Say more on stderr
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Names or globs, separated by commas; module:name names a module's
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub patterns: Vec<String>,
}

impl ListArgs {
    /// What to list. With both kinds asked for, a name that is only of one kind is no error.
    pub fn specs(&self) -> anyhow::Result<Vec<TargetSpec>> {
        let both = self.kfunc == self.tracepoint && !self.prog;
        let mut kinds = Vec::new();
        if self.kfunc || both {
            kinds.push((TargetKind::Function, &self.patterns, "-k"));
        }
        if self.tracepoint || both {
            kinds.push((TargetKind::Tracepoint, &self.patterns, "-t"));
        }
        specs(&kinds, self.kfunc_all_kmods)
    }
}

impl ListArgs {
    /// Which BPF programs to list.
    pub fn programs(&self) -> anyhow::Result<Vec<ProgramSpec>> {
        if self.prog { programs(&self.patterns) } else { Ok(Vec::new()) }
    }
}

/// Reads what follows -p.
fn programs(lists: &[String]) -> anyhow::Result<Vec<ProgramSpec>> {
    let texts = lists.iter().flat_map(|list| split_list(list));
    texts.map(|text| ProgramSpec::new(text).context("-p")).collect()
}

/// Reads the patterns after flags.
fn specs(lists: &[(TargetKind, &Vec<String>, &str)], all_modules: bool) -> anyhow::Result<Vec<TargetSpec>> {
    let mut specs = Vec::new();
    for (kind, lists, flag) in lists {
        for name in lists.iter().flat_map(|list| split_list(list)) {
            specs.push(TargetSpec::new(*kind, name, all_modules).with_context(|| flag.to_string())?);
        }
    }
    Ok(specs)
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// At the start of the function
    Entry,
    /// At its return
    Exit,
    /// At both, each at once; the two of a call bear the same number
    Both,
}

/// `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Wherever it goes
    Always,
    /// Nowhere
    Never,
}

/// `--generate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generate {
    /// Completion for bash
    Bash,
    /// Completion for zsh
    Zsh,
    /// Completion for fish
    Fish,
    /// Manual page, section 8
    Man,
}

/// Reads a thread's name.
fn comm(name: &str) -> Result<Comm, String> {
    Comm::new(name).ok_or_else(|| "a thread's name has 1 to 15 bytes".into())
}

/// Reads kinds of branches.
fn branch_filter(list: &str) -> Result<BranchFilter, String> {
    let kinds: Result<Vec<BranchFilter>, String> = list
        .split(',')
        .map(|name| {
            BranchFilter::named(name).ok_or_else(|| {
                format!(
                    "no kind of branch is named {name:?}: {}",
                    BranchFilter::names().collect::<Vec<_>>().join(", ")
                )
            })
        })
        .collect();
    kinds?.into_iter().reduce(BranchFilter::or).ok_or_else(|| "no kind of branch".into())
}

/// Most expressions of a kind: the program that answers them is written and verified as a whole.
const MOST_EXPRESSIONS: usize = 64;

/// Most bytes read of a text, terminator included.
pub const STRING_SIZE: u32 = 64;

/// Smallest and largest ring: a page of the largest size kernels use, and what fits the map's 32-bit size.
const RING_SIZES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 31);

/// Most bytes that are disassembled of one target.
const MOST_DISASSEMBLED: u32 = 16 << 20;

/// Reads `512` or `0x200`.
fn disasm_bytes(text: &str) -> Result<u32, String> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = match hex {
        // from_str_radix takes a sign.
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|n| *n <= MOST_DISASSEMBLED).ok_or_else(|| {
        format!("a number of bytes is expected, at most {MOST_DISASSEMBLED}; 0x200 is one too")
    })
}

/// Reads whole seconds.
fn interval(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (1..=86400).contains(seconds))
        .ok_or_else(|| "whole seconds are expected, 1 to 86400".into())
}

/// Reads `4096`, `512K`, `8M`, `1G`.
fn buffer_size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1u64 << 10),
        Some((at, 'm' | 'M')) => (text.get(..at), 1 << 20),
        Some((at, 'g' | 'G')) => (text.get(..at), 1 << 30),
        _ => (Some(text), 1),
    };
    let size = digits
        .and_then(|d| d.parse::<u64>().ok())
        .and_then(|n| n.checked_mul(unit))
        .and_then(u64::checked_next_power_of_two)
        .ok_or("not a size; 512K, 8M and 1G are sizes")?;
    if digits.is_some_and(|d| d.bytes().all(|b| b == b'0')) {
        return Err("a buffer of no size".into());
    }
    let size = size.max(*RING_SIZES.start());
    if !RING_SIZES.contains(&size) {
        return Err("at most 2G".into());
    }
    u32::try_from(size).map_err(|e| e.to_string())
}

impl Args {
    /// The BPF programs that are to be traced.
    pub fn programs(&self) -> anyhow::Result<Vec<ProgramSpec>> {
        programs(&self.prog)
    }

    /// The functions and tracepoints that are to be traced; none only if there are programs.
    pub fn specs(&self) -> anyhow::Result<Vec<TargetSpec>> {
        let lists =
            [(TargetKind::Function, &self.kfunc, "-k"), (TargetKind::Tracepoint, &self.tracepoint, "-t")];
        let targets = specs(&lists, self.kfunc_all_kmods)?;
        if targets.is_empty() && self.prog.is_empty() {
            bail!(
                "nothing to trace: name a function with -k, a BPF program with -p or a tracepoint with -t (btrace --help)"
            );
        }
        Ok(targets)
    }

    /// The expressions that were given.
    fn expressions(&self) -> anyhow::Result<Expressions> {
        let read = |texts: &[String], flag: &str| {
            if texts.len() > MOST_EXPRESSIONS {
                bail!("{flag} is given {} times, at most {MOST_EXPRESSIONS} can be", texts.len());
            }
            let read = |text: &String| match text.trim() {
                "" => bail!("{flag}: an empty expression"),
                text => Written::new(text).with_context(|| flag.to_string()),
            };
            texts.iter().map(read).collect::<anyhow::Result<Vec<_>>>()
        };
        let filters = read(&self.filter_arg, "--filter-arg")?;
        Ok(Expressions { filters, outputs: read(&self.output_arg, "--output-arg")? })
    }

    /// The request, its patterns read.
    pub fn request(&self) -> anyhow::Result<Request> {
        let targets = self.specs()?;
        let mode = match self.mode {
            Some(ModeArg::Entry) => Mode::Entry,
            Some(ModeArg::Exit) | None => Mode::Exit,
            Some(ModeArg::Both) => Mode::Both,
        };
        let filter = Filter {
            tgids: self.filter_pid.clone(),
            tids: self.filter_tid.clone(),
            pid_namespace: None,
            comms: self.filter_comm.clone(),
            cpus: self.filter_cpu.clone(),
            cgroups: Vec::new(),
            errors: self.errors,
            not_tgid: None,
            followed: self.command.is_some(),
        };
        Ok(Request {
            targets,
            programs: self.programs()?,
            mode,
            filter,
            expressions: self.expressions()?,
            force: self.force,
            stack: self.output_stack,
            path: (self.output_path || self.path_summary).then_some(Wanted {
                most_blocks: self.path_blocks.unwrap_or(MOST_BLOCKS),
                of_all: self.path_summary,
                flag: if self.output_path { "--output-path" } else { "--path-summary" },
            }),
            branches: self.output_lbr,
            pointees: !self.no_pointees,
            string_size: STRING_SIZE,
            ring_size: self.buffer_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(buffer_size("8M"), Ok(8 << 20));
        assert_eq!(buffer_size("100000"), Ok(131072));
        assert_eq!(buffer_size("1"), Ok(64 << 10));
        for bad in ["", "x", "M", "-1", "4G", "99999999999999999999", "8é", "1.5M", "0", "00K"] {
            assert!(buffer_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_and_seconds() {
        assert_eq!(
            (disasm_bytes("512"), disasm_bytes("0x200"), disasm_bytes("0")),
            (Ok(512), Ok(512), Ok(0))
        );
        for bad in ["", "0x", "0x+5", "x", "-1", "16777217", "0x1000001", "1k"] {
            assert!(disasm_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!((interval("1"), interval("86400")), (Ok(1), Ok(86400)));
        for bad in ["", "0", "0.1", "-1", "86401", "1s"] {
            assert_eq!(interval(bad), Err("whole seconds are expected, 1 to 86400".into()), "{bad}");
        }
    }

    #[test]
    fn kinds_of_branches() {
        let named = |name| BranchFilter::named(name).expect("a kind");
        assert_eq!(branch_filter("any"), Ok(BranchFilter::ANY));
        assert_eq!(branch_filter("call,ret"), Ok(named("call").or(named("ret"))));
        for bad in ["", "call,", "Any", "any ", "jump"] {
            assert!(branch_filter(bad).is_err_and(|e| e.contains("call_stack")), "{bad:?}");
        }
    }

    #[test]
    fn lists_and_repeats_add_up() {
        let args = Args::parse_from(["btrace", "-k", "a,b_{c,d}", "-k", "e", "-t", "f"]);
        let request = args.request().expect("request");
        let names: Vec<&str> = request.targets.iter().map(|t| t.pattern.as_str()).collect();
        assert_eq!(names, ["a", "b_{c,d}", "e", "f"]);
        assert!(Args::parse_from(["btrace"]).request().is_err());
        assert!(Args::parse_from(["btrace", "-k", "a,,b"]).request().is_err());
    }
}
