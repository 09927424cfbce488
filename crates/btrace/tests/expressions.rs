//! Expressions that mean nothing, whatever the kernel: one line on stderr, the text, a caret under the place; exit status 2.

mod common;

use common::{btrace, has_types, stderr};

/// Texts of `--filter-arg` at vfs_read, what is said of each, and where its caret stands and ends.
const WRONG: &[(&str, &str, (usize, usize))] = &[
    ("file->f_pth", "struct file has no member 'f_pth'; did you mean 'f_path'", (6, 11)),
    ("file->f_path.dentri->d_name", "did you mean 'dentry'?", (13, 19)),
    ("fil", "vfs_read has no 'fil'; did you mean 'file'?", (0, 3)),
    ("cnt > 1", "vfs_read has no 'cnt'; its arguments are file, buf, count, pos", (0, 3)),
    ("count > 1 && cnt > 1", "vfs_read has no 'cnt'", (13, 16)),
    ("count == \"x\"", "this is an 'unsigned long', not a text", (0, 5)),
    ("count->x", "this is an 'unsigned long', which has no members", (0, 5)),
    ("count.x", "which has no members", (0, 5)),
    ("*count", "this is an 'unsigned long', not a pointer", (1, 6)),
    ("count[1]", "neither an array nor a pointer", (0, 5)),
    ("$retvl", "there is no '$retvl'; did you mean '$retval'?", (0, 6)),
    ("$foo", "there are $retval, $args, $pid", (0, 4)),
    ("$args[9] == 1", "vfs_read has 4 arguments, the first $args[0]", (0, 8)),
    ("file->f_path == 1", "this is a 'struct path', not one number: name a member", (0, 12)),
    ("file + file", "two pointers cannot be added", (0, 11)),
    ("file * 2", "", (0, 4)),
    ("file & 1", "", (0, 4)),
    ("count >", "a value is expected, not the end", (7, 7)),
    ("count > 1)", "", (9, 10)),
    ("(count > 1", "", (10, 10)),
    ("count = 1", "", (6, 7)),
    ("count >>", "a value is expected", (8, 8)),
    ("'ab", "", (0, 3)),
    ("\"ab", "", (0, 3)),
    ("09 == count", "", (0, 2)),
    ("(struct nope *)file", "there is no struct nope", (1, 14)),
    ("(struct fil *)file", "there is no struct fil; did you mean 'file'", (1, 13)),
    ("str(count)", "this is an 'unsigned long', not a text", (4, 9)),
    ("TCP_CLOSED", "did you mean 'TCP_CLOSE'", (0, 10)),
    ("ip4(*(int *)pos) == \"1.2.3\"", "is no address such as ip4() shows", (20, 27)),
    ("ip4(count)", "", (0, 10)),
    ("$comm == \"longer than 15 bytes\"", "this has 20 bytes, $comm at most 15", (9, 31)),
    ("$task->comm in (\"a\", \"longer than 16 bytes\")", "at most 16: they are never the same", (21, 43)),
    ("strr(buf) == \"x\"", "there is no function strr(); did you mean 'str'?", (0, 4)),
    ("hist(count)", "hist() gathers many events: it stands alone, in --output-arg", (0, 11)),
    ("path(file)", "it stands alone", (0, 10)),
    ("container_of(file, struct file, f_pth)", "f_pth", (32, 37)),
    ("sizeof(struct nope)", "there is no struct nope", (7, 18)),
    ("count in ()", "", (10, 11)),
    ("file->f_path.dentry.d_name", "this is a pointer: use '->d_name'", (20, 26)),
    ("count ? 1", "", (9, 9)),
    ("$task->comm == 3", "this is a number, and what it is compared with a text: put it in quotes", (15, 16)),
    ("3 != $task->comm", "put it in quotes", (0, 1)),
    ("$task->comm in (0, 3)", "put it in quotes", (16, 17)),
    ("file->f_path.dentry->d_name.name == 3", "put it in quotes", (36, 37)),
];

