//! What is gathered in the kernel, held against a tally of the same events, or of what a workload is known to do.

use super::{Check, Run, named, outputs, runs};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

pub(in super::super) const CHECKS: &[Check] = &[KNOWN, SAME, TEXT, INTERVAL, SIGNS, TIES, CALLS, MOST];

const KNOWN: Check = Check {
    name: "expressions: count, sum, min, max, avg, hist, lhist of known calls, alone and by keys, at entry and exit",
    command: r#"
        o=--output-arg; work='workloads read-zero 30 16; workloads read-zero 10 100; workloads read-zero 5 1000; dd if=/dev/zero of=/dev/null bs=64 count=7 2>/dev/null'
        for m in entry exit both; do
            run $m -k vfs_read --mode $m --filter-arg 'file->f_path.dentry->d_name.name == "zero"' $o 'count()' $o 'count() by (count)' $o 'sum(count)' $o 'sum(count) by ($comm)' \
                $o 'min(count)' $o 'max(count)' $o 'avg(count)' $o 'avg(count) by ($comm, count > 50)' $o 'hist(count)' $o 'lhist(count, 10, 110, 10)' \
                $o 'hist(count) by ($comm)' $o 'count() by (file->f_path.dentry->d_name.name, $comm)' $o 'count() by (str(file->f_path.dentry->d_name.name), $comm)' -c "$work"
        done"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for mode in ["entry", "exit", "both"] {
            let run = named(&runs, mode)?;
            run.has(0)?;
            ensure!(run.gathered() == Some(52) && run.said.contains(" keys gathered"), "{}", run.said);
            let one = |text: &str| -> Result<Value> {
                let entries = run.tally(text)?["entries"].as_array().context("entries")?;
                ensure!(entries.len() == 1, "{text}: {entries:?}");
                Ok(entries[0].clone())
            };
            ensure!(one("count()")?["value"] == 52 && one("sum(count)")?["value"] == 480 + 1000 + 5000 + 448);
            ensure!(one("min(count)")?["value"] == 16 && one("max(count)")?["value"] == 1000);
            let mean = one("avg(count)")?;
            ensure!(mean["sum"] == 6928 && mean["count"] == 52 && mean["value"] == 133.230, "{mean}");
            ensure!(
                keyed(run, "count() by (count)")?
                    == [("16".into(), 30), ("100".into(), 10), ("64".into(), 7), ("1000".into(), 5)]
            );
            ensure!(
                keyed(run, "sum(count) by ($comm)")?
                    == [("\"workloads\"".into(), 6480), ("\"dd\"".into(), 448)]
            );
            ensure!(
                keyed(run, "avg(count) by ($comm, count > 50)")?
                    == [
                        ("\"workloads\",1".into(), 400),
                        ("\"dd\",1".into(), 64),
                        ("\"workloads\",0".into(), 16)
                    ]
            );
            ensure!(
                keyed(run, "count() by (str(file->f_path.dentry->d_name.name), $comm)")?
                    == [("\"zero\",\"workloads\"".into(), 45), ("\"zero\",\"dd\"".into(), 7)]
            );
            // A name of `const unsigned char` is a text without str(), in filters and outputs alike.
            let plain = "count() by (file->f_path.dentry->d_name.name, $comm)";
            ensure!(
                keyed(run, plain)? == [("\"zero\",\"workloads\"".into(), 45), ("\"zero\",\"dd\"".into(), 7)]
            );
            let written = &run.tally("count() by (str(file->f_path.dentry->d_name.name), $comm)")?["entries"]
                [0]["keys"];
            ensure!(
                written[0]["expr"] == "str(file->f_path.dentry->d_name.name)"
                    && written[1]["expr"] == "$comm",
                "{written}"
            );
            let buckets = |text: &str| Ok::<_, anyhow::Error>(buckets(&one(text)?));
            ensure!(
                buckets("hist(count)")?
                    == [(Some(16), Some(32), 30), (Some(64), Some(128), 17), (Some(512), Some(1024), 5)]
            );
            ensure!(
                buckets("lhist(count, 10, 110, 10)")?
                    == [
                        (Some(10), Some(20), 30),
                        (Some(60), Some(70), 7),
                        (Some(100), Some(110), 10),
                        (Some(110), None, 5)
                    ]
            );
            let by_comm = run.tally("hist(count) by ($comm)")?["entries"].as_array().context("entries")?;
            let counts: Vec<u64> =
                by_comm.iter().map(|e| super::tallies::buckets(e).iter().map(|b| b.2).sum()).collect();
            ensure!(counts == [45, 7], "{counts:?}");
        }
        Ok(())
    },
};

