//! `btrace cost`: what each way of tracing a place costs.
//!
//! Each way is first attached with a program that looks (how often the driver hits the place, and what stack the program is
//! on), then, round after round, with one that does nothing, beside the bare place. Whatever ends us, links end with us.

mod branches;
mod depth;
mod drive;
mod measure;
mod table;

use crate::disassemble;
use crate::list::print;
use crate::run::Reported;
use anyhow::{Context, bail};
use btrace::cli::{Args, CostArgs};
use btrace::logging::say;
use clap::Parser;
use depth::{Frame, Path};
use drive::Driver;
use measure::Measuring;
use table::{Cost, Row, Table};
use trace::{Kernel, Target, TargetKind, Way, Ways};

/// Times that the driver acts for the programs that look, at most.
const MOST_LOOKED_AT: u64 = 500;

/// A way that the kernel offers, on its way to a row.
struct Offered {
    row: usize,
    way: Way,
    /// On the function that the tracepoint is in.
    on_function: bool,
    path: Result<Path, String>,
    hits: u64,
    others: u64,
    bare: Vec<f64>,
    added: Vec<f64>,
}

/// Measures, and prints.
pub fn run(args: &CostArgs) -> anyhow::Result<()> {
    let (kind, name) = match (&args.kfunc, &args.tracepoint, &args.target) {
        (Some(name), ..) => (Some(TargetKind::Function), name),
        (_, Some(name), _) => (Some(TargetKind::Tracepoint), name),
        (.., Some(name)) => (None, name),
        _ => bail!("name a function or a tracepoint (btrace cost --help)"),
    };
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
    bpf::raise_limits();
    let ways = Ways::new(&kernel, &target)?;
    let measuring = Measuring::new(&mut driver, args.rounds, args.exact)?;
    let mut look = Look {
        args,
        acts: if driver.ours { measuring.count.min(MOST_LOOKED_AT) } else { 1 },
        tgid: if driver.ours { trace::own_tgid()? } else { 0 },
        symbols: None,
    };

    let mut rows = Vec::new();
    let mut offered = Vec::new();
    let own_ways: &[Way] =
        if target.kind == TargetKind::Tracepoint { &Way::OF_TRACEPOINT } else { &Way::OF_FUNCTION };
    look.all(&ways, &target, own_ways, None, &mut driver, &mut rows, &mut offered)?;
    if offered.is_empty() {
        bail!("{}: {}", target.label(), first_reason(&rows));
    }
    let counts = |o: &Offered| o.hits / o.way.runs();
    let Some(hits) = offered.iter().map(counts).max().filter(|hits| *hits > 0) else {
        bail!("{}: not hit by {}; name a command that hits it with -c", target.label(), driver.what);
    };
    // A function that is entered as often as its tracepoint is hit is as good a place.
    let function = match target.kind {
        TargetKind::Tracepoint => {
            offered.iter().find_map(|o| o.path.as_ref().ok()?.from.base().map(String::from))
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
            row.cost = Ok(Cost { path: one.path, per_hit, hits: one.hits, others: one.others });
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
        branches: branches::taken(),
        rows,
    };
    match args.json {
        true => print(format!("{}\n", table.json()).as_bytes()),
        false => print(table.text(args.verbose > 0).as_bytes()),
    }
}

fn first_reason(rows: &[Row]) -> String {
    let first = rows.iter().find_map(|row| Some((row.way, row.cost.as_ref().err()?)));
    first.map_or("no way to trace it".into(), |(way, reason)| format!("no way to trace it; {way}: {reason}"))
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
                Ok((path, hits, others)) => {
                    if let Some(same) = same.filter(|same| *same != hits) {
                        let reason = format!("{} is entered {hits} times for {same} hits", target.name);
                        rows.push(Row { way: *way, on, cost: Err(reason) });
                        continue;
                    }
                    rows.push(Row { way: *way, on, cost: Err(String::new()) });
                    offered.push(Offered {
                        row,
                        way: *way,
                        on_function: same.is_some(),
                        path,
                        hits,
                        others,
                        bare: Vec::new(),
                        added: Vec::new(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Looks from one way: the calls to it, the driver's hits, others' hits; or why the kernel does not offer it.
    #[expect(clippy::type_complexity, reason = "used once")]
    fn from(
        &mut self,
        ways: &Ways<'_>,
        target: &Target,
        way: Way,
        driver: &mut Driver,
    ) -> anyhow::Result<Result<(Result<Path, String>, u64, u64), String>> {
        let placed = match ways.looking(way, self.tgid) {
            Ok(placed) => placed,
            Err(refusal) => return Ok(Err(refusal.to_string())),
        };
        driver.run(self.acts)?;
        let sight = placed.sight()?;
        let path = match &sight.stack {
            _ if !ways.sees_itself(way) => {
                Err("this kernel lets such a program take no stack with itself on it".into())
            }
            Err(error) => Err(format!(
                "the stack was not taken: {}",
                btf::errno_name(error.unsigned_abs() as u32).unwrap_or("?")
            )),
            Ok(stack) => self.path(stack, target),
        };
        if self.args.disasm {
            self.disassemble(way, target, path.as_ref().ok())?;
        }
        drop(placed);
        Ok(Ok((path, sight.own, sight.hits.saturating_sub(sight.own))))
    }

    /// The calls on a stack that was taken just now.
    fn path(&mut self, stack: &[u64], target: &Target) -> Result<Path, String> {
        // Trampolines and programs are in kallsyms for as long as they are attached; reading it takes a while.
        let again = self.args.verbose > 0 || self.args.json || self.args.disasm;
        if again || self.symbols.is_none() {
            self.symbols = Some(symbols::Table::load().map_err(|error| error.to_string()));
        }
        let table = match &self.symbols {
            Some(Ok(table)) => table,
            Some(Err(error)) => return Err(error.clone()),
            None => return Err("the kernel's symbols were not read".into()),
        };
        let frames: Vec<Frame> = stack.iter().map(|a| Frame::of(*a, table.resolve(*a))).collect();
        let function = (target.kind == TargetKind::Function).then_some(target.name.as_str());
        depth::path(&frames, function).ok_or_else(|| "the stack breaks off on the way".into())
    }

    /// Shows the code on the way: the place that is patched, what is called from there to the program, and the program.
    fn disassemble(&self, way: Way, target: &Target, path: Option<&Path>) -> anyhow::Result<()> {
        let Some(path) = path else {
            say(format_args!(
                "btrace: {way}: no machine code is shown, for the calls on the way are unknown"
            ));
            return Ok(());
        };
        let mut names: Vec<String> = Vec::new();
        let mut add = |name: String| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        for frame in path.frames.iter().rev() {
            match &frame.name {
                Some(name) => add(name.clone()),
                // It has no name: what is before the call is shown in its caller's, what follows here.
                None => add(format!("{:#x}", frame.address)),
            }
        }
        if path.frames.iter().any(|f| f.name.as_deref().is_some_and(|n| n.starts_with("bpf_trampoline_"))) {
            let Some(Ok(table)) = &self.symbols else { return Ok(()) };
            // What a trampoline calls before the program has returned when the program runs.
            for name in ["__bpf_prog_enter_recur", "__bpf_prog_enter"] {
                if table.extents().any(|extent| extent.name == name) {
                    add(name.into());
                    break;
                }
            }
        }
        print(format!("# {way}\n").as_bytes())?;
        let site = match target.kind {
            TargetKind::Function => target.name.clone(),
            _ => format!(
                "{}+{:#x}",
                path.from.name.as_deref().unwrap_or("?"),
                path.from.offset.saturating_sub(5)
            ),
        };
        let listed = |flags: &[&str]| {
            let args = Args::try_parse_from(["btrace", "-d"].iter().chain(flags).copied())?;
            match disassemble::run(&args) {
                // Said already; the table comes all the same.
                Err(error) if error.is::<Reported>() => Ok(()),
                result => result,
            }
        };
        listed(&["-k", &site, "-B", "16"])?;
        listed(&["-k", &names.join(",")])
    }
}
