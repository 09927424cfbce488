//! `--output-lbr` on the running kernel and machine, which mostly has no hardware for it: then it must be refused well, and the
//! programs must be accepted all the same.

mod common;

use common::{btrace, stderr};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Runs btrace as the lab does, where something else answers for the hardware.
fn unopened(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_btrace"));
    command.args(args).env("BTRACE_LBR", "unopened").stdin(Stdio::null()).output().expect("run btrace")
}

#[test]
fn without_hardware_one_line_says_what_was_found() {
    for json in [&[][..], &["--json"], &["--filter-branch", "call,ret"]] {
        let args =
            [&["-t", "sched_switch", "--output-lbr", "--limit-events", "1", "-c", "true"], json].concat();
        let output = btrace(&args);
        let said = stderr(&output);
        if output.status.success() {
            eprintln!("this machine records branches: {args:?}");
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(output.stdout.is_empty());
        assert_eq!(said.lines().count(), 1, "{said}");
        if said.contains("not permitted to trace") || said.contains("no kernel type information") {
            eprintln!("SKIP: this machine does not let us trace: {said}");
            continue;
        }
        assert!(
            said.starts_with("btrace: --output-lbr: ") || said.contains("no bpf_get_branch_snapshot"),
            "{said}"
        );
        // What is advised must be of use: a tracepoint has no path.
        assert!(!said.contains("--output-path"), "{said}");
    }
}

/// A dry run is refused where a trace would be, in the same words; and the path of functions is advised where it can be had.
#[test]
fn a_dry_run_says_what_a_trace_would() {
    if !common::has_types() {
        return;
    }
    for args in [&["-k", "vfs_read", "--output-lbr"][..], &["-t", "sched_switch", "--output-lbr"]] {
        let dry = btrace(&[args, &["--dry-run"]].concat());
        let run = btrace(&[args, &["-c", "true"]].concat());
        let (dry_said, said) = (stderr(&dry), stderr(&run));
        if said.contains("this kernel refuses") || said.contains("not permitted") {
            eprintln!("SKIP {args:?}: {said}");
            continue;
        }
        assert_eq!(dry.status.code(), run.status.code(), "{dry_said}{said}");
        if !run.status.success() {
            assert_eq!(dry_said, said);
            let kprobes = std::path::Path::new("/sys/bus/event_source/devices/kprobe/type").exists();
            assert_eq!(said.contains("--output-path"), args[0] == "-k" && kprobes, "{said}");
        }
    }
}

#[test]
fn the_programs_are_accepted_and_say_when_there_are_no_records() {
    let output = unopened(&[
        "-t",
        "sched_process_exec",
        "--output-lbr",
        "--output-stack",
        "--json",
        "-c",
        "/bin/true; :",
    ]);
    let said = stderr(&output);
    if output.status.code() == Some(2) {
        assert!(
            ["not permitted", "no kernel type information", "no bpf_get_branch_snapshot"]
                .iter()
                .any(|s| said.contains(s)),
            "{said}"
        );
        return eprintln!("SKIP: this machine does not let us trace, or not branches: {said}");
    }
    assert!(output.status.success(), "{said}");
    let events: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(!events.is_empty(), "{said}");
    let schema = schema::Schema::event().expect("schema");
    for event in events {
        schema.check(&event).expect("as the schema has it");
        // Without an event of ours, unless somebody else's has the CPU record branches.
        assert!(event["lbr"]["error"] == "ENOENT" || event["lbr"].is_array(), "{event}");
        assert!(event["stack"].is_array(), "{event}");
    }
}

#[test]
fn the_tests_own_word_is_checked() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_btrace"));
    let args = ["-t", "sched_process_exec", "--output-lbr", "-c", "true"];
    let output =
        command.args(args).env("BTRACE_LBR", "yes").stdin(Stdio::null()).output().expect("run btrace");
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        [
            "BTRACE_LBR=yes: not unopened",
            "not permitted",
            "no kernel type information",
            "no bpf_get_branch_snapshot"
        ]
        .iter()
        .any(|s| said.contains(s)),
        "{said}"
    );
}
