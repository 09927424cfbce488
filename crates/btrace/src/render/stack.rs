//! Kernel stacks: addresses become symbols, and what tracing itself put on the stack is left out.

use super::symbols::module;
use super::{Symbols, decimal, fault, hexadecimal, json};
use crate::logging::say;
use std::collections::BTreeSet;
use std::rc::Rc;
use symbols::Resolved;
use symbols::lines::{DebugFile, Line, Lines, Source};
use trace::{Frames, Stack};

/// What else stacks depend on.
#[derive(Default)]
pub struct StackOptions {
    /// Tags of our own programs.
    pub ours: BTreeSet<String>,
    /// The kernel's debug file, where it was named.
    pub vmlinux: Option<DebugFile>,
    /// Source lines as an earlier renderer had them, [`Stacks::into_lines`].
    pub lines: Option<Source>,
    /// By probe, the code of functions whose executed paths are shown.
    pub codes: Vec<Option<trace::path::Code>>,
}

/// Renders stacks, and what else is addresses of code: branch records.
pub struct Stacks {
    pub(super) symbols: Symbols,
    pub(super) verbose: bool,
    pub(super) ours: BTreeSet<String>,
    pub(super) lines: Option<Source>,
}

/// A frame that is to be shown.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub address: u64,
    pub symbol: Option<Resolved<'a>>,
    /// The address is where the code stood, not one to which a call returns.
    pub exact: bool,
}

impl Frame<'_> {
    /// The address of the instruction that is to blame: of a return address the call, which ends before it. A return address at
    /// the start of a function is none: there the code stands as yet, or it comes from a call that never returns.
    fn instruction(&self) -> u64 {
        let stands = self.exact || self.symbol.is_some_and(|s| s.offset == 0);
        if stands { self.address } else { self.address.wrapping_sub(1) }
    }

    /// Appends the functions inlined there and the frame itself, a line each.
    fn text(&self, lines: &Lines, verbose: bool, out: &mut Vec<u8>) {
        let begin = |out: &mut Vec<u8>| {
            if verbose {
                hexadecimal(self.address, out);
                out.push(b':');
            }
        };
        for line in lines.inlined() {
            begin(out);
            out.extend_from_slice(line.function.as_deref().unwrap_or("?").as_bytes());
            out.extend_from_slice(b" [inline]");
            place(line, out);
            out.push(b'\n');
        }
        match self.symbol {
            Some(symbol) => {
                begin(out);
                out.extend_from_slice(symbol.name.as_bytes());
                out.push(b'+');
                hexadecimal(symbol.offset, out);
                module(&symbol, out);
            }
            None => hexadecimal(self.address, out),
        }
        if let Some(line) = lines.outermost() {
            place(line, out);
        }
        out.push(b'\n');
    }

    /// Appends it as an object.
    pub(super) fn json(&self, lines: &Lines, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"address\":\"");
        hexadecimal(self.address, out);
        out.extend_from_slice(b"\",\"symbol\":");
        json::symbol(self.symbol, out);
        if let Some(line) = lines.outermost() {
            out.push(b',');
            members(line, out);
        }
        let mut before: &[u8] = b",\"inlined\":[{\"function\":";
        for line in lines.inlined() {
            out.extend_from_slice(before);
            before = b",{\"function\":";
            match &line.function {
                Some(name) => json::quoted(name.as_bytes(), out),
                None => out.extend_from_slice(b"null"),
            }
            out.push(b',');
            members(line, out);
            out.push(b'}');
        }
        out.extend_from_slice(if lines.inlined().is_empty() { b"}" } else { b"]}" });
    }
}

impl Stacks {
    /// `verbose`: addresses, and our own frames, are shown too.
    pub fn new(symbols: Symbols, verbose: bool, options: StackOptions) -> Stacks {
        let lines = options.lines.or_else(|| symbols.lines(options.vmlinux));
        Stacks { symbols, verbose, ours: options.ours, lines }
    }

    /// The source lines, with what has been looked up.
    pub fn into_lines(self) -> Option<Source> {
        self.lines
    }

    /// The symbols that addresses are shown by.
    pub(super) fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The source lines of an instruction.
    pub(super) fn lines_at(&mut self, address: u64) -> Rc<Lines> {
        self.lines.as_mut().map(|source| source.lines_at(address)).unwrap_or_default()
    }

    /// Says once why there are no source lines.
    pub(super) fn say_remark(&mut self) {
        if let Some(remark) = self.lines.as_mut().and_then(Source::remark) {
            say(format_args!("btrace: {remark}"));
        }
    }

