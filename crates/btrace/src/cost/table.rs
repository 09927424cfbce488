//! What was found, as a table or as JSON, and what it comes to.

use super::branches::Taken;
use super::depth::{Frame, Path};
use crate::words::count;
use serde_json::{Value, json};
use std::fmt::Write;
use trace::Way;

/// What a way costs.
#[derive(Clone, Debug)]
pub struct Cost {
    /// The calls on the way, or why they are not known.
    pub path: Result<Path, String>,
    /// The branches on the way, or why they are not known; without words where [`Table::unrecorded`] says it.
    pub branches: Result<Taken, String>,
    /// What a hit takes in addition: least, what counts, most.
    pub per_hit: (f64, f64, f64),
    /// Runs of a program that looked, for what the driver did.
    pub hits: u64,
    /// Runs for others meanwhile.
    pub others: u64,
}

impl Cost {
    /// Whether some round found the place faster with the program than without.
    fn is_lost(&self) -> bool {
        self.per_hit.0 <= 0.0
    }
}

/// Rounds that it takes for a spread to tell anything. (Instructions are counted, and a round takes the least of a hundred rows.)
pub const LEAST_ROUNDS: u32 = 3;

/// Nanoseconds of an act beside which a hit is lost.
const LONG: f64 = 1e6;

/// The column that a spread begins in.
const SPREAD: usize = 4;

/// Blanks between columns.
const GAP: &str = "  ";

/// A way, and what came of it.
#[derive(Clone, Debug)]
pub struct Row {
    pub way: Way,
    /// The function, where the target is a tracepoint in it.
    pub on: Option<String>,
    /// The costs, or why there are none.
    pub cost: Result<Cost, String>,
}

impl Row {
    /// Its cells: method, calls, branches, what a hit takes, and its spread in three.
    fn columns(&self) -> [String; 7] {
        let none = || "-".to_string();
        let Ok(cost) = &self.cost else {
            return [self.name(), none(), none(), none(), none(), String::new(), String::new()];
        };
        let (low, counts, high) = cost.per_hit;
        [
            self.name(),
            cost.path.as_ref().map_or_else(|_| none(), |path| path.depth().to_string()),
            cost.branches.as_ref().map_or_else(|_| none(), ToString::to_string),
            // A figure that the place without a program exceeds is none.
            if cost.is_lost() { "noise".into() } else { number(counts) },
            number(low),
            "to".into(),
            number(high),
        ]
    }

    fn name(&self) -> String {
        match &self.on {
            Some(function) => format!("{} on {function}", self.way),
            None => self.way.to_string(),
        }
    }
}

/// Everything found about a target.
pub struct Table {
    pub target: String,
    pub kind: String,
    /// The function that a tracepoint is in.
    pub function: Option<String>,
    /// What hit it.
    pub driver: String,
    /// How often it did so for [`Cost::hits`].
    pub acts: u64,
    /// What one such act takes without a program.
    pub bare: f64,
    pub exact: bool,
    pub rounds: u32,
    /// Why no branches were recorded.
    pub unrecorded: Option<String>,
    pub rows: Vec<Row>,
}