/// The entries of a tally in order: their keys as JSON, their values.
fn keyed(run: &Run, text: &str) -> Result<Vec<(String, i64)>> {
    let entries = run.tally(text)?["entries"].as_array().context("entries")?;
    let key = |entry: &Value| -> String {
        let keys = entry["keys"].as_array().map_or(&[][..], Vec::as_slice);
        keys.iter().map(|k| k["value"].to_string()).collect::<Vec<_>>().join(",")
    };
    entries.iter().map(|e| Ok((key(e), e["value"].as_i64().with_context(|| e.to_string())?))).collect()
}

type Bucket = (Option<i64>, Option<i64>, u64);

fn buckets(entry: &Value) -> Vec<Bucket> {
    let all = entry["buckets"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().map(|b| (b["from"].as_i64(), b["to"].as_i64(), b["count"].as_u64().unwrap_or(0))).collect()
}

/// Where `hist()` puts a value.
fn bucket(value: i64) -> (Option<i64>, Option<i64>) {
    match value {
        ..0 => (None, Some(0)),
        0 => (Some(0), Some(1)),
        _ => {
            let low = 1 << value.ilog2();
            (Some(low), Some(low * 2))
        }
    }
}

fn histogram(values: impl Iterator<Item = i64>) -> Vec<Bucket> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(bucket(value)).or_insert(0) += 1;
    }
    counts.into_iter().map(|((from, to), count)| (from, to, count)).collect()
}

