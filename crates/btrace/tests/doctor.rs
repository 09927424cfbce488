//! `btrace doctor` on the running kernel: whatever it grants, the answers agree with what a trace then does.

mod common;

use common::{btrace, text};
use serde_json::Value;

fn findings() -> (Value, Option<i32>) {
    let output = btrace(&["doctor", "--json"]);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).expect("one JSON object"), output.status.code())
}

#[test]
fn every_finding_has_a_state_and_what_is_not_there_a_reason() {
    let (all, _) = findings();
    let findings = all["findings"].as_array().expect("findings");
    assert!(findings.len() > 15, "{}", findings.len());
    for finding in findings {
        assert!(["ok", "no", "unknown"].contains(&finding["state"].as_str().expect("state")), "{finding}");
        assert!(finding["found"].as_str().is_some_and(|f| !f.is_empty()), "{finding}");
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
    assert!(findings[0]["found"].as_str().is_some_and(|f| f.contains(kernel.trim())), "{}", findings[0]);
}

#[test]
fn what_it_says_of_tracepoints_is_what_happens() {
    let (all, status) = findings();
    let works = all["works"]["-t"].as_bool().expect("-t");
    let any = ["-k", "-p", "-t"].iter().any(|o| all["works"][*o] == true);
    assert_eq!(status, Some(if any { 0 } else { 2 }));
    let traced = btrace(&["-t", "sched_process_exec", "-c", "true"]);
    // -c needs its own leave.
    if all["works"]["-c"] == true || !works {
        assert_eq!(traced.status.success(), works, "{}\n{}", text(&traced.stderr), all["summary"]);
    }
}

/// What it says of paths and branch records is what comes of them.
#[test]
fn what_it_says_of_paths_and_branches_is_what_happens() {
    let (all, _) = findings();
    for (flag, target) in
        [("--output-path", ["-k", "vfs_read"]), ("--output-lbr", ["-t", "sched_process_exec"])]
    {
        let works = all["works"][flag].as_bool().expect(flag);
        let traced = btrace(&[&target[..], &[flag, "-c", "true"]].concat());
        // -c needs its own leave.
        if all["works"]["-c"] == true || !works {
            assert_eq!(traced.status.success(), works, "{}\n{}", text(&traced.stderr), all["summary"]);
        }
    }
}

#[test]
fn the_text_says_the_same() {
    let output = btrace(&["doctor"]);
    let said = text(&output.stdout);
    let (all, _) = findings();
    let lines = said.lines().filter(|l| ["ok ", "no ", "?  "].iter().any(|s| l.starts_with(s))).count();
    assert_eq!(lines, all["findings"].as_array().map_or(0, Vec::len), "{said}");
    let last = said.lines().rev().find(|l| l.starts_with("btrace ")).expect("a verdict");
    assert!(all["summary"].as_str().is_some_and(|s| s.starts_with(last)), "{last}");
}
