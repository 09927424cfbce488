//! A trace from its start to its summary.

use crate::branch_records;
use crate::cli::Args;
use crate::clock::Clock;
use crate::logging::say;
use crate::namesakes::Namesakes;
use crate::output::{Flow, Output};
use crate::path_summary::Summary;
use crate::privilege;
use crate::progress::Shown;
use crate::render::{Renderer, StackOptions, Style, Symbols, colour_wanted};
use crate::words::count;
use anyhow::{Context, bail};
use bpf::{BranchRecords, Held, Signals, Watched};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trace::{Cgroup, Kernel, Losses, Plan, Request, Session};

/// After a batch the reader rests this long, so that it is not woken for every event: the first event of a burst is
/// on screen at once, the next ones at most this much later.
const REST: Duration = Duration::from_millis(2);

/// Events handled before signals, the command and the losses are looked at again.
const BATCH: usize = 8192;

/// Losses are said at most this often while the trace runs.
const SAY_LOSSES: Duration = Duration::from_secs(1);

/// Without events, namesakes are looked for after so long.
const LOOK_AFTER: Duration = Duration::from_millis(200);

/// Tries, a millisecond each, to get at records still being written when everything is detached.
const LAST_TRIES: usize = 100;

/// What is said of a signal that came too early.
const STOPPED: &str = "btrace: ended before everything was attached; nothing was traced";

/// Everything attached, the command let go.
pub struct Running {
    plan: Plan,
    session: Session,
    renderer: Renderer,
    style: Style,
    clock: Clock,
    output: Output,
    signals: Signals,
    /// Held for as long as the CPUs are to record branches.
    _branches: Option<BranchRecords>,
    command: Option<Held>,
    /// Processes that are traced alone and have not ended yet.
    watched: Vec<Watched>,
    limit: Option<u64>,
    printed: u64,
    unprinted: u64,
    /// What was gathered or summed up did not all reach the output.
    unwritten: bool,
    /// A signal came once the trace was over.
    interrupted: bool,
    namesakes: Namesakes,
    started: Instant,
    said: Losses,
    said_at: Instant,
    /// How often what is gathered is printed, and when it was.
    interval: Option<Duration>,
    tallied_at: Instant,
    /// Entries of all that is gathered, when it was last printed.
    entries: u64,
    /// What is told of all paths at the end.
    summary: Option<Summary>,
    /// Whether events are printed.
    prints: bool,
}

/// Why a trace ended.
enum End {
    Command,
    /// All processes that were filtered for have gone.
    Processes,
    Limit,
    Signal,
    OutputClosed,
    /// A signal came while the reader made us wait.
    OutputStuck,
    OutputFailed(anyhow::Error),
}