const SAME: Check = Check {
    name: "expressions: what is gathered is the tally of the very events that were printed: durations, sizes, returns, by process and name",
    command: r#"
        o=--output-arg
        run events -k vfs_read,vfs_write --buffer-size 32M $o '$duration' $o 'count' $o '$retval' $o 'hist($duration)' $o 'hist(count)' $o 'sum($duration) by ($comm)' \
            $o 'min($duration)' $o 'max($duration)' $o 'avg($duration)' $o 'count() by ($pid)' $o 'hist($retval)' $o 'lhist($duration, 0, 100000, 1000)' \
            $o 'max($duration) by ($tid, $comm)' $o 'count() by ($cpu)' \
            -c 'workloads threads 4 500; workloads read-zero 300 16; dd if=/dev/zero of=/tmp/out bs=1000 count=100 2>/dev/null'
        run returns -k 'vfs_read,vfs_write,vfs_open,vfs_getattr,vfs_statx' --buffer-size 32M $o '$retval' $o 'hist($retval)' $o 'count()' $o 'min($retval)' $o 'max($retval)' $o 'sum($retval)' \
            -c 'ls -lR /proc/self/ >/dev/null 2>&1; cat /no/such 2>/dev/null; true'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let run = named(&runs, "events")?;
        run.is_well()?;
        ensure!(run.gathered() == Some(run.events.len() as u64), "{}", run.said);
        ensure!(run.events.len() + run.unseen()? >= 2500, "{}: {}", run.events.len(), run.said);
        let number = |event: &Value, at: usize| {
            outputs(event).get(at).and_then(|o| o["value"].as_i64()).unwrap_or(i64::MIN)
        };
        let column =
            |run: &Run, at: usize| -> Vec<i64> { run.events.iter().map(|e| number(e, at)).collect() };
        let (durations, sizes, returns) = (column(run, 0), column(run, 1), column(run, 2));
        for event in &run.events {
            ensure!(number(event, 0) == event["duration_ns"].as_i64().context("duration")?, "{event}");
        }
        let one = |run: &Run, text: &str| Ok::<_, anyhow::Error>(run.tally(text)?["entries"][0].clone());
        for (text, values) in
            [("hist($duration)", &durations), ("hist(count)", &sizes), ("hist($retval)", &returns)]
        {
            let (ours, theirs) = (buckets(&one(run, text)?), histogram(values.iter().copied()));
            ensure!(ours == theirs, "{text}: {ours:?}, not {theirs:?}");
        }
        let mut steps = BTreeMap::new();
        for duration in &durations {
            *steps.entry((duration / 1000).min(100)).or_insert(0_u64) += 1;
        }
        let steps: Vec<Bucket> = steps
            .into_iter()
            .map(|(step, n)| (Some(step * 1000), (step < 100).then_some((step + 1) * 1000), n))
            .collect();
        ensure!(buckets(&one(run, "lhist($duration, 0, 100000, 1000)")?) == steps, "lhist");
        let sum: i64 = durations.iter().sum();
        let mean = one(run, "avg($duration)")?;
        ensure!(mean["sum"] == sum && mean["count"] == durations.len(), "{mean}, not {sum}");
        ensure!(one(run, "min($duration)")?["value"].as_i64() == durations.iter().min().copied(), "min");
        ensure!(one(run, "max($duration)")?["value"].as_i64() == durations.iter().max().copied(), "max");
        let by = |of: &dyn Fn(&Value) -> String, add: &dyn Fn(&mut i64, i64)| -> BTreeMap<String, i64> {
            let mut sums = BTreeMap::new();
            for event in &run.events {
                add(sums.entry(of(event)).or_default(), number(event, 0));
            }
            sums
        };
        let seen =
            |text: &str| Ok::<_, anyhow::Error>(keyed(run, text)?.into_iter().collect::<BTreeMap<_, _>>());
        ensure!(
            seen("sum($duration) by ($comm)")? == by(&|e| e["comm"].to_string(), &|sum, n| *sum += n),
            "sum by $comm"
        );
        ensure!(
            seen("count() by ($pid)")? == by(&|e| e["pid"].to_string(), &|sum, _| *sum += 1),
            "count by $pid"
        );
        ensure!(
            seen("count() by ($cpu)")? == by(&|e| e["cpu"].to_string(), &|sum, _| *sum += 1),
            "count by $cpu"
        );
        let thread = |e: &Value| format!("{},{}", e["tid"], e["comm"]);
        ensure!(
            seen("max($duration) by ($tid, $comm)")? == by(&thread, &|most, n| *most = n.max(*most)),
            "max by thread"
        );

        let run = named(&runs, "returns")?;
        run.is_well()?;
        let returns = column(run, 0);
        ensure!(returns.iter().any(|n| *n < 0) || returns.contains(&0), "{returns:?}");
        let (ours, theirs) = (buckets(&one(run, "hist($retval)")?), histogram(returns.iter().copied()));
        ensure!(ours == theirs, "{ours:?}, not {theirs:?}");
        ensure!(one(run, "count()")?["value"] == returns.len(), "count");
        ensure!(one(run, "sum($retval)")?["value"].as_i64() == Some(returns.iter().sum()), "sum");
        ensure!(one(run, "min($retval)")?["value"].as_i64() == returns.iter().min().copied(), "min");
        ensure!(one(run, "max($retval)")?["value"].as_i64() == returns.iter().max().copied(), "max");
        Ok(())
    },
};

const TEXT: Check = Check {
    name: "expressions: tallies as text: a line for each key, the most first; histograms with bars",
    command: r#"
        btrace -k vfs_read --filter-arg 'file->f_path.dentry->d_name.name == "zero"' --output-arg 'count() by ($comm)' --output-arg 'hist(count)' --output-arg 'avg(count)' \
            --output-arg 'max(count) by ($comm, count & 1)' --output-arg 'vfs_read:lhist(count, 0, 40, 20)' --output-arg 'count() by (ksym(file->f_op->llseek))' \
            -c 'workloads read-zero 30 16; workloads read-zero 10 101; dd if=/dev/zero of=/dev/null bs=19 count=2 2>/dev/null'"#,
    judge: |ran| {
        ensure!(
            ran.status == 0 && ran.stderr.contains(" keys gathered from 42 events, 0 lost"),
            "{}",
            ran.stderr
        );
        let bar = |n: usize| format!("|{:<40}|", "@".repeat(n));
        let wanted = format!(
            "count() by ($comm):\n  workloads  40\n  dd         2\n\
             hist(count):\n    [16, 32)   32 {}\n    [32, 64)    0 {}\n    [64, 128)  10 {}\n\
             avg(count):\n  36.380 (42 events)\n\
             max(count) by ($comm, count & 1):\n  workloads, 1  101\n  dd, 1         19\n  workloads, 0  16\n\
             lhist(count, 0, 40, 20):\n    [0, 20)   32 {}\n    [20, 40)   0 {}\n    [40, …)   10 {}\n",
            bar(40),
            bar(0),
            bar(13),
            bar(40),
            bar(0),
            bar(13)
        );
        let (numbers, symbols) = ran.stdout.split_once("count() by (ksym(").context("symbols")?;
        ensure!(numbers == wanted, "{numbers}\nand not\n{wanted}");
        ensure!(symbols.contains("lseek") && symbols.contains("  42\n"), "{symbols}");
        Ok(())
    },
};