    /// Appends a stack as lines.
    pub fn text(&mut self, stack: Stack<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Func stack:");
        let frames = match stack {
            Stack::Frames(frames) => frames,
            Stack::Fault(error) => {
                out.extend_from_slice(b" not taken: ");
                out.extend_from_slice(fault(error).as_bytes());
                out.push(b'\n');
                return;
            }
        };
        out.push(b'\n');
        let verbose = self.verbose;
        self.each(frames, |frame, lines| frame.text(lines, verbose, out));
    }

    /// Appends the frames as an array of objects.
    pub fn json(&mut self, frames: Frames<'_>, out: &mut Vec<u8>) {
        out.push(b'[');
        let mut comma = false;
        self.each(frames, |frame, lines| {
            if std::mem::replace(&mut comma, true) {
                out.push(b',');
            }
            frame.json(lines, out);
        });
        out.push(b']');
    }

    /// Calls `show` with each frame that is to be shown, and its source lines.
    fn each(&mut self, frames: Frames<'_>, mut show: impl FnMut(&Frame<'_>, &Lines)) {
        let Stacks { symbols, verbose, ours, lines } = self;
        let none = Rc::new(Lines::default());
        let mut show = |frame: Frame<'_>| {
            let known = lines.as_mut().map(|source| source.lines_at(frame.instruction()));
            show(&frame, known.as_ref().unwrap_or(&none));
        };
        let mut interrupted = false;
        let resolved = frames.map(|address| {
            let symbol = symbols.resolve(address);
            let exact = std::mem::replace(&mut interrupted, symbol.is_some_and(|s| interrupts(&s)));
            Frame { address, symbol, exact }
        });
        if *verbose || !symbols.are_known() {
            resolved.for_each(&mut show);
        } else {
            trim(ours, resolved, &mut show);
        }
        self.say_remark();
    }
}

/// Appends ` ; file:line`, with `?` for code that belongs to no line.
fn place(line: &Line, out: &mut Vec<u8>) {
    out.extend_from_slice(b" ; ");
    out.extend_from_slice(line.file.as_bytes());
    out.push(b':');
    match line.line {
        0 => out.push(b'?'),
        number => decimal(number, out),
    }
}

/// Appends a place as members of an object, without a comma before or behind.
fn members(line: &Line, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"file\":");
    json::quoted(line.file.as_bytes(), out);
    out.extend_from_slice(b",\"line\":");
    decimal(line.line, out);
    if line.column > 0 {
        out.extend_from_slice(b",\"column\":");
        decimal(line.column, out);
    }
}

/// Entry code of interrupts and exceptions: the frame that comes next outward is not that of a caller but what was
/// interrupted, and its address the very instruction. (arch/x86/include/asm/idtentry.h and entry_64.S; arch/arm64/kernel/entry.S)
fn interrupts(symbol: &Resolved<'_>) -> bool {
    const PREFIXES: [&str; 4] = ["asm_exc_", "asm_sysvec_", "el1h_64_", "el1t_64_"];
    const NAMES: [&str; 5] =
        ["asm_common_interrupt", "asm_spurious_interrupt", "end_repeat_nmi", "el1_irq", "el1_sync"];
    symbol.module.is_none()
        && (PREFIXES.iter().any(|prefix| symbol.name.starts_with(prefix)) || NAMES.contains(&symbol.name))
}

/// Leaves out what is there because of the trace: at the inner end our program and what called it, and trampolines
/// wherever they are.
///
/// A trampoline around a function under way stands between that function's frame and the frame of the place in its
/// first bytes that was patched to call the trampoline; those two are one call, so the second is left out.
fn trim<'a>(
    tags: &BTreeSet<String>,
    frames: impl Iterator<Item = Frame<'a>>,
    mut show: impl FnMut(Frame<'a>),
) {
    let mut innermost = true;
    let mut last: Option<&str> = None;
    let mut wrapped = false;
    for frame in frames {
        let symbol = frame.symbol;
        // Some kernels hide BPF programs from kallsyms (net.core.bpf_jit_kallsyms=0): then ours has no name.
        let ours = symbol.is_none_or(|s| is_ours(tags, &s) || is_path(&s));
        if innermost && ours {
            continue;
        }
        if symbol.is_some_and(|s| is_trampoline(&s)) {
            wrapped = !innermost;
            continue;
        }
        innermost = false;
        let name = symbol.map(|s| s.name);
        let patched = symbol.is_some_and(|s| s.offset <= PATCHED);
        if std::mem::take(&mut wrapped) && patched && name == last {
            continue;
        }
        last = name;
        show(frame);
    }
}

/// Where a function is patched to call its trampoline, it goes on at most this far in: `endbr64` and the call.
pub(super) const PATCHED: u64 = 9;

pub(super) fn is_trampoline(symbol: &Resolved<'_>) -> bool {
    symbol.module == Some("bpf") && symbol.name.starts_with("bpf_trampoline_")
}

