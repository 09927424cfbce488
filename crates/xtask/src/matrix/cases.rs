//! Faults that users of tools like this one have met, each a check named for its number in the field's list. Those on values
//! stand in `shapes.rs` and `syscalls.rs`.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Check;
use super::judging::{NO_MODULE_TYPES, json, no_loss, refused, stacks, summary};
use crate::frames::Ran;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "case 4: functions that begin with endbr64 are traced, and the address where they were entered has their name",
        command: r"
            btrace -k vfs_read,hrtimer_nanosleep --mode entry --output-stack -c 'workloads sleep-ms 1; workloads read-zero 3 7'; s=$?
            grep -c ' ibt_save$' /proc/kallsyms; exit $s",
        judge: |ran| {
            // endbr64, and the call of the trampoline; without it that call alone.
            let ibt = ran.stdout.lines().last().is_some_and(|count| count != "0");
            let place = if ibt { "+0x9" } else { "+0x5" };
            entered(ran, &["vfs_read", "hrtimer_nanosleep"], place)
        },
    },
    Check {
        name: "case 20: functions whose entry is patched at their very beginning, without endbr64, are traced",
        command: r"
            btrace -k do_sys_openat2,do_nanosleep --mode entry --output-stack -c 'workloads open-missing 3 /no/such/file; workloads sleep-ms 1'",
        judge: |ran| entered(ran, &["do_sys_openat2", "do_nanosleep"], "+0x5"),
    },
    Check {
        name: "case 12: without tracefs and debugfs",
        command: r"
            for at in /sys/kernel/debug /sys/kernel/tracing; do mount -t tmpfs none $at || exit 97; done
            btrace -k vfs_read --mode both -c 'workloads read-zero 4 17'; s=$?
            btrace -t sched_process_exec -c /bin/true >&2
            for at in /sys/kernel/tracing /sys/kernel/debug; do umount $at; done; exit $s",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            ensure!(ran.stdout.matches("(size_t)count=17,").count() == 8, "{}", ran.stdout);
            ensure!(ran.stderr.contains("sched_process_exec args=("), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "case 14: returns of a thousand functions, where a method for many takes them; of dozens elsewhere: all of them, or each named that is not",
        command: r"
            grep -q -E ' bpf_(session_cookie|kprobe_multi_link_attach)$' /proc/kallsyms && grep -q ' bpf_session_is_return$' /proc/kallsyms &&
                functions='[b-d]*' || functions='vfs_*'
            btrace --dry-run -k $functions | grep -c -v '^ '
            btrace -v -k $functions --filter-comm nobody -o /dev/null -c true",
        judge: thousands,
    },
    Check {
        name: "case 15: Ctrl-C is heard although no event ever comes",
        command: r"
            traced -k orderly_poweroff -o /dev/null
            kill -INT $b
            for i in $(seq 100); do [ -d /proc/$b ] || break; grep -q '^State:.Z' /proc/$b/status && break; sleep 0.1; done
            [ $i -lt 100 ] || { kill -KILL $b; echo 'still there'; }
            wait $b; echo $?; cat /tmp/said >&2",
        judge: |ran| {
            ensure!(ran.stdout == "0\n", "{:?}", ran.stdout);
            ensure!(summary(ran)? == (0, 0), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "case 16: a thread's whole name is compared, not its beginning",
        command: r"
            cp /bin/workloads /tmp/work; cp /bin/workloads /tmp/workloadsX
            btrace -k vfs_read --mode entry --filter-comm workloads -c '/tmp/work read-zero 5 21; /tmp/workloadsX read-zero 5 21; workloads read-zero 5 21'
            s=$?; rm /tmp/work /tmp/workloadsX; exit $s",
        judge: |ran| {
            no_loss(ran)?;
            let of = |name: &str| ran.stdout.lines().filter(|l| l.contains(name)).count();
            ensure!(
                of("count=21,") == 5 && of(":workloads) ") == ran.stdout.lines().count(),
                "{}",
                ran.stdout
            );
            Ok(())
        },
    },
    Check {
        name: "case 18: nothing of an earlier event is left in a later one: texts that are shorter, empty, NULL",
        command: r"
            btrace -k btrace_shapes:bs_strings,btrace_shapes:bs_odd_strings --buffer-size 64K --json \
                -c 'for i in $(seq 200); do echo 1 >/sys/module/btrace_shapes/parameters/run; done'",
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let events = json(ran)?;
            let (printed, lost) = summary(ran)?;
            ensure!(printed + lost == 400, "{printed} + {lost}");
            let odd: Vec<_> =
                events.iter().filter(|e| e["target"] == "btrace_shapes:bs_odd_strings").collect();
            ensure!(!odd.is_empty(), "none printed");
            for event in odd {
                let args = &event["args"];
                ensure!(
                    args[1]["text"] == "" && args[2]["text"].is_null() && args[2]["value"] == "0x0",
                    "{event}"
                );
                ensure!(args[3]["text"] == "writable", "{event}");
            }
            Ok(())
        },
    },
    Check {
        name: "case 18: an event that has less than the one before it, of one function: NULL, unreadable and empty after whole ones",
        command: r"
            for mode in entry exit; do
                btrace -k btrace_shapes:bs_stale --mode $mode --buffer-size 64K --json \
                    -c 'for i in $(seq 100); do echo 1 >/sys/module/btrace_shapes/parameters/run; done' || exit
            done",
        judge: less_and_less,
    },
    Check {
        name: "case 18: a stack less deep than the one before it has none of its frames",
        command: r"
            btrace -k btrace_shapes:bs_factorial --mode both --output-stack --buffer-size 64K --json \
                -c 'for i in $(seq 30); do echo 1 >/sys/module/btrace_shapes/parameters/run; done'",
        judge: depths,
    },
    Check {
        name: "case 18: a system call's text that can be read, and one that cannot, by turns",
        command: r"
            btrace -k __x64_sys_openat --json -c 'for i in $(seq 20); do workloads open-missing 2 /no/such/file/with/a/name; workloads open-fault 2; done'",
        judge: |ran| {
            no_loss(ran)?;
            let (mut whole, mut nowhere) = (0, 0);
            for event in json(ran)? {
                let name = &event["args"][1];
                if name["value"] == "0x8" {
                    ensure!(name["text"] == json!({"error": "EFAULT"}), "{event}");
                    nowhere += 1;
                } else if event["comm"] == "workloads" && event["retval"]["error"] == "ENOENT" {
                    ensure!(name["text"] == "/no/such/file/with/a/name", "{event}");
                    whole += 1;
                }
            }
            ensure!((whole, nowhere) == (40, 40), "{whole} and {nowhere}");
            Ok(())
        },
    },
    Check {
        name: "case 19: the start of a plain trace reads no list of functions: not available_filter_functions, and no symbols before it runs",
        command: r#"
            btrace -k do_sys_openat2 --mode entry --json -c 'btrace -k vfs_read --limit-events 2 -c "workloads read-zero 5 512"'"#,
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let lines = ran.stdout.lines().filter(|l| l.starts_with('{'));
            let events: Vec<Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
            // The command is let go when everything is attached.
            let running = events.iter().position(|e| e["comm"] == "workloads").context("no workload")?;
            let opened = |events: &[Value], name: &str| {
                let texts = events.iter().filter_map(|e| e["args"][1]["text"].as_str());
                texts.filter(|text| text.contains(name)).count()
            };
            ensure!(opened(&events, "/sys/kernel/btf/vmlinux") == 1, "{}", ran.stdout);
            ensure!(opened(&events, "available_filter_functions") == 0, "{}", ran.stdout);
            ensure!(opened(&events[..running], "kallsyms") == 0, "{}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "case 21: a sleep lasts as long as it did, by the kernel's clock and not the printer's",
        command: r"btrace -k hrtimer_nanosleep --mode both --json -c 'workloads sleep-ms 5000'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            let events = json(ran)?;
            let exit = events.iter().rev().find(|e| e["event"] == "exit").context("no exit")?;
            let entry = events.iter().find(|e| e["call"] == exit["call"]).context("no entry")?;
            let at = |event: &serde_json::Value| event["time_ns"].as_u64().context("time_ns");
            // More than 2^32 ns.
            let duration = exit["duration_ns"].as_u64().context("duration")?;
            ensure!(duration >= 5_000_000_000, "{duration}");
            ensure!(at(exit)? - at(entry)? == duration, "{entry} {exit}");
            Ok(())
        },
    },
    Check {
        name: "case 22: a buffer in user memory is not taken for a text; one that cannot be read is said",
        command: "btrace -k vfs_read --json -c 'workloads read-zero 2 23'; btrace -k __ia32_sys_read -c compat32 >&2",
        judge: buffers,
    },
    Check {
        name: "case 22: a text in user memory that cannot be read is said, and not shown as empty",
        command: "btrace -k do_sys_openat2 -c 'workloads open-fault 3'",
        judge: |ran| {
            no_loss(ran)?;
            let lines = ran.stdout.lines().filter(|l| l.contains("(const char *)filename=0x8(EFAULT), "));
            ensure!(lines.filter(|l| l.contains("-14 EFAULT cpu=")).count() == 3, "{}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "case 22: a filter that names nothing is an error, one clear line each",
        command: r"
            for f in '--filter-pid 4000000' '--filter-tid 4000000' '--filter-cpu 4000' '--filter-cgroup /no/such' '--filter-comm a-name-of-16-byte'; do
                btrace -k vfs_read $f; echo $?
            done",
        judge: |ran| {
            ensure!(ran.stdout == "2\n".repeat(5), "{:?}", ran.stdout);
            let lines: Vec<&str> = ran.stderr.lines().collect();
            let words = ["no such process", "no such thread", "no such CPU", "/no/such", "1 to 15 bytes"];
            let said = lines.len() == 5 && lines.iter().zip(words).all(|(line, word)| line.contains(word));
            ensure!(said, "{lines:?}");
            Ok(())
        },
    },
];

/// All is well, and the first frame of each of these functions' stacks is so far into them.
fn entered(ran: &Ran, names: &[&str], place: &str) -> Result<()> {
    let (_, lost) = summary(ran)?;
    ensure!(ran.status == 0 && lost == 0, "exit status {}, {lost} lost", ran.status);
    for name in names {
        for (line, frames) in stacks(ran, &format!("{name} "))? {
            let first = frames.first().context("no frames")?;
            ensure!(*first == format!("{name}{place}"), "{first} and not {place} in {line}");
        }
    }
    Ok(())
}

/// Every function of the pattern is attached, or named with the reason why not.
fn thousands(ran: &Ran) -> Result<()> {
    ensure!(ran.status == 0, "exit status {}", ran.status);
    let planned: usize = ran.stdout.trim().parse().context("how many are planned")?;
    let targets =
        ran.stderr.lines().find_map(|l| l.split_once(" is running.. (")?.1.strip_suffix(" targets)"));
    let attached: usize = targets.context("no line of its start")?.parse()?;
    // Those that the plan refuses are named as well.
    let untraced = ran.stderr.lines().filter(|l| l.contains(": not traced: ")).count();
    ensure!(attached > planned / 2 && attached <= planned, "{attached} of {planned}");
    ensure!(attached + untraced >= planned, "{attached} of {planned}, {untraced} named");
    let many = ran.stderr.lines().any(|l| l.contains("kprobe_multi: ") || l.contains("tracing_multi: "));
    ensure!(if many { planned > 1000 } else { planned > 40 }, "{planned} planned");
    Ok(())
}

/// What `stale` of the module does, seven calls again and again: every event has what its own call had, and nothing of
/// the call before it.
fn less_and_less(ran: &Ran) -> Result<()> {
    if ran.status == 2 {
        return refused(ran, NO_MODULE_TYPES);
    }
    ensure!(ran.status == 0, "exit status {}", ran.status);
    let fault = json!({"error": "EFAULT"});
    let mut seen = [0; 7];
    for event in json(ran)? {
        let [number, text, address, name] = event["args"].as_array().context("args")?.as_slice() else {
            bail!("{event}");
        };
        let number = number["value"].as_u64().context("number")?;
        let null = |arg: &Value| arg["value"] == "0x0" && arg["text"].is_null() && arg["pointee"].is_null();
        let of = |port: &str| {
            json!({"value": port.parse::<u16>().ok(), "text": port})["text"]
                == address["pointee"]["port"]["text"]
        };
        let fine = match number {
            1 | 3 => {
                text["text"] == "a text to be left over"
                    && address["summary"] == "127.0.0.1:8080"
                    && of("8080")
                    && name["pointee"]["name"] == "the first name"
            }
            2 => null(text) && null(address) && null(name),
            4 => {
                text["text"] == fault
                    && address["pointee"] == json!({"family": fault})
                    && address["summary"].is_null()
                    && name["pointee"] == json!({"name": fault})
            }
            5 => text["text"] == "a text to be left over" && address["summary"] == "[::]:443" && of("443"),
            6 => {
                text["text"] == ""
                    && address["pointee"]["port"].is_null()
                    && address["pointee"]["address"].is_null()
                    && name["pointee"] == json!({"name": fault})
            }
            7 => {
                text["text"] == "x"
                    && address["summary"] == "127.0.0.1:8080"
                    && name["pointee"]["name"] == "y"
            }
            _ => false,
        };
        ensure!(fine, "{event}");
        if let Some(seen) = seen.get_mut(number as usize - 1) {
            *seen += 1;
        }
    }
    // A tiny buffer may lose some.
    ensure!(seen.iter().all(|count| *count > 20), "{seen:?}");
    Ok(())
}

/// Each event of factorial(n), which begins with 5, has as many frames of it as it has been called, and the same
/// others.
fn depths(ran: &Ran) -> Result<()> {
    if ran.status == 2 {
        return refused(ran, NO_MODULE_TYPES);
    }
    ensure!(ran.status == 0, "exit status {}", ran.status);
    let mut outermost = None;
    let mut always = [None; 2];
    let mut seen = [0; 5];
    for event in json(ran)? {
        let n = event["args"][0]["value"].as_u64().filter(|n| (1..=5).contains(n)).context("n")? as usize;
        let frames = event["stack"].as_array().context("stack")?;
        let own = frames.iter().filter(|f| f["symbol"] == "bs_factorial").count();
        // The function itself, which is not on the stack at its return, nor where its trampoline is jumped to (7.x); its
        // callers are.
        let itself = own.checked_sub(5 - n).filter(|n| *n <= 1);
        let itself = itself.with_context(|| format!("{own} of bs_factorial({n}): {event}"))?;
        let kind = usize::from(event["event"] == "exit");
        ensure!(*always[kind].get_or_insert(itself) == itself, "{own} of bs_factorial({n}): {event}");
        let others = frames.len() - own;
        ensure!(*outermost.get_or_insert(others) == others, "{others} others: {event}");
        seen[n - 1] += 1;
    }
    ensure!(seen.iter().all(|count| *count > 5), "{seen:?}");
    Ok(())
}

fn buffers(ran: &Ran) -> Result<()> {
    let lines: Vec<&str> = ran.stdout.lines().filter(|l| l.contains("\"value\":23}")).collect();
    ensure!(lines.len() == 2, "{} reads", lines.len());
    for line in lines {
        let event: serde_json::Value = serde_json::from_str(line)?;
        let buf = &event["args"][1];
        ensure!(buf["name"] == "buf" && buf["text"].is_null() && buf["value"] != "0x0", "{event}");
    }
    ensure!(ran.stderr.contains("(char *)buf=0xfffff000, (size_t)count=77)"), "{}", ran.stderr);
    Ok(())
}
