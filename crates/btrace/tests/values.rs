//! What an event says of the objects behind pointers, on the running kernel: by tracepoints, which nearly every kernel
//! allows. The lab has the rest (`crates/xtask/src/matrix/values.rs`).

mod common;

use common::btrace;
use schema::Schema;
use serde_json::Value;

/// Events as JSON, each checked against the schema; `None`, the reason printed, where this machine does not let us
/// trace.
fn events(args: &[&str]) -> Option<Vec<Value>> {
    let output = btrace(&[args, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        assert!(said.contains("not permitted") || said.contains("no kernel type information"), "{said}");
        eprintln!("SKIP: this machine does not let us trace: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let schema = Schema::event().expect("schema");
    let events: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for event in &events {
        schema.check(event).unwrap_or_else(|e| panic!("{e}\n{event}"));
    }
    Some(events)
}

fn arg<'a>(event: &'a Value, name: &str) -> &'a Value {
    let args = event["args"].as_array().expect("args");
    args.iter().find(|a| a["name"] == name).unwrap_or_else(|| panic!("no {name}: {event}"))
}

#[test]
fn a_switch_has_both_tasks() {
    let Some(events) = events(&["-t", "sched_switch", "-c", "sleep 0.05; sleep 0.05"]) else { return };
    assert!(events.len() >= 2, "each sleep is switched away from: {}", events.len());
    for event in &events {
        // What is followed is the task that ran, and that is the one that is switched away from.
        let (prev, next) = (&arg(event, "prev")["pointee"], &arg(event, "next")["pointee"]);
        assert_eq!((&prev["tid"], &prev["pid"]), (&event["tid"], &event["pid"]), "{event}");
        assert_eq!(prev["comm"], event["comm"], "{event}");
        assert!(next["comm"].is_string() && next["tid"].is_u64() && next["tid"] != prev["tid"], "{event}");
    }
    assert!(events.iter().any(|e| e["comm"] == "sleep"));
}

#[test]
fn an_exec_has_its_task_and_file() {
    let Some(events) = events(&["-t", "sched_process_exec", "-c", "/bin/true; :"]) else { return };
    assert_eq!(events.len(), 1);
    assert_eq!(arg(&events[0], "bprm")["pointee"]["filename"], "/bin/true");
    assert_eq!(arg(&events[0], "p")["pointee"]["comm"], "true");
}

#[test]
fn timers_have_functions_with_symbols_where_the_kernel_shows_them() {
    let Some(events) =
        events(&["-t", "hrtimer_start", "--limit-events", "3", "-c", "sleep 0.01; sleep 0.01; sleep 0.01"])
    else {
        return;
    };
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let hidden = kallsyms.lines().all(|l| l.starts_with("0000000000000000"));
    assert_eq!(events.len(), 3);
    for event in events {
        let function = &arg(&event, "hrtimer")["pointee"]["function"];
        let address = function["value"].as_str().expect("address").trim_start_matches("0x");
        let symbol = kallsyms.lines().find(|l| l.starts_with(&format!("{address:0>16} ")));
        if hidden {
            assert!(function["symbol"].is_null(), "{function}");
        } else {
            assert_eq!(
                function["symbol"].as_str(),
                symbol.and_then(|s| s.split_whitespace().nth(2)),
                "{event}"
            );
        }
        assert!(arg(&event, "mode")["value"]["name"].as_str().expect("enum").starts_with("HRTIMER_MODE_"));
    }
}

#[test]
fn only_addresses_when_asked_for() {
    let args = ["-t", "sched_process_exec", "--no-pointees", "-c", "/bin/true; :"];
    let Some(events) = events(&args) else { return };
    assert!(arg(&events[0], "p")["pointee"].is_null() && arg(&events[0], "p")["value"].is_string());
}

#[test]
fn colour_is_there_when_asked_for_only() {
    let line = |color: &str| {
        let output = btrace(&["-t", "sched_process_exec", "--color", color, "-c", "/bin/true; :"]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, coloured) = line("always");
    if status == Some(2) {
        return eprintln!("SKIP: this machine does not let us trace");
    }
    assert!(
        coloured
            .starts_with("\x1b[1msched_process_exec\x1b[0m args=(\x1b[2m(struct task_struct *)p=\x1b[0m0x")
    );
    for when in ["auto", "never"] {
        let (_, plain) = line(when);
        assert!(
            !plain.contains('\x1b') && plain.starts_with("sched_process_exec args=(("),
            "{when}: {plain}"
        );
    }
    assert_eq!(line("sometimes").0, Some(2));
}
