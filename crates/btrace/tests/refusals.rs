//! Bad input: one clear line on stderr, nothing on stdout, exit status 2, whatever the kernel.

mod common;

use common::{btrace, stderr};
use std::process::{Command, Output, Stdio};

fn refused(args: &[&str], why: &str) {
    let output = btrace(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert!(
        said.lines().count() == 1 && said.starts_with("btrace: ") && said.contains(why),
        "{args:?}: {said}"
    );
}

#[test]
fn command_lines_that_cannot_be_read() {
    for (args, why) in [
        (&[][..], "nothing to trace"),
        (&["-c", "true"], "nothing to trace"),
        (&["-k"], "a value is required for '--kfunc"),
        (&["-k", ""], "an empty name"),
        (&["-k", "a,,b"], "an empty name"),
        (&["-k", "x:"], "\"x:\": an empty name"),
        (&["-k", "a b"], "white space in a name"),
        (&["-k", "a{b"], "a { without its }"),
        (&["-k", "x", "--mode", "nothing"], "[possible values: entry, exit, both]"),
        (&["-k", "x", "--nonsense"], "unexpected argument '--nonsense'"),
        (&["-k", "x", "--filter-pd", "1"], "'--filter-pid'"),
        (&["-k", "x", "more"], "unexpected argument 'more'"),
        (&["-k", "x", "list"], "the subcommand 'list' cannot be used with"),
        (&["-k", "x", "--limit-events", "0"], "0 is not in 1.."),
        (&["-k", "x", "--interval", "0.1"], "whole seconds are expected, 1 to 86400"),
        (&["-d", "-k", "x", "-B", "0x"], "a number of bytes is expected, at most 16777216; 0x200 is one too"),
        (&["-k", "x", "--buffer-size", "0"], "a buffer of no size"),
        (&["-k", "x", "--buffer-size", "4G"], "at most 2G"),
        (&["-k", "x", "--buffer-size", "big"], "not a size"),
        (&["-k", "x", "--filter-pid", "0"], "0 is not in 1.."),
        (&["-k", "x", "--filter-pid", "-5"], "-5 is not in 1.."),
        (&["-k", "x", "--filter-tid", "me"], "invalid digit"),
        (&["-k", "x", "--filter-comm", "sixteen_letters_"], "1 to 15 bytes"),
        (&["-k", "x", "--filter-cpu", "-1"], "-1 is not in 0.."),
        (&["doctor", "more"], "unexpected argument 'more'"),
    ] {
        refused(args, why);
    }
}

#[test]
fn flags_that_exclude_each_other() {
    for (args, why) in [
        (&["-t", "x", "--mode", "entry"][..], "--mode is for functions"),
        (&["-t", "x", "--errors"], "--errors is for functions"),
        (&["-k", "x", "--errors", "--mode", "entry"], "--errors needs --mode exit"),
        (&["-k", "x", "-c", ""], "-c: an empty command"),
        (&["-k", "x", "-c", "true", "--filter-pid", "1"], "exclude each other"),
        (&["-k", "x", "-c", "true", "--filter-tid", "1"], "exclude each other"),
        (&["-k", "x", "--filter-cpu", "4000000000"], "no such CPU; this machine has 0"),
        (&["-k", "x", "--dry-run", "--show-func-proto"], "cannot be used with"),
        (&["-k", "x", "--dry-run", "--json"], "cannot be used with '--json'"),
        (&["-k", "x", "--show-func-proto", "-c", "true"], "cannot be used with '--command"),
    ] {
        refused(args, why);
    }
}

#[test]
fn what_is_not_there() {
    refused(&["-t", "sched_switch", "-o", "/no/such/folder/file"], "-o /no/such/folder/file: No such file");
    refused(&["-t", "sched_switch", "-o", "/"], "-o /: Is a directory");
    refused(&["-t", "sched_switch", "--filter-pid", "4000000"], "--filter-pid 4000000: no such process");
    refused(&["-t", "sched_switch", "--filter-tid", "4000000"], "--filter-tid 4000000: no such thread");
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"][..], &["--version"], &["list", "--help"], &["doctor", "-h"]] {
        let output = btrace(args);
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
}

/// Runs btrace without some capabilities; `None`, said why, where that cannot be done.
fn without(capabilities: &str, args: &[&str]) -> Option<Output> {
    let bounding = format!("--bounding-set={capabilities}");
    let output = Command::new("setpriv")
        .args([&bounding, env!("CARGO_BIN_EXE_btrace")])
        .args(args)
        .stdin(Stdio::null())
        .output();
    let said = match output {
        Ok(output) if output.status.code() == Some(127) || stderr(&output).starts_with("setpriv:") => {
            stderr(&output)
        }
        Ok(output) => return Some(output),
        Err(error) => error.to_string(),
    };
    eprintln!("SKIP: capabilities cannot be dropped here (setpriv, as root): {said}");
    None
}

#[test]
fn a_missing_capability_is_named() {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return eprintln!("SKIP: this kernel shows no types (/sys/kernel/btf/vmlinux)");
    }
    for (dropped, named) in [
        ("-sys_admin,-bpf", "CAP_BPF is missing"),
        ("-sys_admin,-perfmon", "CAP_PERFMON is missing"),
        ("-sys_admin,-bpf,-perfmon", "CAP_BPF and CAP_PERFMON are missing"),
    ] {
        let Some(output) = without(dropped, &["-t", "sched_process_exec", "-c", "true"]) else { return };
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(named), "{dropped}: {said}");
        let Some(doctor) = without(dropped, &["doctor"]) else { return };
        assert_eq!(doctor.status.code(), Some(2), "{dropped}");
        let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(told.contains("btrace can trace nothing here"), "{told}");
    }
}

