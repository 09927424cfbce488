//! Branch records as lines: `LBR stack:`, then each branch, oldest first, from where to where.
//!
//! ```text
//! [#31] strlen+0x17 (lib/string.c:402) -> strlen+0x10                  (lib/string.c:402)
//!       strlen+0x1e (lib/string.c:404) -> perf_trace_netlink_extack+0x44 (include/trace/events/netlink.h:9)
//! ```
//! A chain is a row of branches of which each begins in the function that the one before went to. Its first is numbered: the oldest of all by
//! its number in the hardware's stack, each further chain one less. A break between chains is code that ran and whose
//! branches are not there: filtered out, or of user space.

mod cut;

pub use cut::is_thunk;

use super::stack::{Frame, Stacks};
use super::{decimal, fault, hexadecimal};
use crate::logging::say;
use std::rc::Rc;
use symbols::Resolved;
use symbols::lines::Lines;
use trace::{Branch, Branches, Snapshot};

/// A branch, with what is known of its ends.
struct Record<'a> {
    from: Frame<'a>,
    to: Frame<'a>,
    branch: Branch,
}

/// Appends the snapshot as lines.
pub fn text(stacks: &mut Stacks, snapshot: Snapshot<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"LBR stack:");
    let branches = match snapshot {
        Snapshot::Taken(branches) => branches,
        Snapshot::Fault(error) => {
            out.extend_from_slice(b" not taken: ");
            out.extend_from_slice(fault(error).as_bytes());
            out.extend_from_slice(reason(error));
            out.push(b'\n');
            return;
        }
    };
    let verbose = stacks.verbose;
    with_records(stacks, branches, |all, shown, lines| {
        if shown.is_empty() {
            out.extend_from_slice(if all == 0 {
                b" no branches recorded\n"
            } else {
                b" no branches but those of tracing itself (-v shows them)\n"
            });
            return;
        }
        out.push(b'\n');
        table(shown, all, verbose, lines, out);
    });
}

/// What an error of the helper means here.
fn reason(error: i32) -> &'static [u8] {
    match error {
        -2 => b" (the kernel had no branch records to give)",
        -16 => b" (another event's were written over them)",
        _ => b"",
    }
}

/// Appends the snapshot as an array of objects, or the error.
pub fn json(stacks: &mut Stacks, snapshot: Snapshot<'_>, out: &mut Vec<u8>) {
    let branches = match snapshot {
        Snapshot::Taken(branches) => branches,
        Snapshot::Fault(error) => return super::json::error_value(error, out),
    };
    out.push(b'[');
    with_records(stacks, branches, |_, shown, lines| {
        for (index, record) in shown.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",{\"from\":" } else { b"{\"from\":" });
            record.from.json(&lines(record.from.address), out);
            out.extend_from_slice(b",\"to\":");
            record.to.json(&lines(record.to.address), out);
            members(&record.branch, out);
            out.push(b'}');
        }
    });
    out.push(b']');
}

