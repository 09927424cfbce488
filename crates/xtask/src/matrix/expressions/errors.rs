//! Expressions that mean nothing: one line, the place, exit status 2, and nothing was loaded. More of them, which no kernel is
//! needed for, in `crates/btrace/tests/expressions.rs`.

use super::{Check, named, runs};
use anyhow::{Context, ensure};

pub(in super::super) const CHECKS: &[Check] = &[PLACES, LINES, PARTLY];

const PLACES: Check = Check {
    name: "expressions: what is wrong is said in a line, the place pointed at, and nothing is loaded",
    command: r#"
        workloads bpf-objects >/tmp/before
        for text in 'file->f_pth' 'count > 1 && cnt > 1' '*count' 'count == "x"'; do btrace -k vfs_read --filter-arg "$text" -c true; echo $?; done
        workloads only-objects /tmp/before"#,
    judge: |ran| {
        ensure!(ran.status == 0, "something was left: {}", ran.stderr);
        ensure!(ran.stdout == "2\n2\n2\n2\n", "{:?}", ran.stdout);
        let wanted = [
            (
                "btrace: --filter-arg: struct file has no member 'f_pth'; did you mean 'f_path'",
                "  file->f_pth",
                "        ^~~~~",
            ),
            (
                "btrace: --filter-arg: vfs_read has no 'cnt'; its arguments are",
                "  count > 1 && cnt > 1",
                "               ^~~",
            ),
            ("btrace: --filter-arg: this is an 'unsigned long', not a pointer", "  *count", "   ^~~~~"),
            ("btrace: --filter-arg: this is an 'unsigned long', not a text", "  count == \"x\"", "  ^~~~~"),
        ];
        let said: Vec<&str> = ran.stderr.lines().collect();
        ensure!(said.len() == 3 * wanted.len(), "{}", ran.stderr);
        for (lines, (message, text, caret)) in said.chunks(3).zip(wanted) {
            ensure!(lines[0].starts_with(message) && lines[1..] == [text, caret], "{lines:#?}");
        }
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
            "--filter-arg: no target is named vfs_write, which 'count > 1' is for",
            "--output-arg: no target is named vfs_x*, which 'count' is for",
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
