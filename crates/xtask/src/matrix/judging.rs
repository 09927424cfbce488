//! What the checks have in common: how a run of btrace is read.

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::frames::Ran;

/// What kernels before 5.11 are said to lack.
pub(super) const NO_MODULE_TYPES: &str = "this kernel shows no types of modules";

/// A run that ended well, with nothing lost.
pub(super) fn no_loss(ran: &Ran) -> Result<()> {
    ensure!(ran.status == 0, "exit status {}", ran.status);
    let (printed, lost) = summary(ran)?;
    ensure!(lost == 0, "{lost} lost");
    let lines = ran.stdout.lines().count() as u64;
    ensure!(lines == printed, "{lines} lines, and {printed} said to be printed");
    Ok(())
}

/// Events printed and lost, from the summary line.
pub(super) fn summary(ran: &Ran) -> Result<(u64, u64)> {
    let line = ran.stderr.lines().rev().find(|l| l.contains(" printed, ")).context("no summary")?;
    let mut numbers = line.split_ascii_whitespace().filter_map(|w| w.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(printed), Some(lost)) => Ok((printed, lost)),
        _ => bail!("summary {line:?}"),
    }
}

/// How many calls at most were not seen, in everything that was said on stderr: `… up to N calls not seen: …`. None where
/// nothing is said of it; what is said without a number is an error, not none.
pub(super) fn unseen(said: &str) -> Result<u64> {
    let mut all = 0;
    for (at, _) in said.match_indices(" not seen: ") {
        let mut before = said[..at].rsplit(' ');
        let number =
            before.next().filter(|w| w.starts_with("call")).and_then(|_| before.next()?.parse::<u64>().ok());
        all += number.with_context(|| format!("how many were not seen: {said:?}"))?;
    }
    Ok(all)
}

/// The lines of events that begin like this, each with the frames under it.
pub(super) fn stacks<'a>(ran: &'a Ran, head: &str) -> Result<Vec<(&'a str, Vec<&'a str>)>> {
    let mut events: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut lines = ran.stdout.lines().peekable();
    while let Some(line) = lines.next() {
        if lines.next_if_eq(&"Func stack:").is_none() {
            continue;
        }
        let mut frames = Vec::new();
        while let Some(frame) =
            lines.next_if(|l| !l.contains(" args=(") && (l.contains("+0x") || l.starts_with("0x")))
        {
            frames.push(frame);
        }
        if line.starts_with(head) {
            ensure!(!frames.is_empty(), "no frames under {line}");
            events.push((line, frames));
        }
    }
    ensure!(!events.is_empty(), "no events with a stack");
    Ok(events)
}

/// A refusal: exit status 2, nothing on stdout, one line that says why.
pub(super) fn refused(ran: &Ran, why: &str) -> Result<()> {
    ensure!(ran.status == 2, "exit status {}", ran.status);
    ensure!(ran.stdout.is_empty(), "stdout {:?}", ran.stdout);
    ensure!(ran.stderr.lines().count() == 1 && ran.stderr.contains(why), "stderr {:?}", ran.stderr);
    Ok(())
}

pub(super) fn json(ran: &Ran) -> Result<Vec<Value>> {
    ran.stdout.lines().map(|l| serde_json::from_str(l).map_err(|e| anyhow!("{e}: {l}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::unseen;

    #[test]
    fn the_calls_that_were_not_seen_wherever_the_summary_says_so() {
        let why = "the probe was running on that CPU already, or the kernel had no room to keep the call";
        for (said, wanted) in [
            ("btrace: 12 events printed, 0 lost".to_string(), 0),
            (format!("btrace: 1232 events printed, 0 lost, up to 190 calls not seen: {why}"), 190),
            (
                format!(
                    "btrace: 1 event printed, 0 lost, 2 keys gathered from 1 event, up to 1 call not seen: {why}"
                ),
                1,
            ),
            (
                format!(
                    "first\nbtrace: 5 printed, 0 lost, up to 7 calls not seen: {why}\nbtrace: 6 printed, up to 8 calls not seen: {why}\n"
                ),
                15,
            ),
        ] {
            assert_eq!(unseen(&said).unwrap(), wanted, "{said}");
        }
        assert!(unseen(&format!("btrace: some calls not seen: {why}")).is_err());
    }
}
