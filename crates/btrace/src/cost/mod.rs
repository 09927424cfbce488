//! `btrace cost`: what each way of tracing a place costs.
//!
//! Each way is first attached with a program that looks (how often the driver hits the place, and what stack the program is
//! on), then, round after round, with one that does nothing, beside the bare place. Whatever ends us, links end with us.

mod branches;
mod code;
mod depth;
mod drive;
mod measure;
mod table;

use crate::branch_records;
use crate::list::print;
use crate::privilege;
use crate::words::count;
use anyhow::{Context, bail};
use bpf::{BranchFilter, BranchRecords};
use branches::{Ends, Runs, Taken};
use btrace::cli::CostArgs;
use btrace::logging::say;
use btrace::render::is_thunk;
use depth::{Frame, Path};
use drive::Driver;
use measure::Measuring;
use symbols::Live;
use table::{Cost, Row, Table};
use trace::{Kernel, Sight, Snapshot, Target, TargetKind, Way, Ways};

/// Times that the driver acts for the programs that look: enough for branches to be counted more than once, and at most.
const LEAST_LOOKED_AT: u64 = 16;
const MOST_LOOKED_AT: u64 = 500;

/// A way that the kernel offers, on its way to a row.
struct Offered {
    row: usize,
    way: Way,
    /// On the function that the tracepoint is in.
    on_function: bool,
    seen: Seen,
    bare: Vec<f64>,
    added: Vec<f64>,
}

/// What the programs that look saw of a way.
struct Seen {
    path: Result<Path, String>,
    branches: Result<Taken, String>,
    hits: u64,
    others: u64,
}