/// Appends what the hardware recorded besides, as members behind others.
fn members(branch: &Branch, out: &mut Vec<u8>) {
    if let Some(mispredicted) = branch.mispredicted() {
        out.extend_from_slice(if mispredicted {
            b",\"mispredicted\":true"
        } else {
            b",\"mispredicted\":false"
        });
    }
    if let Some(cycles) = branch.cycles() {
        out.extend_from_slice(b",\"cycles\":");
        decimal(cycles, out);
    }
    if let Some(kind) = branch.kind() {
        out.extend_from_slice(b",\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.push(b'"');
    }
    for (holds, member) in [
        (branch.in_transaction(), &b",\"in_transaction\":true"[..]),
        (branch.is_abort(), b",\"abort\":true"),
        (branch.is_wrong_path(), b",\"wrong_path\":true"),
    ] {
        if holds {
            out.extend_from_slice(member);
        }
    }
}

/// Calls `show` with the number of records, those that are to be shown, oldest first, and what finds source lines.
fn with_records(
    stacks: &mut Stacks,
    branches: Branches<'_>,
    show: impl FnOnce(usize, &[Record<'_>], &mut dyn FnMut(u64) -> Rc<Lines>),
) {
    let Stacks { symbols, verbose, ours, lines } = stacks;
    let frame = |address| Frame { address, symbol: symbols.resolve(address), exact: true };
    let record = |branch: Branch| Record { from: frame(branch.from), to: frame(branch.to), branch };
    let mut records: Vec<Record<'_>> = branches.map(record).collect();
    let all = records.len();
    if !*verbose && symbols.are_known() {
        let ends: Vec<_> = records.iter().map(|r| (r.from.symbol, r.to.symbol)).collect();
        records.drain(..cut::of_tracing(ours, &ends).min(all));
    }
    records.reverse();
    let none = Rc::new(Lines::default());
    show(all, &records, &mut |address| {
        lines.as_mut().map_or_else(|| Rc::clone(&none), |source| source.lines_at(address))
    });
    if let Some(remark) = lines.as_mut().and_then(symbols::lines::Source::remark) {
        say(format_args!("btrace: {remark}"));
    }
}

/// Appends the records, oldest first, in columns. `all`: how many there were.
fn table(
    records: &[Record<'_>],
    all: usize,
    verbose: bool,
    lines: &mut dyn FnMut(u64) -> Rc<Lines>,
    out: &mut Vec<u8>,
) {
    let mut cell = |frame: &Frame<'_>| {
        let lines = lines(frame.address);
        (name(frame, verbose), place(&lines))
    };
    let rows: Vec<[String; 4]> = records
        .iter()
        .map(|record| {
            let ((from, at), (to, target)) = (cell(&record.from), cell(&record.to));
            [from, at, to, target]
        })
        .collect();
    let width = |column: usize| {
        let widths = rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
        widths.max().unwrap_or(0)
    };
    let widths = [0, 1, 2, 3].map(width);
    let mut number = all.saturating_sub(1);
    let mut before: Option<&Record<'_>> = None;
    for (record, row) in records.iter().zip(&rows) {
        let goes_on = before.is_some_and(|before| same_function(&before.to, &record.from));
        let head = match before.replace(record) {
            None => format!("[#{number:02}] "),
            Some(_) if !goes_on => {
                number = number.saturating_sub(1);
                format!("[#{number:02}] ")
            }
            Some(_) => " ".repeat(6),
        };
        let mut line = head;
        let remarks = remarks(&record.branch);
        for ((text, width), before) in row.iter().zip(widths).zip(["", " ", " -> ", " "]) {
            // A column that is empty in all rows takes no room.
            if width > 0 {
                line += &format!("{before}{text:width$}");
            }
        }
        if remarks.is_empty() {
            line.truncate(line.trim_end().len());
        } else {
            line += &format!(" ; {remarks}");
        }
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
}

/// Whether the code that runs on at `from` is that which was gone to.
fn same_function(to: &Frame<'_>, from: &Frame<'_>) -> bool {
    match (start(to), start(from)) {
        // Code that has no name: near it is likely the same.
        (None, None) => from.address.wrapping_sub(to.address) < 1 << 12,
        (to, from) => to == from,
    }
}

/// Where the function of a frame begins.
fn start(frame: &Frame<'_>) -> Option<u64> {
    frame.symbol.map(|symbol| frame.address.wrapping_sub(symbol.offset))
}

/// `strlen+0x17`, with `-v` the address before.
fn name(frame: &Frame<'_>, verbose: bool) -> String {
    let mut out = Vec::new();
    if verbose {
        hexadecimal(frame.address, &mut out);
        out.push(b':');
    }
    match &frame.symbol {
        Some(symbol) => {
            out.extend_from_slice(plain(symbol).as_bytes());
            out.push(b'+');
            hexadecimal(symbol.offset, &mut out);
            if let Some(module) = symbol.module.filter(|module| !is_pseudo(module)) {
                out.extend_from_slice(format!(" [{module}]").as_bytes());
            }
        }
        None if verbose => out.extend_from_slice(b"+0x0"),
        None => hexadecimal(frame.address, &mut out),
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What kallsyms calls a module for code that the kernel makes (`bpf`, `__builtin__ftrace`, …).
fn is_pseudo(module: &str) -> bool {
    module == "bpf" || module.starts_with("__builtin__")
}

/// The name as its source has it: of BPF programs without the tag.
fn plain<'a>(symbol: &Resolved<'a>) -> &'a str {
    let program = symbol.name.strip_prefix("bpf_prog_").filter(|_| symbol.module == Some("bpf"));
    let parts = program.and_then(|rest| rest.split_once('_'));
    match parts {
        Some((tag, name)) if tag.len() == 16 && tag.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => symbol.name,
    }
}

/// ` (file:line)` without the blank, and what was inlined there, innermost first; the line is that of the innermost.
fn place(lines: &Lines) -> String {
    let Some(innermost) = lines.chain.first() else { return String::new() };
    let number = match innermost.line {
        0 => "?".into(),
        number => number.to_string(),
    };
    let mut text = format!("({}:{number})", innermost.file);
    let inlined: Vec<&str> =
        lines.inlined().iter().map(|line| line.function.as_deref().unwrap_or("?")).collect();
    if !inlined.is_empty() {
        text += &format!(" [inline {}]", inlined.join(" < "));
    }
    text
}

/// What the hardware recorded that is worth knowing of each branch.
fn remarks(branch: &Branch) -> String {
    let mut parts = Vec::new();
    match branch.cycles() {
        Some(1) => parts.push("1 cycle".into()),
        Some(cycles) => parts.push(format!("{cycles} cycles")),
        None => {}
    }
    for (holds, text) in [
        (branch.mispredicted() == Some(true), "mispredicted"),
        (branch.is_wrong_path(), "wrong path"),
        (branch.in_transaction(), "in transaction"),
        (branch.is_abort(), "abort"),
    ] {
        if holds {
            parts.push(text.into());
        }
    }
    parts.join(", ")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
