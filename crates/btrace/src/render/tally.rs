//! What was gathered of events: tables and histograms.

use super::json::quoted;
use super::outputs::{number, number_json};
use super::{Symbols, decimal};
use crate::clock::Clock;
use crate::words;
use expr::tree::{Format, Function};
use std::cmp::Ordering;
use std::io::Write;
use trace::{Amount, Entry, Gathered, Key, KeyKind, Tally};

/// Widest bar of a histogram, in characters.
const BAR: u64 = 40;

/// Whether keys are addresses of code.
pub fn shows_symbols(gathered: &Gathered) -> bool {
    gathered.keys.iter().any(|key| matches!(key.kind, KeyKind::Number { format: Format::Symbol, .. }))
}

/// Appends a tally as text: what it is, then a line for each key, the largest first; of histograms a line for each bucket.
pub fn text(tally: &Tally<'_>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    let gathered = tally.gathered;
    let name: String = gathered.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    out.extend_from_slice(name.as_bytes());
    if tally.entries.is_empty() {
        out.extend_from_slice(b": nothing was gathered\n");
        return;
    }
    out.extend_from_slice(b":\n");
    let names: Vec<String> = tally.entries.iter().map(|entry| keys(gathered, entry, symbols)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for at in order(tally) {
        let (Some(entry), Some(name)) = (tally.entries.get(at), names.get(at)) else { continue };
        match &entry.value {
            Amount::Buckets(counts) => {
                if !gathered.keys.is_empty() {
                    say(format_args!("  {name}:\n"), out);
                }
                histogram(gathered, counts, out);
            }
            value => {
                let amount = match value {
                    Amount::Mean { sum, count } => {
                        format!("{} ({})", mean(*sum, *count), words::count(*count, "event"))
                    }
                    Amount::Value(value) => value.to_string(),
                    Amount::Count(count) => count.to_string(),
                    Amount::Buckets(_) => continue,
                };
                if gathered.keys.is_empty() {
                    say(format_args!("  {amount}\n"), out);
                } else {
                    let pad = width - name.chars().count();
                    say(format_args!("  {name}{}  {amount}\n", " ".repeat(pad)), out);
                }
            }
        }
    }
}

/// Indices of the entries, those with the most first; of smallest values the smallest, which was asked for. Those that are alike are in
/// the order of their keys: numbers by their value, texts by their bytes.
fn order(tally: &Tally<'_>) -> Vec<usize> {
    let size = |entry: &Entry| match &entry.value {
        Amount::Count(count) => i128::from(*count),
        Amount::Value(value) => *value,
        Amount::Mean { sum, count } => sum / i128::from(*count).max(1),
        Amount::Buckets(counts) => counts.iter().map(|n| i128::from(*n)).sum(),
    };
    let mut entries: Vec<(usize, &Entry)> = tally.entries.iter().enumerate().collect();
    entries.sort_by(|(_, a), (_, b)| {
        let most = size(b).cmp(&size(a));
        let first = if tally.gathered.function == Function::Min { most.reverse() } else { most };
        let keys = || tally.gathered.keys.iter().map(|key| by_key(key, a, b));
        first.then_with(|| keys().find(|order| order.is_ne()).unwrap_or(Ordering::Equal))
    });
    entries.into_iter().map(|(at, _)| at).collect()
}

/// The order of two entries by one of their keys.
fn by_key(key: &Key, a: &Entry, b: &Entry) -> Ordering {
    let [a, b] = [a, b].map(|entry| part(key, &entry.key));
    match &key.kind {
        // Numbers are extended to 8 bytes by their sign.
        KeyKind::Number { shape, .. } | KeyKind::SystemCall { shape } => {
            let [x, y] = [a, b].map(|bytes| super::format::number(bytes.get(..8).unwrap_or(bytes)));
            let is_signed = matches!(
                shape,
                btf::Shape::Int { signed: true, .. }
                    | btf::Shape::Char { signed: true }
                    | btf::Shape::Enum { signed: true, .. }
            );
            let order = if is_signed { x.cast_signed().cmp(&y.cast_signed()) } else { x.cmp(&y) };
            order.then_with(|| a.cmp(b))
        }
        KeyKind::Text => a.cmp(b),
    }
}

/// The system call that a key names, and whether a 32-bit program made it.
fn system_call(key: &[u8]) -> (Option<&'static str>, bool) {
    let [number, compat] =
        [key.get(..8), key.get(8..)].map(|part| super::format::number(part.unwrap_or_default()));
    (trace::syscall_name(number, compat != 0), compat != 0)
}

fn mean(sum: i128, count: u64) -> String {
    let count = i128::from(count).max(1);
    let (whole, rest) = (sum / count, (sum % count).unsigned_abs() * 1000 / count.unsigned_abs());
    let sign = if sum < 0 && whole == 0 { "-" } else { "" };
    if rest == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest:03}") }
}

