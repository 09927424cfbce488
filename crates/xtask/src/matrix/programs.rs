//! BPF programs as targets. What the workload's programs do: crates/workloads/src/programs.rs.

use super::Check;
use super::judging::{json, refused, summary};
use crate::frames::Ran;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "list -p: type, whole name, tag, prototypes and methods of every function, or the reason",
        command: "waiting bpf-programs 0; btrace list -p pid:$w; s=$?; kill -USR1 $w; wait $w && exit $s",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.is_empty(), "{} {:?}", ran.status, ran.stderr);
            let want = [
                (
                    "int weigh_every_packet_twice(struct __sk_buff *skb)",
                    "socket_filter weigh_every_packet_twice",
                ),
                (
                    "int weigh(struct __sk_buff *skb, int delta, __u64 factor, enum side side)",
                    "socket_filter weigh_every_packet_twice",
                ),
                ("int add_pair(unsigned int *pair)", "socket_filter weigh_every_packet_twice"),
                ("int finish_after_the_jump(struct __sk_buff *skb)", "socket_filter finish_after_the_jump"),
                (
                    "int settle(struct __sk_buff *skb, unsigned int weight)",
                    "socket_filter finish_after_the_jump",
                ),
                ("int seen_through_a_link(__u64 *ctx)", "raw_tracepoint seen_through_a_link"),
                ("untyped", "socket_filter untyped"),
            ];
            let lines: Vec<&str> = ran.stdout.lines().collect();
            ensure!(lines.len() == want.len(), "{lines:?}");
            for (line, (prototype, program)) in lines.iter().zip(want) {
                // Newer kernels have fsession too.
                let (methods, rest) = line.split_once(' ').with_context(|| line.to_string())?;
                ensure!(
                    methods.starts_with(if prototype == "untyped" { "-" } else { "fentry,fexit" }),
                    "{line}"
                );
                let rest = rest.trim_start().strip_prefix(&format!("{prototype} [bpf:"));
                let (id, rest) = rest.and_then(|r| r.split_once(' ')).with_context(|| line.to_string())?;
                ensure!(id.parse::<u32>().is_ok_and(|id| id > 0), "{line}");
                let rest = rest.strip_prefix(program).with_context(|| line.to_string())?;
                let (tag, rest) = rest.trim_start().split_once(']').with_context(|| line.to_string())?;
                ensure!(tag.len() == 16 && tag.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
                ensure!((prototype == "untyped") == rest.contains("# it was loaded without BTF"), "{line}");
            }
            Ok(())
        },
    },
    Check {
        name: "a program by its id, name, glob, tag, pin and process, and among all: every run",
        command: r#"
            mount -t bpf bpf /sys/fs/bpf 2>/dev/null
            for form in id i: id: n: name: glob t: tag: p: pinned: pid: all; do
                waiting bpf-programs 50 /sys/fs/bpf/weigh
                set -- $(btrace list -p "pid:$w:weigh_*" | sed 's/.*\[bpf:\([0-9]*\) .* \([0-9a-f]*\)\].*/\1 \2/')
                case $form in
                    id) spec=$1;; i:|id:) spec=$form$1;; n:|name:) spec=${form}weigh_every_packet_twice;;
                    glob) spec=n:weigh_'*';; t:|tag:) spec=$form$2;; p:|pinned:) spec=$form/sys/fs/bpf/weigh;;
                    pid:) spec=pid:$w;; all) spec='*';;
                esac
                traced -p "$spec" --filter-pid $w -o /tmp/o
                kill -USR1 $w; wait $w; kill -INT $b; wait $b
                echo "$form $? $(grep -c '^weigh_every_packet_twice.bpf. args=((struct sk_buff \*)skb=0xffff.*) retval=(int)42 ' /tmp/o) $(wc -l </tmp/o)"
            done; umount /sys/fs/bpf"#,
        judge: |ran| {
            let forms =
                ["id", "i:", "id:", "n:", "name:", "glob", "t:", "tag:", "p:", "pinned:", "pid:", "all"];
            let want: String = forms.map(|form| format!("{form} 0 50 50\n")).concat();
            ensure!(ran.stdout == want, "{:?}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "subprograms, global and static, and those of a tail-called program: values, at entry, exit and both",
        command: r#"
            for mode in entry exit both; do
                waiting bpf-programs 100
                traced -p "pid:$w:*" --mode $mode --json -o /tmp/o.$mode
                kill -USR1 $w; wait $w; kill -INT $b; wait $b; cat /tmp/said >&2
            done; cat /tmp/o.entry /tmp/o.exit /tmp/o.both"#,
        judge: |ran| {
            let events = json(ran)?;
            let mut counts: BTreeMap<(&str, bool, bool), usize> = BTreeMap::new();
            for event in &events {
                let target = event["target"].as_str().context("target")?;
                let exit = event["event"] == "exit";
                ensure!(exit != event["retval"].is_null(), "{event}");
                *counts.entry((target, exit, !event["call"].is_null())).or_default() += 1;
                shape(event, target, exit)?;
            }
            let (mut want, traced) =
                (BTreeMap::new(), ["weigh_every_packet_twice", "weigh", "add_pair", "settle"]);
            for target in traced {
                for end in [(false, false), (true, false), (false, true), (true, true)] {
                    want.insert((target, end.0, end.1), 100);
                }
            }
            // The tail-called program's own entry is jumped past, on every kernel of the lab; that is said.
            ensure!(counts == want, "{counts:?}");
            let said = ran.stderr.lines().filter(|l| {
                l.contains("finish_after_the_jump[bpf:") && l.contains("tail calls lead to it (map jumps)")
            });
            ensure!(said.count() == 3, "{}", ran.stderr);
            let untyped = ran.stderr.lines().filter(|l| {
                l.contains("untyped[bpf:") && l.contains("not traced: it was loaded without BTF")
            });
            ensure!(untyped.count() == 3, "{}", ran.stderr);
            ensure!(
                ran.stderr.matches(", 0 lost").count() == 3 && !ran.stderr.contains("not seen: the probe"),
                "{}",
                ran.stderr
            );
            pairs(&events)
        },
    },
    Check {
        name: "one subprogram of a program, and a program that is held by its link alone",
        command: r#"
            waiting bpf-programs 30
            traced -p "pid:$w:seen_*,n:finish_after_the_jump:set*" -o /tmp/o
            for i in 1 2 3; do echo $i >/proc/self/oom_score_adj; done
            kill -USR1 $w; wait $w; kill -INT $b; wait $b; cat /tmp/o; cat /tmp/said >&2"#,
        judge: |ran| {
            let of = |what: &str| ran.stdout.lines().filter(|l| l.starts_with(what)).count();
            let settle = "settle[bpf] args=((struct sk_buff *)skb=0xffff";
            let seen = "seen_through_a_link[bpf] args=((__u64 *)ctx=0xffff";
            ensure!((of(settle), of(seen)) == (30, 3), "{} and {}", of(settle), of(seen));
            ensure!(
                ran.stdout
                    .lines()
                    .filter(|l| l.contains(", (unsigned int)weight=97) retval=(int)42 "))
                    .count()
                    == 30
            );
            ensure!(
                ran.stdout.lines().filter(|l| l.contains(" retval=(int)0 ")).count() == 3,
                "{}",
                ran.stdout
            );
            ensure!(ran.stdout.lines().count() == 33);
            Ok(())
        },
    },
    Check {
        name: "two programs of one name: said how many, events told apart by id, and a filter on the process",
        command: r#"
            waiting bpf-programs 10; first=$w; waiting bpf-programs 20
            traced -p n:weigh_every_packet_twice -o /tmp/o
            kill -USR1 $first $w; wait $first; wait $w; kill -INT $b; wait $b; cat /tmp/said >&2
            cut -d' ' -f1 /tmp/o | sort | uniq -c
            waiting bpf-programs 10; first=$w; waiting bpf-programs 20
            traced -p n:weigh_every_packet_twice --filter-pid $w -o /tmp/o
            kill -USR1 $first $w; wait $first; wait $w; kill -INT $b; wait $b
            wc -l </tmp/o"#,
        judge: |ran| {
            let lines: Vec<Vec<&str>> =
                ran.stdout.lines().map(|l| l.split_ascii_whitespace().collect()).collect();
            let named = |name: &str| name.starts_with("weigh_every_packet_twice[bpf:") && name.ends_with(']');
            match lines.as_slice() {
                [a, b, c] => {
                    let ([a, first], [b, second], [c]) = (a.as_slice(), b.as_slice(), c.as_slice()) else {
                        anyhow::bail!("{lines:?}");
                    };
                    let mut counts = [*a, *b];
                    counts.sort_unstable();
                    ensure!(counts == ["10", "20"] && *c == "20", "{lines:?}");
                    ensure!(named(first) && named(second) && first != second, "{lines:?}");
                }
                _ => anyhow::bail!("{lines:?}"),
            }
            ensure!(
                ran.stderr
                    .contains("-p n:weigh_every_packet_twice: 2 programs: weigh_every_packet_twice[bpf:"),
                "{}",
                ran.stderr
            );
            Ok(())
        },
    },
    Check {
        name: "--output-stack in programs: the traced one's own frames, none of ours",
        command: r#"
            waiting bpf-programs 40
            traced -p "pid:$w:*" --mode both --output-stack -o /tmp/o
            kill -USR1 $w; wait $w; kill -INT $b; wait $b; cat /tmp/o; cat /tmp/said >&2"#,
        judge: stacks_of_programs,
    },
    Check {
        name: "a program that is traced already can be traced again, from its first run on",
        command: r#"
            waiting bpf-programs 25
            traced -p "pid:$w" -o /tmp/first; first=$b
            traced -p "pid:$w" --mode both -o /tmp/second
            kill -USR1 $w; wait $w; kill -INT $b $first; wait $b; wait $first
            grep -c retval=.int.42 /tmp/first; grep -c '^←.*retval=.int.42' /tmp/second; grep -c '^→' /tmp/second"#,
        judge: |ran| {
            ensure!(ran.stdout == "25\n25\n25\n", "{:?}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "a tracing program as a target: traced where the kernel allows it, else refused with the reason",
        command: r#"
            traced -k vfs_read --mode entry --filter-comm workloads -o /dev/null; first=$b
            btrace -p n:en_vfs_read -o /tmp/o -c 'workloads read-zero 7 3'; s=$?
            kill -INT $first; wait $first; [ $s = 0 ] && grep -c '^en_vfs_read.bpf. ' /tmp/o; exit $s"#,
        judge: |ran| match ran.status {
            2 => refused(ran, "it is a tracing program itself, and this kernel attaches none to another"),
            _ => {
                let (printed, lost) = summary(ran)?;
                ensure!(
                    lost == 0 && printed >= 7 && ran.stdout == format!("{printed}\n"),
                    "{:?}",
                    ran.stdout
                );
                Ok(())
            }
        },
    },
    Check {
        name: "a program that is interpreted",
        command: r#"
            echo 0 >/proc/sys/net/core/bpf_jit_enable
            traced -k vfs_read --mode entry --filter-comm nobody -o /dev/null
            btrace -p n:en_vfs_read; s=$?; kill -INT $b; wait $b
            echo 1 >/proc/sys/net/core/bpf_jit_enable; exit $s"#,
        judge: |ran| refused(ran, "it is interpreted: only compiled programs can be traced"),
    },
    Check {
        name: "a program that runs at a function which our own programs depend on",
        command: r#"
            traced --force -k htab_map_delete_elem --mode entry --filter-comm nobody -o /dev/null
            btrace -p n:en_htab_map_delete_elem; s=$?; kill -INT $b; wait $b; exit $s"#,
        // Before 6.0 the kernel does not tell where it runs; then it does not let it be traced either.
        judge: |ran| {
            refused(ran, "it runs at htab_map_delete_elem: our programs run through it")
                .or_else(|_| refused(ran, "it is a tracing program itself"))
        },
    },
    Check {
        name: "programs that are not there, or cannot be: one line each, status 2",
        command: r#"
            umount /sys/fs/bpf 2>/dev/null
            waiting bpf-programs 0
            for p in 999999 n:weigh_every_packet_twcie t:0123456789abcdef p:/sys/fs/bpf/weigh p:/etc/passwd pid:$w:nothing pid:999999 pid:$$ n:untyped no; do
                btrace -p $p; echo $?
            done
            kill -USR1 $w; wait $w; btrace -p pid:$w; echo $?"#,
        judge: |ran| {
            ensure!(ran.stdout == "2\n".repeat(11), "{:?}", ran.stdout);
            let lines: Vec<&str> = ran.stderr.lines().collect();
            let want = [
                "there is no BPF program with this id",
                "did you mean weigh_every_packet_twice?",
                "no BPF program has this tag",
                "no BPF file system is mounted",
                "p:/etc/passwd: it is no pin",
                "have a function nothing",
                "there is no such process",
                "the process holds no BPF program",
                "untyped[bpf:",
                "n:no means programs of that name",
                "there is no such process",
            ];
            ensure!(lines.len() == want.len(), "{lines:?}");
            for (line, why) in lines.iter().zip(want) {
                ensure!(line.starts_with("btrace: ") && line.contains(why), "{why:?}: {line}");
            }
            Ok(())
        },
    },
    Check {
        name: "--dry-run and --show-func-proto of a program",
        command: r#"
            waiting bpf-programs 0
            btrace --dry-run -p "pid:$w:weigh" --mode entry; btrace --show-func-proto -p "pid:$w:{weigh,settle}"
            kill -USR1 $w; wait $w"#,
        judge: |ran| {
            let lines: Vec<&str> = ran.stdout.lines().collect();
            ensure!(
                lines.first().is_some_and(|l| l.starts_with("weigh[bpf:") && l.contains("] fentry, ")),
                "{lines:?}"
            );
            for part in [
                "(struct sk_buff *)skb, 8 bytes",
                "(int)delta, 4 bytes",
                "(__u64)factor, 8 bytes",
                "(enum side)side, 4 bytes",
            ] {
                ensure!(ran.stdout.contains(part), "{part:?} in {lines:?}");
            }
            let prototypes = [
                "int weigh(struct __sk_buff *skb, int delta, __u64 factor, enum side side); /* bpf:",
                "int settle(struct __sk_buff *skb, unsigned int weight); /* bpf:",
            ];
            for prototype in prototypes {
                ensure!(
                    lines.iter().filter(|l| l.starts_with(prototype)).count() == 1,
                    "{prototype}: {lines:?}"
                );
            }
            Ok(())
        },
    },
];

/// What an event of the workload's functions must hold.
fn shape(event: &Value, target: &str, exit: bool) -> Result<()> {
    let args: Vec<(&str, &str, &Value)> = event["args"]
        .as_array()
        .context("args")?
        .iter()
        .map(|a| (a["name"].as_str().unwrap_or("?"), a["type"].as_str().unwrap_or("?"), &a["value"]))
        .collect();
    let pointer = |value: &Value| value.as_str().is_some_and(|v| v.starts_with("0xffff"));
    let (fine, retval) = match (target, args.as_slice()) {
        (
            "weigh",
            [
                ("skb", "struct sk_buff *", skb),
                ("delta", "int", delta),
                ("factor", "__u64", factor),
                ("side", "enum side", side),
            ],
        ) => (pointer(skb) && **delta == -3 && **factor == 1u64 << 40 && side["name"] == "RIGHT", 97),
        ("add_pair", [("pair", "unsigned int *", pair)]) => (pointer(pair), 5),
        ("settle", [("skb", "struct sk_buff *", skb), ("weight", "unsigned int", weight)]) => {
            (pointer(skb) && **weight == 97, 42)
        }
        ("weigh_every_packet_twice", [("skb", "struct sk_buff *", skb)]) => (pointer(skb), 42),
        _ => (false, 0),
    };
    ensure!(fine, "{event}");
    ensure!(!exit || event["retval"]["value"] == retval, "{event}");
    let name = if target == "settle" { "finish_after_the_jump" } else { "weigh_every_packet_twice" };
    let program = &event["program"];
    ensure!(program["name"] == name && program["id"].is_u64() && program["tag"].is_string(), "{event}");
    Ok(())
}

/// Entries and exits of the same call come in pairs.
fn pairs(events: &[Value]) -> Result<()> {
    let mut open = BTreeMap::new();
    for event in events.iter().filter(|e| !e["call"].is_null()) {
        let key = (event["target"].to_string(), event["call"].to_string());
        if event["retval"].is_null() {
            ensure!(open.insert(key, event).is_none(), "an entry twice: {event}");
        } else {
            let entry = open.remove(&key).with_context(|| format!("no entry of {event}"))?;
            ensure!(entry["args"] == event["args"] && event["duration_ns"].is_u64(), "{entry} {event}");
        }
    }
    ensure!(open.is_empty(), "{} entries without exits", open.len());
    Ok(())
}

fn stacks_of_programs(ran: &Ran) -> Result<()> {
    let (_, lost) = summary(ran)?;
    ensure!(lost == 0, "{lost} lost");
    // Whatever the kernel's unwinder makes of it: who called.
    let callers = [
        ("weigh_every_packet_twice", "bpf_test_run+0x"),
        ("weigh", "_weigh_every_packet_twice+0x"),
        ("add_pair", "_weigh_every_packet_twice+0x"),
        ("settle", "_finish_after_the_jump+0x"),
    ];
    for (target, caller) in callers {
        for end in ["→", "←"] {
            let events = super::judging::stacks(ran, &format!("{end} {target}[bpf] "))?;
            ensure!(events.len() == 40, "{end} {} of {target}", events.len());
            for (_, frames) in &events {
                let ours = ["_en_", "_ex_", "bpf_trampoline_", "bpf_get_stack"];
                ensure!(
                    !frames.iter().any(|f| ours.iter().any(|o| f.contains(o))),
                    "our own frames: {frames:?}"
                );
                ensure!(frames.iter().all(|f| f.contains("+0x")), "{frames:?}");
                // Their source lines need no debug information.
                let lines = ["weigh_every_packet_twice.bpf.c:", "finish_after_the_jump.bpf.c:"];
                let has_line =
                    |f: &&str| lines.iter().any(|l| f.contains(&format!(" [bpf] ; {l}")) && f.ends_with('0'));
                ensure!(
                    frames.iter().filter(|f| f.contains(" [bpf]")).all(has_line),
                    "without lines: {frames:?}"
                );
                // Where the trampoline is jumped to (7.x), the traced function is not on the stack.
                let own = frames[0].contains(&format!("_{target}+0x")) && frames[0].contains(" [bpf]");
                ensure!(
                    frames.get(usize::from(own)).is_some_and(|f| f.contains(caller)),
                    "{target}: {frames:?}"
                );
            }
        }
    }
    Ok(())
}
