//! The lab matrix: what btrace must do on every kernel, checked on each of them.

mod calls;
mod cases;
mod cost;
mod disasm;
mod endings;
mod expressions;
mod filters;
mod judging;
mod lbr;
mod lockdown;
mod methods;
mod names;
mod options;
mod path;
mod programs;
mod rings;
mod shapes;
mod stacks;
mod syscalls;
mod types;
mod values;

/// What btrace's own tests compare with on the running kernel.
#[path = "../../btrace/tests/common/pahole.rs"]
mod pahole;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::frames::{self, Ran};
use crate::kernels::{STOCK, Stock};
use crate::testmod;
use crate::vm::VmOptions;

/// One command and what must come of it.
struct Check {
    name: &'static str,
    command: &'static str,
    judge: fn(&Ran) -> Result<()>,
}

/// Functions for the checks' scripts. Every wait has an end, so that a defect fails its check and not the whole lab.
const PRELUDE: &str = r#"
# A workload that waits for SIGUSR1; its process id in w.
waiting() { rm -f /tmp/pid; workloads --pid --wait "$@" >/tmp/pid & w=$!; until_said [0-9] /tmp/pid; }
# btrace in the background; its process id in b. It is attached when this returns.
traced() { rm -f /tmp/said; btrace "$@" 2>/tmp/said & b=$!; until_said running /tmp/said; }
# Ends it by a signal, shows what it said, and exits with its status.
ended() { kill -$1 $b; wait $b; s=$?; cat /tmp/said >&2; exit $s; }
# btrace with these options, as JSON: `== NAME STATUS SUMMARY`, then its lines. What it said otherwise goes to stderr.
run() {
    run=$1; shift; rm -f /tmp/o; btrace "$@" --json -o /tmp/o >/dev/null 2>/tmp/said; seen $run $?
}
seen() { echo "== $1 $2 $(grep -E ' printed, | gathered from ' /tmp/said || head -n 1 /tmp/said)"; cat /tmp/o 2>/dev/null; cat /tmp/said >&2; }
# The release, then what was seen of a function of the module of shapes: as text, as JSON, and on stderr why not.
shape() {
    uname -r
    [ -e /sys/kernel/btf/btrace_shapes ] || { btrace -k btrace_shapes:$1; return; }
    grep "^btrace_shapes:$1 " /tmp/shapes.txt; grep "\"target\":\"btrace_shapes:$1\"" /tmp/shapes.json; grep ":$1: " /tmp/shapes.err >&2; return 0
}
until_said() { for i in $(seq 100); do grep -q "$1" "$2" 2>/dev/null && return; sleep 0.1; done; echo "never said: $1" >&2; exit 99; }
"#;

/// Loaded in every guest, for the checks on functions of modules.
const MODULES: &[&str] = &["loop"];

/// Passed and failed checks, over all kernels.
#[derive(Debug, Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    /// A line for each that failed, to be repeated at the end, where a log that was cut short still has it.
    pub failures: Vec<String>,
    /// How long each took by its guest's clock, where there was a guest.
    pub slowest: Vec<(Duration, String)>,
}

/// Guests at one time: each keeps one host thread busy.
const AT_ONCE: usize = 2;

/// For all checks of one boot, on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(2400);

/// One boot and what is checked in it.
struct Boot {
    stock: &'static Stock,
    /// What its lines begin with.
    label: String,
    cpus: u32,
    checks: Vec<&'static Check>,
}

/// The kernel that is booted with many CPUs as well.
const MANY_CPUS_ON: &str = "6.12";