impl Table {
    fn unit(&self) -> &'static str {
        if self.exact { "instructions" } else { "ns" }
    }

    /// The table and what is below it. `verbose`: with the frames on each way.
    pub fn text(&self, verbose: bool) -> String {
        let mut out = String::new();
        let inside = self.function.as_ref().map_or(String::new(), |f| format!(" in {f}"));
        let _ = writeln!(
            out,
            "{} {}{inside}, hit by {}: {} {} without a program\n",
            self.kind,
            self.target,
            self.driver,
            number(self.bare),
            self.unit()
        );
        let header = [
            "METHOD",
            "CALLS",
            "BRANCHES",
            if self.exact { "INSNS/HIT" } else { "NS/HIT" },
            "SPREAD",
            "",
            "",
        ];
        let rows: Vec<[String; 7]> = self.rows.iter().map(Row::columns).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            // What stands above the spread is above all of it.
            let title = header.get(column).filter(|_| column < SPREAD).map_or(0, |title| title.len());
            cells.max().unwrap_or(0).max(title)
        };
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let header = header.map(String::from);
        for (at, cells) in std::iter::once(&header).chain(&rows).enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let gap = match column {
                    0 => "",
                    // `LOW to HIGH`
                    SPREAD.. if column > SPREAD => " ",
                    _ => GAP,
                };
                // Names and the spread's title begin where their column does.
                let left = column == 0 || (at == 0 && column >= SPREAD);
                let _ = match left {
                    true => write!(line, "{gap}{cell:<width$}"),
                    false => write!(line, "{gap}{cell:>width$}"),
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
            let path =
                at.checked_sub(1).and_then(|row| self.rows.get(row)?.cost.as_ref().ok()?.path.as_ref().ok());
            if let (true, Some(path)) = (verbose, path) {
                for (frame, jumped) in path.whole() {
                    let jumped = if jumped { "  (jumps on: no call, no frame)" } else { "" };
                    let _ = writeln!(out, "    {}{jumped}", shown(frame));
                }
            }
        }
        out.push('\n');
        for line in self.remarks() {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(out, "{}", self.recommendation());
        out
    }

    /// What is to be said below the table, each thing once.
    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        let mut add = |reason: &str, row: &Row| match reasons.iter_mut().find(|(r, _)| r == reason) {
            Some((_, names)) => names.push(row.name()),
            None => reasons.push((reason.to_string(), vec![row.name()])),
        };
        for row in &self.rows {
            match &row.cost {
                Err(reason) => add(reason, row),
                Ok(cost) => {
                    if let Err(reason) = &cost.path {
                        add(&format!("calls unknown: {reason}"), row);
                    }
                    if let Some(reason) = cost.branches.as_ref().err().filter(|reason| !reason.is_empty()) {
                        add(&format!("branches unknown: {reason}"), row);
                    }
                }
            }
        }
        lines.extend(reasons.into_iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))));
        if let Some(reason) = &self.unrecorded {
            lines.push(format!("branches: {reason}"));
        }
        let costs: Vec<&Cost> = self.rows.iter().filter_map(|r| r.cost.as_ref().ok()).collect();
        if costs.iter().any(|cost| cost.is_lost()) {
            let why = match self.exact {
                true => "what hits the place takes another way from time to time; more --rounds help",
                false if self.bare > LONG => {
                    "what hits the place takes far longer than a hit, and not always as long; a -c that hits it many times helps"
                }
                false => "the machine is busy; more --rounds, or a quieter time, help",
            };
            lines.push(format!("noise: the spread reaches below nothing: {why}"));
        }
        let hits: Vec<u64> =
            self.rows.iter().filter_map(|r| Some(r.cost.as_ref().ok()?.hits / r.way.runs())).collect();
        let (least, most) =
            (hits.iter().min().copied().unwrap_or(0), hits.iter().max().copied().unwrap_or(0));
        let counted = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let others: u64 = costs.iter().map(|c| c.others).max().unwrap_or(0);
        let others = match others {
            0 => String::new(),
            others => format!(", and up to {others} by others meanwhile"),
        };
        if !hits.is_empty() {
            lines.push(format!("hits: {counted} counted for {}{others}", count(self.acts, "time")));
        }
        lines
    }

    /// The cheapest at the place; of such as cannot be told apart, the first. Where the times are lost in the noise, the one
    /// with the fewest calls.
    fn best(&self, wanted: impl Fn(&Row) -> bool) -> Option<(&Row, &Cost)> {
        let costs = || {
            self.rows.iter().filter(|row| wanted(row)).filter_map(|row| Some((row, row.cost.as_ref().ok()?)))
        };
        if costs().any(|(_, cost)| cost.is_lost()) {
            return costs().min_by_key(|(_, cost)| cost.path.as_ref().map_or(usize::MAX, Path::depth));
        }
        let (_, least) = costs().min_by(|a, b| a.1.per_hit.1.total_cmp(&b.1.per_hit.1))?;
        // Instructions are exact; times of a busy machine are not.
        let bound =
            if self.exact { least.per_hit.1 * 1.02 } else { (least.per_hit.1 * 1.15).max(least.per_hit.2) };
        costs().find(|(_, cost)| cost.per_hit.1 <= bound)
    }

    fn has_too_few_rounds(&self) -> bool {
        !self.exact && self.rounds < LEAST_ROUNDS
    }

    /// One line, as one friend to another.
    pub fn recommendation(&self) -> String {
        let told = |row: &Row, cost: &Cost| {
            let calls = cost.path.as_ref().map_or(String::new(), |p| count(p.depth() as u64, "call") + ", ");
            match cost.is_lost() {
                true => format!("{} ({calls}its time lost in the noise)", row.name()),
                false => format!("{} ({calls}{} {} a hit)", row.name(), number(cost.per_hit.1), self.unit()),
            }
        };
        let at_entry = |row: &Row| !row.way.sees_return();
        if self.has_too_few_rounds() && self.rows.iter().any(|row| row.cost.is_ok()) {
            let rounds = if self.rounds == 1 { "1 round shows" } else { "2 rounds show" };
            return format!(
                "recommended: nothing yet, {rounds} no spread by which times could be told apart; --rounds {LEAST_ROUNDS} or more"
            );
        }
        let Some((first, cost)) = self.best(at_entry).or_else(|| self.best(|_| true)) else {
            return "recommended: nothing, this kernel offers no way".into();
        };
        let mut line = format!("recommended: {}", told(first, cost));
        if first.on.is_some()
            && let Some((own, cost)) = self.best(|row| row.on.is_none())
        {
            let _ = write!(line, "; at the tracepoint itself {}", told(own, cost));
        }
        if at_entry(first)
            && let Some((last, cost)) = self.best(|row| row.way.sees_return())
        {
            let _ = write!(line, "; for the return {}", told(last, cost));
        }
        let dearest = self
            .rows
            .iter()
            .filter(|row| at_entry(row) == at_entry(first))
            .filter_map(|row| Some((row, row.cost.as_ref().ok()?)))
            .max_by(|a, b| a.1.per_hit.1.total_cmp(&b.1.per_hit.1));
        if let Some((row, most)) = dearest
            && !cost.is_lost()
            && !most.is_lost()
            && most.per_hit.1 > cost.per_hit.1 * 1.2
        {
            let _ =
                write!(line, "; {} takes {:.1} times as much", row.name(), most.per_hit.1 / cost.per_hit.1);
        }
        line
    }

    /// One object.
    pub fn json(&self) -> Value {
        let methods: Vec<Value> = self
            .rows
            .iter()
            .map(|row| match &row.cost {
                Ok(cost) => {
                    let (low, counts, high) = cost.per_hit;
                    let frames = cost.path.as_ref().ok().map(|path| {
                        path.whole().map(frame).collect::<Vec<Value>>()
                    });
                    json!({
                        "method": row.way.to_string(), "on": row.on, "offered": true,
                        "calls": cost.path.as_ref().ok().map(Path::depth), "frames": frames,
                        "branches": cost.branches.as_ref().ok().filter(|b| b.whole).map(|b| b.count),
                        "branches_at_least": cost.branches.as_ref().ok().map(|b| b.count), "per_hit": rounded(counts),
                        "least": rounded(low), "most": rounded(high), "hits": cost.hits, "other_hits": cost.others,
                    })
                }
                Err(reason) => {
                    json!({ "method": row.way.to_string(), "on": row.on, "offered": false, "reason": reason })
                }
            })
            .collect();
        json!({
            "target": self.target, "kind": self.kind, "function": self.function, "driver": self.driver,
            "acts": self.acts, "unit": self.unit(), "bare": rounded(self.bare), "rounds": self.rounds, "methods": methods,
            "remarks": self.remarks(), "recommendation": self.recommendation(),
        })
    }
}