/// Whatever else is not to be had without them: that they are missing is what can be changed.
#[test]
fn missing_capabilities_are_said_before_what_they_hide() {
    if !common::has_types() {
        return;
    }
    let dropped = "-sys_admin,-bpf,-perfmon,-syslog";
    for args in [
        &["-k", "vfs_read", "--output-path", "-c", "true"][..],
        &["-k", "vfs_read", "--output-stack", "-c", "true"],
        &["-k", "vfs_*", "--output-path", "-c", "true"],
        &["-t", "sched_switch", "--output-lbr", "-c", "true"],
        &["-p", "*", "-c", "true"],
        &["cost", "sched_switch"],
        &["cost", "-k", "vfs_read"],
    ] {
        let Some(output) = without(dropped, args) else { return };
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        let named = said.contains("CAP_BPF and CAP_PERFMON are missing");
        assert!(said.lines().count() == 1 && named && !said.contains("kptr_restrict"), "{args:?}: {said}");
        // It is root, from whom they were taken.
        assert!(!said.contains("as root"), "{args:?}: {said}");
    }
    let Some(list) = without(dropped, &["list", "-k", "vfs_read"]) else { return };
    let said = stderr(&list);
    assert!(list.status.success() && common::text(&list.stdout).contains("vfs_read("), "{said}");
    assert!(said.contains("CAP_BPF and CAP_PERFMON are missing") && !said.contains("EPERM"), "{said}");
}

#[test]
fn a_sysctl_is_not_blamed_for_a_missing_capability() {
    let setting = |name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    if setting("kptr_restrict").trim() == "0"
        && setting("perf_event_paranoid").trim().parse().is_ok_and(|n: i32| n < 2)
    {
        return eprintln!("SKIP: this machine shows addresses to everybody");
    }
    let Some(doctor) = without("-syslog", &["doctor"]) else { return };
    let told = common::text(&doctor.stdout);
    let line = told.lines().find(|l| l.contains("/proc/kallsyms ")).unwrap_or(&told);
    assert!(line.contains("without addresses") && line.contains("with CAP_SYSLOG"), "{line}");
    assert_eq!(line.contains("sysctl"), setting("kptr_restrict").trim() == "2", "{line}");
}

/// Output that cannot be written is no bad input: it began, and failed.
#[test]
fn a_full_disk_is_exit_status_1() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("/dev/full"));
    let mut all: Vec<&[&str]> = vec![&["--help"], &["--version"], &["--generate", "man"], &["doctor"]];
    if common::has_types() {
        all.extend([
            &["types", "struct list_head"][..],
            &["types", "--json", "struct list_head"],
            &["list", "vfs_read"],
            &["-k", "vfs_read", "--show-func-proto"],
            &["-k", "vfs_read", "--dry-run"],
        ]);
    }
    for args in all {
        let mut command = Command::new(env!("CARGO_BIN_EXE_btrace"));
        let output = command.args(args).stdin(Stdio::null()).stdout(full()).output().expect("run btrace");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("write to standard output: No space left on device"), "{args:?}: {said}");
    }
}
