//! Against the article's own records: article.txt has the four stacks of its text, as far as it prints them (`...` is its own), and so the
//! addresses, symbols and source lines that they are rendered from. The text has lost the blanks that align the columns.

use super::*;
use crate::render::Symbols;
use crate::render::stack::StackOptions;
use std::collections::HashMap;
use std::io::Write;
use symbols::lines::Line;

const ARTICLE: &str = include_str!("article.txt");

/// An end of a branch as the article prints it: `0x…:name+0x17 (file:line)`.
struct Place {
    address: u64,
    name: &'static str,
    offset: u64,
    line: Option<(&'static str, u32)>,
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.strip_prefix("0x").expect("0x"), 16).expect("hexadecimal")
}

fn place_of(text: &'static str) -> Place {
    let (code, line) = match text.split_once(" (") {
        Some((code, line)) => (code, Some(line.strip_suffix(')').expect("parenthesis"))),
        None => (text, None),
    };
    let (address, symbol) = code.split_once(':').expect("address:");
    let (name, offset) = symbol.split_once('+').expect("+");
    let line = line.map(|line| {
        let (file, line) = line.rsplit_once(':').expect("file:line");
        (file, line.parse().expect("line"))
    });
    Place { address: number(address), name, offset: number(offset), line }
}

/// What the article's text tells: symbols and lines by address.
#[derive(Default)]
struct Known(HashMap<u64, Place>);

impl Known {
    fn frame(&self, address: u64) -> Frame<'_> {
        let place = self.0.get(&address).filter(|place| !place.name.is_empty());
        let symbol = place.map(|place| {
            let module = match place.name {
                "ftrace_trampoline" => Some("__builtin__ftrace"),
                name if name.starts_with("bpf_trampoline_") => Some("bpf"),
                _ => None,
            };
            Resolved { name: place.name, offset: place.offset, module }
        });
        Frame { address, symbol, exact: true }
    }

    fn lines(&self, address: u64) -> Rc<Lines> {
        let line = self.0.get(&address).and_then(|place| place.line);
        let line = line.map(|(file, line)| Line { function: None, file: file.into(), line, column: 0 });
        Rc::new(Lines { chain: line.into_iter().collect() })
    }

    fn bytes(records: &[(u64, u64)]) -> Vec<u8> {
        records.iter().rev().flat_map(|(from, to)| [*from, *to, 0]).flat_map(u64::to_ne_bytes).collect()
    }

    /// Renders branches, oldest first.
    fn rendered(&self, records: &[(u64, u64)], verbose: bool) -> String {
        let bytes = Known::bytes(records);
        let branches = trace::Branches::new(&bytes);
        let record =
            |branch: Branch| Record { from: self.frame(branch.from), to: self.frame(branch.to), branch };
        let mut rows: Vec<_> = branches.map(record).collect();
        rows.reverse();
        let mut out = Vec::new();
        table(&rows, rows.len(), verbose, &mut |address| self.lines(address), &mut out);
        String::from_utf8(out).expect("text")
    }
}

/// Runs of blanks as one, as in the article's text.
fn collapsed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A stack of the article: its lines, and the whole 32 records that they are of, with some of no name where it has `...`.
fn stack(text: &'static str) -> (Known, Vec<&'static str>, Vec<(u64, u64)>, usize) {
    let mut known = Known::default();
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.ends_with("...")) {
        let branch = line.split_once("] ").map_or(line, |(_, branch)| branch);
        let (from, to) = branch.split_once(" -> ").expect("->");
        let (from, to) = (place_of(from), place_of(to));
        records.push((from.address, to.address));
        known.0.insert(from.address, from);
        known.0.insert(to.address, to);
        lines.push(line);
    }
    // Before what it prints, branches that lead there.
    let first = records.first().map_or(0, |(from, _)| *from);
    let hidden = if text.starts_with("[#31] ...") { 5 } else { 0 };
    records.splice(0..0, vec![(first, first); hidden]);
    let last = records.last().map_or(0, |(_, to)| *to);
    records.resize(32, (last, last));
    (known, lines, records, hidden)
}

fn stacks_of_the_article() -> Vec<&'static str> {
    let all: Vec<_> = ARTICLE.split("\n\n").collect();
    assert_eq!(all.len(), 4);
    all
}

#[test]
fn the_articles_records_print_as_in_the_article() {
    let mut compared = 0;
    for text in stacks_of_the_article() {
        let (known, want, records, hidden) = stack(text);
        let printed = known.rendered(&records, true);
        assert!(printed.starts_with("[#31] 0x"), "{printed}");
        let got: Vec<String> = printed.lines().skip(hidden).map(collapsed).collect();
        assert!(got.len() >= want.len());
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got, want);
            compared += 1;
        }
    }
    assert_eq!(compared, 57);
}