impl Running {
    /// Plans, attaches, and lets the command run. An error here means that nothing was traced; `None`, that a signal came
    /// first.
    pub fn start(args: &Args, mut request: Request) -> anyhow::Result<Option<Running>> {
        // Refused before anything is loaded.
        let vmlinux = args.vmlinux.as_deref().map(symbols::lines::open_vmlinux).transpose();
        let vmlinux = vmlinux.context("--vmlinux")?;
        let output = Output::open(args.output.as_deref())?;
        // Until here a signal ends us as it ends any program, unless a shell's background job ignores it; from here on it is
        // heard in any case.
        let signals = Signals::block()?;
        let own = trace::own_tgid()?;
        request.filter.not_tgid = Some(own);
        request.filter.pid_namespace = trace::own_pid_namespace()?;
        let watched = watch(&args.filter_pid)?;
        let kernel = Kernel::running()?;
        request.filter.cgroups =
            args.filter_cgroup.iter().map(|path| Cgroup::find(&kernel, path)).collect::<Result<_, _>>()?;
        privilege::check()?;
        let plan = match Plan::new_unless(&kernel, &request, &mut || matches!(signals.next(), Ok(Some(_)))) {
            Err(trace::Error::Stopped) => {
                say(format_args!("{STOPPED}"));
                return Ok(None);
            }
            plan => plan.map_err(|error| branch_records::advised(args, error))?,
        };
        let branches = branch_records::start(args)?;
        check_gathering(args, &plan)?;
        // The types are needed no longer; their memory is better used for events.
        drop(kernel);
        let mut session = match Session::start(&plan, own, &mut || matches!(signals.next(), Ok(Some(_)))) {
            Err(trace::Error::Stopped) => {
                say(format_args!("{STOPPED}"));
                return Ok(None);
            }
            session => session?,
        };
        // Started after the tracker is attached, so that its fork is seen; held, so that nothing of it is missed.
        let command = args.command.as_deref().map(Held::spawn).transpose()?;
        let mut shown = Shown::new(plan.only_way());
        let mut tell = |progress| {
            shown.tell(progress);
            matches!(signals.next(), Ok(Some(_)))
        };
        // Once thousands of functions are traced, reading anything takes long; our own programs are not among the symbols then.
        let symbols = plan.is_vast().then(|| Early::load(&plan));
        let attached = session.attach(&plan, &mut tell);
        shown.clear();
        if !attached? {
            say(format_args!("{STOPPED}"));
            return Ok(None);
        }
        say_untraced(&plan, &session);
        output.begin()?;
        let clock = Clock::new()?;
        let targets = count(session.attached() as u64, "target");
        say(format_args!("{} btrace is running.. ({targets})", clock.now()));
        say_unprobed(&session);
        let colour = colour_wanted(args.color, output.is_terminal());
        let style = Style { json: args.json, colour, verbose: args.verbose > 0 };
        let codes = if args.output_path { session.codes().to_vec() } else { Vec::new() };
        let stacks = StackOptions { ours: ours(&session)?, vmlinux, lines: None, codes };
        let again = args.vmlinux.as_deref().filter(|_| args.path_summary);
        let again = again.map(symbols::lines::open_vmlinux).transpose().context("--vmlinux")?;
        let summary = args
            .path_summary
            .then(|| Summary::new(session.codes(), args.errors, args.json, args.verbose > 0, again));
        let renderer =
            Renderer::new(style, session.probes(), clock.clone(), stacks, symbols.and_then(Early::take));
        let namesakes = Namesakes::of(&session);
        if let Some(command) = &command {
            command.release()?;
        }
        Ok(Some(Running {
            plan,
            session,
            renderer,
            style,
            clock,
            output,
            signals,
            _branches: branches,
            command,
            watched,
            limit: args.limit_events,
            printed: 0,
            unprinted: 0,
            unwritten: false,
            interrupted: false,
            namesakes,
            started: Instant::now(),
            said: Losses::default(),
            said_at: Instant::now(),
            interval: args.interval.map(Duration::from_secs),
            tallied_at: Instant::now(),
            entries: 0,
            summary,
            prints: args.output_path || !args.path_summary,
        }))
    }

    /// Prints events until something ends the trace, then what was still in the buffer, then the summary.
    pub fn follow(mut self) -> anyhow::Result<()> {
        let mut end = self.until_end()?;
        let mut shown = Shown::new(None);
        self.session.detach(&mut |progress| {
            shown.tell(progress);
            false
        });
        shown.clear();
        self.hear_out()?;
        if matches!(end, End::Command | End::Processes | End::Signal) {
            end = self.rest()?.unwrap_or(end);
        }
        if !matches!(end, End::Command | End::Processes | End::Signal) {
            self.give_up()?;
        }
        self.namesakes.finish();
        if matches!(end, End::OutputClosed | End::OutputStuck | End::OutputFailed(_)) {
            self.unwritten = matches!(end, End::OutputStuck) && self.has_tallies();
        } else {
            end = self.tell_tallies(false)?.unwrap_or(end);
        }
        self.summary()?;
        match end {
            End::Signal | End::OutputStuck => {
                if let Some(command) = &self.command {
                    command.terminate();
                }
                Ok(())
            }
            End::Command | End::Processes | End::Limit | End::OutputClosed => self.see_off(),
            End::OutputFailed(error) => {
                // Said first, for the command may take its time.
                say(format_args!("btrace: {error:#}"));
                self.see_off()?;
                Err(Reported.into())
            }
        }
    }

