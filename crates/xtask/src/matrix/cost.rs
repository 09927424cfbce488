//! What each way of tracing a place costs.

use super::Check;
use super::judging::{NO_MODULE_TYPES, json, refused};
use super::lbr::feeding;
use crate::frames::Ran;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "cost: of a function every way is listed, a trampoline is the shortest, a kprobe longer, nothing stays",
        command: r"
            workloads bpf-objects >/tmp/before
            btrace cost tcp_connect --rounds 3 --json; s=$?
            workloads only-objects /tmp/before || exit 99
            exit $s",
        judge: |ran| {
            let table = table(ran)?;
            ensure!(table["kind"] == "kernel function", "{table}");
            for way in ["fentry", "tracing_multi", "fexit", "fsession", "kprobe", "kprobe_multi", "kretprobe"]
            {
                method(&table, way)?;
            }
            for way in ["fentry", "fexit", "kprobe", "kretprobe"] {
                ensure!(method(&table, way)?["offered"] == true, "{way}: {table}");
            }
            ensure!(calls(&table, "fentry")? == Some(2), "{table}");
            let kprobe = calls(&table, "kprobe")?.context("kprobe's calls")?;
            ensure!(kprobe > 2, "{table}");
            for way in ["tracing_multi", "kprobe_multi"] {
                ensure!(calls(&table, way)?.is_none_or(|calls| calls <= kprobe), "{way}: {table}");
            }
            ensure!(calls(&table, "kretprobe")?.is_some_and(|calls| calls > kprobe), "{table}");
            recommended(&table, "recommended: ")
        },
    },
    Check {
        name: "cost: perf's tracepoints are deeper than raw ones, which are alike, and all are hit as often",
        command: r"
            workloads bpf-objects >/tmp/before
            target=sched_process_exec; grep -q netlink_extack /sys/kernel/tracing/available_events && target=netlink_extack
            [ $target = netlink_extack ] && btrace cost $target --rounds 3 --json || btrace cost $target --rounds 3 --json -c /bin/true; s=$?
            workloads only-objects /tmp/before || exit 99
            exit $s",
        judge: |ran| {
            let table = table(ran)?;
            ensure!(table["kind"] == "tracepoint", "{table}");
            let raw = calls(&table, "raw_tp")?.context("raw_tp's calls")?;
            ensure!(calls(&table, "tp_btf")? == Some(raw), "{table}");
            // By one, or by two where the compiler made the last call of `__bpf_trace_…` a jump.
            let jumps = jumped(&table, "raw_tp")?.iter().any(|name| name.starts_with("__bpf_trace_"));
            let perf = calls(&table, "tp")?.context("tp's calls")?;
            ensure!(perf == raw + if jumps { 2 } else { 1 }, "tp {perf}, raw_tp {raw}: {table}");
            ensure!(method(&table, "tp")?["offered"] == true, "{table}");
            ensure!(method(&table, "tp")?["hits"] == method(&table, "tp_btf")?["hits"], "{table}");
            recommended(&table, "recommended: ")
        },
    },
    Check {
        name: "cost: the machine code on the way: what is patched, the trampoline, what it calls, a program",
        command: r"
            target=sched_process_exec; grep -q netlink_extack /sys/kernel/tracing/available_events && target=netlink_extack
            [ $target = netlink_extack ] && btrace cost $target --rounds 1 --disasm || btrace cost $target --rounds 1 --disasm -c /bin/true",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            ensure!(ran.stderr.matches("no source lines").count() <= 1, "{}", ran.stderr);
            let sections: Vec<&str> = ran.stdout.split("\n# ").collect();
            let of = |way: &str| {
                let section =
                    sections.iter().find(|s| s.trim_start_matches("# ").starts_with(&format!("{way} on ")));
                section.copied().with_context(|| format!("no code of {way} in {:?}", ran.stdout))
            };
            for way in ["tp_btf", "raw_tp"] {
                let text = of(way)?;
                ensure!(
                    text.contains("\n; bpf_trace_run") && text.contains("\n; __bpf_trace_"),
                    "{way}: {text}"
                );
                ensure!(calls_to(text, "__bpf_trace_"), "the tracepoint's call: {text}");
            }
            ensure!(
                of("tp")?.contains("\n; perf_trace_") && of("tp")?.contains("\n; trace_call_bpf"),
                "{}",
                of("tp")?
            );
            let fentry = of("fentry")?;
            ensure!(calls_to(fentry, "bpf_trampoline_") && fentry.contains("(fentry call)"), "{fentry}");
            ensure!(
                fentry.contains("\n; bpf_trampoline_") && fentry.contains("\n; __bpf_prog_enter"),
                "{fentry}"
            );
            ensure!(of("kprobe")?.contains("\n; trace_call_bpf"), "{}", of("kprobe")?);
            for way in ["tp_btf", "raw_tp", "tp", "fentry", "kprobe"] {
                let program =
                    of(way)?.split("\n; bpf_prog_").nth(1).with_context(|| format!("{way}'s program"))?;
                ensure!(program.contains("_cost_empty [bpf]") && program.contains("ret"), "{way}: {program}");
            }
            Ok(())
        },
    },
    Check {
        name: "cost: a module's function, by a command that calls it",
        command: r#"
            [ -e /sys/module/btrace_shapes ] || { insmod /lab/btrace_shapes.ko || exit 98; mine=1; }
            btrace cost btrace_shapes:bs_int8 --rounds 1 --json -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'
            s=$?; [ "$mine" ] && rmmod btrace_shapes; exit $s"#,
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            let table = table(ran)?;
            ensure!(table["target"] == "btrace_shapes:bs_int8", "{table}");
            for way in ["fentry", "fexit", "kprobe", "kretprobe"] {
                ensure!(method(&table, way)?["offered"] == true, "{way}: {table}");
                ensure!(method(&table, way)?["hits"] == 1, "{way}: {table}");
            }
            ensure!(calls(&table, "fentry")? == Some(2), "{table}");
            let last =
                method(&table, "fentry")?["frames"].as_array().and_then(|f| f.last()).context("frames")?;
            ensure!(last["name"] == "bs_int8" && last["module"] == "btrace_shapes", "{table}");
            Ok(())
        },
    },
    Check {
        name: "cost: Ctrl-C amid measuring ends it, and nothing stays",
        command: r"
            workloads bpf-objects >/tmp/before
            btrace cost vfs_read --rounds 1000 & b=$!
            # Measuring is under way when a program of it is there.
            for i in $(seq 200); do [ $(workloads bpf-objects | grep -c ^program) -gt $(grep -c ^program /tmp/before) ] && break; sleep 0.05; done
            [ $i -lt 200 ] || exit 97
            kill -INT $b; wait $b; echo $?
            workloads only-objects /tmp/before",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}: {}", ran.status, ran.stderr);
            // 128 and the signal's number: it was ended by the signal.
            ensure!(ran.stdout == "130\n", "{:?}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "cost: without branch records the table says why",
        command: "btrace cost vfs_read --rounds 1 --json",
        judge: |ran| {
            let table = table(ran)?;
            let remarks = table["remarks"].to_string();
            let found = remarks
                .contains("branches: this kernel gives BPF programs none (no bpf_get_branch_snapshot")
                || remarks.contains("branches: no branch records here: the kernel knows no PMU of the CPU")
                || remarks.contains("branches: this CPU's PMU records no branches");
            ensure!(found, "{remarks}");
            ensure!(method(&table, "fentry")?["branches"].is_null(), "{table}");
            Ok(())
        },
    },
    Check {
        name: "cost: branches on the way, of known records: whole, cut off, and none",
        command: feeding!(
            r#"
            feed "ksys_read+0x20>vfs_read+0x0 vfs_read+0x4>enter $own"
            btrace cost vfs_read --rounds 1 --json || exit
            # They begin amid the way.
            feed "$own"
            btrace cost vfs_read --rounds 1 --json || exit
            echo 0 >$p/returned
            btrace cost vfs_read --rounds 1 --json; s=$?; echo -1 >$p/returned; exit $s"#
        ),
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}: {}", ran.status, ran.stderr);
            let lines: Vec<&str> = ran.stdout.lines().collect();
            let [release, tables @ ..] = lines.as_slice() else { anyhow::bail!("no output") };
            let tables: Vec<Value> =
                tables.iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
            let [whole, cut, none] = tables.as_slice() else { anyhow::bail!("{} tables", tables.len()) };
            if release.starts_with("5.") {
                ensure!(whole["remarks"].to_string().contains("no bpf_get_branch_snapshot"), "{whole}");
                return Ok(());
            }
            let mut seen = 0;
            for (table, entry, exit, at_least) in
                [(whole, Some(6), Some(5), (6, 5)), (cut, None, None, (5, 5))]
            {
                for way in table["methods"].as_array().context("methods")? {
                    if way["offered"] == false {
                        continue;
                    }
                    let name = way["method"].as_str().context("method")?;
                    let at_return = ["fexit", "kretprobe", "kretprobe_multi"].contains(&name);
                    let (count, least) = if at_return { (exit, at_least.1) } else { (entry, at_least.0) };
                    ensure!(way["branches"].as_u64() == count, "{name}: {table}");
                    ensure!(way["branches_at_least"] == least, "{name}: {table}");
                    seen += 1;
                }
            }
            ensure!(seen >= 8, "{seen} ways");
            ensure!(method(none, "fentry")?["branches"].is_null(), "{none}");
            let remarks = none["remarks"].to_string();
            ensure!(
                remarks.contains("branches unknown: the kernel gave no branch records: ENOENT"),
                "{remarks}"
            );
            Ok(())
        },
    },
    Check {
        name: "cost: of a function that takes no probe it is said that it does not, not that the kernel has none",
        command: "btrace cost __schedule --rounds 1 --json",
        judge: |ran| {
            let why = "kprobes are not allowed on it: noinstr, notrace, or one of kprobes' own";
            // Kernels that have no way to it at all refuse; some are allowed a kprobe there.
            if ran.status == 2 {
                ensure!(ran.stderr.lines().count() == 1, "{}", ran.stderr);
                // 5.10 has types of no function that is notrace.
                let fentry = [
                    "fentry: its entry cannot be patched (it is notrace",
                    "fentry: no type of it is known to the kernel",
                ];
                ensure!(fentry.iter().any(|why| ran.stderr.contains(why)), "{}", ran.stderr);
                ensure!(ran.stderr.contains(why), "{}", ran.stderr);
                return Ok(());
            }
            let table = table(ran)?;
            let kprobe = method(&table, "kprobe")?;
            let reason = kprobe["reason"].as_str().unwrap_or_default();
            ensure!(kprobe["offered"] == true || reason.contains(why), "{table}");
            Ok(())
        },
    },
    Check {
        name: "cost: too few rounds recommend nothing; what a command says is thrown away; a long command's columns hold",
        command: r"
            btrace cost vfs_read --rounds 2 | tail -n 1
            btrace cost vfs_read --rounds 3 -c 'dd if=/dev/zero of=/dev/null bs=8 count=1; echo said >&2; sleep 0.05'",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            ensure!(!ran.stderr.contains("said"), "{}", ran.stderr);
            let mut lines = ran.stdout.lines();
            let first = lines.next().unwrap_or_default();
            ensure!(first.starts_with("recommended: nothing yet, 2 rounds show no spread"), "{first}");
            let head = lines.clone().find(|line| line.starts_with("METHOD ")).context("no table")?;
            let ends = head.find("NS/HIT").context("no times")? + "NS/HIT".len();
            let rows: Vec<&str> =
                lines.skip_while(|line| *line != head).skip(1).take_while(|line| !line.is_empty()).collect();
            ensure!(rows.len() >= 9, "{rows:#?}");
            for row in rows {
                // Each time ends where the title ends, and a blank follows.
                let (cells, rest) = row.split_at_checked(ends).with_context(|| row.to_string())?;
                ensure!(!cells.ends_with(' ') && rest.starts_with("  "), "{row:?} under {head:?}");
            }
            Ok(())
        },
    },
    Check {
        name: "cost: what nothing is known to hit is refused in one line",
        command: "btrace cost tcp_sendmsg",
        judge: |ran| {
            refused(
                ran,
                "btrace does not know what hits this kernel function; name a command that does with -c",
            )
        },
    },
];

