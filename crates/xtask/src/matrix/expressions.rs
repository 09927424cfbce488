//! C expressions on real calls: filters, outputs and what is gathered, each held against what the workload did.

mod errors;
mod files;
mod many;
mod shapes;
mod sockets;
mod tallies;
mod targets;
mod words;

pub(super) use errors::CHECKS as ERRORS;
pub(super) use files::CHECKS as FILES;
pub(super) use many::CHECKS as MANY;
pub(super) use shapes::CHECKS as SHAPES;
pub(super) use sockets::CHECKS as SOCKETS;
pub(super) use tallies::CHECKS as TALLIES;
pub(super) use targets::CHECKS as TARGETS;
pub(super) use words::CHECKS as WORDS;

use anyhow::{Context, Result, anyhow, ensure};
use schema::Schema;
use serde_json::Value;

use super::Check;
use crate::frames::Ran;

/// One trace of a check's script: what `run` of the prelude prints.
struct Run {
    name: String,
    status: u8,
    /// Its summary, or the first line of what it said.
    said: String,
    events: Vec<Value>,
    tallies: Vec<Value>,
}

/// The traces of a script in order, and the lines that stand before the first. Each line of JSON is held against the schema.
fn runs(ran: &Ran) -> Result<(Vec<&str>, Vec<Run>)> {
    let schema = Schema::event().map_err(|e| anyhow!(e))?;
    let (mut before, mut runs) = (Vec::new(), Vec::<Run>::new());
    for line in ran.stdout.lines() {
        if let Some(head) = line.strip_prefix("== ") {
            let mut words = head.splitn(3, ' ');
            let mut word = || words.next().with_context(|| line.to_string());
            let (name, status) = (word()?.to_string(), word()?.parse()?);
            let said = word()?.to_string();
            runs.push(Run { name, status, said, events: Vec::new(), tallies: Vec::new() });
        } else if let Some(run) = runs.last_mut() {
            let value: Value = serde_json::from_str(line).with_context(|| line.to_string())?;
            schema.check(&value).map_err(|e| anyhow!("{e}: {line}"))?;
            if value["tally"].is_string() { &mut run.tallies } else { &mut run.events }.push(value);
        } else {
            before.push(line);
        }
    }
    ensure!(!runs.is_empty(), "no trace: {:?}", ran.stdout);
    Ok((before, runs))
}

impl Run {
    /// It ended well, lost nothing, and printed so many events, but for those that the kernel says it did not let us see.
    fn has(&self, events: usize) -> Result<()> {
        self.is_well()?;
        let (name, count) = (&self.name, self.events.len());
        let fine = count <= events && events <= count + self.unseen()?;
        ensure!(fine, "{name}: {count} events, not {events}: {:?}", self.events.first());
        Ok(())
    }

    /// Calls at most that no program was run for: on a busy machine one that was stopped on its way stands in the way of others.
    fn unseen(&self) -> Result<usize> {
        Ok(usize::try_from(super::judging::unseen(&self.said)?)?)
    }

    /// It ended well and lost nothing.
    fn is_well(&self) -> Result<()> {
        let (name, said) = (&self.name, &self.said);
        ensure!(self.status == 0, "{name}: exit status {}: {said}", self.status);
        ensure!(said.contains(" 0 lost"), "{name}: {said}");
        if said.contains(" printed, ") {
            let printed = format!(" {} event", self.events.len());
            ensure!(said.contains(&printed), "{name}: {said}, {} here", self.events.len());
        } else {
            ensure!(said.contains(" gathered from ") && self.events.is_empty(), "{name}: {said}");
        }
        Ok(())
    }

    /// How many events something was gathered from.
    fn gathered(&self) -> Option<u64> {
        self.said.split_once(" gathered from ")?.1.split(' ').next()?.parse().ok()
    }

    /// Each of its events shows these values.
    fn shows(&self, values: &[Value]) -> Result<()> {
        for event in &self.events {
            let seen: Vec<&Value> = outputs(event).iter().map(|o| &o["value"]).collect();
            ensure!(seen == values.iter().collect::<Vec<_>>(), "{}: {seen:?}, not {values:?}", self.name);
        }
        Ok(())
    }

    /// The tally of an expression.
    fn tally(&self, text: &str) -> Result<&Value> {
        let found = self.tallies.iter().rev().find(|t| t["tally"] == text);
        found.with_context(|| format!("{}: no tally of {text}", self.name))
    }
}

/// What an event shows of expressions.
fn outputs(event: &Value) -> &[Value] {
    event["out"].as_array().map_or(&[], Vec::as_slice)
}

/// The trace of that name.
fn named<'r>(runs: &'r [Run], name: &str) -> Result<&'r Run> {
    runs.iter().find(|r| r.name == name).with_context(|| format!("no trace {name}"))
}
