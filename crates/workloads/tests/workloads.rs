//! Each workload on the machine that runs the tests: what it prints, and that it fails when a call does.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

fn workloads(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_workloads")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// What it prints, when all went well.
fn lines(arguments: &[&str]) -> Vec<String> {
    let output = workloads(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn quiet_ones() {
    for arguments in [
        &["read-zero", "1000", "512"][..],
        &["read-zero", "0", "0"],
        &["open-missing", "100", "/no/such/file"],
        &["open-fault", "100"],
        &["exec-true", "3"],
        &["fork", "3"],
        &["threads", "3", "100"],
        &["sleep-ms", "1"],
    ] {
        assert_eq!(lines(arguments), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn ports_are_printed() {
    let connections = lines(&["connect-loopback", "20"]);
    assert_eq!(connections.len(), 20);
    let ports: Vec<Vec<u16>> =
        connections.iter().map(|line| line.split(' ').map(|port| port.parse().unwrap()).collect()).collect();
    assert!(
        ports.iter().all(|pair| pair.len() == 2 && pair[0] != pair[1] && pair[1] == ports[0][1]),
        "{ports:?}"
    );
    let used: u16 = lines(&["bind-used"])[0].parse().unwrap();
    assert_ne!(used, 0);
}

#[test]
fn time_is_a_number_of_ns() {
    let time: u64 = lines(&["--time", "sleep-ms", "20"])[0].parse().unwrap();
    assert!(time >= 20_000_000, "{time}");
    assert_eq!(lines(&["read-zero", "10", "1", "--time"]).len(), 1);
    assert_eq!(lines(&["--time", "threads", "2", "10"]).len(), 1);
}

#[test]
fn what_goes_wrong_is_said() {
    let wrong = workloads(&["open-missing", "1", "/"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(String::from_utf8(wrong.stderr).unwrap(), "workloads: open-missing 1 /: / exists\n");
    for arguments in
        [&["fly"][..], &[], &["read-zero", "x", "1"], &["read-zero", "1"], &["--fast", "fork", "1"]]
    {
        let wrong = workloads(arguments);
        assert_eq!(wrong.status.code(), Some(2), "{arguments:?}");
        assert!(!wrong.stderr.is_empty());
    }
    assert!(String::from_utf8(workloads(&["--help"]).stdout).unwrap().contains("connect-loopback"));
}

/// Starts a workload that waits, and gives it once it has printed its process number.
fn waiting() -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_workloads"))
        .args(["--pid", "--wait", "bind-used"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), child.id().to_string());
    (child, stdout)
}

#[test]
fn a_line_starts_what_waits() {
    let (mut child, stdout) = waiting();
    child.stdin.as_mut().unwrap().write_all(b"go").unwrap();
    assert!(child.try_wait().unwrap().is_none());
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(stdout.lines().count(), 1);
}

#[test]
fn a_signal_starts_what_waits_and_the_end_of_stdin_does_not() {
    let (mut child, stdout) = waiting();
    drop(child.stdin.take());
    assert!(child.try_wait().unwrap().is_none());
    assert!(
        Command::new("sh").args(["-c", &format!("kill -USR1 {}", child.id())]).status().unwrap().success()
    );
    assert!(child.wait().unwrap().success());
    assert_eq!(stdout.lines().count(), 1);
}

#[test]
fn bpf_programs_call_each_other_as_often_as_asked() {
    let output = workloads(&["bpf-programs", "3"]);
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("Operation not permitted") {
        return eprintln!("SKIP: this machine refuses to load BPF programs: {said}");
    }
    assert!(output.status.success(), "{said}");
    assert_eq!(workloads(&["bpf-programs", "many"]).status.code(), Some(2));
    let unpinned = workloads(&["bpf-programs", "1", "/no/such/folder/pin"]);
    assert_eq!(unpinned.status.code(), Some(1));
    assert!(String::from_utf8(unpinned.stderr).unwrap().contains("/no/such/folder/pin"));
}

#[test]
fn lines_are_tallied() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_workloads"))
        .args(["tally", "one", "two"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo one\nthree").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "3\n2\n1\n");
}
