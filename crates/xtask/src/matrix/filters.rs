//! Whose calls are shown, and which: the command's, a thread's, a name's, errors.

use anyhow::ensure;

use super::Check;
use super::judging::{json, no_loss, refused};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a process that is not there",
        command: "btrace -k vfs_read --filter-pid 4000000",
        judge: |ran| refused(ran, "no such process"),
    },
    Check {
        name: "a command's children are followed, and nobody else",
        command: r"
            (while :; do /bin/true; workloads read-zero 10 1; done) & noise=$!
            btrace -t sched_process_exec --json -c 'workloads exec-true 3; (workloads exec-true 2)'
            s=$?; kill $noise; exit $s",
        judge: |ran| {
            no_loss(ran)?;
            let files: Vec<String> = json(ran)?
                .iter()
                .map(|e| e["args"][2]["pointee"]["filename"].as_str().unwrap_or("?").to_string())
                .collect();
            let of = |name: &str| files.iter().filter(|f| f.ends_with(name)).count();
            ensure!(of("/true") == 5 && of("/workloads") == 2 && files.len() == 7, "{files:?}");
            Ok(())
        },
    },
    Check {
        name: "only errors, only one name, only one thread",
        command: r"
            btrace -k do_sys_openat2 --errors -c 'workloads open-missing 4 /no/such/file'
            btrace -k vfs_read --filter-comm dd -c 'workloads read-zero 5 9; dd if=/dev/zero of=/dev/null bs=9 count=6 2>/dev/null'
            waiting read-zero 3 11; traced -k vfs_read --filter-tid $w --filter-cpu 0 --filter-cpu 1
            kill -USR1 $w; wait $w; ended TERM",
        judge: |ran| {
            let of = |what: &str| ran.stdout.lines().filter(|l| l.contains(what)).count();
            ensure!(of("do_sys_openat2") == 4 && of(" ENOENT ") == 4, "errors");
            ensure!(of("count=9,") == 6 && of(":dd)") == 6, "comm: {} {}", of("count=9,"), of(":dd)"));
            ensure!(of("count=11,") == 3 && of(":workloads)") == 7, "tid");
            Ok(())
        },
    },
    Check {
        name: "an error filter that cannot apply is an error",
        command: "btrace -k vfs_read --mode entry --errors",
        judge: |ran| refused(ran, "--errors needs --mode exit"),
    },
    Check {
        name: "process ids are those of the pid namespace",
        command: r#"
            cat >/tmp/inside.sh <<'EOF'
                workloads --pid --wait read-zero 5 13 >/tmp/pid & w=$!
                for i in $(seq 100); do grep -q '[0-9]' /tmp/pid && break; sleep 0.1; done
                [ $w -lt 20 ] && echo "small number"
                btrace -k vfs_read --filter-pid $w 2>/tmp/said & b=$!
                for i in $(seq 100); do grep -qs running /tmp/said && break; sleep 0.1; done
                kill -USR1 $w; wait $w; kill -INT $b; wait $b; cat /tmp/said >&2
EOF
            rm -f /tmp/pid /tmp/said; unshare -pf --mount-proc sh /tmp/inside.sh"#,
        judge: |ran| {
            let reads =
                ran.stdout.lines().filter(|l| l.contains("count=13,") && l.contains(":workloads)")).count();
            ensure!(ran.stdout.starts_with("small number\n") && reads == 5, "{reads} reads");
            Ok(())
        },
    },
];
