//! What each way of tracing a place costs.

use super::Check;
use super::judging::{json, refused};
use crate::frames::Ran;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "cost: of a function every way is listed, a trampoline is the shortest, a kprobe longer, nothing stays",
        command: r"
            workloads bpf-objects >/tmp/before
            btrace cost tcp_connect --rounds 1 --json; s=$?
            workloads bpf-objects | diff /tmp/before - >&2 || exit 99
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
            // Without bpf_get_current_task_btf (5.11) a kprobe's program takes no stack that it is on itself.
            if let Some(kprobe) = calls(&table, "kprobe")? {
                ensure!(kprobe > 2, "{table}");
                for way in ["tracing_multi", "kprobe_multi"] {
                    ensure!(calls(&table, way)?.is_none_or(|calls| calls <= kprobe), "{way}: {table}");
                }
            }
            recommended(&table, "recommended: ")
        },
    },
    Check {
        name: "cost: perf's tracepoints are deeper than raw ones, which are alike, and all are hit as often",
        command: r"
            workloads bpf-objects >/tmp/before
            target=sched_process_exec; grep -q netlink_extack /sys/kernel/tracing/available_events && target=netlink_extack
            [ $target = netlink_extack ] && btrace cost $target --rounds 1 --json || btrace cost $target --rounds 1 --json -c /bin/true; s=$?
            workloads bpf-objects | diff /tmp/before - >&2 || exit 99
            exit $s",
        judge: |ran| {
            let table = table(ran)?;
            ensure!(table["kind"] == "tracepoint", "{table}");
            let raw = calls(&table, "raw_tp")?.context("raw_tp's calls")?;
            ensure!(calls(&table, "tp_btf")? == Some(raw), "{table}");
            if let Some(perf) = calls(&table, "tp")? {
                // By one, or by two where the compiler made the last call of `__bpf_trace_…` a jump.
                ensure!(perf > raw, "tp {perf}, raw_tp {raw}: {table}");
            }
            ensure!(method(&table, "tp")?["offered"] == true, "{table}");
            ensure!(method(&table, "tp")?["hits"] == method(&table, "tp_btf")?["hits"], "{table}");
            recommended(&table, "recommended: ")
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

fn recommended(table: &Value, begins: &str) -> Result<()> {
    let line = table["recommendation"].as_str().context("recommendation")?;
    ensure!(line.starts_with(begins) && !line.contains("nothing"), "{line}");
    Ok(())
}