/// Measures, and prints.
pub fn run(args: &CostArgs) -> anyhow::Result<()> {
    let (kind, name) = match (&args.kfunc, &args.tracepoint, &args.target) {
        (Some(name), ..) => (Some(TargetKind::Function), name),
        (_, Some(name), _) => (Some(TargetKind::Tracepoint), name),
        (.., Some(name)) => (None, name),
        _ => bail!("name a function or a tracepoint (btrace cost --help)"),
    };
    if args.command.as_deref().is_some_and(|command| command.trim().is_empty()) {
        bail!("-c: an empty command");
    }
    let kernel = Kernel::running()?;
    let target = trace::place(&kernel, kind, name)?;
    let mut driver = match &args.command {
        Some(command) => Driver::command(command),
        None => Driver::known(&target)?.with_context(|| {
            format!(
                "{}: btrace does not know what hits this {}; name a command that does with -c",
                target.label(),
                target.kind
            )
        })?,
    };
    privilege::check()?;
    bpf::raise_limits();
    bpf::interrupt_ends_us();
    let ways = Ways::new(&kernel, &target)?;
    let measuring = Measuring::new(&mut driver, args.rounds, args.exact)?;
    let mut look = Look {
        args,
        acts: if driver.ours { measuring.count.clamp(LEAST_LOOKED_AT, MOST_LOOKED_AT) } else { 1 },
        tgid: if driver.ours { trace::own_tgid()? } else { 0 },
        symbols: None,
        place: None,
        live: if args.verbose > 0 || args.json || args.disasm { Live::open().ok() } else { None },
        records: match ways.has_branch_records() {
            true => branch_records::record(BranchFilter::ANY).map_err(|error| format!("{error:#}")),
            false => {
                Err("this kernel gives BPF programs none (no bpf_get_branch_snapshot; since 5.16)".into())
            }
        },
    };

    let mut rows = Vec::new();
    let mut offered = Vec::new();
    let own_ways: &[Way] =
        if target.kind == TargetKind::Tracepoint { &Way::OF_TRACEPOINT } else { &Way::OF_FUNCTION };
    look.all(&ways, &target, own_ways, None, &mut driver, &mut rows, &mut offered)?;
    if offered.is_empty() {
        bail!("{}: {}", target.label(), no_way(&rows));
    }
    let counts = |o: &Offered| o.seen.hits / o.way.runs();
    let Some(hits) = offered.iter().map(counts).max().filter(|hits| *hits > 0) else {
        bail!("{}: not hit by {}; name a command that hits it with -c", target.label(), driver.what);
    };
    // A function that is entered as often as its tracepoint is hit is as good a place.
    let function = match target.kind {
        TargetKind::Tracepoint => {
            offered.iter().find_map(|o| o.seen.path.as_ref().ok()?.from.as_ref()?.base().map(String::from))
        }
        _ => None,
    };
    let around =
        function.as_deref().and_then(|name| trace::place(&kernel, Some(TargetKind::Function), name).ok());
    let around_ways = around.as_ref().map(|target| Ways::new(&kernel, target)).transpose()?;
    if let (Some(target), Some(ways)) = (&around, &around_ways) {
        let on = [Way::Fentry, Way::Kprobe];
        look.all(ways, target, &on, Some(hits), &mut driver, &mut rows, &mut offered)?;
    }

    // The times are those of a machine that records no branches.
    let unrecorded = std::mem::replace(&mut look.records, Ok(None)).err();
    for _ in 0..measuring.rounds {
        for one in &mut offered {
            let ways = match (&around_ways, one.on_function) {
                (Some(around), true) => around,
                _ => &ways,
            };
            let (bare, with) = measuring.round(&mut driver, ways, one.way)?;
            one.bare.push(bare);
            one.added.push(with - bare);
        }
    }
    let mut all_bare: Vec<f64> = offered.iter().flat_map(|o| o.bare.iter().copied()).collect();
    let acts = look.acts;
    for mut one in offered {
        let each = counts(&one) as f64 / acts as f64;
        let mut added: Vec<f64> = one.added.iter().map(|added| added / each).collect();
        let per_hit = match measuring.exact {
            // The least with a program less the least without: both are free of interrupts.
            true => {
                let mut with: Vec<f64> = one.bare.iter().zip(&one.added).map(|(b, a)| b + a).collect();
                let least = (measuring.of(&mut with).1 - measuring.of(&mut one.bare).1) / each;
                let (low, _, high) = measuring.of(&mut added);
                (low.min(least), least, high.max(least))
            }
            false => measuring.of(&mut added),
        };
        if let Some(row) = rows.get_mut(one.row) {
            let Seen { path, branches, hits, others } = one.seen;
            row.cost = Ok(Cost { path, branches, per_hit, hits, others });
        }
    }
    let table = Table {
        target: target.label(),
        kind: target.kind.to_string(),
        function,
        driver: driver.what,
        acts,
        bare: measuring.of(&mut all_bare).1,
        exact: args.exact,
        rounds: args.rounds,
        unrecorded,
        rows,
    };
    match args.json {
        true => print(format!("{}\n", table.json()).as_bytes()),
        false => print(table.text(args.verbose > 0).as_bytes()),
    }
}

/// Why there is no way to trace it: by the way that is preferred and, where it is another reason, by a kprobe.
fn no_way(rows: &[Row]) -> String {
    let mut said = "no way to trace it".to_string();
    let mut known: Option<&String> = None;
    let first = rows.first().map(|row| row.way);
    for row in rows.iter().filter(|row| Some(row.way) == first || row.way == Way::Kprobe) {
        let Err(reason) = &row.cost else { continue };
        if known.is_none_or(|known| known != reason) {
            said += &format!("; {}: {reason}", row.way);
            known = Some(reason);
        }
    }
    said
}

/// The programs that look.
struct Look<'a> {
    args: &'a CostArgs,
    /// Times that the driver acts.
    acts: u64,
    /// Whose hits count.
    tgid: u32,
    /// Symbols read once, where no frames are to be named.
    symbols: Option<Result<symbols::Table, String>>,
    /// The kernel's code, where it is to be looked at.
    live: Option<Live>,
    /// Where the target is, of a tracepoint, as the first stack that leaves nothing out has it.
    place: Option<Frame>,
    /// Recording of branches under way, or why there is none.
    records: Result<Option<BranchRecords>, String>,
}