/// A program that we made: `bpf_prog_`, its tag in 16 digits, and its name. By the name alone it could be somebody else's,
/// even the one that is traced.
pub(super) fn is_ours(tags: &BTreeSet<String>, symbol: &Resolved<'_>) -> bool {
    let tag = symbol.name.strip_prefix("bpf_prog_").and_then(|rest| rest.split('_').next());
    symbol.module == Some("bpf") && tag.is_some_and(|tag| tags.contains(tag))
}

/// What calls a program of ours, or is called by it to take the stack.
fn is_path(symbol: &Resolved<'_>) -> bool {
    const PREFIXES: [&str; 5] =
        ["bpf_trampoline_", "bpf_get_stack", "bpf_trace_run", "__bpf_trace_", "__traceiter_"];
    PREFIXES.iter().any(|prefix| symbol.name.starts_with(prefix)) || symbol.name == "__bpf_prog_run"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81100000 T bpf_trace_run4\nffffffff81110000 t __bpf_trace_sched_switch\n\
        ffffffff81120000 T __traceiter_sched_switch\nffffffff81200000 T vfs_read\nffffffff81210000 T ksys_read\n\
        ffffffff81220000 T do_syscall_64\nffffffff81230000 T entry_SYSCALL_64_after_hwframe\n\
        ffffffff81240000 t schedule\nffffffff81250000 T _etext\nffffffffc0100000 t nf_hook [nf_tables]\n\
        ffffffffc0200000 t bpf_prog_0123456789abcdef_ex_vfs_read [bpf]\n\
        ffffffffc0300000 t bpf_prog_00112233aabbccdd_tp_other [bpf]\n\
        ffffffffc0400000 t bpf_trampoline_6442507269 [bpf]\n\
        ffffffffc0500000 t bpf_prog_fedcba9876543210_tp_sched_switch [bpf]\n";

    fn stacks(verbose: bool) -> Stacks {
        let mut f = tempfile::NamedTempFile::new().expect("temporary file");
        f.write_all(KALLSYMS.as_bytes()).expect("write");
        let ours = ["0123456789abcdef", "fedcba9876543210"].map(String::from).into();
        let symbols = Symbols::from(symbols::Table::load_from(f.path()).expect("load"));
        Stacks { symbols, verbose, ours, lines: None }
    }

    fn shown(addresses: &[u64]) -> Vec<String> {
        let stacks = stacks(false);
        let table = &stacks.symbols;
        let mut names = Vec::new();
        let frame = |a: &u64| Frame { address: *a, symbol: table.resolve(*a), exact: false };
        trim(&stacks.ours, addresses.iter().map(frame), |Frame { address, symbol, .. }| {
            names.push(symbol.map_or(format!("{address:#x}"), |s| format!("{}+{:#x}", s.name, s.offset)));
        });
        names
    }

    #[test]
    fn our_program_and_its_trampoline_are_left_out() {
        let addresses = [
            0xffffffffc0200010,
            0xffffffffc0400020,
            0xffffffff81200005,
            0xffffffff81210060,
            0xffffffff81220040,
        ];
        assert_eq!(shown(&addresses), ["vfs_read+0x5", "ksys_read+0x60", "do_syscall_64+0x40"]);
    }

    #[test]
    fn a_tracepoint_begins_at_its_caller() {
        let addresses = [
            0xffffffffc0500010,
            0xffffffff81100005,
            0xffffffff81110009,
            0xffffffff81120010,
            0xffffffff81240123,
            0xffffffff81220040,
        ];
        assert_eq!(shown(&addresses), ["schedule+0x123", "do_syscall_64+0x40"]);
    }

    #[test]
    fn a_function_under_way_inside_its_trampoline_is_one_call() {
        let addresses = [
            0xffffffffc0200010,
            0xffffffffc0400020,
            0xffffffff81200005,
            0xffffffff81210060,
            0xffffffffc0400080,
            0xffffffff81210005,
            0xffffffff81220040,
        ];
        assert_eq!(shown(&addresses), ["vfs_read+0x5", "ksys_read+0x60", "do_syscall_64+0x40"]);
    }

    /// Trampolines that are jumped to (7.x, at exits) leave no frame of the patched place.
    #[test]
    fn a_function_that_calls_itself_through_its_trampoline_is_two_calls() {
        let addresses = [
            0xffffffffc0200010,
            0xffffffffc0400020,
            0xffffffff81200060,
            0xffffffffc0400080,
            0xffffffff81200060,
        ];
        assert_eq!(shown(&addresses), ["vfs_read+0x60", "vfs_read+0x60"]);
    }

    #[test]
    fn other_programs_and_recursion_are_kept() {
        let addresses = [
            0xffffffffc0200010,
            0xffffffffc0400020,
            0xffffffff81200005,
            0xffffffff81200030,
            0xffffffffc0300004,
        ];
        let want = ["vfs_read+0x5", "vfs_read+0x30", "bpf_prog_00112233aabbccdd_tp_other+0x4"];
        assert_eq!(shown(&addresses), want);
    }

    #[test]
    fn a_traced_program_is_shown_whatever_its_name() {
        let addresses = [0xffffffffc0200010, 0xffffffffc0400020, 0xffffffffc0300005, 0xffffffff81210060];
        let want = ["bpf_prog_00112233aabbccdd_tp_other+0x5", "ksys_read+0x60"];
        assert_eq!(shown(&addresses), want);
    }

    #[test]
    fn programs_that_kallsyms_hides_are_left_out_at_the_inner_end_only() {
        let addresses = [0xffffffffc0900010, 0xffffffffc0900020, 0xffffffff81200005, 0xffffffffc0900030];
        assert_eq!(shown(&addresses), ["vfs_read+0x5", "0xffffffffc0900030"]);
    }

    #[test]
    fn an_error_is_named() {
        let mut out = Vec::new();
        stacks(false).text(Stack::Fault(-14), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), "Func stack: not taken: EFAULT\n");
    }

    fn line(function: Option<&str>, file: &str, line: u32, column: u32) -> Line {
        Line { function: function.map(String::from), file: file.into(), line, column }
    }

    const SYMBOL: Resolved<'static> =
        Resolved { name: "tcf_classify", offset: 0x42, module: Some("cls_api") };

    #[test]
    fn inlined_functions_have_lines_of_their_own_above_the_frame() {
        let chain = vec![
            line(Some("tcf_action"), "include/net/act_api.h", 12, 7),
            line(Some("__tcf_classify"), "net/sched/cls_api.c", 1500, 0),
            line(Some("tcf_classify"), "net/sched/cls_api.c", 1602, 9),
        ];
        let frame = Frame { address: 0xffffffffc0100042, symbol: Some(SYMBOL), exact: false };
        let text = |verbose, chain: &[Line]| {
            let mut out = Vec::new();
            frame.text(&Lines { chain: chain.into() }, verbose, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(
            text(false, &chain),
            "tcf_action [inline] ; include/net/act_api.h:12\n__tcf_classify [inline] ; net/sched/cls_api.c:1500\n\
            tcf_classify+0x42 [cls_api] ; net/sched/cls_api.c:1602\n"
        );
        assert_eq!(text(false, &[]), "tcf_classify+0x42 [cls_api]\n");
        assert_eq!(
            text(true, &chain[1..]),
            "0xffffffffc0100042:__tcf_classify [inline] ; net/sched/cls_api.c:1500\n\
            0xffffffffc0100042:tcf_classify+0x42 [cls_api] ; net/sched/cls_api.c:1602\n"
        );
        let json = |chain: &[Line]| {
            let mut out = Vec::new();
            frame.json(&Lines { chain: chain.into() }, &mut out);
            serde_json::from_slice::<serde_json::Value>(&out).expect("JSON")
        };
        let bare = serde_json::json!({"address": "0xffffffffc0100042", "symbol": "tcf_classify", "offset": 66, "module": "cls_api"});
        assert_eq!(json(&[]), bare);
        let mut whole = bare.clone();
        whole["file"] = "net/sched/cls_api.c".into();
        whole["line"] = 1602.into();
        whole["column"] = 9.into();
        assert_eq!(json(&chain[2..]), whole);
        whole["inlined"] = serde_json::json!([
            {"function": "tcf_action", "file": "include/net/act_api.h", "line": 12, "column": 7},
            {"function": "__tcf_classify", "file": "net/sched/cls_api.c", "line": 1500}
        ]);
        assert_eq!(json(&chain), whole);
    }

    #[test]
    fn the_line_of_a_return_address_is_that_of_the_call() {
        let frame = |offset, exact| {
            let symbol = Resolved { offset, ..SYMBOL };
            Frame { address: 0x1000 + offset, symbol: Some(symbol), exact }.instruction()
        };
        assert_eq!(frame(0x42, false), 0x1041);
        assert_eq!(frame(0x42, true), 0x1042, "what was interrupted stands there itself");
        assert_eq!(frame(0, false), 0x1000, "not the function before");
        for (name, want) in [
            ("asm_sysvec_apic_timer_interrupt", true),
            ("asm_exc_page_fault", true),
            ("asm_common_interrupt", true),
            ("sysvec_apic_timer_interrupt", false),
            ("asm_call_on_stack", false),
        ] {
            assert_eq!(interrupts(&Resolved { name, offset: 0x16, module: None }), want, "{name}");
        }
    }

    #[test]
    fn hexadecimal_numbers() {
        for n in [0, 1, 0xf, 0x10, 0xffffffffbc7fe131, u64::MAX] {
            let mut out = Vec::new();
            hexadecimal(n, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), format!("{n:#x}"));
        }
    }
}
