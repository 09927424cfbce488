//! Fuzzing on a stable compiler: each target takes a seed, makes an input of it, and asks everything there is to ask. A panic, a wrong
//! answer or an execution that takes too long is a finding, and its seed makes it again:
//! `cargo xtask fuzz TARGET --seed SEED --executions 1`.
//!
//! There is no coverage to guide it (cargo-fuzz would take a nightly compiler): inputs are mutations of good ones, at the places and by
//! the values that matter to the format.
#![forbid(unsafe_code)]

mod btf;
mod disasm;
mod events;
mod expr;
mod flags;
mod lines;
mod random;
mod targets;

use random::Random;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// Reading BTF, and planning a trace of what is in it
    Btf,
    /// Decoding of records, and rendering as text and JSON
    Events,
    /// Patterns of targets
    Targets,
    /// Command lines
    Flags,
    /// Files with debug information
    Lines,
    /// Machine code
    Disasm,
    /// Expressions
    Expr,
}

/// When to end.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many executions.
    Executions(u64),
    /// After so long.
    Elapsed(Duration),
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Inputs tried.
    pub executions: u64,
    /// The seed and what was wrong, at most [`MOST_FINDINGS`].
    pub findings: Vec<(u64, String)>,
    /// The slowest execution, and its seed.
    pub slowest: (Duration, u64),
}

/// Enough to go on with.
pub const MOST_FINDINGS: usize = 10;

/// An execution that computes longer hangs, for whoever waits. Of its thread's time on a CPU: the machine may be busy, or stand still.
const TOO_LONG: Duration = Duration::from_secs(20);

/// One that does not even compute.
const STUCK: Duration = Duration::from_secs(900);

/// Something that takes inputs.
trait Fuzz {
    /// Makes one of the random numbers, and tries it; `Err` is a wrong answer.
    fn run(&mut self, random: &mut Random) -> Result<(), String>;
}

/// Runs one target, from seed to seed.
pub fn run(target: Target, first_seed: u64, until: Until) -> anyhow::Result<Report> {
    let mut fuzz: Box<dyn Fuzz> = match target {
        Target::Btf => Box::new(btf::BtfFuzz::new()),
        Target::Events => Box::new(events::EventFuzz::new()?),
        Target::Targets => Box::new(targets::TargetFuzz::new()?),
        Target::Flags => Box::new(flags::FlagFuzz),
        Target::Lines => Box::new(lines::LinesFuzz::new()?),
        Target::Disasm => Box::new(disasm::DisasmFuzz::new()),
        Target::Expr => Box::new(expr::ExprFuzz::new()?),
    };
    let mut report = Report::default();
    let started = Instant::now();
    let watch = Watch::start(target);
    let goes_on = |report: &Report| {
        report.findings.len() < MOST_FINDINGS
            && match until {
                Until::Executions(most) => report.executions < most,
                Until::Elapsed(most) => started.elapsed() < most,
            }
    };
    while goes_on(&report) {
        let seed = first_seed.wrapping_add(report.executions);
        report.executions += 1;
        watch.begin(seed);
        let began = Instant::now();
        let result = panic::catch_unwind(AssertUnwindSafe(|| fuzz.run(&mut Random::new(seed))));
        let took = began.elapsed();
        if took > report.slowest.0 {
            report.slowest = (took, seed);
        }
        match result {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => report.findings.push((seed, wrong)),
            Err(panic) => {
                let said = panic.downcast_ref::<String>().cloned();
                let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                report.findings.push((seed, format!("panic: {}", said.unwrap_or_default())));
            }
        }
    }
    watch.end();
    Ok(report)
}

/// A thread that ends the process when an execution hangs, having said which: nothing else can stop one.
struct Watch {
    now: Arc<(Mutex<Option<Execution>>, Condvar)>,
}

/// The execution under way; `None` when all are done.
#[derive(Clone, Copy)]
struct Execution {
    seed: u64,
    since: Instant,
}

/// How long a thread has been on a CPU, by its `schedstat` (Documentation/scheduler/sched-stats.rst: ns first).
fn computed(schedstat: &str) -> Option<Duration> {
    let text = std::fs::read_to_string(schedstat).ok()?;
    Some(Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
}

impl Watch {
    /// Watches the thread that calls.
    fn start(target: Target) -> Watch {
        let now = Arc::new((Mutex::new(Some(Execution { seed: 0, since: Instant::now() })), Condvar::new()));
        let watched = Arc::clone(&now);
        let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
        let schedstat = format!("/proc/{}/schedstat", thread.display());
        std::thread::spawn(move || {
            // When the execution that is under way was first seen, in its thread's time.
            let mut seen: Option<(u64, Option<Duration>)> = None;
            let mut under_way = watched.0.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(Execution { seed, since }) = *under_way {
                let now = computed(&schedstat);
                let began = match seen {
                    Some((same, began)) if same == seed => began,
                    _ => {
                        seen = Some((seed, now));
                        now
                    }
                };
                let took = now.zip(began).map_or(since.elapsed(), |(now, began)| now.saturating_sub(began));
                if took > TOO_LONG || since.elapsed() > STUCK {
                    eprintln!("fuzz: {target:?}: seed {seed} takes longer than {} s", TOO_LONG.as_secs());
                    std::process::exit(1);
                }
                let waited = watched.1.wait_timeout(under_way, Duration::from_secs(1));
                under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        Watch { now }
    }

    fn begin(&self, seed: u64) {
        *self.now.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Execution { seed, since: Instant::now() });
    }

    fn end(self) {
        *self.now.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.now.1.notify_all();
    }
}