fn frame((frame, jumped): (&Frame, bool)) -> Value {
    let mut value = json!({
        "address": format!("{:#x}", frame.address), "name": frame.name, "offset": frame.offset, "module": frame.module,
    });
    if jumped && let Some(members) = value.as_object_mut() {
        members.insert("jumped".into(), true.into());
    }
    value
}

fn shown(frame: &Frame) -> String {
    let module = frame.module.as_ref().map_or(String::new(), |m| format!(" [{m}]"));
    match &frame.name {
        Some(name) => format!("{:#x}:{name}+{:#x}{module}", frame.address, frame.offset),
        None => format!("{:#x}", frame.address),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn number(value: f64) -> String {
    if value.abs() < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, on: Option<&str>, per_hit: f64, calls: usize) -> Row {
        let from = Frame { address: 1, name: Some("f".into()), offset: 5, module: None };
        let path = Ok(Path { frames: vec![from.clone(); calls], from: Some(from), jumped: Vec::new() });
        let branches = Err(String::new());
        let cost = Cost { path, branches, per_hit: (per_hit, per_hit, per_hit), hits: 10, others: 0 };
        Row { way, on: on.map(String::from), cost: Ok(cost) }
    }

    fn table(exact: bool, rows: Vec<Row>) -> Table {
        Table {
            target: "f".into(),
            kind: "kernel function".into(),
            function: None,
            driver: "a call".into(),
            acts: 10,
            bare: 100.0,
            exact,
            rounds: 7,
            unrecorded: Some("none".into()),
            rows,
        }
    }

    #[test]
    fn a_function_is_recommended_an_entry_and_a_return() {
        let rows = vec![
            row(Way::Fentry, None, 137.0, 2),
            row(Way::Fexit, None, 160.0, 2),
            row(Way::Kprobe, None, 500.0, 6),
        ];
        assert_eq!(
            table(true, rows).recommendation(),
            "recommended: fentry (2 calls, 137.0 instructions a hit); for the return fexit (2 calls, 160.0 instructions a \
             hit); kprobe takes 3.6 times as much"
        );
    }

    #[test]
    fn of_ways_that_cost_alike_the_typed_one_is_recommended() {
        let rows = vec![row(Way::TpBtf, None, 42.0, 3), row(Way::RawTp, None, 40.0, 3)];
        assert!(
            table(false, rows.clone()).recommendation().starts_with("recommended: tp_btf (3 calls, 42.0 ns")
        );
        assert!(table(true, rows).recommendation().starts_with("recommended: raw_tp"));
    }

    #[test]
    fn a_tracepoints_function_may_be_cheaper_than_itself() {
        let rows = vec![row(Way::TpBtf, None, 60.0, 3), row(Way::Fentry, Some("g"), 30.0, 2)];
        let line = table(true, rows).recommendation();
        assert!(line.starts_with("recommended: fentry on g (2 calls, 30.0"), "{line}");
        assert!(line.contains("; at the tracepoint itself tp_btf ("), "{line}");
    }

    #[test]
    fn what_is_lost_in_the_noise_is_not_recommended_by_its_time() {
        let mut lost = row(Way::Kprobe, None, 10.0, 5);
        if let Ok(cost) = &mut lost.cost {
            cost.per_hit.0 = -3.0;
        }
        let line = table(false, vec![lost, row(Way::Fentry, None, 40.0, 2)]).recommendation();
        assert_eq!(line, "recommended: fentry (2 calls, 40.0 ns a hit)");
    }

    #[test]
    fn too_few_rounds_recommend_nothing() {
        let rows = vec![row(Way::TpBtf, None, 42.0, 3), row(Way::RawTp, None, 40.0, 3)];
        let line = |rounds, exact| Table { rounds, ..table(exact, rows.clone()) }.recommendation();
        assert!(line(1, false).starts_with("recommended: nothing yet, 1 round shows no spread"));
        assert!(line(2, false).starts_with("recommended: nothing yet, 2 rounds show no spread"));
        assert!(line(2, false).ends_with("; --rounds 3 or more"));
        assert!(line(3, false).starts_with("recommended: tp_btf ("));
        assert!(line(1, true).starts_with("recommended: raw_tp ("), "instructions have no spread");
    }

    #[test]
    fn columns_stay_columns_and_what_is_noise_is_no_figure() {
        let mut outlier = row(Way::KretprobeMulti, Some("tcp_v4_rcv"), -15_568_906.0, 12);
        if let Ok(cost) = &mut outlier.cost {
            cost.per_hit = (-15_568_906.0, -12.0, 1_234_567_890.0);
        }
        let refused = Row { way: Way::Fsession, on: None, cost: Err("not here".into()) };
        let mut table = table(false, vec![row(Way::Fentry, None, 40.0, 2), outlier, refused]);
        table.bare = 16e6;
        let text = table.text(false);
        let wanted = "METHOD                         CALLS  BRANCHES  NS/HIT  SPREAD\n\
                      fentry                             2         -    40.0       40.0 to       40.0\n\
                      kretprobe_multi on tcp_v4_rcv     12         -   noise  -15568906 to 1234567890\n\
                      fsession                           -         -       -          -\n\n";
        assert!(text.contains(wanted), "{text}");
        assert!(
            text.contains("\nnoise: the spread reaches below nothing: what hits the place takes far longer"),
            "{text}"
        );
    }

    #[test]
    fn what_is_refused_is_listed_with_the_reason_once() {
        let refused = |way| Row { way, on: None, cost: Err("refused with EPERM".into()) };
        let rows = vec![refused(Way::Fentry), refused(Way::Fexit)];
        let text = table(false, rows).text(false);
        assert!(text.contains("\nfentry, fexit: refused with EPERM\n"), "{text}");
        assert!(text.contains("\nfentry      -"), "{text}");
        assert!(text.ends_with("recommended: nothing, this kernel offers no way\n"), "{text}");
    }
}
