//! `btrace list`, `--show-func-proto` and `--dry-run` on the running kernel: all they need is its types.

mod common;

use common::{btrace, has_types, text};

#[test]
fn prototypes_as_c_has_them() {
    if !has_types() {
        return;
    }
    let output = btrace(&["--show-func-proto", "-k", "vfs_read", "-t", "sched_process_exec"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos);\n\
         sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm);\n"
    );
}

#[test]
fn case_24_no_odd_function_ends_the_listing() {
    if !has_types() {
        return;
    }
    let output = btrace(&["--show-func-proto", "-k", "tcp_*"]);
    let lines = text(&output.stdout);
    assert!(output.status.success() && lines.lines().count() > 100, "{}", text(&output.stderr));
    assert!(lines.lines().all(|l| l.contains("tcp_") && l.ends_with(");")), "{lines}");
}

#[test]
fn a_list_has_methods_or_the_reason() {
    if !has_types() {
        return;
    }
    let output = btrace(&["list", "-k", "seq_printf", "vfs_read"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let [odd, read] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
    // A kprobe, where the kernel has them.
    let prototype = odd.split_once(' ').map(|(_, rest)| rest.trim_start()).unwrap_or_default();
    assert!(prototype.starts_with("void seq_printf(struct seq_file *m, "), "{odd}");
    assert!(
        odd.ends_with("...)  # takes a variable number of arguments, which trampolines do not support"),
        "{odd}"
    );
    assert!(
        read.ends_with("ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos)"),
        "{read}"
    );
    // What the kernel itself refuses is said on stderr, once for each method.
    assert_eq!(read.starts_with("fentry,fexit,"), output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn without_a_kind_a_name_may_be_of_either() {
    if !has_types() {
        return;
    }
    let output = btrace(&["list", "vfs_read"]);
    assert!(output.status.success() && text(&output.stdout).lines().count() == 1, "{}", text(&output.stderr));
    let output = btrace(&["list", "vfs_raed"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean vfs_read"), "{}", text(&output.stderr));
}

#[test]
fn a_dry_run_shows_the_plan() {
    if !has_types() {
        return;
    }
    let output = btrace(&["--dry-run", "-k", "vfs_read", "-t", "sched_process_exec"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    for part in [
        "vfs_read fexit, ",
        " bytes an event\n",
        " (size_t)count, 8 bytes\n",
        " (ssize_t)retval, 8 bytes\n",
        "sched_process_exec tp_btf, ",
        "its filename: text, up to 63 bytes\n",
    ] {
        assert!(out.contains(part), "{part:?} in {out}");
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    if !has_types() {
        return;
    }
    for (args, why) in [
        (&["list", "-k", "no_such_function_at_all"][..], "no kernel function is named"),
        (&["list", "-k", "no_such_module:x"], "no module no_such_module is loaded"),
        (&["--dry-run", "-k", "vfs_raed"], "did you mean vfs_read"),
        (&["--show-func-proto"], "nothing to trace"),
        (&["cost", "sched:nosuch"], "system sched has no such tracepoint"),
        (&["-t", "sched:sched_swich"], "system sched has no such tracepoint; did you mean sched_switch?"),
        (&["cost", "sched_switch,sched_wakeup"], "btrace cost takes one name"),
        (&["cost", "sched_*"], "btrace cost takes one name"),
        (&["cost", "sched_switch", "-c", " "], "-c: an empty command"),
        (&["-k", "a:"], "an empty name"),
        (&["-k", ":a"], "an empty name"),
        (&["-k", "a:b:c"], "no module a is loaded"),
    ] {
        let output = btrace(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{args:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}