    fn until_end(&mut self) -> anyhow::Result<End> {
        loop {
            let (got, end) = self.batch()?;
            if let Some(end) = end {
                return Ok(end);
            }
            if got > 0 || self.started.elapsed() >= LOOK_AFTER {
                self.namesakes.look();
            }
            if self.namesakes.attach(&mut self.plan, &mut self.session) {
                // Before any of their events is handed over.
                let lines = self.renderer.take_lines();
                // Further functions are not looked for where paths are shown.
                let codes = Vec::new();
                let stacks = StackOptions { ours: ours(&self.session)?, vmlinux: None, lines, codes };
                self.renderer =
                    Renderer::new(self.style, self.session.probes(), self.clock.clone(), stacks, None);
            }
            if let Some(end) = self.pause(got)? {
                return Ok(end);
            }
            self.say_losses()?;
            if self.interval.is_some_and(|interval| self.tallied_at.elapsed() >= interval)
                && let Some(end) = self.tell_tallies(true)?
            {
                return Ok(end);
            }
        }
    }

    /// Prints at most [`BATCH`] of the events that are there.
    fn batch(&mut self) -> anyhow::Result<(usize, Option<End>)> {
        let Running { session, renderer, output, signals, limit, printed, summary, prints, .. } = self;
        let mut end = None;
        let mut batch = 0;
        let got = session.drain(|event| {
            batch += 1;
            // Only calls that are asked for count, though others tell of paths too.
            let is_wanted = summary.as_mut().is_none_or(|summary| summary.event(event));
            if is_wanted {
                if *prints {
                    renderer.event(event, &mut output.buffer);
                    output.end_event();
                }
                *printed += 1;
            }
            if limit.is_some_and(|limit| *printed >= limit) {
                end = Some(End::Limit);
            } else if let Some(closed) = closed(output.flush_if_large(signals.as_fd())) {
                end = Some(closed);
            }
            if end.is_some() || batch >= BATCH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let flushed = closed(output.flush(signals.as_fd()));
        Ok((got, end.filter(|e| !matches!(e, End::Limit)).or(flushed).or(self.limit_reached())))
    }

    fn limit_reached(&self) -> Option<End> {
        self.limit.is_some_and(|limit| self.printed >= limit).then_some(End::Limit)
    }

    /// Waits for events, or rests after some; says if a signal or the command's end came.
    fn pause(&mut self, got: usize) -> anyhow::Result<Option<End>> {
        let mut fds = vec![self.signals.as_fd()];
        fds.extend(self.command.as_ref().map(AsFd::as_fd));
        fds.extend(self.watched.iter().map(AsFd::as_fd));
        let timeout = match got {
            0 if self.session.holds_back() => REST,
            0 => {
                fds.extend(self.session.fds());
                if self.namesakes.is_open() { LOOK_AFTER } else { SAY_LOSSES }
            }
            n if n < BATCH => REST,
            // There is more: a look only.
            _ => Duration::ZERO,
        };
        let ready = bpf::wait_readable(&fds, Some(timeout))?;
        if ready.first() == Some(&true)
            && let Some(signal) = self.signals.next()?
        {
            log::debug!("ended by {signal:?}");
            return Ok(Some(End::Signal));
        }
        let mut ended = ready.into_iter().skip(1);
        if self.command.is_some() && ended.next() == Some(true) {
            return Ok(Some(End::Command));
        }
        if self.watched.is_empty() {
            return Ok(None);
        }
        self.watched.retain(|process| {
            let ended = ended.next() == Some(true);
            if ended {
                say(format_args!("btrace: process {} has ended", process.pid()));
            }
            !ended
        });
        Ok(self.watched.is_empty().then_some(End::Processes))
    }

    /// Prints what is still in the ring once everything is detached.
    fn rest(&mut self) -> anyhow::Result<Option<End>> {
        for _ in 0..LAST_TRIES {
            loop {
                let (got, end) = self.batch()?;
                if end.is_some() {
                    return Ok(end);
                }
                if got == 0 {
                    break;
                }
            }
            if self.session.is_drained() {
                return Ok(None);
            }
            // A program on another CPU has reserved its record and is still filling it.
            std::thread::sleep(Duration::from_millis(1));
        }
        log::warn!("a record in the ring buffer was never finished; what follows it is not printed");
        Ok(None)
    }

    /// Counts what is not going to be printed any more: the output takes nothing, or enough was printed.
    fn give_up(&mut self) -> anyhow::Result<()> {
        let unwritten = self.output.abandon();
        self.printed -= unwritten;
        let unread = self.session.discard()?;
        // After --limit-events more than was asked for is no loss.
        if self.limit_reached().is_none() {
            self.unprinted = unwritten + unread;
        }
        Ok(())
    }

    /// Whether something is printed at the end that is no event.
    fn has_tallies(&self) -> bool {
        let mut layouts = self.session.probes().iter().map(|probe| &probe.layout);
        self.summary.is_some() || layouts.any(|layout| !layout.asked.gathered.is_empty())
    }

    /// Prints what was gathered up to now; `interim`: the trace goes on.
    fn tell_tallies(&mut self, interim: bool) -> anyhow::Result<Option<End>> {
        self.tallied_at = Instant::now();
        if self.interval.is_some() && !self.style.json {
            self.output.buffer.extend_from_slice(format!("{}\n", self.clock.now()).as_bytes());
        }
        if let Some(summary) = &mut self.summary {
            summary.write(&mut self.output.buffer)?;
        }
        self.entries = 0;
        let now = bpf::monotonic_ns()?;
        for tally in self.session.tallies()? {
            self.entries += tally.entries.len() as u64;
            self.renderer.tally(&tally, now, interim, &mut self.output.buffer);
        }
        if !interim {
            self.hear_out()?;
        }
        let end = closed(self.output.flush(self.signals.as_fd()));
        self.unwritten = !interim && matches!(end, Some(End::OutputStuck)) && self.has_tallies();
        Ok(end)
    }

    /// Takes the signals that came up to now: they asked for the end, which has come, and are no reason not to wait for a reader. Further ones are.
    fn hear_out(&mut self) -> anyhow::Result<()> {
        while self.signals.next()?.is_some() {
            self.interrupted = true;
        }
        Ok(())
    }

    fn say_losses(&mut self) -> anyhow::Result<()> {
        if self.said_at.elapsed() < SAY_LOSSES {
            return Ok(());
        }
        self.said_at = Instant::now();
        self.session.tend()?;
        let lost = self.session.losses()?.lost;
        if lost > self.said.lost {
            let more = count(lost - self.said.lost, "event");
            say(format_args!("btrace: {more} lost: the ring buffer was full"));
            self.said.lost = lost;
        }
        Ok(())
    }

    fn summary(&self) -> anyhow::Result<()> {
        let losses = self.session.losses()?;
        let probes = self.session.probes();
        let mut gathers = probes.iter().flat_map(|p| &p.layout.asked.gathered).peekable();
        let gathered = gathers.peek().is_some().then(|| {
            let what = if gathers.any(|g| !g.keys.is_empty()) { "key" } else { "value" };
            format!("{} gathered from {}", count(self.entries, what), count(losses.gathered, "event"))
        });
        let is_silent = probes.iter().all(|p| p.layout.asked.is_silent());
        let done = match &gathered {
            Some(gathered) if is_silent => gathered.clone(),
            _ => {
                let done = if self.prints { "printed" } else { "summed up" };
                format!("{} {done}", count(self.printed, "event"))
            }
        };
        let mut line = format!("btrace: {done}, {} lost", losses.lost);
        if losses.lost > 0 {
            line += " (a larger --buffer-size or a narrower filter loses fewer)";
        }
        if let (Some(gathered), false) = (gathered, is_silent) {
            line += &format!(", {gathered}");
        }
        if self.unprinted > 0 {
            line += &format!(", {} not printed: the output took no more", count(self.unprinted, "event"));
        }
        if self.unwritten {
            let what = if self.summary.is_some() { "the summary" } else { "what was gathered" };
            line += &format!(", {what} not printed to its end: the output took no more");
        }
        if losses.missed > 0 {
            line += &format!(
                ", up to {} not seen: the probe was running on that CPU already, or the kernel had no room to keep the call",
                count(losses.missed, "call")
            );
        }
        if losses.unread > 0 {
            line += &format!(
                ", {} not gathered: a key or the value could not be read",
                count(losses.unread, "event")
            );
        }
        if losses.no_room > 0 {
            line += &format!(
                ", {} not gathered: the table was full; fewer keys, or a narrower filter, take less room",
                count(losses.no_room, "event")
            );
        }
        if losses.pathless > 0 {
            line += &format!(
                ", {} without a path: too many calls under way, or too deep within each other",
                count(losses.pathless, "call")
            );
        }
        if losses.untimed > 0 {
            line +=
                &format!(", {} without a duration: too many calls under way", count(losses.untimed, "call"));
        }
        if losses.unfollowed > 0 {
            line += &format!(
                ", {} of the command not followed: too many at once",
                count(losses.unfollowed, "task")
            );
        }
        say(format_args!("{line}"));
        Ok(())
    }

    /// Waits for the command, and says how it ended if that was no success.
    ///
    /// After --limit-events, or when the output takes no more, it may still run. It is not ours to kill, so it is waited
    /// for, as a shell would.
    fn see_off(&mut self) -> anyhow::Result<()> {
        let Some(command) = &mut self.command else { return Ok(()) };
        if command.try_wait()?.is_none() {
            if self.interrupted {
                // Somebody asked for the end of it too.
                command.terminate();
                return Ok(());
            }
            say(format_args!("btrace: detached; waiting for the command to end (Ctrl-C ends it)"));
            loop {
                let ready = bpf::wait_readable(&[self.signals.as_fd(), command.as_fd()], None)?;
                if ready.first() == Some(&true) && self.signals.next()?.is_some() {
                    command.terminate();
                    return Ok(());
                }
                if command.try_wait()?.is_some() {
                    break;
                }
            }
        }
        let status = command.wait()?;
        if !status.success() {
            say(format_args!("btrace: the command ended with {status}"));
        }
        Ok(())
    }
}

/// The kernel's symbols, read while probes are attached.
struct Early(Option<JoinHandle<Result<symbols::Table, symbols::Error>>>);

impl Early {
    /// Begins to read them, if events of the plan have a use for them.
    fn load(plan: &Plan) -> Early {
        let reader = || std::thread::Builder::new().name("symbols".into()).spawn(symbols::Table::load);
        // Without a thread they are read later.
        Early(Renderer::shows_symbols(&plan.probes).then(reader).and_then(Result::ok))
    }

    fn take(self) -> Option<Symbols> {
        self.0?.join().ok().map(Symbols::of)
    }
}

/// Refuses flags that ask for nothing where events are gathered, or are not.
pub fn check_gathering(args: &Args, plan: &Plan) -> anyhow::Result<()> {
    let gathers = plan.probes.iter().any(|p| !p.layout.asked.gathered.is_empty());
    if args.interval.is_some() && !gathers {
        bail!("--interval is for what --output-arg gathers (count(), hist(e), …), and nothing is gathered");
    }
    if args.output_stack && plan.probes.iter().all(|p| p.layout.asked.is_silent()) {
        bail!("--output-stack is for printed events, and events are gathered here, not printed");
    }
    if args.output_path && plan.probes.iter().all(|p| p.layout.asked.is_silent()) {
        bail!("--output-path shows the path of each event, and events are gathered here, not printed");
    }
    if args.path_summary && gathers {
        bail!("--path-summary and what --output-arg gathers exclude each other");
    }
    if args.limit_events.is_some() && plan.probes.iter().all(|p| p.layout.asked.is_silent()) {
        bail!("--limit-events counts printed events, and events are gathered here, not printed");
    }
    Ok(())
}

/// What shows the events of a session's probes. It reads the kernel's symbols if it has a use for them, our programs' too.
fn ours(session: &Session) -> anyhow::Result<BTreeSet<String>> {
    let code = |probe: &trace::Probe| probe.layout.stack.is_some() || probe.layout.branch_bytes().is_some();
    Ok(if session.probes().iter().any(code) { session.tags()? } else { BTreeSet::new() })
}

/// Watches the processes that are traced alone. Where that is refused the trace does not end by itself.
fn watch(pids: &[u32]) -> anyhow::Result<Vec<Watched>> {
    let mut watched = Vec::with_capacity(pids.len());
    for pid in pids {
        match Watched::open(*pid) {
            Ok(Some(process)) => watched.push(process),
            Ok(None) => bail!("--filter-pid {pid}: no such process"),
            Err(error) => {
                log::warn!("the trace will not end with the process: {error}");
                return Ok(Vec::new());
            }
        }
    }
    Ok(watched)
}

/// An error that has been printed already.
#[derive(Debug)]
pub struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("see above")
    }
}

