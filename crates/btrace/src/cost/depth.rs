//! How many calls lie between a traced place and a program there, from a stack taken in the program.

use symbols::Resolved;

use super::code::Jumped;

/// A frame, named as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its address.
    pub address: u64,
    /// `None` of what kallsyms does not have: trampolines of ftrace, and BPF programs where it hides them.
    pub name: Option<String>,
    /// So far into it.
    pub offset: u64,
    /// `bpf` of programs and trampolines.
    pub module: Option<String>,
}

impl Frame {
    /// As kallsyms has it.
    pub fn of(address: u64, symbol: Option<Resolved<'_>>) -> Frame {
        Frame {
            address,
            name: symbol.map(|s| s.name.to_string()),
            offset: symbol.map_or(0, |s| s.offset),
            module: symbol.and_then(|s| s.module).map(str::to_string),
        }
    }

    fn is_bpf(&self) -> bool {
        self.module.as_deref() == Some("bpf")
    }

    /// The function's name without what the compiler appends to copies.
    pub fn base(&self) -> Option<&str> {
        self.name.as_deref().and_then(|name| name.split('.').next())
    }
}

/// The way from a traced place to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Innermost first, the program at its head.
    pub frames: Vec<Frame>,
    /// The frame that they were called from: the traced function, or where it was left already its caller, if the stack reaches so far.
    pub from: Option<Frame>,
    /// Functions on it that have no frame.
    pub jumped: Vec<Jumped>,
}

impl Path {
    /// Calls from the traced place to the program.
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// All that is on it, innermost first, and where it came from; of each whether it has no frame.
    pub fn whole(&self) -> impl Iterator<Item = (&Frame, bool)> {
        let with_jumped = |(at, frame)| {
            let jumped = self.jumped.iter().filter(move |j| j.before == at).map(|j| (&j.function, true));
            std::iter::once((frame, false)).chain(jumped)
        };
        self.frames.iter().enumerate().flat_map(with_jumped).chain(self.from.iter().map(|from| (from, false)))
    }
}

/// Of a stack that another program took in the place of the one that looks, at a function that this calls: what is on the way from
/// that function on, which stands for the program. The program's own frame is missing there: a BPF function that is just
/// entered has none yet, which the kernel does not know, so that it passes over the caller.
pub fn watched<'a>(stack: &'a [Frame], function: &str) -> Option<&'a [Frame]> {
    let is_watched = |frame: &Frame| {
        let name = frame.name.as_deref().unwrap_or_default();
        frame.is_bpf()
            && name.strip_suffix(function).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    };
    let at = stack.iter().position(is_watched)?;
    stack.get(at..)
}

/// Finds it in a whole stack. `function`: the traced function, where it is known (a tracepoint's is not).
pub fn path(stack: &[Frame], function: Option<&str>) -> Result<Path, String> {
    // What takes the stack is on it in some kernels.
    let program = stack.iter().position(|frame| frame.name.is_none() || frame.is_bpf());
    let program = program.ok_or("the program is not on its own stack")?;
    let stack = stack.get(program..).unwrap_or_default();
    let traced = function
        .and_then(|function| stack.iter().position(|frame| frame.base() == Some(function) && !frame.is_bpf()))
        // A return that is seen after it, or a trampoline that is jumped to: its frame is gone.
        .or_else(|| stack.iter().position(|frame| !is_on_the_way(frame)));
    if let Some((frames, [from, ..])) = traced.and_then(|traced| stack.split_at_checked(traced)) {
        return Ok(Path { frames: frames.to_vec(), from: Some(from.clone()), jumped: Vec::new() });
    }
    match stack.last() {
        // The traced function returned there: it is the first frame of the way, though 5.10 sees none beyond.
        Some(last) if RETURNED_TO.contains(&last.base().unwrap_or_default()) => {
            Ok(Path { frames: stack.to_vec(), from: None, jumped: Vec::new() })
        }
        Some(Frame { name: Some(last), .. }) => Err(format!("the stack breaks off on the way, after {last}")),
        _ => Err("the stack breaks off on the way".into()),
    }
}

/// What functions return to that are traced so.
const RETURNED_TO: [&str; 4] =
    ["arch_rethook_trampoline", "__kretprobe_trampoline", "kretprobe_trampoline", "return_to_handler"];