#[test]
fn what_is_wrong_is_pointed_at() {
    if !has_types() {
        return;
    }
    let mut otherwise = Vec::new();
    for (text, part, (from, to)) in WRONG {
        let output = btrace(&["-k", "vfs_read", "--filter-arg", text, "-c", "true"]);
        let said = stderr(&output);
        let place = format!("  {}^{}", " ".repeat(*from), "~".repeat(to.saturating_sub(from + 1)));
        let lines: Vec<&str> = said.lines().collect();
        let fine = match lines.as_slice() {
            [message, shown, caret] => {
                message.starts_with("btrace: --filter-arg: ")
                    && message.contains(part)
                    && *shown == format!("  {text}")
                    && *caret == place
            }
            _ => false,
        };
        if !fine || output.status.code() != Some(2) || !output.stdout.is_empty() {
            otherwise.push(said);
        }
    }
    assert!(
        otherwise.is_empty(),
        "{} of {} said otherwise:\n{}",
        otherwise.len(),
        WRONG.len(),
        otherwise.concat()
    );
}

/// Of many targets not an arbitrary one is named.
#[test]
fn of_a_pattern_what_none_of_its_targets_has_is_said() {
    if !has_types() {
        return;
    }
    for (text, part) in [
        ("nosuch == 77", "targets has 'nosuch'\n"),
        ("coutn == 77", "targets has 'coutn'; did you mean 'count'"),
        // Some have it: what is wrong there says more.
        ("count->x == 77", "this is an 'unsigned long', which has no members"),
    ] {
        let output = btrace(&["-k", "vfs_*", "--dry-run", "--filter-arg", text]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("btrace: --filter-arg: ") && said.contains(part), "{text}: {said}");
        assert!(said.lines().count() == 3 && !said.contains("vfs_"), "{text}: {said}");
    }
    let output = btrace(&["-k", "vfs_read", "--dry-run", "--output-arg", "vfs_raed:count"]);
    let said = stderr(&output);
    assert!(
        said.starts_with("btrace: --output-arg: no target is named vfs_raed, which 'count' is for"),
        "{said}"
    );
    assert!(said.trim_end().ends_with("did you mean vfs_read?"), "{said}");
}

/// What `--dry-run` says of expressions: where each is evaluated, and the types.
#[test]
fn a_dry_run_tells_what_was_asked() {
    if !has_types() {
        return;
    }
    let asked = [
        "-k",
        "vfs_read",
        "--dry-run",
        "--filter-arg",
        "count > 1 && $retval > 0",
        "--filter-arg",
        "count < 99",
        "--filter-arg",
        "$duration > 5",
        "--output-arg",
        "file->f_path.dentry->d_name.name",
        "--output-arg",
        "count + 1",
        "--output-arg",
        "hist($duration) by ($comm, count)",
    ];
    let output = btrace(&asked);
    let said = String::from_utf8(output.stdout.clone()).expect("text");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<&str> = said.lines().collect();
    for (begin, end) in [
        ("  filter at entry, the rest at exit: ", "count > 1 && $retval > 0"),
        ("  filter at entry: ", "count < 99"),
        ("  filter at exit: ", "$duration > 5"),
        (
            "  +",
            " output at exit: (const unsigned char *)file->f_path.dentry->d_name.name, text, up to 62 bytes",
        ),
        ("  +", " output at exit: (unsigned long)count + 1, 8 bytes"),
        (
            "  gathered at exit: hist($duration) by ($comm, count), of (unsigned long), by (char[16])$comm, (size_t)count, room for ",
            " MiB",
        ),
    ] {
        assert!(lines.iter().any(|l| l.starts_with(begin) && l.ends_with(end)), "{end} in\n{said}");
    }
    let silent = btrace(&["-k", "vfs_read", "--dry-run", "--output-arg", "count()"]);
    let said = String::from_utf8(silent.stdout).expect("text");
    let cpus = bpf::possible_cpus().expect("CPUs");
    let one = |words: usize| match words * 8 * cpus {
        bytes @ ..1024 => format!("{bytes} bytes"),
        bytes => format!("{}.{} KiB", bytes >> 10, bytes % 1024 * 10 / 1024),
    };
    let wanted = format!(", gathered, no events\n  gathered at exit: count(), in {}\n", one(1));
    assert!(said.contains(&wanted), "{wanted} in {said}");
}

