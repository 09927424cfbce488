//! The command on the running kernel, whatever it allows: what needs more than it gives is skipped in so many words on
//! stderr; what it refuses must be refused well.

mod common;

use common::{btrace, stderr};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn events(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
}

/// Whether tracepoints can be traced here; if not the reason is printed, so that a skip is seen.
fn may_trace() -> bool {
    let probe = btrace(&["-t", "sched_process_exec", "-c", "true"]);
    let said = stderr(&probe);
    if probe.status.success() {
        return true;
    }
    assert_eq!(probe.status.code(), Some(2), "{said}");
    assert!(said.contains("not permitted") || said.contains("no kernel type information"), "{said}");
    eprintln!("SKIP: this machine does not let us trace: {said}");
    false
}

#[test]
fn each_exec_has_its_comm_pid_and_filename() {
    if !may_trace() {
        return;
    }
    let output = btrace(&["-t", "sched_process_exec", "-c", "/bin/true; /bin/true", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let events = events(&output);
    assert!(events.iter().all(|e| e["event"] == "tracepoint"), "{events:?}");
    assert_eq!(events.len(), 2, "the two, and not the shell that was held: {events:?}");
    let mut pids = Vec::new();
    for event in &events {
        assert_eq!(event["target"], "sched_process_exec");
        assert_eq!(event["comm"], "true");
        assert_eq!(event["args"][2]["name"], "bprm");
        assert_eq!(event["args"][2]["pointee"]["filename"], "/bin/true");
        assert_eq!(
            event["args"][0]["pointee"]["pid"], event["pid"],
            "the task that execs is the current one"
        );
        pids.push(event["pid"].as_u64().expect("pid"));
    }
    assert!(pids[0] != pids[1] && stderr(&output).contains("2 events printed, 0 lost"));
}

#[test]
fn the_line_reads_like_c() {
    if !may_trace() {
        return;
    }
    let output = btrace(&["-t", "sched_process_exec", "-c", "/bin/true"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A shell that execs its last command itself makes one event, another two; the last is /bin/true's.
    let line = text.lines().last().expect("a line");
    assert!(line.starts_with("sched_process_exec args=((struct task_struct *)p=0xffff"), "{line}");
    assert!(line.contains(", (pid_t)old_pid=") && line.contains("{filename=\"/bin/true\"}) cpu="), "{line}");
    assert!(line.contains(" process=(") && line.contains(":true) time="), "{line}");
}

#[test]
fn exactly_as_many_events_as_asked_for() {
    if !may_trace() {
        return;
    }
    for n in ["1", "3"] {
        let output = btrace(&[
            "-t",
            "sched_process_exec",
            "--limit-events",
            n,
            "-c",
            "/bin/true; /bin/true; /bin/true; /bin/true; :",
        ]);
        assert!(output.status.success());
        assert_eq!(output.stdout.iter().filter(|b| **b == b'\n').count().to_string(), n);
    }
}

#[test]
fn output_goes_to_a_file() {
    if !may_trace() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("events");
    let output =
        btrace(&["-t", "sched_process_exec", "-c", "/bin/true; :", "-o", file.to_str().expect("UTF-8")]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(&file).expect("file").lines().count(), 1);
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_command_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mark = dir.path().join("ran");
    let output = btrace(&[
        "-t",
        "sched_process_exec",
        "-o",
        "/no/such/folder/file",
        "-c",
        &format!("echo > {}", mark.display()),
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!mark.exists(), "the command never ran");
}

#[test]
fn a_full_disk_is_an_error_that_ends_the_trace() {
    if !may_trace() {
        return;
    }
    let output = btrace(&["-t", "sched_process_exec", "-o", "/dev/full", "-c", "/bin/true; /bin/true; :"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/dev/full: No space left"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_leaves_ends_the_trace_without_an_error() {
    if !may_trace() {
        return;
    }
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_btrace"))
        .args(["-t", "sched_process_exec", "-c", "/bin/true; :"])
        .stdout(writer)
        .stderr(Stdio::null())
        .status()
        .expect("run btrace");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_reader_that_does_not_read_keeps_nobody_from_ending_the_trace() {
    if !may_trace() {
        return;
    }
    // Far more than the pipe and the buffer hold, and nobody reads. The command says when it is done.
    let dir = tempfile::tempdir().expect("tempdir");
    let done = dir.path().join("done");
    let execs = format!(
        "i=0; while [ $i -lt 1500 ]; do /bin/true; i=$((i+1)); done; echo > {}; exec sleep 600",
        done.display()
    );
    let (reader, writer) = std::io::pipe().expect("pipe");
    let mut child = Command::new(env!("CARGO_BIN_EXE_btrace"))
        .args(["-t", "sched_process_exec", "-c", &execs])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("run btrace");
    while !done.exists() {
        assert!(child.try_wait().expect("wait").is_none(), "ended early");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let kill = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("kill").success());
    // Were it stuck, this would wait for ever: the pipe is held open and unread.
    let output = child.wait_with_output().expect("wait");
    drop(reader);
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("not printed: the output took no more"), "{said}");
}

#[test]
fn bad_input_gets_one_line_and_status_2() {
    for (args, why) in [
        (&["-t", "sched_process_exce"][..], "did you mean sched_process_exec"),
        (&["-k", "vfs_raed"], "did you mean vfs_read"),
        (&["-k", "no_such_thing_*"], "no kernel function is named no_such_thing_*"),
        (&["-k", "a{b"], "a { without its }"),
        (&["-k", "x,,y"], "an empty name"),
        (&["-t", "vfs_read"], "btrace -k vfs_read"),
        (&["-k", "sched_process_exec"], "btrace -t sched_process_exec"),
        (&["-t", "sched_process_exec", "--filter-pid", "2147483647"], "no such process"),
        (&[], "nothing to trace"),
    ] {
        let output = btrace(args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(output.stdout.is_empty());
        if said.contains("not permitted") || said.contains("no kernel type information") {
            eprintln!("SKIP {args:?}: {said}");
            continue;
        }
        assert!(said.lines().count() == 1 && said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn usage_errors_have_status_2() {
    for args in [
        &["--no-such-option"][..],
        &["-k", "vfs_read", "--mode", "sideways"],
        &["-k", "vfs_read", "--limit-events", "0"],
        &["-k", "vfs_read", "--buffer-size", "lots"],
        &["-k", "vfs_read", "--filter-pid", "-1"],
    ] {
        assert_eq!(btrace(args).status.code(), Some(2), "{args:?}");
    }
}

/// Where the kernel refuses fentry, one line says so and what works instead; where it does not, a call is traced.
#[test]
fn functions_are_traced_or_refused_in_one_line() {
    if !may_trace() {
        return;
    }
    let output = btrace(&["-k", "vfs_read", "-c", "dd if=/dev/zero of=/dev/null bs=77 count=3 2>/dev/null"]);
    let said = stderr(&output);
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().filter(|l| l.contains("(size_t)count=77,")).count(), 3, "{text}");
        return;
    }
    eprintln!("this kernel refuses functions: {said}");
    assert_eq!(output.status.code(), Some(2));
    assert!(said.lines().count() == 1 && said.contains("btrace -t"), "{said}");
}

#[test]
fn completions_and_manual_page() {
    for (what, holds) in [
        ("bash", "--limit-events"),
        ("zsh", "#compdef btrace"),
        ("fish", "complete -c btrace"),
        ("man", ".TH btrace 8"),
    ] {
        let output = btrace(&["--generate", what]);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains(holds), "{what}");
    }
}

/// Where the kernel has no kprobes one line says so; where it has, a path is printed.
#[test]
fn paths_are_shown_or_refused_in_one_line() {
    if !may_trace() {
        return;
    }
    for flag in ["--output-path", "--path-summary"] {
        let output =
            btrace(&["-k", "vfs_read", flag, "-c", "dd if=/dev/zero of=/dev/null bs=77 count=3 2>/dev/null"]);
        let said = stderr(&output);
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("vfs_read+0x") || text.contains(" | 0x"), "{text}");
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(output.stdout.is_empty());
        assert!(said.lines().count() == 1 && said.contains(&format!("{flag}: it takes kprobes")), "{said}");
        let dry = btrace(&["-k", "vfs_read", flag, "--dry-run"]);
        assert_eq!((dry.status.code(), stderr(&dry)), (Some(2), said), "a dry run");
    }
}

/// What is not allowed in a trace is not planned either.
#[test]
fn a_dry_run_refuses_what_a_trace_would() {
    if !common::has_types() {
        return;
    }
    for (args, why) in [
        (&["--filter-pid", "2147483647"][..], "--filter-pid 2147483647: no such process"),
        (&["--interval", "1"], "--interval is for what --output-arg gathers"),
        (&["--filter-cgroup", "/no/such/cgroup"], "/no/such/cgroup"),
    ] {
        let output = btrace(&[&["-t", "sched_process_exec", "--dry-run"], args].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(
            output.stdout.is_empty() && said.lines().count() == 1 && said.contains(why),
            "{args:?}: {said}"
        );
    }
}

/// Two signals that came at once: the second is no reason to leave out what the first asked to be printed.
#[test]
fn a_second_signal_takes_nothing_from_what_was_gathered() {
    if !may_trace() {
        return;
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_btrace"))
        .args(["-t", "sched_process_exec", "--output-arg", "count() by ($comm)"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run btrace");
    let mut said = child.stderr.take().map(BufReader::new).expect("stderr");
    let mut line = String::new();
    while !line.contains("is running") {
        line.clear();
        assert!(said.read_line(&mut line).expect("stderr") > 0, "it ended");
    }
    let script =
        format!("/bin/true; kill -STOP {0}; kill -TERM {0}; kill -INT {0}; kill -CONT {0}", child.id());
    assert!(Command::new("sh").args(["-c", &script]).status().expect("kill").success());
    let output = child.wait_with_output().expect("wait");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("true"), "{text}");
}