impl std::error::Error for Reported {}

/// Untraced targets named without `-v`.
const NAMED: usize = 5;

/// Reasons named without `-v`.
const REASONS: usize = 3;

/// Names the targets that are not traced, each with its reason; when they are many, the most frequent reasons.
fn say_untraced(plan: &Plan, session: &Session) {
    let planned = plan.refused.iter().map(|(target, reason)| (target.as_str(), reason.as_str()));
    let failed = session.failed.iter().map(|f| (f.target.as_str(), f.reason.as_str()));
    let untraced: Vec<_> = planned.chain(failed).collect();
    say_left_out(&session.remarks, &untraced, session.attached());
}

/// Says the remarks, and names the targets that are left out beside those that are traced.
pub fn say_left_out(remarks: &[String], untraced: &[(&str, &str)], traced: usize) {
    let verbose = log::log_enabled!(log::Level::Debug);
    for remark in remarks.iter().take(if verbose { usize::MAX } else { NAMED }) {
        say(format_args!("btrace: {remark}"));
    }
    if verbose || untraced.len() <= NAMED {
        for (target, reason) in untraced {
            say(format_args!("btrace: {target}: not traced: {reason}"));
        }
        return;
    }
    let of = traced + untraced.len();
    let reasons: Vec<String> = untraced.iter().map(|(target, reason)| general(target, reason)).collect();
    let reasons = frequent(reasons.iter().map(String::as_str));
    say(format_args!("btrace: {} of {of} not traced (-v names them): {reasons}", untraced.len()));
}