const INTERVAL: Check = Check {
    name: "expressions: --interval prints while the trace runs, then the end of it, in text and JSON",
    command: r#"
        work='for i in 1 2 3; do workloads read-zero 10 16; workloads sleep-ms 1500; done'
        btrace -k vfs_read --filter-arg 'count == 16' --interval 1 --output-arg 'count()' -c "$work"
        run json -k vfs_read --filter-arg 'count == 16' --interval 1 --output-arg 'count() by ($comm)' --output-arg 'sum(count)' -c "$work""#,
    judge: |ran| {
        let (text, runs) = runs(ran)?;
        let counts: Vec<u64> = text.iter().filter_map(|l| l.strip_prefix("  ")?.parse().ok()).collect();
        ensure!(counts.len() >= 3 && counts.is_sorted() && counts.last() == Some(&30), "{text:?}");
        let run = named(&runs, "json")?;
        run.has(0)?;
        let values = |name: &str| -> Vec<u64> {
            let of = run.tallies.iter().filter(|t| t["tally"] == name);
            of.map(|t| t["entries"][0]["value"].as_u64().unwrap_or(0)).collect()
        };
        let (counts, sums) = (values("count() by ($comm)"), values("sum(count)"));
        ensure!(counts.len() >= 3 && counts.is_sorted() && counts.last() == Some(&30), "{counts:?}");
        ensure!(sums.len() == counts.len() && sums.last() == Some(&480), "{sums:?}");
        // Each is marked as what more follows, but the last two, of the end; their times go on.
        let marks: Vec<bool> = run.tallies.iter().map(|t| t["interim"] == true).collect();
        let (interim, last) = marks.split_at(marks.len() - 2);
        ensure!(interim.iter().all(|m| *m) && last == [false, false], "{marks:?}");
        let times: Vec<u64> = run.tallies.iter().map(|t| t["time_ns"].as_u64().unwrap_or(0)).collect();
        let apart = times.chunks(2).map(|pair| pair[0]).collect::<Vec<_>>();
        ensure!(
            apart.windows(2).all(|two| two[0] < two[1]) && times.chunks(2).all(|p| p[0] == p[1]),
            "{times:?}"
        );
        ensure!(
            run.tallies.iter().all(|t| t["time"].as_str().is_some_and(|t| t.ends_with('Z'))),
            "{times:?}"
        );
        Ok(())
    },
};

