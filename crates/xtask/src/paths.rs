//! `cargo xtask paths`: the paths that btrace prints, held against what qemu executed.
//!
//! qemu logs the address of each run of instructions that it executes (a translation block, not chained to others) in the functions' code. A
//! kprobe hides none: a breakpoint or jump that the kernel put in an instruction's place is executed at its address, once for each
//! time that the instruction would have been, ends its run, and what follows begins one. So one run of the guest serves for both.
//! A block that is jumped to, or that follows a probed instruction, begins a run; one that is only run into is found by going on
//! from where the run began. Where blocks begin is worked out here from the listing of `btrace -d --json`, by other code than btrace's.
//! That does not tell where exceptions go: blocks that begin there alone are counted and left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Failure;
use crate::untangle::Log;
use crate::vm::{self, VmOptions};

/// Hold the paths that btrace prints against what qemu executed, instruction by instruction.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// 5.10, 6.1, 6.12 or 7.2
    #[arg(long, value_name = "VERSION", default_value = "6.12")]
    kernel: String,

    /// Functions, by the names that -k knows; by default 20 and some that most kernels have
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    functions: Vec<String>,

    /// Keep qemu's log there
    #[arg(long, value_name = "FILE")]
    log: Option<std::path::PathBuf>,
}

/// Functions with branches that the workload comes through. Not each kernel has all of them.
const FUNCTIONS: &[&str] = &[
    "do_filp_open",
    "do_file_open",
    "path_openat",
    "link_path_walk",
    "walk_component",
    "step_into",
    "lookup_fast",
    "getname_flags",
    "do_dentry_open",
    "vfs_open",
    "vfs_read",
    "vfs_write",
    "rw_verify_area",
    "ksys_read",
    "__sys_bind",
    "inet_bind",
    "__inet_bind",
    "inet_csk_get_port",
    "inet_create",
    "vfs_statx",
    "cp_new_stat",
    "filename_lookup",
    "path_lookupat",
    "netlink_sendmsg",
    "netlink_rcv_skb",
    "rtnetlink_rcv_msg",
    "do_vfs_ioctl",
    "pipe_write",
    "vfs_fstat",
    "complete_walk",
    "may_open",
    "dput",
];

/// What a run of the guest may take, on a busy machine too.
const LONGEST: Duration = Duration::from_secs(3600);

/// Functions that must be compared, at least.
const LEAST: usize = 20;

/// What the functions are made to do: opens that work and fail, a port that is taken, stats, a pipe, netlink.
const WORKLOAD: &str = "cat /nonexistent /proc/self/nope /etc /dev/null/x; workloads read-zero 3 512; workloads bind-used; \
    ls -l /bin /proc/1 | tail -n 1; ip route show; ip link show dev nothing; true";

/// What runs when the log has begun, and before it ends.
const BEGUN: &str = "log-begun";
const ENDED: &str = "log-ended";

/// By which the guest begins and ends the log: a port of its whose other end is the monitor of qemu. An instruction at a time it would take many
/// minutes to boot and to attach.
struct Switch {
    folder: tempfile::TempDir,
}

impl Switch {
    fn new() -> Result<Switch> {
        let folder = tempfile::tempdir().context("a folder for qemu's monitor")?;
        let path = |name: &str| folder.path().join(name);
        let made = Command::new("mkfifo").args(["port.in", "port.out", "monitor.out"].map(path)).status();
        ensure!(made.context("mkfifo")?.success(), "mkfifo failed");
        std::fs::hard_link(path("port.out"), path("monitor.in")).context("the port's end for the monitor")?;
        Ok(Switch { folder })
    }

    /// qemu's.
    fn arguments(&self) -> Vec<String> {
        let pipe = |name: &str| format!("pipe,id={name},path={}", self.folder.path().join(name).display());
        let words = [
            "-chardev",
            &pipe("port"),
            "-device",
            "virtserialport,chardev=port,name=lab.switch",
            "-chardev",
            &pipe("monitor"),
        ];
        let words = words.into_iter().chain(["-mon", "chardev=monitor,mode=readline"]);
        words.map(str::to_string).collect()
    }
}

/// Runs it; gives back the exit status.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    compare(arguments).map(|()| 0).map_err(|error| Failure::new(1, error))
}

