//! How a trace ends, what is lost on the way, and that nothing is left.

use anyhow::ensure;

use super::Check;
use super::judging::summary;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "Ctrl-C and SIGKILL leave nothing attached",
        command: r#"
            attached() { grep -c vfs_read /sys/kernel/tracing/enabled_functions; }
            gone() { for i in 1 2 3 4 5 6 7 8 9 10; do [ "$(attached)" = 0 ] && { echo gone; return; }; sleep 0.2; done; echo left; }
            for signal in INT TERM KILL; do
                traced -k vfs_read -o /dev/null
                echo "while $(attached)"
                kill -$signal $b; wait $b; echo "status $?"
                gone
            done"#,
        judge: |ran| {
            let want = "while 1\nstatus 0\ngone\nwhile 1\nstatus 0\ngone\nwhile 1\nstatus 137\ngone\n";
            ensure!(ran.stdout == want, "got {:?}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "a tiny buffer and a stopped reader: printed + lost = produced",
        command: r"
            waiting read-zero 5000 512
            traced -k vfs_read --mode entry --buffer-size 64K --filter-pid $w
            kill -STOP $b; kill -USR1 $w; wait $w; kill -CONT $b; ended INT",
        judge: |ran| {
            ensure!(ran.status == 0);
            let (printed, lost) = summary(ran)?;
            ensure!(lost > 0, "a 64 KiB ring must have overrun");
            ensure!(printed + lost == 5000, "{printed} + {lost}");
            ensure!(ran.stdout.lines().count() as u64 == printed, "the summary tells what was printed");
            Ok(())
        },
    },
    Check {
        name: "case 23: Ctrl-C straight after a burst: what is in the buffer is still printed",
        command: r"
            waiting read-zero 20000 512
            traced -k vfs_read --filter-pid $w
            kill -USR1 $w; wait $w; ended INT",
        judge: |ran| {
            let (printed, lost) = summary(ran)?;
            ensure!(
                printed + lost == 20000 && ran.stdout.lines().count() as u64 == printed,
                "{printed} + {lost}"
            );
            ensure!(ran.status == 0 && !ran.stdout.contains("duration=?"), "every call has its duration");
            Ok(())
        },
    },
    Check {
        name: "exactly as many events as asked for",
        command: "btrace -k vfs_read --limit-events 7 -c 'dd if=/dev/zero of=/dev/null bs=512 count=100 2>/dev/null'",
        judge: |ran| {
            ensure!(
                ran.status == 0 && ran.stdout.lines().count() == 7,
                "{} lines",
                ran.stdout.lines().count()
            );
            Ok(())
        },
    },
    Check {
        name: "case 13: a ring buffer that does not fit is made smaller, and that is said",
        command: "btrace -k vfs_read --buffer-size 2G -o /tmp/o -c 'workloads read-zero 2 3'",
        judge: |ran| {
            ensure!(
                ran.status == 0
                    && ran.stderr.contains("no memory for a ring buffer of 2147483648 bytes; it has")
            );
            Ok(())
        },
    },
    Check {
        name: "the command's own failure is said",
        command: "btrace -k vfs_read -o /tmp/o -c 'exit 3'",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.contains("exit status: 3"), "{:?}", ran.stderr);
            Ok(())
        },
    },
];