#[test]
fn without_v_the_addresses_are_left_out() {
    for text in stacks_of_the_article() {
        let (known, want, records, hidden) = stack(text);
        let printed = known.rendered(&records, false);
        for (got, want) in printed.lines().skip(hidden).zip(&want) {
            // A word's address, unless there is no name for it.
            let word = |word: &'static str| match word.split_once(':') {
                Some((address, "+0x0")) => address,
                Some((address, name)) if address.starts_with("0x") => name,
                _ => word,
            };
            let want: Vec<&str> = want.split(' ').map(word).collect();
            assert_eq!(collapsed(got), want.join(" "));
        }
    }
}

#[test]
fn columns_are_aligned_and_chains_are_numbered() {
    let (known, _, records, _) = stack(stacks_of_the_article()[2]);
    let printed = known.rendered(&records[5..8], true);
    assert_eq!(
        printed,
        [
            "[#02] 0xffffffffbc7fe130:tcp_connect+0x0            (net/ipv4/tcp_output.c:4066)          \
             -> 0xffffffffc1eb0000:ftrace_trampoline+0x0\n",
            "[#01] 0xffffffffc1eb00f0:+0x0                                                             \
             -> 0xffffffffbb8c0830:kprobe_ftrace_handler+0x0 (arch/x86/kernel/kprobes/ftrace.c:18)\n",
            "      0xffffffffbb8c08e4:kprobe_ftrace_handler+0xb4 (arch/x86/kernel/kprobes/ftrace.c:31) \
             -> 0xffffffffbba69850:get_kprobe+0x0            (kernel/kprobes.c:377)\n",
        ]
        .concat()
    );
}

const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81200000 T vfs_read\nffffffff81210000 T ksys_read\n\
    ffffffff81220000 T __bpf_prog_enter_recur\nffffffff81230000 T intel_pmu_snapshot_branch_stack\nffffffff81250000 T _etext\n\
    ffffffffc0100000 t nf_hook [nf_tables]\nffffffffc0200000 t bpf_prog_0123456789abcdef_en_vfs_read [bpf]\n\
    ffffffffc0300000 t bpf_prog_00112233aabbccdd_tp_other [bpf]\nffffffffc0400000 t bpf_trampoline_6442507269 [bpf]\n";

/// As a snapshot has them: newest first, with the flags of hardware that has them all.
const RECORDS: [[u64; 3]; 7] = [
    [0xffffffffc0200040, 0xffffffff81230000, 2],
    [0xffffffffc040004a, 0xffffffffc0200000, 2],
    [0xffffffffc0400039, 0xffffffff81220000, 2],
    [0xffffffff81200004, 0xffffffffc0400000, 2],
    [0xffffffff81210020, 0xffffffff81200000, 1 | 12 << 4 | 4 << 20],
    [0xffffffffc0100010, 0xffffffff81210000, 2 | 4 | 8 | 1 << 4],
    [0xffffffffc0300020, 0xffffffffc0300010, 2 | 1 << 24],
];

fn stacks(verbose: bool) -> Stacks {
    let mut f = tempfile::NamedTempFile::new().expect("temporary file");
    f.write_all(KALLSYMS.as_bytes()).expect("write");
    let symbols = Symbols::from(symbols::Table::load_from(f.path()).expect("load"));
    let mut stacks = Stacks::new(
        symbols,
        verbose,
        StackOptions { ours: ["0123456789abcdef".to_string()].into(), ..StackOptions::default() },
    );
    // Of this machine's kernel, which these symbols are not of.
    stacks.lines = None;
    stacks
}

fn snapshot_bytes() -> Vec<u8> {
    RECORDS.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect()
}

