//! Expressions that mean nothing: one line, the place, exit status 2, and nothing was loaded.

use super::{Check, named, runs};
use anyhow::{Context, ensure};

pub(in super::super) const CHECKS: &[Check] = &[PLACES, LINES, PARTLY];

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
    ("strr(buf) == \"x\"", "there is no function strr(); did you mean 'str'?", (0, 4)),
    ("hist(count)", "hist() gathers many events: it stands alone, in --output-arg", (0, 11)),
    ("path(file)", "it stands alone", (0, 10)),
    ("container_of(file, struct file, f_pth)", "f_pth", (32, 37)),
    ("sizeof(struct nope)", "there is no struct nope", (7, 18)),
    ("count in ()", "", (10, 11)),
    ("file->f_path.dentry.d_name", "this is a pointer: use '->d_name'", (20, 26)),
    ("count ? 1", "", (9, 9)),
];

/// The script: each of them, and before and after it what BPF objects there are.
const PLACES: Check = Check {
    name: "expressions: what is wrong is said in a line, the place pointed at, and nothing is loaded",
    command: r#"
        workloads bpf-objects >/tmp/before
        while IFS= read -r text; do btrace -k vfs_read --filter-arg "$text" -c true; echo $?; done <<'END_OF_TEXTS'
file->f_pth
file->f_path.dentri->d_name
fil
cnt > 1
count > 1 && cnt > 1
count == "x"
count->x
count.x
*count
count[1]
$retvl
$foo
$args[9] == 1
file->f_path == 1
file + file
file * 2
file & 1
count >
count > 1)
(count > 1
count = 1
count >>
'ab
"ab
09 == count
(struct nope *)file
(struct fil *)file
str(count)
TCP_CLOSED
ip4(*(int *)pos) == "1.2.3"
ip4(count)
strr(buf) == "x"
hist(count)
path(file)
container_of(file, struct file, f_pth)
sizeof(struct nope)
count in ()
file->f_path.dentry.d_name
count ? 1
END_OF_TEXTS
        workloads bpf-objects | cmp - /tmp/before"#,
    judge: |ran| {
        ensure!(ran.status == 0, "something was left: {}", ran.stderr);
        ensure!(ran.stdout == "2\n".repeat(WRONG.len()), "{:?}", ran.stdout);
        let said: Vec<&str> = ran.stderr.lines().collect();
        ensure!(said.len() == 3 * WRONG.len(), "{} lines: {}", said.len(), ran.stderr);
        let mut wrong = Vec::new();
        for (lines, (text, part, (from, to))) in said.chunks(3).zip(WRONG) {
            let [message, shown, caret] = lines else { anyhow::bail!("{lines:?}") };
            let place = format!("  {}^{}", " ".repeat(*from), "~".repeat(to.saturating_sub(from + 1)));
            if !message.starts_with("btrace: --filter-arg: ")
                || !message.contains(part)
                || *shown != format!("  {text}")
                || *caret != place
            {
                wrong.push(lines.join("\n"));
            }
        }
        ensure!(wrong.is_empty(), "{} said otherwise:\n{}", wrong.len(), wrong.join("\n"));
        Ok(())
    },
};

const LINES: Check = Check {
    name: "expressions: options that do not go together, targets that there are not, one line each",
    command: r#"
        e() { btrace "$@" -c true; echo $?; }
        e -k vfs_read --filter-arg 'vfs_write:count > 1'
        e -k vfs_read --output-arg 'vfs_x*:count'
        e -k vfs_read --interval 1
        e -k vfs_read --interval 1 --output-arg count
        e -k vfs_read --interval 0 --output-arg 'count()'
        e -k vfs_read --filter-arg ''
        e -k vfs_read --mode entry --filter-arg '$retval > 1'
        e -k vfs_read --mode both --filter-arg '$retval > 1'
        e -k vfs_read --mode entry --output-arg '$duration'
        e -t sched_process_exec --filter-arg '$retval == 0'
        e -k vfs_read --output-arg 'hist(file)'
        e -k vfs_read --output-arg 'lhist(count,0,10,3)'
        e -k vfs_read --output-arg 'count() by (file->f_path)'
        e -k vfs_read --filter-arg "$(printf '%0.s(' $(seq 200))count"
        e -k vfs_read --filter-arg "$(printf '%0.s1+' $(seq 3000))1""#,
    judge: |ran| {
        ensure!(ran.stdout == "2\n".repeat(15), "{:?}", ran.stdout);
        let said: Vec<&str> = ran.stderr.lines().filter(|l| l.starts_with("btrace: ")).collect();
        let parts = [
            "\"vfs_write\": no target is called so, for which 'count > 1' was meant",
            "\"vfs_x*\": no target is called so",
            "--interval is for what --output-arg gathers",
            "--interval is for what --output-arg gathers",
            "--interval",
            "--filter-arg",
            "$retval: what a function returns is known with --mode exit only",
            "--mode exit",
            "$duration is known at the return of a function only",
            "a tracepoint returns nothing",
            "an integer is expected; this is a 'struct file *'",
            "1 to 1024 whole steps above the lower",
            "--output-arg: ",
            "--filter-arg: ",
            "--filter-arg: ",
        ];
        ensure!(said.len() == parts.len(), "{said:#?}");
        for (line, part) in said.iter().zip(parts) {
            ensure!(line.contains(part), "{part:?} in {line:?}");
        }
        Ok(())
    },
};

const PARTLY: Check = Check {
    name: "expressions: a target that cannot answer a filter or an output is said and left out, the rest go on; none left is an error",
    command: r#"
        run one -k vfs_read,vfs_fsync --filter-arg 'count == 5' -c 'workloads read-zero 3 5'
        run other -k vfs_read,vfs_open --filter-arg 'count == 5' --filter-arg 'vfs_open:path' --output-arg '$pid' -c 'workloads read-zero 3 5'
        run output -k vfs_read,vfs_open --output-arg count --filter-arg '$comm == "workloads"' -c 'workloads read-zero 3 5'
        run bound -k vfs_read,vfs_open --output-arg 'vfs_read:count' --filter-arg '$comm == "workloads"' -c 'workloads read-zero 3 5'
        run none -k vfs_fsync,vfs_open --filter-arg 'count == 5' -c 'workloads read-zero 3 5'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        named(&runs, "one")?.has(3)?;
        named(&runs, "other")?.has(3)?;
        let of = |name: &str, target: &str| -> anyhow::Result<usize> {
            let run = named(&runs, name)?;
            run.is_well()?;
            Ok(run.events.iter().filter(|e| e["target"] == target).count())
        };
        ensure!(of("output", "vfs_open")? == 0 && of("output", "vfs_read")? >= 3);
        ensure!(of("bound", "vfs_open")? > 0 && of("bound", "vfs_read")? >= 3);
        let none = named(&runs, "none")?;
        ensure!(none.status == 2 && none.events.is_empty(), "{}: {}", none.status, none.said);
        let line = "btrace: vfs_fsync: not traced: --filter-arg: vfs_fsync has no 'count'; its arguments are file, datasync";
        ensure!(ran.stderr.lines().any(|l| l == line), "{}", ran.stderr);
        let output = ran
            .stderr
            .lines()
            .find(|l| l.contains("vfs_open: not traced: --output-arg: vfs_open has no 'count'"));
        output.context("nothing is said of vfs_open")?;
        Ok(())
    },
};