/// A function's code by its listing.
#[derive(Default)]
struct Function {
    entry: u64,
    ranges: Vec<(u64, u64)>,
    leaders: BTreeSet<u64>,
    /// Each instruction's end, and whether a run goes on behind it.
    instructions: HashMap<u64, (u64, bool)>,
    /// Beginnings of blocks that btrace has no probe on.
    unprobed: BTreeSet<u64>,
}

fn compare(arguments: &Arguments) -> Result<()> {
    let names: Vec<&str> = match arguments.functions.as_slice() {
        [] => FUNCTIONS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let mut functions = listed(&arguments.kernel, &names)?;
    eprintln!("paths: {} of {} functions are in kernel {}", functions.len(), names.len(), arguments.kernel);
    let scratch = tempfile::NamedTempFile::new().context("a file for qemu's log")?;
    let log = arguments.log.clone().unwrap_or_else(|| scratch.path().to_path_buf());
    let printed = traced(&arguments.kernel, &mut functions, &log)?;
    let executed = executed(&log, &functions)?;
    let mut compared = 0;
    let mut calls = 0;
    let mut blocks = 0;
    let mut wrong = Vec::new();
    for (name, function) in &functions {
        let (Some(printed), Some(executed)) = (printed.get(name), executed.get(name)) else {
            eprintln!("paths: {name}: not called, or not traced");
            continue;
        };
        // Each call in the log stands for one that was printed, among other tasks'. It was printed when it returned.
        let count = executed.len();
        let mut log = Log::new(executed.clone());
        let mut found = 0;
        let mut partly = 0;
        let mut fixups = BTreeSet::new();
        let mut rest = Vec::new();
        for (path, whole) in printed {
            let (path, others): (Vec<u64>, Vec<u64>) =
                path.iter().partition(|at| function.leaders.contains(at));
            let is_code = |at: &u64| function.instructions.contains_key(at);
            ensure!(others.iter().all(is_code), "{name}: a block begins within an instruction: {others:x?}");
            fixups.extend(others);
            // Where it says that a step was not seen, that can only be what btrace has no probe on.
            let seen = |call: &[u64]| -> Vec<u64> {
                call.iter().copied().filter(|at| *whole || !function.unprobed.contains(at)).collect()
            };
            let path = seen(&path);
            if log.take(|call| seen(call) == path) {
                partly += usize::from(!whole);
                found += 1;
                blocks += path.len();
            } else {
                rest.push((path, *whole));
            }
        }
        // Calls that slept in their midst. Which piece is whose the log does not tell where several began alike: that there is a way for all to have
        // their pieces is what counts, so other orders are tried before some are said to have none.
        let settled = [(false, false), (true, false), (false, true), (true, true)]
            .into_iter()
            .map(|(last_first, back)| Settled::of(log.clone(), &rest, last_first, back));
        let mut best: Option<Settled> = None;
        for one in settled {
            let is_better = best.as_ref().is_none_or(|best| one.rest.len() < best.rest.len());
            let is_all = one.rest.is_empty();
            if is_better {
                best = Some(one);
            }
            if is_all {
                break;
            }
        }
        let Settled { log, rest, found: more, apart, blocks: steps } = best.context("no order was tried")?;
        found += more;
        blocks += steps;
        for (path, _) in &rest {
            wrong.push(format!("{name}: printed {}", shown(path, function.entry)));
            let near = log.left().max_by_key(|call| common(call, path));
            wrong.push(format!(
                "{name}: nearest {}",
                near.map_or(String::new(), |near| shown(near, function.entry))
            ));
        }
        let ways: BTreeSet<&Vec<u64>> = printed.iter().map(|(path, _)| path).collect();
        eprintln!(
            "paths: {name}: {found} of {} paths ({} different, {partly} with a step that was not seen, {apart} taken apart from other tasks') are as executed; \
             {} blocks, {} come to by exceptions alone, {count} calls in the log",
            printed.len(),
            ways.len(),
            function.leaders.len(),
            fixups.len(),
        );
        compared += usize::from(found == printed.len() && found > 0);
        calls += found;
    }
    for line in &wrong {
        eprintln!("paths: {line}");
    }
    println!(
        "kernel {}: {compared} functions, {calls} calls, {blocks} blocks: as qemu executed them",
        arguments.kernel
    );
    ensure!(wrong.is_empty(), "{} paths differ", wrong.len() / 2);
    ensure!(compared >= LEAST.min(names.len()), "only {compared} functions were compared, not {LEAST}");
    Ok(())
}

/// What came of the paths that were not in the log as they are.
struct Settled {
    log: Log,
    rest: Vec<Printed>,
    found: usize,
    apart: usize,
    blocks: usize,
}

impl Settled {
    /// Takes them apart. `last_first`: by the last of calls that began so; `back`: the path that was printed last comes first.
    fn of(log: Log, rest: &[Printed], last_first: bool, back: bool) -> Settled {
        let rest = if back { rest.iter().rev().cloned().collect() } else { rest.to_vec() };
        let mut settled = Settled { log, rest, found: 0, apart: 0, blocks: 0 };
        // What calls lay in may be whole calls then.
        loop {
            let Settled { log, rest, found, apart, blocks } = &mut settled;
            let before = rest.len();
            rest.retain(|(path, ends)| {
                let is_whole = log.take(|call| call == path.as_slice());
                let is_apart = !is_whole && *ends && log.take_apart(path, last_first);
                *apart += usize::from(is_apart);
                *blocks += if is_whole || is_apart { path.len() } else { 0 };
                !is_whole && !is_apart
            });
            *found += before - rest.len();
            if rest.len() == before {
                return settled;
            }
        }
    }
}

fn shown(path: &[u64], entry: u64) -> String {
    path.iter().map(|at| format!("{:#x} ", at.wrapping_sub(entry))).collect()
}

fn common(left: &[u64], right: &[u64]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The code of those functions that the kernel has, with its addresses unmoved.
fn listed(kernel: &str, names: &[&str]) -> Result<BTreeMap<String, Function>> {
    // A name, or else its copies; and what was split off. Of names that are not there the others are shown all the same.
    let cold: Vec<String> = names.iter().map(|name| format!("{name}.*cold*")).collect();
    let command = format!(
        "btrace -d --json -k {} 2>/dev/null; btrace -d --json -k '{}' 2>/dev/null; true",
        names.join(","),
        cold.join(",")
    );
    let options = VmOptions {
        kernel_arguments: "nokaslr".into(),
        timeout: LONGEST,
        ..VmOptions::new(kernel.to_string(), command)
    };
    let outcome = vm::run(&options)?;
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    let mut ambiguous = BTreeSet::new();
    for line in text.lines() {
        let one: Value = serde_json::from_str(line).context("a listing")?;
        let symbol = one["function"].as_str().unwrap_or_default();
        let name = symbol.split('.').next().unwrap_or(symbol);
        let known = functions.get(name).is_some_and(|known| known.entry != 0);
        if known && !symbol.contains(".cold") {
            // Several functions of the name: btrace shows no path of those.
            ambiguous.insert(name.to_string());
            continue;
        }
        add(functions.entry(name.to_string()).or_default(), symbol, &one)?;
    }
    functions.retain(|name, _| !ambiguous.contains(name));
    functions.retain(|_, function| function.entry != 0);
    Ok(functions)
}

fn add(function: &mut Function, symbol: &str, listing: &Value) -> Result<()> {
    let start = address(&listing["address"])?;
    let size = listing["size"].as_u64().context("a size")?;
    if function.ranges.iter().any(|range| range.0 == start) {
        return Ok(());
    }
    if !symbol.contains(".cold") {
        function.entry = start;
    }
    function.ranges.push((start, start + size));
    function.leaders.insert(start);
    let instructions = listing["instructions"].as_array().context("instructions")?;
    for (at, one) in instructions.iter().enumerate() {
        let mnemonic = one["mnemonic"].as_str().unwrap_or_default();
        let next = instructions.get(at + 1).map(|next| address(&next["address"])).transpose()?;
        let word = mnemonic.rsplit(' ').next().unwrap_or(mnemonic);
        let leaves = word.starts_with('j') || word.starts_with("ret");
        if leaves {
            function.leaders.extend(next);
        }
        let goes_on =
            !leaves && !word.starts_with("call") && !word.starts_with("ud") && !word.starts_with("rep");
        let here = address(&one["address"])?;
        let bytes = one["bytes"].as_str().context("bytes")?.len() as u64 / 2;
        function.instructions.insert(here, (here + bytes, goes_on));
        for target in one["targets"].as_array().into_iter().flatten() {
            if target["kind"] == "jump" {
                function.leaders.insert(address(&target["address"])?);
            }
        }
    }
    Ok(())
}

fn address(text: &Value) -> Result<u64> {
    let digits = text.as_str().and_then(|text| text.strip_prefix("0x")).context("an address")?;
    Ok(u64::from_str_radix(digits, 16)?)
}

/// The blocks of a path, and whether it is whole.
type Printed = (Vec<u64>, bool);

/// The blocks of each call that btrace printed, by function.
fn traced(
    kernel: &str,
    functions: &mut BTreeMap<String, Function>,
    log: &std::path::Path,
) -> Result<BTreeMap<String, Vec<Printed>>> {
    let names: Vec<&str> = functions.keys().map(String::as_str).collect();
    let switch = Switch::new()?;
    let command = format!(
        "for p in /sys/class/virtio-ports/*; do [ \"$(cat $p/name)\" = lab.switch ] && port=/dev/${{p##*/}}; done\n\
         for mark in {BEGUN} {ENDED}; do printf '#!/bin/sh\\ncat </proc/version\\n' >/tmp/$mark; chmod +x /tmp/$mark; done\n\
         cat >/tmp/w <<END\necho log exec,nochain >$port; sleep 1; /tmp/{BEGUN}\n{WORKLOAD}\n/tmp/{ENDED}; echo log none >$port\nEND\n\
         btrace -v --buffer-size 128M -k {} --output-path --path-blocks 8192 --json -o /tmp/o -c 'sh /tmp/w >/dev/null 2>&1' >&2; cat /tmp/o",
        names.join(",")
    );
    let ranges: Vec<String> = functions
        .values()
        .flat_map(|function| &function.ranges)
        .map(|(from, to)| format!("{from:#x}+{:#x}", to - from))
        .collect();
    let mut arguments = switch.arguments();
    arguments.extend(["-dfilter", &ranges.join(","), "-D", &log.display().to_string()].map(str::to_string));
    let options = VmOptions {
        kernel_arguments: "nokaslr".into(),
        qemu_arguments: arguments,
        cpus: 1,
        timeout: LONGEST,
        ..VmOptions::new(kernel.to_string(), command)
    };
    let outcome = vm::run(&options)?;
    let said = String::from_utf8_lossy(&outcome.stderr);
    for line in said.lines() {
        if ["not traced", "--output-path", "printed, ", "cannot be probed", "no probe on"]
            .iter()
            .any(|word| line.contains(word))
        {
            eprintln!("paths: {line}");
        }
        // `NAME: no probe on its block at 0xffffffff81000000: Invalid argument`, with -v.
        let Some((name, at)) = line.split_once(": no probe on its block at 0x") else { continue };
        let Some(function) = functions.get_mut(name) else { continue };
        let digits = at.split(':').next().unwrap_or_default();
        function.unprobed.insert(u64::from_str_radix(digits, 16).with_context(|| line.to_string())?);
    }
    let mut printed: BTreeMap<String, Vec<Printed>> = BTreeMap::new();
    let mut unkept = 0;
    let text = String::from_utf8_lossy(&outcome.stdout);
    let events: Vec<Value> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("an event")?;
    let times = |event: &Value| Some((event["time_ns"].as_u64()?, event["duration_ns"].as_u64()?));
    let of = |comm: &'static str| events.iter().filter(move |event| event["comm"] == comm).filter_map(times);
    let begun = of(BEGUN).map(|(time, _)| time).max().context("no calls from when the log had begun")?;
    let ended =
        of(ENDED).map(|(time, took)| time - took).min().context("no calls from before the log's end")?;
    // What was under way at either time is in the log in part.
    let is_logged =
        |event: &&Value| times(event).is_some_and(|(time, took)| time - took > begun && time < ended);
    for event in events.iter().filter(is_logged) {
        let name = event["target"].as_str().context("a target")?.to_string();
        let path = &event["path"];
        if path.is_null() {
            if unkept == 0 {
                eprintln!("paths: {name}: no path was kept of {event}");
            }
            unkept += 1;
            continue;
        }
        if path["hits"].as_u64() > Some(512) {
            continue;
        }
        let whole = path["whole"] == true;
        let has_unprobed = functions.get(&name).is_some_and(|function| !function.unprobed.is_empty());
        ensure!(whole || has_unprobed, "{name}: not whole: {path}");
        let blocks = path["blocks"].as_array().context("blocks")?;
        let path =
            blocks.iter().map(|block| address(&block["from"]["address"])).collect::<Result<Vec<u64>>>()?;
        printed.entry(name).or_default().push((path, whole));
    }
    ensure!(unkept == 0, "of {unkept} calls no path was kept");
    Ok(printed)
}

/// The blocks of each call that qemu executed, by function.
fn executed(
    log: &std::path::Path,
    functions: &BTreeMap<String, Function>,
) -> Result<BTreeMap<String, Vec<Vec<u64>>>> {
    let mut whose: HashMap<u64, &str> = HashMap::new();
    for (name, function) in functions {
        whose.extend(function.instructions.keys().map(|at| (*at, name.as_str())));
    }
    let mut calls: BTreeMap<String, Vec<Vec<u64>>> = BTreeMap::new();
    for line in BufReader::new(File::open(log).context("qemu's log")?).lines() {
        let line = line.context("qemu's log")?;
        // `Trace 0: 0x7f… [00000000/ffffffff81000000/00000000/ff000000] symbol`; and, when an interrupt came before what is said to be
        // executed then, `Stopped execution of TB chain before 0x7f… [ffffffff81000000] symbol`.
        let stopped = line.strip_prefix("Stopped execution").and_then(|rest| rest.split(['[', ']']).nth(1));
        let pc = stopped.or_else(|| line.split('/').nth(1)).and_then(|pc| u64::from_str_radix(pc, 16).ok());
        let Some(pc) = pc else { continue };
        let Some(name) = whose.get(&pc) else { continue };
        let Some(function) = functions.get(*name) else { continue };
        let calls = calls.entry((*name).to_string()).or_default();
        if stopped.is_some() {
            function.undo(pc, calls);
            continue;
        }
        if pc == function.entry {
            calls.push(Vec::new());
        }
        if let Some(call) = calls.last_mut() {
            function.run(pc, call);
        }
    }
    Ok(calls)
}

/// qemu's translation blocks end with the page that they begin in.
const PAGE: u64 = 4096;

impl Function {
    /// Takes back the run from `from` on, the last one, which was not executed.
    fn undo(&self, from: u64, calls: &mut Vec<Vec<u64>>) {
        let Some(call) = calls.last_mut() else { return };
        let mut run = Vec::new();
        self.run(from, &mut run);
        if call.ends_with(&run) {
            call.truncate(call.len() - run.len());
        }
        if from == self.entry {
            calls.pop();
        }
    }

    /// The blocks that begin in the run from `from` on.
    fn run(&self, from: u64, visits: &mut Vec<u64>) {
        let probed = |at: u64| !self.unprobed.contains(&at);
        if self.leaders.contains(&from) {
            visits.push(from);
            if probed(from) {
                return;
            }
        }
        let mut at = from;
        while let Some((end, true)) = self.instructions.get(&at) {
            at = *end;
            if at / PAGE != from / PAGE {
                return;
            }
            if self.leaders.contains(&at) {
                visits.push(at);
                if probed(at) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// push; inc; [L] dec; jne L; [R] ret
    #[test]
    fn runs_go_on_to_the_next_probe() {
        let mut function = Function { entry: 0x1000, ..Function::default() };
        function.leaders.extend([0x1000, 0x1003, 0x1007]);
        for (at, end, goes_on) in
            [(0x1000, 0x1001, true), (0x1001, 0x1003, true), (0x1003, 0x1005, true), (0x1005, 0x1007, false)]
        {
            function.instructions.insert(at, (end, goes_on));
        }
        let runs = |function: &Function, all: &[u64]| {
            let mut visits = Vec::new();
            all.iter().for_each(|from| function.run(*from, &mut visits));
            visits
        };
        assert_eq!(
            runs(&function, &[0x1000, 0x1001, 0x1005, 0x1003, 0x1005, 0x1007]),
            [0x1000, 0x1003, 0x1003, 0x1007]
        );
        // An interrupt came before a run: it is executed after all, but once.
        let mut calls = vec![runs(&function, &[0x1000, 0x1003])];
        function.undo(0x1003, &mut calls);
        assert_eq!(calls, [[0x1000]]);
        function.undo(0x1001, &mut calls);
        assert_eq!(calls, [[0x1000]], "what is not the last");
        function.undo(0x1000, &mut calls);
        assert_eq!(calls, [[0; 0]; 0]);
        function.unprobed.insert(0x1003);
        assert_eq!(runs(&function, &[0x1000, 0x1001, 0x1003, 0x1007]), [0x1000, 0x1003, 0x1003, 0x1007]);
    }
}
