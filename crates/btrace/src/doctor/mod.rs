//! `btrace doctor`: what this kernel can and cannot do for us, and what would change it. Nothing is mounted, attached for
//! longer than a moment, or changed.

mod facts;
pub mod system;

use crate::cli::DoctorArgs;
use crate::list::print;
use facts::{Finding, State};
use serde_json::{Value, json};
use std::io::Write;

/// What the findings come to for the user.
struct Verdict {
    /// Each option, and why it does not work here if so.
    works: Vec<(&'static str, Result<(), String>)>,
}

impl Verdict {
    fn can(&self, option: &str) -> bool {
        self.works.iter().any(|(name, works)| *name == option && works.is_ok())
    }

    /// Whether anything can be traced.
    fn any(&self) -> bool {
        ["-k", "-p", "-t"].iter().any(|option| self.can(option))
    }

    /// One sentence for each half.
    fn lines(&self) -> Vec<String> {
        let working: Vec<&str> =
            self.works.iter().filter(|(_, w)| w.is_ok()).map(|(name, _)| *name).collect();
        let mut lines = vec![match (self.any(), working.is_empty()) {
            (true, _) => format!("btrace works here with {}.", working.join(", ")),
            (false, _) => "btrace can trace nothing here.".to_string(),
        }];
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, works) in &self.works {
            let Err(reason) = works else { continue };
            match reasons.iter_mut().find(|(r, _)| r == reason) {
                Some((_, names)) => names.push(name),
                None => reasons.push((reason, vec![name])),
            }
        }
        lines.extend(
            reasons.into_iter().map(|(reason, names)| format!("Not with {}: {reason}.", names.join(", "))),
        );
        lines
    }
}

/// Asks, prints, and says whether anything can be traced.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<bool> {
    let (findings, verdict) = facts::ask();
    let mut out = Vec::new();
    if args.json {
        serde_json::to_writer(&mut out, &as_json(&findings, &verdict))?;
        out.push(b'\n');
    } else {
        text(&findings, &verdict, &mut out)?;
    }
    print(&out)?;
    Ok(verdict.any())
}

fn text(findings: &[Finding], verdict: &Verdict, out: &mut Vec<u8>) -> std::io::Result<()> {
    let widest = findings.iter().map(|f| f.what.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for finding in findings {
        if finding.group != group {
            if !group.is_empty() {
                writeln!(out)?;
            }
            group = finding.group;
            writeln!(out, "{group}")?;
        }
        write!(out, "{:<2} {:<widest$}  {}", finding.state.word(), finding.what, finding.found)?;
        if let Some(remedy) = &finding.remedy {
            write!(out, "; {remedy}")?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    for line in verdict.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn as_json(findings: &[Finding], verdict: &Verdict) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|f| {
            json!({
                "group": f.group, "what": f.what, "state": f.state.name(), "found": f.found, "remedy": f.remedy,
            })
        })
        .collect();
    let works: serde_json::Map<String, Value> =
        verdict.works.iter().map(|(name, works)| ((*name).to_string(), works.is_ok().into())).collect();
    json!({ "findings": findings, "works": works, "summary": verdict.lines().join(" ") })
}

impl State {
    /// As the text shows it.
    fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::No => "no",
            State::Unknown => "?",
        }
    }

    /// As JSON has it.
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::No => "no",
            State::Unknown => "unknown",
        }
    }
}