fn say(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    // A vector takes everything.
    let _ = out.write_fmt(text);
}

/// The keys of an entry: `dd, 3`.
fn keys(gathered: &Gathered, entry: &Entry, symbols: Option<&Symbols>) -> String {
    let mut out = Vec::new();
    for (index, key) in gathered.keys.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        let bytes = part(key, &entry.key);
        match &key.kind {
            KeyKind::Number { shape, size, format } => {
                number(shape, *format, bytes.get(..*size as usize).unwrap_or(bytes), symbols, &mut out);
            }
            KeyKind::SystemCall { shape } => {
                number(shape, Format::Plain, bytes.get(..8).unwrap_or(bytes), symbols, &mut out);
                let (name, compat) = system_call(bytes);
                let compat = if compat { " compat" } else { "" };
                say(format_args!(" syscall={}{compat}", name.unwrap_or("?")), &mut out);
            }
            KeyKind::Text => {
                let (text, cut) = key_text(bytes);
                btf::escape_text(text, &mut out);
                if cut {
                    out.extend_from_slice("…".as_bytes());
                }
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn part<'e>(key: &Key, bytes: &'e [u8]) -> &'e [u8] {
    let at = key.offset as usize;
    bytes.get(at..at + key.size as usize).unwrap_or_default()
}

/// The text of a key, and whether it went on.
fn key_text(bytes: &[u8]) -> (&[u8], bool) {
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    match text.split_last() {
        Some((&expr::CUT, text)) => (trace::whole_characters(text), true),
        _ => (text, false),
    }
}

/// A bucket's bounds; `None`: it has none on that side. The upper one is not in it.
fn bounds(gathered: &Gathered, bucket: usize) -> (Option<i128>, Option<i128>) {
    let bucket = bucket as i128;
    match gathered.function {
        Function::LHist { low, high, step } => {
            let (low, high, step) = (i128::from(low), i128::from(high), i128::from(step));
            let last = (high - low) / step + 1;
            match bucket {
                0 => (None, Some(low)),
                n if n == last => (Some(high), None),
                n => (Some(low + (n - 1) * step), Some(low + n * step)),
            }
        }
        _ => match bucket {
            0 => (None, Some(0)),
            1 => (Some(0), Some(1)),
            // Above the highest bit there is nothing.
            n => (Some(1 << (n - 2)), Some(1 << (n - 1)).filter(|to| *to <= i128::from(u64::MAX))),
        },
    }
}

fn histogram(gathered: &Gathered, counts: &[u64], out: &mut Vec<u8>) {
    let used = || counts.iter().enumerate().filter(|(_, n)| **n > 0);
    let (Some((first, _)), Some((last, _))) = (used().next(), used().next_back()) else { return };
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let label = |at: usize| match bounds(gathered, at) {
        (None, Some(to)) => format!("(…, {to})"),
        (Some(from), None) => format!("[{from}, …)"),
        (Some(from), Some(to)) if to == from + 1 => format!("[{from}]"),
        (Some(from), Some(to)) => format!("[{from}, {to})"),
        (None, None) => String::new(),
    };
    let labels: Vec<String> = (first..=last).map(label).collect();
    let width = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let digits = most.to_string().len();
    for (label, count) in labels.iter().zip(counts.iter().skip(first)) {
        let pad = " ".repeat(width - label.chars().count());
        let bar = (u128::from(*count) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
        let bar = format!("{:<width$}", "@".repeat(bar), width = BAR as usize);
        say(format_args!("    {label}{pad}  {count:>digits$} |{bar}|\n"), out);
    }
}

/// Appends a tally as one JSON object, newline included: what it had come to at that kernel time, while the trace goes on or at its end.
pub fn json(
    tally: &Tally<'_>,
    (time_ns, interim): (u64, bool),
    clock: &mut Clock,
    symbols: Option<&Symbols>,
    out: &mut Vec<u8>,
) {
    let gathered = tally.gathered;
    out.extend_from_slice(b"{\"tally\":");
    quoted(gathered.text.as_bytes(), out);
    let function = match gathered.function {
        Function::Count => "count",
        Function::Sum => "sum",
        Function::Min => "min",
        Function::Max => "max",
        Function::Avg => "avg",
        Function::Hist => "hist",
        Function::LHist { .. } => "lhist",
    };
    say(format_args!(",\"function\":\"{function}\",\"time\":\""), out);
    clock.utc(time_ns, out);
    say(format_args!("\",\"time_ns\":{time_ns},\"interim\":{interim},\"entries\":["), out);
    for (index, at) in order(tally).into_iter().enumerate() {
        let Some(entry) = tally.entries.get(at) else { continue };
        out.extend_from_slice(if index > 0 { b",{\"keys\":[" } else { b"{\"keys\":[" });
        for (index, key) in gathered.keys.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",{\"expr\":" } else { b"{\"expr\":" });
            quoted(key.text.as_bytes(), out);
            out.extend_from_slice(b",\"value\":");
            let bytes = part(key, &entry.key);
            match &key.kind {
                KeyKind::Number { shape, size, format } => {
                    number_json(shape, *format, bytes.get(..*size as usize).unwrap_or(bytes), symbols, out);
                }
                KeyKind::SystemCall { shape } => {
                    number_json(shape, Format::Plain, bytes.get(..8).unwrap_or(bytes), symbols, out);
                    let (name, compat) = system_call(bytes);
                    out.extend_from_slice(b",\"syscall\":");
                    match name {
                        Some(name) => quoted(name.as_bytes(), out),
                        None => out.extend_from_slice(b"null"),
                    }
                    say(format_args!(",\"compat\":{compat}"), out);
                }
                KeyKind::Text => {
                    let (text, cut) = key_text(bytes);
                    out.push(b'"');
                    btf::escape_json(text, out);
                    out.extend_from_slice(if cut { "…\"".as_bytes() } else { b"\"" });
                }
            }
            out.push(b'}');
        }
        out.push(b']');
        match &entry.value {
            Amount::Count(count) => say(format_args!(",\"value\":{count}"), out),
            Amount::Value(value) => say(format_args!(",\"value\":{value}"), out),
            Amount::Mean { sum, count } => {
                say(format_args!(",\"value\":{},\"sum\":{sum},\"count\":{count}", mean(*sum, *count)), out);
            }
            Amount::Buckets(counts) => {
                out.extend_from_slice(b",\"buckets\":[");
                let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
                for (index, (bucket, count)) in used.enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    let bound = |bound: Option<i128>| bound.map_or("null".to_string(), |n| n.to_string());
                    let (from, to) = bounds(gathered, bucket);
                    say(format_args!("{{\"from\":{},\"to\":{},\"count\":", bound(from), bound(to)), out);
                    decimal(*count, out);
                    out.push(b'}');
                }
                out.push(b']');
            }
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}\n");
}

#[cfg(test)]
mod tests {
    use super::mean;

    #[test]
    fn means_have_three_digits() {
        assert_eq!(mean(10, 4), "2.500");
        assert_eq!(mean(-10, 4), "-2.500");
        assert_eq!(mean(-1, 3), "-0.333");
        assert_eq!(mean(9, 3), "3");
        assert_eq!(mean(0, 0), "0");
    }
}