fn table(ran: &Ran) -> Result<Value> {
    ensure!(ran.status == 0, "exit status {}", ran.status);
    json(ran)?.into_iter().next().context("no table")
}

fn method<'a>(table: &'a Value, way: &str) -> Result<&'a Value> {
    let methods = table["methods"].as_array().context("methods")?;
    methods.iter().find(|m| m["method"] == way).with_context(|| format!("no {way} in {table}"))
}

/// The calls to a program attached so; `None` where they are unknown.
fn calls(table: &Value, way: &str) -> Result<Option<u64>> {
    Ok(method(table, way)?["calls"].as_u64())
}

/// Functions on the way that have no frame.
fn jumped(table: &Value, way: &str) -> Result<Vec<String>> {
    let frames = method(table, way)?["frames"].as_array().context("frames")?;
    let jumped = frames.iter().filter(|frame| frame["jumped"] == true);
    Ok(jumped.filter_map(|frame| Some(frame["name"].as_str()?.to_string())).collect())
}

/// Whether some line of a listing calls what has such a name.
fn calls_to(listing: &str, name: &str) -> bool {
    listing.lines().any(|line| line.contains(" call ") && line.contains(&format!("; {name}")))
}

fn recommended(table: &Value, begins: &str) -> Result<()> {
    let line = table["recommendation"].as_str().context("recommendation")?;
    ensure!(line.starts_with(begins) && !line.contains("nothing"), "{line}");
    Ok(())
}
