//! Kernel stacks: addresses become symbols, and what tracing itself put on the stack is left out.

use super::symbols::module;
use super::{Symbols, fault, hexadecimal, json};
use std::collections::BTreeSet;
use symbols::Resolved;
use trace::{Frames, Stack};

/// Renders stacks.
pub struct Stacks {
    symbols: Symbols,
    verbose: bool,
    /// Tags of our own programs.
    ours: BTreeSet<String>,
}

impl Stacks {
    /// `verbose`: addresses, and our own frames, are shown too; `ours`: tags of our own programs.
    pub fn new(symbols: Symbols, verbose: bool, ours: BTreeSet<String>) -> Stacks {
        Stacks { symbols, verbose, ours }
    }

    /// Appends a stack as lines.
    pub fn text(&self, stack: Stack<'_>, out: &mut Vec<u8>) {
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
        self.each(frames, |address, symbol| {
            let Some(symbol) = symbol else {
                hexadecimal(address, out);
                out.push(b'\n');
                return;
            };
            if self.verbose {
                hexadecimal(address, out);
                out.push(b':');
            }
            out.extend_from_slice(symbol.name.as_bytes());
            out.push(b'+');
            hexadecimal(symbol.offset, out);
            module(&symbol, out);
            out.push(b'\n');
        });
    }

    /// Appends the frames as an array of objects.
    pub fn json(&self, frames: Frames<'_>, out: &mut Vec<u8>) {
        out.push(b'[');
        let mut comma = false;
        self.each(frames, |address, symbol| {
            out.extend_from_slice(if comma { b",{\"address\":\"" } else { b"{\"address\":\"" });
            comma = true;
            hexadecimal(address, out);
            out.extend_from_slice(b"\",\"symbol\":");
            json::symbol(symbol, out);
            out.push(b'}');
        });
        out.push(b']');
    }

    /// Calls `show` with each frame that is to be shown.
    fn each<'a>(&'a self, frames: Frames<'_>, mut show: impl FnMut(u64, Option<Resolved<'a>>)) {
        let resolved = frames.map(|address| (address, self.symbols.resolve(address)));
        if self.verbose || !self.symbols.are_known() {
            resolved.for_each(|(address, symbol)| show(address, symbol));
        } else {
            trim(&self.ours, resolved, show);
        }
    }
}

/// Leaves out what is there because of the trace: at the inner end our program and what called it, and trampolines
/// wherever they are.
///
/// A trampoline around a function under way stands between that function's frame and the frame of the place in its
/// first bytes that was patched to call the trampoline; those two are one call, so the second is left out.
fn trim<'a>(
    tags: &BTreeSet<String>,
    frames: impl Iterator<Item = (u64, Option<Resolved<'a>>)>,
    mut show: impl FnMut(u64, Option<Resolved<'a>>),
) {
    let mut innermost = true;
    let mut last: Option<&str> = None;
    let mut wrapped = false;
    for (address, symbol) in frames {
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
        show(address, symbol);
    }
}

/// Where a function is patched to call its trampoline, it goes on at most this far in: `endbr64` and the call.
const PATCHED: u64 = 9;

fn is_trampoline(symbol: &Resolved<'_>) -> bool {
    symbol.module == Some("bpf") && symbol.name.starts_with("bpf_trampoline_")
}

/// A program that we made: `bpf_prog_`, its tag in 16 digits, and its name. By the name alone it could be somebody else's,
/// even the one that is traced.
fn is_ours(tags: &BTreeSet<String>, symbol: &Resolved<'_>) -> bool {
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
        Stacks::new(Symbols::from(symbols::Table::load_from(f.path()).expect("load")), verbose, ours)
    }

    fn shown(addresses: &[u64]) -> Vec<String> {
        let stacks = stacks(false);
        let table = &stacks.symbols;
        let mut names = Vec::new();
        trim(&stacks.ours, addresses.iter().map(|a| (*a, table.resolve(*a))), |address, symbol| {
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

    #[test]
    fn hexadecimal_numbers() {
        for n in [0, 1, 0xf, 0x10, 0xffffffffbc7fe131, u64::MAX] {
            let mut out = Vec::new();
            hexadecimal(n, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), format!("{n:#x}"));
        }
    }
}
