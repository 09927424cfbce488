//! `btrace list`, `--show-func-proto` and `--dry-run`: what could be traced and how. None of them traces.

use crate::branch_records;
use crate::cli::{Args, ListArgs};
use crate::logging::say;
use crate::output::WriteFailed;
use crate::privilege;
use crate::run::{check_gathering, say_left_out};
use std::collections::BTreeMap;
use std::io::Write;
use trace::{
    Cgroup, Kernel, Layout, Method, Offers, Plan, Probe, ProgramSpec, Request, Room, ShownKind, TargetKind,
    TargetSpec,
};

/// `btrace list`: each match with the methods for it, or the reason why there is none.
pub fn list(args: &ListArgs) -> anyhow::Result<()> {
    let (specs, programs) = (args.specs()?, args.programs()?);
    let kernel = Kernel::running()?;
    let (all, error) = matches(&kernel, &specs, &programs, false)?;
    let offers = Offers::ask(&kernel);
    // Without the right to try them, no answer tells what the machine offers.
    let missing = privilege::missing();
    let mut untried = false;
    let mut refusals: Vec<String> = Vec::new();
    let mut out = Vec::new();
    for listed in &all {
        let mut methods = Vec::new();
        for method in listed.methods() {
            match offers.refusal(*method) {
                None => methods.push(method.name()),
                // That an older kernel lacks the newer ways is nothing that one could change: doctor tells.
                Some(_)
                    if matches!(method, Method::Fsession | Method::TracingMulti | Method::KprobeMulti) => {}
                Some(refusal) if refusal.permission && missing.is_some() => untried = true,
                Some(reason) => {
                    let line = format!("{method} is not to be had here: {reason}");
                    if !refusals.contains(&line) {
                        refusals.push(line);
                    }
                }
            }
        }
        let methods = if methods.is_empty() { "-".to_string() } else { methods.join(",") };
        write!(out, "{methods:<13} {}", listed.prototype)?;
        if let Some(place) = listed.module.as_ref().or(listed.program.as_ref()) {
            write!(out, " [{place}]")?;
        }
        if let Some(obstacle) = &listed.obstacle {
            write!(out, "  # {obstacle}")?;
        }
        if let Some(call) = &listed.syscall {
            write!(out, "  # {call}")?;
        }
        out.push(b'\n');
    }
    print(&out)?;
    if let Some(line) = missing.filter(|_| untried) {
        say(format_args!("btrace: which methods there are is not known, for they are tried: {line}"));
    }
    for line in refusals {
        say(format_args!("btrace: {line}"));
    }
    error.map_or(Ok(()), |e| Err(e.into()))
}

/// `--show-func-proto`: prototypes as C has them, nothing asked of the kernel but its types.
pub fn prototypes(args: &Args) -> anyhow::Result<()> {
    let kernel = Kernel::running()?;
    let (all, error) = matches(&kernel, &args.specs()?, &args.programs()?, true)?;
    let mut out = Vec::new();
    for listed in &all {
        match listed.module.as_ref().or(listed.program.as_ref()).or(listed.syscall.as_ref()) {
            Some(comment) => writeln!(out, "{}; /* {comment} */", listed.prototype)?,
            None => writeln!(out, "{};", listed.prototype)?,
        }
    }
    print(&out)?;
    error.map_or(Ok(()), |e| Err(e.into()))
}

/// All matches. A pattern that matches nothing is an error once the others have been shown, or at once when there are none.
/// What is looked for as either kind may be of one kind only.
fn matches(
    kernel: &Kernel,
    specs: &[TargetSpec],
    programs: &[ProgramSpec],
    only_wanted: bool,
) -> anyhow::Result<(Vec<trace::Listed>, Option<trace::Error>)> {
    let (mut all, mut error) = (Vec::new(), None);
    let mut unmatched: Vec<(&TargetSpec, trace::Error)> = Vec::new();
    let mut matched: Vec<&TargetSpec> = Vec::new();
    for spec in specs {
        match trace::list(kernel, spec) {
            Ok(mut more) => {
                all.append(&mut more);
                matched.push(spec);
            }
            Err(e @ (trace::Error::Unknown { .. } | trace::Error::Target { .. })) => {
                unmatched.push((spec, e))
            }
            Err(e) => return Err(e.into()),
        }
    }
    for (spec, e) in unmatched {
        if !matched.iter().any(|m| m.pattern == spec.pattern && m.scope == spec.scope) {
            error.get_or_insert(e);
        }
    }
    for spec in programs {
        match trace::list_programs(kernel, spec, only_wanted) {
            Ok(mut more) => all.append(&mut more),
            Err(e @ (trace::Error::Unknown { .. } | trace::Error::Target { .. })) => {
                error.get_or_insert(e);
            }
            Err(e) => return Err(e.into()),
        }
    }
    match error {
        Some(error) if all.is_empty() => Err(error.into()),
        error => Ok((all, error)),
    }
}