/// What the kernel puts between a traced place and a program.
fn is_on_the_way(frame: &Frame) -> bool {
    const PREFIXES: [&str; 16] = [
        "__bpf_trace_",
        "__traceiter_",
        "bpf_trace_run",
        "bpf_trampoline_",
        "perf_trace_",
        "trace_event_",
        "perf_syscall_",
        "kprobe_",
        "kretprobe_",
        "__kretprobe_",
        "arch_rethook_",
        "rethook_",
        "fprobe_",
        "ftrace_",
        "__ftrace_",
        "arch_ftrace_",
    ];
    const NAMES: [&str; 15] = [
        "__bpf_prog_run",
        "__bpf_prog_run_save_cb",
        "trace_call_bpf",
        "do_perf_trace",
        "opt_pre_handler",
        "optimized_callback",
        "opt_handler",
        "aggr_pre_handler",
        "trampoline_handler",
        "return_to_handler",
        "function_graph_enter",
        "function_graph_enter_regs",
        "exc_int3",
        "asm_exc_int3",
        "do_int3",
    ];
    match frame.base() {
        None => true,
        Some(name) => frame.is_bpf() || PREFIXES.iter().any(|p| name.starts_with(p)) || NAMES.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &[&str]) -> Vec<Frame> {
        names
            .iter()
            .map(|name| {
                let (name, module) = match name.strip_prefix("bpf:") {
                    Some(name) => (name, Some("bpf".to_string())),
                    None => (*name, None),
                };
                let name = (name != "?").then(|| name.to_string());
                Frame { address: 0xffff_ffff_8100_0000, name, offset: 5, module }
            })
            .collect()
    }

    fn depth(names: &[&str], function: Option<&str>) -> Option<(usize, String)> {
        let path = path(&stack(names), function).ok()?;
        Some((path.depth(), path.from.and_then(|from| from.name).unwrap_or_default()))
    }

    #[test]
    fn of_a_tracepoint_it_ends_at_the_function_that_has_it() {
        let raw = [
            "bpf:bpf_prog_1_cost_look",
            "bpf_trace_run1",
            "__bpf_trace_netlink_extack",
            "do_trace_netlink_extack",
            "x",
        ];
        assert_eq!(depth(&raw, None), Some((3, "do_trace_netlink_extack".into())));
        let perf = [
            "bpf_get_task_stack",
            "?",
            "trace_call_bpf",
            "perf_trace_run_bpf_submit",
            "perf_trace_netlink_extack",
            "do_trace_netlink_extack",
            "x",
        ];
        assert_eq!(depth(&perf, None), Some((4, "do_trace_netlink_extack".into())));
    }

    #[test]
    fn of_a_function_it_ends_there() {
        let fentry = ["bpf:bpf_prog_1_cost_look", "bpf:bpf_trampoline_6442", "tcp_connect", "tcp_v4_connect"];
        assert_eq!(depth(&fentry, Some("tcp_connect")), Some((2, "tcp_connect".into())));
        let copy = ["?", "?", "tcp_connect.constprop.0", "tcp_v4_connect"];
        assert_eq!(depth(&copy, Some("tcp_connect")), Some((2, "tcp_connect.constprop.0".into())));
        // A function that the way itself goes through, too: the first is the traced one.
        let kprobe = [
            "?",
            "trace_call_bpf",
            "kprobe_perf_func",
            "kprobe_dispatcher",
            "kprobe_ftrace_handler",
            "?",
            "tcp_connect",
        ];
        assert_eq!(depth(&kprobe, Some("tcp_connect")), Some((6, "tcp_connect".into())));
    }

    #[test]
    fn a_function_that_was_left_is_not_there() {
        let kretprobe = [
            "?",
            "trace_call_bpf",
            "kretprobe_perf_func",
            "kretprobe_dispatcher",
            "__kretprobe_trampoline_handler",
            "trampoline_handler",
            "__kretprobe_trampoline",
            "__inet_stream_connect",
        ];
        assert_eq!(depth(&kretprobe, Some("tcp_connect")), Some((7, "__inet_stream_connect".into())));
    }

    #[test]
    fn a_stack_that_breaks_off_where_the_function_returned_to_is_whole() {
        let names =
            ["?", "trace_call_bpf", "kretprobe_perf_func", "trampoline_handler", "kretprobe_trampoline"];
        assert_eq!(depth(&names, Some("tcp_connect")), Some((5, String::new())));
        let short = path(&stack(&names[..3]), Some("tcp_connect"));
        assert_eq!(short, Err("the stack breaks off on the way, after kretprobe_perf_func".into()));
    }

    #[test]
    fn a_program_that_is_watched_is_counted_once() {
        let all = stack(&[
            "bpf:bpf_prog_1_cost_watching",
            "bpf:bpf_trampoline_123",
            "bpf:bpf_prog_2_cost_watched",
            "trace_call_bpf",
            "kprobe_perf_func",
            "kprobe_ftrace_handler",
            "?",
            "tcp_connect",
        ]);
        let watched = watched(&all, "cost_watched").expect("it is there");
        assert_eq!(path(watched, Some("tcp_connect")).map(|p| p.depth()), Ok(5));
        assert_eq!(super::watched(&all[..2], "cost_watched"), None);
    }

    #[test]
    fn a_stack_that_breaks_off_tells_nothing() {
        assert_eq!(depth(&["bpf:bpf_prog_1_cost_look", "bpf_trace_run1"], None), None);
        assert_eq!(depth(&[], None), None);
        assert_eq!(depth(&["bpf_get_stack"], None), None);
    }
}