const SIGNS: Check = Check {
    name: "expressions: negative values, the whole range of 64 bits, keys of every width; what cannot be read is left out and counted",
    command: r#"
        o=--output-arg
        run signs -k vfs_read --filter-arg 'count == 16' $o 'min(-(long)count)' $o 'max(-(long)count)' $o 'sum(-(int)count)' $o 'avg(-(s64)count)' $o 'hist(-(long)count)' \
            $o 'lhist(-(long)count, -20, 0, 10)' $o 'max(~0ull)' $o 'min(~0ull)' $o 'hist(~0ull)' $o 'hist(0)' $o 'hist(1ull << 63)' $o 'min((long)(1ull << 63))' \
            $o 'sum(~0ull)' $o 'avg(~0ull)' $o 'sum((long)(1ull << 63))' $o 'avg((long)(1ull << 63))' $o 'sum((long)(~0ull >> 1))' \
            $o 'count() by (-(char)count, (u8)~0, (s16)-5, 1ull << 63, (bool)count)' -c 'workloads read-zero 10 16'
        run unread -k vfs_read --filter-arg 'count in (16, 17)' $o 'count()' $o 'sum(*(int *)8)' $o 'count() by (str((char *)8))' $o 'sum(count == 16 ? count : *(int *)8)' \
            -c 'workloads read-zero 10 16; workloads read-zero 5 17'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let run = named(&runs, "signs")?;
        run.has(0)?;
        let one = |text: &str| Ok::<_, anyhow::Error>(run.tally(text)?["entries"][0].clone());
        for (text, value) in [
            ("min(-(long)count)", "-16"),
            ("max(-(long)count)", "-16"),
            ("sum(-(int)count)", "-160"),
            ("avg(-(s64)count)", "-16"),
            ("max(~0ull)", "18446744073709551615"),
            ("min(~0ull)", "18446744073709551615"),
            ("min((long)(1ull << 63))", "-9223372036854775808"),
            // Sums of more than 64 bits.
            ("sum(~0ull)", "184467440737095516150"),
            ("avg(~0ull)", "18446744073709551615"),
            ("sum((long)(1ull << 63))", "-92233720368547758080"),
            ("avg((long)(1ull << 63))", "-9223372036854775808"),
            ("sum((long)(~0ull >> 1))", "92233720368547758070"),
        ] {
            let wanted: Value = serde_json::from_str(value)?;
            ensure!(one(text)?["value"] == wanted, "{text}: {}", one(text)?);
        }
        // To the last digit, which numbers here do not keep.
        for sum in ["184467440737095516150", "-92233720368547758080", "92233720368547758070"] {
            ensure!(ran.stdout.contains(&format!(":{sum}")), "{sum}");
        }
        for (text, from, to) in [
            ("hist(-(long)count)", "null", "0"),
            ("lhist(-(long)count, -20, 0, 10)", "-20", "-10"),
            ("hist(~0ull)", "9223372036854775808", "null"),
            ("hist(0)", "0", "1"),
            ("hist(1ull << 63)", "9223372036854775808", "null"),
        ] {
            let bucket = &one(text)?["buckets"][0];
            let seen = [bucket["from"].to_string(), bucket["to"].to_string()];
            ensure!(seen == [from, to] && bucket["count"] == 10, "{text}: {bucket}");
        }
        let keys = keyed(run, "count() by (-(char)count, (u8)~0, (s16)-5, 1ull << 63, (bool)count)")?;
        ensure!(keys == [("-16,255,-5,9223372036854775808,true".to_string(), 10)], "{keys:?}");

        let run = named(&runs, "unread")?;
        run.is_well()?;
        let entries = |text: &str| Ok::<_, anyhow::Error>(run.tally(text)?["entries"].clone());
        ensure!(entries("count()")?[0]["value"] == 15, "{}", entries("count()")?);
        for text in ["sum(*(int *)8)", "count() by (str((char *)8))"] {
            ensure!(entries(text)?.as_array().is_some_and(Vec::is_empty), "{}", entries(text)?);
        }
        let some = entries("sum(count == 16 ? count : *(int *)8)")?;
        ensure!(some[0]["value"] == 160, "{some}");
        // Twice 15 and 5.
        ensure!(run.said.contains("35 "), "{}", run.said);
        Ok(())
    },
};

const TIES: Check = Check {
    name: "expressions: of tallies that are alike numbers come by their value, texts by their letters",
    command: r#"
        run ties -k vfs_read --filter-arg 'count in (7, 9, 30, 100)' --output-arg 'count() by (count)' --output-arg 'count() by ((int)count - 50)' \
            --output-arg 'min(1) by (count)' --output-arg 'count() by ($comm)' --output-arg 'max(1) by ($comm, count)' \
            -c 'for n in 100 9 30 7; do workloads read-zero 2 $n; done; for t in zed able true; do cp "$(command -v workloads)" /tmp/$t; /tmp/$t read-zero 1 7; /tmp/$t read-zero 1 100; done; rm /tmp/zed /tmp/able'"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let run = named(&runs, "ties")?;
        run.has(0)?;
        let keys = |text: &str| {
            Ok::<_, anyhow::Error>(keyed(run, text)?.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
        };
        ensure!(keys("count() by (count)")? == ["7", "100", "9", "30"], "{:?}", keys("count() by (count)")?);
        let signed = keys("count() by ((int)count - 50)")?;
        ensure!(signed == ["-43", "50", "-41", "-20"], "{signed:?}");
        ensure!(keys("min(1) by (count)")? == ["7", "9", "30", "100"], "{:?}", keys("min(1) by (count)")?);
        let names = keys("count() by ($comm)")?;
        ensure!(names == ["\"workloads\"", "\"able\"", "\"true\"", "\"zed\""], "{names:?}");
        let both = keys("max(1) by ($comm, count)")?;
        let wanted = [
            "able,7",
            "able,100",
            "true,7",
            "true,100",
            "workloads,7",
            "workloads,9",
            "workloads,30",
            "workloads,100",
            "zed,7",
            "zed,100",
        ];
        let wanted: Vec<String> = wanted
            .iter()
            .filter_map(|w| w.split_once(','))
            .map(|(name, n)| format!("\"{name}\",{n}"))
            .collect();
        ensure!(both == wanted, "{both:?}");
        Ok(())
    },
};