/// `--dry-run`: the plan, target by target. What a trace would refuse before it attaches anything is refused here too.
pub fn plan(args: &Args, request: &Request) -> anyhow::Result<()> {
    let kernel = Kernel::running()?;
    for path in &args.filter_cgroup {
        Cgroup::find(&kernel, path)?;
    }
    let plan = Plan::new(&kernel, request).map_err(|error| branch_records::advised(args, error))?;
    // The CPUs record for this moment only.
    drop(branch_records::start(args)?);
    check_gathering(args, &plan)?;
    let rooms = plan.rooms()?;
    let mut out = Vec::new();
    for probe in &plan.probes {
        let layout = &probe.layout;
        if layout.asked.is_silent() {
            writeln!(out, "{} {}, gathered, no events", probe.target.label(), probe.method)?;
            expressions(probe, &rooms, &mut out)?;
            continue;
        }
        write!(out, "{} {}, {} bytes an event", probe.target.label(), probe.method, layout.ring_bytes())?;
        if let Some(bytes) = layout.branch_bytes() {
            write!(out, ", {bytes} of them for branch records")?;
        }
        match layout.stack_bytes() {
            Some([small, middle, large]) => {
                writeln!(out, " and {small}, {middle} or {large} more for its stack")?
            }
            None => writeln!(out)?,
        }
        captures(layout, &mut out)?;
        expressions(probe, &rooms, &mut out)?;
    }
    print(&out)?;
    let refused: Vec<(&str, &str)> =
        plan.refused.iter().map(|(target, reason)| (target.as_str(), reason.as_str())).collect();
    say_left_out(&plan.remarks, &refused, plan.targets());
    Ok(())
}

fn captures(layout: &Layout, out: &mut Vec<u8>) -> std::io::Result<()> {
    if let Some(at) = layout.entry_time {
        writeln!(out, "  +{at:<5} time of entry")?;
    }
    for arg in layout.args.iter().chain(&layout.ret) {
        writeln!(out, "  +{:<5} ({}){}, {}", arg.offset, arg.type_name, arg.name, bytes(arg.size))?;
        if let Some(text) = &arg.string {
            writeln!(out, "  +{:<5}   its text, up to {}", text.offset, bytes(text.size - 1))?;
        }
        for note in &arg.notes {
            let (at, what, size) = match &note.kind {
                trace::NoteKind::Text(text) => (text.offset, "text, up to ", text.size - 1),
                trace::NoteKind::Value { offset, size, .. } => (*offset, "", *size),
                trace::NoteKind::Path(path) => (path.offset, "path, ", trace::PathField::SIZE),
            };
            writeln!(out, "  +{at:<5}   its {}: {what}{}", note.label, bytes(size))?;
        }
    }
    Ok(())
}

/// What was asked in C: filters and where they are tested, what is shown and gathered with its types.
fn expressions(probe: &Probe, rooms: &BTreeMap<usize, Room>, out: &mut Vec<u8>) -> std::io::Result<()> {
    let asked = &probe.layout.asked;
    let tracepoint = probe.target.kind == TargetKind::Tracepoint;
    let place = |at_exit: bool| match (tracepoint, at_exit) {
        (true, _) => "",
        (false, false) => " at entry",
        (false, true) => " at exit",
    };
    let plain =
        |text: &str| -> String { text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect() };
    let [at_entry, at_exit] = asked.filters().map(|all| all.collect::<Vec<_>>());
    for text in &at_entry {
        let also = if at_exit.contains(text) { ", the rest at exit" } else { "" };
        writeln!(out, "  filter{}{also}: {}", place(false), plain(text))?;
    }
    for text in at_exit.iter().filter(|text| !at_entry.contains(text)) {
        writeln!(out, "  filter{}: {}", place(true), plain(text))?;
    }
    let here = place(probe.at_exit);
    for shown in &asked.shown {
        let (offset, size) = shown.room();
        let size = match shown.kind {
            // Its terminator takes a byte, and one tells whether it goes on.
            ShownKind::Text { room, whole } => {
                format!("text, up to {}", bytes(room - if whole { 1 } else { 2 }))
            }
            _ => bytes(size),
        };
        let (type_name, text) = (&shown.type_name, plain(&shown.text));
        writeln!(out, "  +{offset:<5} output{here}: ({type_name}){text}, {size}")?;
    }
    for gathered in &asked.gathered {
        write!(out, "  gathered{here}: {}", plain(&gathered.text))?;
        if let Some(type_name) = &gathered.type_name {
            write!(out, ", of ({type_name})")?;
        }
        for (index, key) in gathered.keys.iter().enumerate() {
            let by = if index == 0 { ", by " } else { ", " };
            write!(out, "{by}({}){}", key.type_name, plain(&key.text))?;
        }
        if let Some(room) = rooms.get(&gathered.number) {
            match gathered.keys.is_empty() {
                true => write!(out, ", in {}", memory(room.bytes))?,
                false => write!(out, ", room for {} keys, {}", room.keys, memory(room.bytes))?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Memory that a table takes: `16 bytes`, `1.9 MiB`.
fn memory(n: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", n / unit, n % unit * 10 / unit);
    match n {
        0..1024 => format!("{n} bytes"),
        1024..1_048_576 => format!("{} KiB", tenths(1 << 10)),
        _ => format!("{} MiB", tenths(1 << 20)),
    }
}

fn bytes(n: u32) -> String {
    if n == 1 { "1 byte".into() } else { format!("{n} bytes") }
}

/// Writes all of it; a reader that has seen enough (`| head`) is no error.
pub fn print(out: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(out).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => {
            result.map_err(|source| WriteFailed { name: "standard output".into(), source })?;
            Ok(())
        }
    }
}