fn printed(snapshot: Snapshot<'_>, verbose: bool) -> String {
    let mut out = Vec::new();
    text(&mut stacks(verbose), snapshot, &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn tracings_own_branches_are_left_out_and_what_the_hardware_says_is_shown() {
    let bytes = snapshot_bytes();
    let taken = || Snapshot::Taken(trace::Branches::new(&bytes));
    assert_eq!(
        printed(taken(), false),
        "LBR stack:\n\
         [#06] tp_other+0x20            -> tp_other+0x10 ; wrong path\n\
         [#05] nf_hook+0x10 [nf_tables] -> ksys_read+0x0 ; 1 cycle, in transaction, abort\n      \
         ksys_read+0x20           -> vfs_read+0x0  ; 12 cycles, mispredicted\n"
    );
    let all = printed(taken(), true);
    assert_eq!(all.lines().count(), 8);
    let last = all.lines().last().map(collapsed);
    let want =
        "0xffffffffc0200040:en_vfs_read+0x40 -> 0xffffffff81230000:intel_pmu_snapshot_branch_stack+0x0";
    assert_eq!(last.as_deref(), Some(want));
}

#[test]
fn what_is_not_there_is_said() {
    assert_eq!(
        printed(Snapshot::Fault(-2), false),
        "LBR stack: not taken: ENOENT (the kernel had no branch records to give)\n"
    );
    assert_eq!(
        printed(Snapshot::Fault(-16), false),
        "LBR stack: not taken: EBUSY (another event's were written over them)\n"
    );
    assert_eq!(printed(Snapshot::Fault(-71), false), "LBR stack: not taken: EPROTO\n");
    let bytes = snapshot_bytes();
    let own = Snapshot::Taken(trace::Branches::new(&bytes[..72]));
    assert_eq!(printed(own, false), "LBR stack: no branches but those of tracing itself (-v shows them)\n");
    let none = Snapshot::Taken(trace::Branches::new(&[0; 48]));
    assert_eq!(printed(none, false), "LBR stack: no branches recorded\n");
}

#[test]
fn json_has_what_the_hardware_has() {
    let parsed = |snapshot| {
        let mut out = Vec::new();
        json(&mut stacks(false), snapshot, &mut out);
        serde_json::from_slice::<serde_json::Value>(&out).expect("JSON")
    };
    let bytes = snapshot_bytes();
    let end = |address: &str, symbol: &str, offset: u64, module: Option<&str>| serde_json::json!({"address": address, "symbol": symbol, "offset": offset, "module": module});
    assert_eq!(
        parsed(Snapshot::Taken(trace::Branches::new(&bytes))),
        serde_json::json!([
            {
                "from": end("0xffffffffc0300020", "bpf_prog_00112233aabbccdd_tp_other", 32, Some("bpf")),
                "to": end("0xffffffffc0300010", "bpf_prog_00112233aabbccdd_tp_other", 16, Some("bpf")),
                "mispredicted": false, "wrong_path": true
            },
            {
                "from": end("0xffffffffc0100010", "nf_hook", 16, Some("nf_tables")),
                "to": end("0xffffffff81210000", "ksys_read", 0, None),
                "mispredicted": false, "cycles": 1, "in_transaction": true, "abort": true
            },
            {
                "from": end("0xffffffff81210020", "ksys_read", 32, None),
                "to": end("0xffffffff81200000", "vfs_read", 0, None),
                "mispredicted": true, "cycles": 12, "type": "call"
            }
        ])
    );
    assert_eq!(parsed(Snapshot::Fault(-2)), serde_json::json!({"error": "ENOENT"}));
}

#[test]
fn inlined_functions_follow_the_line_of_the_innermost() {
    let line = |function: &str, file: &str, line| Line {
        function: Some(function.into()),
        file: file.into(),
        line,
        column: 0,
    };
    let chain = vec![
        line("bpf_prog_run", "include/linux/filter.h", 701),
        line("bpf_prog_run_array", "include/linux/bpf.h", 2099),
        line("trace_call_bpf", "kernel/trace/bpf_trace.c", 147),
    ];
    assert_eq!(
        place(&Lines { chain: chain.clone() }),
        "(include/linux/filter.h:701) [inline bpf_prog_run < bpf_prog_run_array]"
    );
    assert_eq!(place(&Lines { chain: chain[2..].to_vec() }), "(kernel/trace/bpf_trace.c:147)");
    assert_eq!(place(&Lines { chain: vec![line("f", "a.c", 0)] }), "(a.c:?)");
    assert_eq!(place(&Lines::default()), "");
}

/// Whatever a snapshot holds, it comes out as lines of printable text, or as JSON.
#[test]
fn any_bytes_are_shown() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for verbose in [false, true] {
        let mut stacks = stacks(verbose);
        for _ in 0..300 {
            let words = (next() % 100) as usize;
            let word = |n: u64, random: u64| match n % 4 {
                0 => random,
                1 => RECORDS[(random % 7) as usize][(random >> 8 & 1) as usize].wrapping_add(random >> 60),
                2 => 0,
                _ => u64::MAX - random % 3,
            };
            let bytes: Vec<u8> = (0..words).flat_map(|_| word(next(), next()).to_ne_bytes()).collect();
            let cut = bytes.len().saturating_sub((next() % 9) as usize);
            let snapshot = || Snapshot::Taken(trace::Branches::new(&bytes[..cut]));
            let mut out = Vec::new();
            text(&mut stacks, snapshot(), &mut out);
            let shown = String::from_utf8(out).expect("UTF-8");
            assert!(
                shown.ends_with('\n') && !shown.chars().any(|c| c.is_control() && c != '\n'),
                "{shown:?}"
            );
            let mut out = Vec::new();
            json(&mut stacks, snapshot(), &mut out);
            let parsed: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
            assert!(parsed.is_array());
        }
    }
}