/// The boots: some of each kernel, and one of them with many CPUs.
fn boots(only: Option<&str>, words: &[String]) -> Vec<Boot> {
    // Each of these has a boot of its own: what one guest is brought down by is lost for few checks, and CPUs are kept busy
    // to the end. A check may count on files that those before it in its part have left.
    let calls = [
        calls::CHECKS,
        endings::CHECKS,
        filters::CHECKS,
        names::CHECKS,
        stacks::CHECKS,
        values::CHECKS,
        options::CHECKS,
    ];
    let expressions = [
        expressions::FILES,
        expressions::SOCKETS,
        expressions::WORDS,
        expressions::SHAPES,
        expressions::TARGETS,
        expressions::MANY,
        expressions::TALLIES,
        expressions::ERRORS,
        types::CHECKS,
    ];
    let ways = [path::CHECKS, cost::CHECKS, lbr::CHECKS];
    let rest = [
        programs::CHECKS,
        methods::CHECKS,
        shapes::CHECKS,
        syscalls::CHECKS,
        cases::CHECKS,
        disasm::CHECKS,
        rings::CHECKS,
        lockdown::CHECKS,
    ];
    let asked = |sets: &[&'static [Check]]| -> Vec<&'static Check> {
        let all = sets.iter().copied().flatten();
        all.filter(|check| words.is_empty() || words.iter().any(|word| check.name.contains(word))).collect()
    };
    let mut boots = Vec::new();
    for stock in STOCK.iter().filter(|s| only.is_none_or(|only| only == s.label)) {
        for part in [&rest[..], &expressions, &ways, &calls] {
            boots.push(Boot { stock, label: stock.label.into(), cpus: 2, checks: asked(part) });
        }
        if stock.label == MANY_CPUS_ON {
            let label = format!("{}, {} CPUs", stock.label, rings::CPUS);
            boots.push(Boot { stock, label, cpus: rings::CPUS, checks: asked(&[rings::MANY_CPUS]) });
        }
    }
    boots.retain(|boot| !boot.checks.is_empty());
    boots
}

/// Runs every check on every stock kernel, and says how each went on stderr. With `words`, only the checks whose names
/// contain one of them.
pub fn run(only: Option<&str>, words: &[String]) -> Result<Tally> {
    ensure!(STOCK.iter().any(|s| only.is_none_or(|only| only == s.label)), "the lab has no such kernel");
    let boots = boots(only, words);
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(boot) = boots.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (passed, failed, report, took) = run_one(boot);
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.passed += passed;
                    tally.failed += failed;
                    tally.slowest.extend(took);
                    let failures =
                        report.lines().filter(|line| line.starts_with("lab ") && line.contains(" FAILED "));
                    tally.failures.extend(failures.map(str::to_string));
                    eprint!("{report}");
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.slowest.sort_by_key(|check| std::cmp::Reverse(check.0));
    Ok(tally)
}

/// Runs the checks of one boot: how many passed and failed, what is to be said, how long each took. A guest that gave no answer is
/// one failure.
fn run_one(boot: &Boot) -> (usize, usize, String, Vec<(Duration, String)>) {
    let Boot { stock, label, cpus, checks } = boot;
    let (mut passed, mut failed, mut report) = (0, 0, String::new());
    // Written once: all commands together are one argument, of which the kernel takes 128 KiB (`MAX_ARG_STRLEN`).
    let prelude = format!("cat >/tmp/prelude.sh <<'END_OF_PRELUDE'\n{PRELUDE}\nEND_OF_PRELUDE");
    let scripts = checks.iter().map(|c| format!(". /tmp/prelude.sh\n{}", c.command));
    let commands: Vec<String> = std::iter::once(prelude).chain(scripts).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let additions = match testmod::additions(stock) {
        Ok(additions) => additions,
        Err(error) => {
            return (0, 1, format!("lab {:<5} FAILED  the module of shapes: {error:#}\n", label), Vec::new());
        }
    };
    let options = VmOptions {
        additions,
        cpus: *cpus,
        modules: MODULES.iter().map(ToString::to_string).collect(),
        timeout: TIMEOUT,
        ..VmOptions::new(stock.label, "")
    };
    let ran = match frames::timed(&options, &commands) {
        Ok(ran) => ran,
        Err(error) => return (0, 1, format!("lab {:<5} FAILED  {error:#}\n", label), Vec::new()),
    };
    let mut times = Vec::new();
    for (check, (ran, took)) in checks.iter().zip(ran.iter().skip(1)) {
        times.push((*took, format!("{label}: {}", check.name)));
        match (check.judge)(ran) {
            Ok(()) => {
                passed += 1;
                report += &format!("lab {:<5} ok      {}\n", label, check.name);
            }
            Err(error) => {
                failed += 1;
                report += &format!("lab {:<5} FAILED  {}: {error:#}\n", label, check.name);
                report +=
                    &format!("  status {}\n{}\n{}\n", ran.status, excerpt(&ran.stdout), excerpt(&ran.stderr));
            }
        }
    }
    (passed, failed, report, times)
}

fn excerpt(text: &str) -> String {
    text.lines().take(12).map(|l| format!("  | {l}")).collect::<Vec<_>>().join("\n")
}
