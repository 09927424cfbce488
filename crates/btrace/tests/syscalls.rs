//! System calls on the running kernel: prototypes need its types only, tracing its leave.

mod common;

use common::{btrace, has_types, text};

#[test]
fn a_wrapper_is_shown_with_the_calls_own_prototype() {
    if !has_types() {
        return;
    }
    let output = btrace(&["--show-func-proto", "-k", "__x64_sys_openat"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.ends_with("; /* openat(int dfd, const char *filename, int flags, umode_t mode) */\n"),
        "{shown}"
    );
    let output = btrace(&["--dry-run", "-k", "__x64_sys_openat"]);
    let shown = text(&output.stdout);
    for part in ["(int)dfd, 4 bytes", "(const char *)filename, 8 bytes", "its text", "(umode_t)mode, 2 bytes"]
    {
        assert!(shown.contains(part), "{part} in {shown}{}", text(&output.stderr));
    }
}

#[test]
fn a_calls_own_name_leads_to_its_function() {
    if !has_types() {
        return;
    }
    let output = btrace(&["-k", "sys_openat"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("btrace -k __x64_sys_openat"), "{}", text(&output.stderr));
}

#[test]
fn the_tracepoint_of_all_calls_names_each() {
    if !has_types() {
        return;
    }
    let output = btrace(&["-t", "sys_enter", "-c", "true"]);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(2) {
        eprintln!("SKIP: {said}");
        return;
    }
    let exits: Vec<&str> = shown.lines().filter(|l| l.contains("id=231)")).collect();
    assert!(
        !exits.is_empty() && exits.iter().all(|l| l.contains("id=231) syscall=exit_group cpu=")),
        "{shown}"
    );
}
