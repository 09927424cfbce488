//! Files by name and path.

use super::{Check, named, outputs, runs};
use anyhow::{Context, ensure};
use serde_json::json;

pub(in super::super) const CHECKS: &[Check] = &[NAMES, PATHS, FUNCTIONS, LIST];

const NAMES: Check = Check {
    name: "expressions: reads of files by name, at entry, exit and both: ==, !=, in, str(), with a test of the return",
    command: r#"
        mkdir -p /tmp/dir; echo hello >/tmp/dir/hello; echo x >/tmp/dir/other; echo >/tmp/dir/third
        cat >/tmp/work.sh <<'EOF'
            for f in hello hello hello hello hello other other other third third; do dd if=/tmp/dir/$f of=/dev/null bs=100 count=1; done 2>/dev/null
EOF
        n=file-'>f_path.dentry->d_name.name'
        for m in entry exit both; do
            run $m-equal -k vfs_read --mode $m --filter-arg "$n == \"hello\"" --output-arg "str($n)" --output-arg count -c 'sh /tmp/work.sh'
            run $m-in -k vfs_read --mode $m --filter-arg "$n in (\"other\", \"hello\")" -c 'sh /tmp/work.sh'
            [ $m = entry ] || continue
            run $m-str -k vfs_read --mode $m --filter-arg "str($n) == \"other\"" -c 'sh /tmp/work.sh'
            run $m-prefix -k vfs_read --mode $m --filter-arg "str($n, 2) == \"th\"" --output-arg "str($n, 3)" -c 'sh /tmp/work.sh'
            run $m-not -k vfs_read --mode $m --filter-arg "$n != \"hello\" && count == 100" --filter-arg '$comm == "dd"' -c 'sh /tmp/work.sh'
            run $m-two -k vfs_read --mode $m --filter-arg "file->f_path.dentry->d_parent->d_name.name == \"dir\"" --filter-arg "$n == \"third\"" -c 'sh /tmp/work.sh'
        done
        run returned -k vfs_read --filter-arg '$retval == 6 && count > 10' --filter-arg "file->f_path.dentry->d_parent->d_name.name == \"dir\"" -c 'sh /tmp/work.sh'
        run nothing -k vfs_read --filter-arg '$retval == 6 && count > 100' -c 'sh /tmp/work.sh'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for (mode, ends) in [("entry", 1), ("exit", 1), ("both", 2)] {
            let run = |test: &str| named(&runs, &format!("{mode}-{test}"));
            for (test, calls) in [("equal", 5), ("in", 8)] {
                run(test)?.has(calls * ends)?;
            }
            run("equal")?.shows(&[json!("hello"), json!(100)])?;
        }
        for (test, calls) in [("str", 3), ("prefix", 2), ("not", 5), ("two", 2)] {
            named(&runs, &format!("entry-{test}"))?.has(calls)?;
        }
        named(&runs, "entry-prefix")?.shows(&[json!("thi…")])?;
        named(&runs, "returned")?.has(5)?;
        named(&runs, "nothing")?.has(0)
    },
};

const PATHS: Check = Check {
    name: "expressions: path() of a file, a path and a dentry",
    command: r#"
        mkdir -p /tmp/dir; echo hello >/tmp/dir/hello
        for m in entry exit; do
            run $m -k vfs_read --mode $m --filter-arg 'count == 100' --output-arg 'path(file)' --output-arg 'path(&file->f_path)' \
                --output-arg 'path(file->f_path.dentry)' -c 'dd if=/tmp/dir/hello of=/dev/null bs=100 count=1 2>/dev/null'
        done
        btrace -k vfs_read --filter-arg 'count == 100' --output-arg 'path(file)' -o /tmp/o -c 'dd if=/tmp/dir/hello of=/dev/null bs=100 count=1 2>/dev/null'
        cat /tmp/o >&2"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for run in &runs {
            run.has(1)?;
            let paths: Vec<_> = outputs(&run.events[0]).iter().map(|o| &o["pointee"]["path"]).collect();
            // A dentry's is that within its file system, which is mounted at /tmp.
            ensure!(
                paths == [&json!("/tmp/dir/hello"), &json!("/tmp/dir/hello"), &json!("/dir/hello")],
                "{paths:?}"
            );
        }
        ensure!(ran.stderr.contains(" out=((struct file *)path(file)=\"/tmp/dir/hello\")"), "{}", ran.stderr);
        Ok(())
    },
};

const FUNCTIONS: Check = Check {
    name: "expressions: an opened file's name and the call's structure in the kernel, by what it returned",
    command: r#"
        run missing -k do_sys_openat2 --filter-arg '$retval == -2 && str(filename) == "/no/such/file"' --output-arg '*how' --output-arg 'how->flags & 0x80000' \
            --output-arg '$retval' -c 'workloads open-missing 4 /no/such/file; workloads open-missing 3 /no/such/other'
        run unreadable -k do_sys_openat2 --filter-arg '$comm == "workloads" && dfd == -100 && $retval == -14' --output-arg filename -c 'workloads open-fault 3'
        run compared -k do_sys_openat2 --filter-arg 'str(filename) == "x" || $retval == -14' -c 'workloads open-fault 3'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let missing = named(&runs, "missing")?;
        missing.has(4)?;
        for event in &missing.events {
            let [how, flag, retval] = outputs(event) else { anyhow::bail!("{event}") };
            ensure!(how["type"] == "struct open_how" && how["value"]["flags"] == 0x88000, "{event}");
            ensure!(flag["value"] == 0x80000 && retval["value"] == -2, "{event}");
        }
        let unreadable = named(&runs, "unreadable")?;
        unreadable.has(3)?;
        for event in &unreadable.events {
            let name = outputs(event).first().context("no output")?;
            ensure!(
                name["value"].is_null() && name["error"] == "EFAULT" && name["at"] == "filename",
                "{event}"
            );
        }
        // What cannot be read does not hold; the other side of || does.
        named(&runs, "compared")?.has(3)
    },
};

const LIST: Check = Check {
    name: "expressions: a task's children by container_of along their list, as /proc has them",
    command: r#"
        c='container_of($task->children.next'
        run children -k vfs_read --mode entry --limit-events 1 --filter-arg 'file->f_path.dentry->d_name.name == "children"' \
            --output-arg "$c, struct task_struct, sibling)->pid" --output-arg "$c->next, struct task_struct, sibling)->pid" \
            --output-arg "$c->next->next, struct task_struct, sibling)->pid" \
            --output-arg '$task->children.next->next->next->next == &$task->children' --output-arg "$c, struct task_struct, sibling)->real_parent == \$task" \
            -c 'sleep 100 & sleep 101 & sleep 102 & read kids </proc/$$/task/$$/children; echo $kids >/tmp/kids; kill $kids'
        echo '== kids 0 '; echo "[$(tr -s ' ' , </tmp/kids)]" | sed 's/,]/]/'"#,
    judge: |ran| {
        let (text, kids) = ran.stdout.split_once("== kids 0 \n").context("no children")?;
        let kids: Vec<u64> = serde_json::from_str(kids.trim())?;
        ensure!(kids.len() == 3, "{kids:?}");
        let ran = crate::frames::Ran { status: ran.status, stdout: text.into(), stderr: ran.stderr.clone() };
        let (_, runs) = runs(&ran)?;
        let run = named(&runs, "children")?;
        run.has(1)?;
        let pids = kids.iter().map(|pid| json!(pid));
        run.shows(&pids.chain([json!(1), json!(1)]).collect::<Vec<_>>())
    },
};