const CALLS: Check = Check {
    name: "expressions: a key that is a system call's number has the call's name, a 32-bit program's by its own numbers",
    command: r#"
        run calls -t sys_enter --output-arg 'count() by (id)' --output-arg 'count() by (id, $comm)' -c 'workloads read-zero 7 19; compat32'
        btrace -t sys_enter --output-arg 'count() by (id)' -c 'workloads read-zero 7 19' >&2"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        let run = named(&runs, "calls")?;
        run.has(0)?;
        for text in ["count() by (id)", "count() by (id, $comm)"] {
            let entries = run.tally(text)?["entries"].as_array().context("entries")?;
            let named = |number: u64, compat: bool| {
                let of = |e: &&Value| e["keys"][0]["value"] == number && e["keys"][0]["compat"] == compat;
                let found =
                    entries.iter().find(of).with_context(|| format!("{text}: no {number}: {entries:?}"))?;
                Ok::<_, anyhow::Error>((found["keys"][0]["syscall"].clone(), found["value"].as_u64()))
            };
            let (read, times) = named(0, false)?;
            ensure!(read == "read" && times >= Some(7), "{read} {times:?}");
            for (number, compat, name) in
                [(231, false, "exit_group"), (3, true, "read"), (6, true, "close"), (295, true, "openat")]
            {
                ensure!(named(number, compat)?.0 == name, "{number}: {:?}", named(number, compat)?);
            }
        }
        ensure!(ran.stderr.lines().any(|l| l.starts_with("  0 syscall=read  ")), "{}", ran.stderr);
        Ok(())
    },
};

const MOST: Check = Check {
    name: "expressions: as many tables as a program can use are taken, one more is refused before anything is made; TERM is heard meanwhile",
    command: r#"
        outputs() { n=$1; shift; set -- "$@" ; while [ $n -gt 0 ]; do set -- "$@" --output-arg "$gathers"; n=$((n - 1)); done; run $name "$@" -c "$work"; }
        work='workloads read-zero 3 19'
        name=most gathers='hist(count) by ($comm)' outputs 59 -k vfs_read
        name=over gathers='hist(count) by ($comm)' outputs 60 -k vfs_read
        name=lone gathers='count()' outputs 60 -k vfs_read
        gathers='hist(count) by ($comm)'; set --; for i in $(seq 60); do set -- "$@" --output-arg "$gathers"; done
        for wait in 0.3 1; do
            btrace -k vfs_read "$@" >/tmp/out 2>/tmp/said & p=$!
            sleep $wait; kill -TERM $p; wait $p
            echo "=status $?" >&2; tail -n 1 /tmp/said >&2
        done"#,
    judge: |ran| {
        let (_, runs) = runs(ran)?;
        for name in ["most", "lone"] {
            let run = named(&runs, name)?;
            run.is_well()?;
            ensure!(
                run.tallies.len() == if name == "most" { 59 } else { 60 },
                "{name}: {}",
                run.tallies.len()
            );
        }
        let over = named(&runs, "over")?;
        let said = "btrace: 60 --output-arg gather at a target, at most 59 can";
        ensure!(over.status == 2 && over.said.starts_with(said), "{}: {}", over.status, over.said);
        ensure!(ran.stderr.matches("=status 0\n").count() == 2, "{}", ran.stderr);
        Ok(())
    },
};