/// A reason without what is its target's alone: of an expression the name, and what may have been meant.
fn general(target: &str, reason: &str) -> String {
    if !reason.starts_with("--") {
        return reason.into();
    }
    let reason = reason.replace(target, "it");
    reason.split_once("; ").map_or(reason.as_str(), |(first, _)| first).into()
}

/// The most frequent of these, each with its number.
fn frequent<'a>(reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = counts.iter().take(REASONS).map(|(reason, count)| format!("{count}: {reason}"));
    let mut said: Vec<String> = named.collect();
    let others: usize = counts.iter().skip(REASONS).map(|(_, count)| count).sum();
    if others > 0 {
        said.push(format!("{others}: other reasons"));
    }
    said.join("; ")
}

/// Names the blocks of which it may not be known whether they ran, of functions whose paths are taken: no probe could be put on them, and
/// neither the jump to them nor what follows tells.
fn say_unprobed(session: &Session) {
    for code in session.codes().iter().flatten() {
        let unknowable = code.unknowable();
        let blocks = unknowable.iter().filter_map(|at| code.blocks.list().get(*at));
        let all: Vec<String> = blocks.map(|block| trace::path::offset(block.start, code.address)).collect();
        if all.is_empty() {
            continue;
        }
        let named = if log::log_enabled!(log::Level::Debug) { all.len() } else { NAMED.min(all.len()) };
        let more = if named < all.len() { ", … (-v names them)" } else { "" };
        say(format_args!(
            "btrace: {}: {} of its {} blocks cannot be probed; a path that may have come through one says so: {}{more}",
            code.name,
            all.len(),
            code.blocks.list().len(),
            all.get(..named).unwrap_or_default().join(", ")
        ));
    }
}

/// What a write tells of the end, if anything.
fn closed(written: anyhow::Result<Flow>) -> Option<End> {
    match written {
        Ok(Flow::Open) => None,
        Ok(Flow::Closed) => Some(End::OutputClosed),
        Ok(Flow::Stuck) => Some(End::OutputStuck),
        Err(error) => Some(End::OutputFailed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_expressions_reasons_are_alike_whatever_the_target() {
        let reason = "--filter-arg: vfs_open has no 'count'; its arguments are path, file";
        assert_eq!(general("vfs_open", reason), "--filter-arg: it has no 'count'");
        assert_eq!(general("f", "fexit: no; f"), "fexit: no; f");
    }

    #[test]
    fn the_most_frequent_reasons_are_said() {
        assert_eq!(frequent(["b", "a", "b"].into_iter()), "2: b; 1: a");
        assert_eq!(
            frequent("zzzyyxwv".split("").filter(|s| !s.is_empty())),
            "3: z; 2: y; 1: v; 2: other reasons"
        );
        assert_eq!(frequent(std::iter::empty()), "");
    }
}