/// What a table takes is told: one entry without keys; with them as many as fit, and no more than 16,384.
#[test]
fn a_dry_run_tells_the_room_of_tables() {
    if !has_types() {
        return;
    }
    let asked = |outputs: &[&str]| {
        let given = outputs.iter().flat_map(|text| ["--output-arg", text]);
        let all: Vec<&str> = ["-k", "vfs_read", "--dry-run"].into_iter().chain(given).collect();
        btrace(&all)
    };
    let output =
        asked(&["lhist(count, 0, 1024, 1)", "count() by ($pid)", "lhist(count, 0, 1024, 1) by ($pid)"]);
    let said = String::from_utf8(output.stdout.clone()).expect("text");
    let lines: Vec<&str> = said.lines().filter(|l| l.starts_with("  gathered at exit: ")).collect();
    let [one, counts, many] = lines.as_slice() else { panic!("{said}") };
    let cpus = bpf::possible_cpus().expect("CPUs");
    let bytes = 1026 * 8 * cpus;
    let memory = match bytes {
        ..1_048_576 => format!("{}.{} KiB", bytes >> 10, bytes % 1024 * 10 / 1024),
        _ => format!("{}.{} MiB", bytes >> 20, bytes % 1_048_576 * 10 / 1_048_576),
    };
    assert!(one.ends_with(&format!("of (unsigned long), in {memory}")), "{one}");
    assert!(counts.contains(", by (int)$pid, room for 16384 keys, "), "{counts}");
    let keys = ((64 << 20) / bytes).max(64);
    assert!(many.contains(&format!(", by (int)$pid, room for {keys} keys, ")), "{many}");
    // The counters, what entries are made from, and two maps for calls under way.
    for (keys, most) in [(" by ($pid)", 60), ("", 61)] {
        let text = format!("count(){keys}");
        let fine = asked(&vec![text.as_str(); most]);
        assert_eq!(fine.status.code(), Some(0), "{}", stderr(&fine));
        let refused = asked(&vec![text.as_str(); most + 1]);
        let wanted = format!(
            "btrace: {} --output-arg gather at a target, at most {most} can: a program uses 64 maps",
            most + 1
        );
        let said = stderr(&refused);
        assert!(
            refused.status.code() == Some(2) && said.starts_with(&wanted) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_dry_run_says_in_a_line_what_a_trace_says_in_one() {
    if !has_types() {
        return;
    }
    let glob = ["-k", "vfs_*", "--filter-arg", "count == 3", "--dry-run"];
    let output = btrace(&glob);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains(" not traced (-v names them): ") && said.contains(": --filter-arg: it has no 'count'"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let all = stderr(&btrace(&[&glob[..], &["-v"]].concat()));
    let named = all.lines().filter(|l| l.contains(": not traced: --filter-arg: ")).count();
    assert!(named > 5 && said.starts_with(&format!("btrace: {named} of ")), "{named}: {all}");
}

/// The type is that which is meant: an array of characters is one, and `$ctx` is shown by a name.
#[test]
fn texts_have_the_type_that_was_declared() {
    if !has_types() {
        return;
    }
    let outputs = ["p->comm", "$comm", "str(p->comm)", "bprm->filename"];
    let given = outputs.iter().flat_map(|text| ["--output-arg", text]);
    let all: Vec<&str> = ["-t", "sched_process_exec", "--dry-run"].into_iter().chain(given).collect();
    let output = btrace(&all);
    let said = String::from_utf8(output.stdout.clone()).expect("text");
    for wanted in
        ["(char[16])p->comm", "(char[16])$comm", "(char[16])str(p->comm)", "(const char *)bprm->filename"]
    {
        assert!(said.contains(&format!(" output: {wanted}, ")), "{wanted} in {said}");
    }
    let context = btrace(&["-t", "sched_process_exec", "--dry-run", "--output-arg", "$ctx"]);
    let (said, refused) = (String::from_utf8(context.stdout.clone()).expect("text"), stderr(&context));
    match context.status.code() {
        Some(0) => assert!(said.contains(" output: (enum context)$ctx, "), "{said}"),
        Some(2) => assert!(
            refused.starts_with(
                "btrace: --output-arg: $ctx: this kernel does not tell where its preempt count is"
            ),
            "{refused}"
        ),
        status => panic!("{status:?}: {refused}"),
    }
}