impl Look<'_> {
    /// Looks from each way. `same`: the ways are of a function around the target, which is hit so often.
    #[expect(clippy::too_many_arguments, reason = "rows and offers are filled side by side, for two places")]
    fn all(
        &mut self,
        ways: &Ways<'_>,
        target: &Target,
        which: &[Way],
        same: Option<u64>,
        driver: &mut Driver,
        rows: &mut Vec<Row>,
        offered: &mut Vec<Offered>,
    ) -> anyhow::Result<()> {
        for way in which {
            let on = same.map(|_| target.name.clone());
            let row = rows.len();
            match self.from(ways, target, *way, driver)? {
                Err(reason) => rows.push(Row { way: *way, on, cost: Err(reason) }),
                Ok(seen) => {
                    if let Some(same) = same.filter(|same| *same != seen.hits) {
                        let reason = format!(
                            "{} is entered {} for {}",
                            target.name,
                            count(seen.hits, "time"),
                            count(same, "hit")
                        );
                        rows.push(Row { way: *way, on, cost: Err(reason) });
                        continue;
                    }
                    rows.push(Row { way: *way, on, cost: Err(String::new()) });
                    offered.push(Offered {
                        row,
                        way: *way,
                        on_function: same.is_some(),
                        seen,
                        bare: Vec::new(),
                        added: Vec::new(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Looks from one way; or why the kernel does not offer it.
    fn from(
        &mut self,
        ways: &Ways<'_>,
        target: &Target,
        way: Way,
        driver: &mut Driver,
    ) -> anyhow::Result<Result<Seen, String>> {
        let placed = match ways.looking(way, self.tgid) {
            Ok(placed) => placed,
            Err(refusal) => return Ok(Err(refusal.to_string())),
        };
        driver.run(self.acts)?;
        let sight = placed.sight()?;
        let path = match &sight.stack {
            Err(error) => Err(error.to_string()),
            Ok(stack) => self.path(stack, &sight, target),
        };
        if self.args.disasm {
            self.disassemble(ways, way, target, path.as_ref().ok())?;
        }
        drop(placed);
        let branches = match &self.records {
            // Said once, of all ways.
            Err(_) => Err(String::new()),
            Ok(_) => self.branches(ways, target, way, path.as_ref().ok(), driver)?,
        };
        let others = sight.hits.saturating_sub(sight.own);
        Ok(Ok(Seen { path, branches, hits: sight.own, others }))
    }

    /// The branches on the way, from records that a program takes.
    fn branches(
        &self,
        ways: &Ways<'_>,
        target: &Target,
        way: Way,
        path: Option<&Path>,
        driver: &mut Driver,
    ) -> anyhow::Result<Result<Taken, String>> {
        let Some(path) = path else { return Ok(Err("the calls on the way are unknown".into())) };
        let Some(Ok(table)) = &self.symbols else {
            return Ok(Err("the kernel's symbols were not read".into()));
        };
        let placed = match ways.branching(way) {
            Ok(placed) => placed,
            Err(refusal) => return Ok(Err(refusal.to_string())),
        };
        driver.run(self.acts)?;
        let Some(program) = placed.code()? else {
            let hidden = symbols::Hidden::here();
            return Ok(Err(format!(
                "the kernel does not show where programs are ({}): {}",
                hidden.cause(),
                hidden.remedy()
            )));
        };
        let place = match target.kind {
            // The compiler's copies too; the function's own frame may be gone already.
            TargetKind::Function => table
                .extents()
                .filter(|e| e.name.split('.').next() == Some(target.name.as_str()))
                .filter(|e| target.module.is_none() || target.module.as_deref() == e.module)
                .filter_map(|e| Some(e.address..e.end?))
                .collect(),
            _ => path
                .from
                .as_ref()
                .and_then(|from| table.extent(from.address))
                .and_then(|e| Some(e.address..e.end?))
                .into_iter()
                .collect(),
        };
        let runs = match (way.runs(), way.sees_return()) {
            (2.., _) => Runs::Both,
            (_, true) => Runs::Return,
            (_, false) => Runs::Entry,
        };
        let ends = Ends { place, program, runs };
        let thunk = |address| table.resolve(address).is_some_and(|s| is_thunk(s.name));
        let (mut taken, mut fault) = (Vec::new(), None);
        for records in placed.records(self.tgid)? {
            match records.snapshot() {
                Snapshot::Fault(error) => fault = Some(error),
                Snapshot::Taken(branches) => {
                    let ends_of: Vec<_> = branches.map(|b| (b.from, b.to)).collect();
                    taken.extend(ends.taken(&ends_of, thunk));
                }
            }
        }
        Ok(branches::most_often(taken.into_iter()).ok_or_else(|| match fault {
            Some(error) => format!(
                "the kernel gave no branch records: {}",
                btf::errno_name(error.unsigned_abs()).unwrap_or("?")
            ),
            None => "no record shows how the program was come to".into(),
        }))
    }

    /// The calls on a stack that was taken just now.
    fn path(&mut self, stack: &[u64], sight: &Sight, target: &Target) -> Result<Path, String> {
        // Trampolines and programs are in kallsyms for as long as they are attached; reading it takes a while. Without being in it they
        // are known by having no name.
        let named = self.args.verbose > 0 || self.args.json || self.args.disasm;
        if named || sight.watched || self.symbols.is_none() {
            self.symbols = Some(symbols::Table::load().map_err(|error| error.to_string()));
        }
        let table = match &self.symbols {
            Some(Ok(table)) => table,
            Some(Err(error)) => return Err(error.clone()),
            None => return Err("the kernel's symbols were not read".into()),
        };
        let frames: Vec<Frame> = stack.iter().map(|a| Frame::of(*a, table.resolve(*a))).collect();
        let function = (target.kind == TargetKind::Function).then_some(target.name.as_str());
        let frames = match sight.watched {
            true => depth::watched(&frames, trace::WATCHED)
                .ok_or("the kernel's symbols do not have the program that takes the stack (net.core.bpf_jit_kallsyms)")?,
            false => &frames,
        };
        let mut path = depth::path(frames, function)?;
        if target.kind == TargetKind::Tracepoint {
            match &self.place {
                None if !sight.without_scheduler => self.place.clone_from(&path.from),
                Some(place)
                    if sight.without_scheduler
                        && path.from.as_ref().and_then(Frame::base) != place.base()
                        && is_of_the_scheduler(place.address) =>
                {
                    path.from = Some(place.clone());
                }
                _ => {}
            }
        }
        if let (true, Some(live)) = (named, &self.live) {
            // The traced function's frame may be gone, or left out: then the call before is that of the function.
            let gone = function.is_some() && path.from.as_ref().and_then(Frame::base) != function;
            let read = |address, len| live.read(address, len).ok();
            path.jumped = code::jumped(&path, table, gone, read);
        }
        Ok(path)
    }

    /// Shows the code on the way.
    fn disassemble(
        &self,
        ways: &Ways<'_>,
        way: Way,
        target: &Target,
        path: Option<&Path>,
    ) -> anyhow::Result<()> {
        let (Some(path), Some(Ok(table))) = (path, &self.symbols) else {
            say(format_args!(
                "btrace: {way}: no machine code is shown, for the calls on the way are unknown"
            ));
            return Ok(());
        };
        // The code of the program that looks tells nothing of the way: one that does nothing stands for any.
        let empty = ways.empty_unattached(way).map_err(|refusal| anyhow::anyhow!("{way}: {refusal}"))?;
        code::show(way, target, path, table, self.live.as_ref(), empty.code()?)
    }
}

/// Whether code is of those functions that the kernel leaves out of a task's stack (`in_sched_functions`).
fn is_of_the_scheduler(address: u64) -> bool {
    let edge = |name| symbols::find(name).ok().and_then(|found| found.first().map(|symbol| symbol.address));
    edge("__sched_text_start")
        .zip(edge("__sched_text_end"))
        .is_some_and(|(from, to)| (from..to).contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_there_is_no_way_has_a_reason_for_each_kind() {
        let row = |way, reason: &str| Row { way, on: None, cost: Err(reason.into()) };
        let rows = [row(Way::Fentry, "notrace"), row(Way::Fexit, "notrace"), row(Way::Kprobe, "not allowed")];
        assert_eq!(no_way(&rows), "no way to trace it; fentry: notrace; kprobe: not allowed");
        assert_eq!(no_way(&[row(Way::TpBtf, "refused")]), "no way to trace it; tp_btf: refused");
        assert_eq!(
            no_way(&[row(Way::Fentry, "refused"), row(Way::Kprobe, "refused")]),
            "no way to trace it; fentry: refused"
        );
    }
}
