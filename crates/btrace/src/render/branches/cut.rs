//! Which branches are those of tracing itself: what leads from the traced place to our program, and our program's own.
//!
//! They are the newest. They are known by the symbols of what runs there, never by their number: kernels and methods differ.

use crate::render::stack::{PATCHED, is_ours, is_trampoline};
use std::collections::BTreeSet;
use symbols::Resolved;

/// The symbols of a branch's ends.
type Ends<'a> = (Option<Resolved<'a>>, Option<Resolved<'a>>);

/// What code is to tracing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The kernel's work.
    Code,
    /// Between the traced place and our program, or our program itself.
    Tracing,
    /// The same, and it is the first of it that runs when something is entered.
    Entered,
    /// The same, and what is traced returns to it.
    Returned,
}

/// Of records, newest first, the number that are of tracing itself. `tags`: of our programs.
///
/// What is looked for is the branch that led from the traced code into the machinery. At an entry it is the call, which the
/// method put there, and it goes too; at a return it is the function's own, and stays.
pub fn of_tracing(tags: &BTreeSet<String>, records: &[Ends<'_>]) -> usize {
    let mut cut = 0usize;
    for (at, (from, to)) in records.iter().enumerate() {
        let (from_role, to_role) = (role(tags, from), role(tags, to));
        if from_role == Role::Code && to_role == Role::Code {
            // The newest is ours, or nothing is; unless a filter hid it, and this is of a function that only tracing calls there.
            if cut == 0 && !from.is_some_and(|s| is_called_before_programs(&s)) {
                return 0;
            }
            continue;
        }
        // Between this and what was cut lies a function that tracing called, or the kernel's own work: the former was gone to from
        // here and came back there.
        let called = from_role != Role::Code && to_role == Role::Code;
        let came_back = || {
            let after = cut.checked_sub(1).and_then(|at| records.get(at));
            after.is_some_and(|(from, to)| role(tags, from) == Role::Code && role(tags, to) != Role::Code)
        };
        if cut > 0 && at > cut && !(called && came_back()) {
            return cut;
        }
        if origin(tags, records, at) == Role::Code {
            match to_role {
                Role::Entered => return at + 1,
                Role::Returned => return at,
                // No name: where programs and trampolines are hidden from kallsyms. Where a function is patched it is entered.
                Role::Tracing if to.is_none() => {
                    return if from.is_some_and(|s| s.offset <= PATCHED) { at + 1 } else { at };
                }
                _ => {}
            }
        }
        cut = at + 1;
    }
    cut
}

/// Whose branch it is: of a thunk, through which indirect jumps and returns go, the one of what went there.
fn origin(tags: &BTreeSet<String>, records: &[Ends<'_>], at: usize) -> Role {
    let Some((from, _)) = records.get(at) else { return Role::Code };
    if !from.is_some_and(|s| is_thunk(s.name)) {
        return role(tags, from);
    }
    match records.get(at + 1) {
        Some((before, to)) if to.is_some_and(|s| is_thunk(s.name)) => role(tags, before),
        // Not known: taken for one of tracing, after which the search goes on.
        _ => Role::Tracing,
    }
}

/// Whether code of that name is what indirect jumps and returns go through.
pub fn is_thunk(name: &str) -> bool {
    const PREFIXES: [&str; 5] =
        ["__x86_return_thunk", "__x86_indirect_", "srso_", "retbleed_", "its_return_thunk"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Functions that `__bpf_prog_enter` and its like call, of which a record may be the newest where a filter hides calls.
fn is_called_before_programs(symbol: &Resolved<'_>) -> bool {
    const NAMES: [&str; 4] = ["migrate_disable", "__migrate_disable", "__rcu_read_lock", "sched_clock"];
    symbol.module.is_none() && NAMES.contains(&symbol.name)
}

fn role(tags: &BTreeSet<String>, symbol: &Option<Resolved<'_>>) -> Role {
    let Some(symbol) = symbol else { return Role::Tracing };
    let at_start = symbol.offset == 0;
    if is_trampoline(symbol) {
        return if at_start { Role::Entered } else { Role::Returned };
    }
    if is_ours(tags, symbol) {
        return Role::Tracing;
    }
    let name = symbol.name;
    // What is entered at its start: ftrace's trampolines, breakpoints, the functions of tracepoints.
    const ENTERED: [&str; 6] = [
        "ftrace_trampoline",
        "ftrace_caller",
        "ftrace_regs_caller",
        "asm_exc_int3",
        "kprobe_optinsn_page",
        "kprobe_insn_page",
    ];
    const ENTERED_PREFIXES: [&str; 3] = ["__traceiter_", "__bpf_trace_", "__SCT__tp_func_"];
    if ENTERED.contains(&name) || ENTERED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return if at_start { Role::Entered } else { Role::Tracing };
    }
    const RETURNED: [&str; 4] =
        ["arch_rethook_trampoline", "__kretprobe_trampoline", "kretprobe_trampoline", "return_to_handler"];
    if RETURNED.contains(&name) {
        return if at_start { Role::Returned } else { Role::Tracing };
    }
    if is_machinery(name) { Role::Tracing } else { Role::Code }
}

/// What runs between the traced place and a program, by any method, and what takes the snapshot.
fn is_machinery(name: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "__bpf_prog_enter",
        "__bpf_prog_exit",
        "__bpf_tramp_",
        "bpf_trace_run",
        "kprobe_multi_link_",
        "fprobe_",
        "__fprobe_",
        "kretprobe_",
        "kprobe_",
    ];
    const NAMES: [&str; 22] = [
        "trace_call_bpf",
        "bpf_get_branch_snapshot",
        "____bpf_get_branch_snapshot",
        "__static_call_return0",
        "aggr_pre_handler",
        "pre_handler_kretprobe",
        "opt_pre_handler",
        "optimized_callback",
        "exc_int3",
        "do_int3",
        "get_kprobe",
        "arch_ftrace_ops_list_func",
        "ftrace_ops_list_func",
        "ftrace_ops_assist_func",
        "ftrace_graph_func",
        "function_graph_enter_regs",
        "function_graph_enter",
        "prepare_ftrace_return",
        "ftrace_return_to_handler",
        "__ftrace_return_to_handler",
        "rethook_trampoline_handler",
        "arch_rethook_trampoline_callback",
    ];
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.ends_with("snapshot_branch_stack")
        || name.ends_with("snapshot_arch_branch_stack")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "0123456789abcdef";

    fn symbol(text: &'static str) -> Option<Resolved<'static>> {
        let (name, offset) = text.split_once('+').expect("name+offset");
        let offset = u64::from_str_radix(offset, 16).expect("hexadecimal");
        let generated = name.starts_with("bpf_prog_") || name.starts_with("bpf_trampoline_");
        (name != "?").then(|| Resolved { name, offset, module: generated.then_some("bpf") })
    }

    /// Of branches, oldest first as they are read, the `to` of the last that is left.
    fn left(branches: &[(&'static str, &'static str)]) -> Vec<String> {
        let tags = BTreeSet::from([TAG.to_string()]);
        let records: Vec<Ends<'_>> =
            branches.iter().rev().map(|(from, to)| (symbol(from), symbol(to))).collect();
        let cut = of_tracing(&tags, &records);
        branches[..branches.len() - cut].iter().map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    /// What runs between the trampoline and our program, without and with thunks for returns.
    const ENTER: [(&str, &str); 8] = [
        ("bpf_trampoline_1+39", "__bpf_prog_enter_recur+0"),
        ("__bpf_prog_enter_recur+d", "__rcu_read_lock+0"),
        ("__rcu_read_lock+25", "__bpf_prog_enter_recur+12"),
        ("__bpf_prog_enter_recur+12", "migrate_disable+0"),
        ("migrate_disable+17", "migrate_disable+2c"),
        ("migrate_disable+5b", "__bpf_prog_enter_recur+17"),
        ("__bpf_prog_enter_recur+54", "bpf_trampoline_1+3e"),
        ("bpf_trampoline_1+4a", "bpf_prog_0123456789abcdef_en_f+0"),
    ];
    const SNAPSHOT: (&str, &str) =
        ("bpf_prog_0123456789abcdef_en_f+a0", "intel_pmu_snapshot_arch_branch_stack+0");

    #[test]
    fn an_entry_ends_with_the_call_of_the_function() {
        let mut all = vec![("caller+10", "caller+40"), ("caller+42", "f+0"), ("f+4", "bpf_trampoline_1+0")];
        all.extend(ENTER);
        all.push(SNAPSHOT);
        assert_eq!(left(&all), ["caller+10 -> caller+40", "caller+42 -> f+0"]);
    }

    #[test]
    fn a_return_ends_with_the_functions_own_return() {
        let mut all = vec![("f+10", "f+40"), ("f+60", "bpf_trampoline_1+80")];
        all.extend(ENTER);
        all.push(SNAPSHOT);
        assert_eq!(left(&all), ["f+10 -> f+40", "f+60 -> bpf_trampoline_1+80"]);
    }

    #[test]
    fn thunks_are_their_callers_part() {
        let all = [
            ("f+10", "f+40"),
            ("f+60", "__x86_return_thunk+0"),
            ("__x86_return_thunk+0", "bpf_trampoline_1+80"),
            ("bpf_trampoline_1+39", "__bpf_prog_enter_recur+0"),
            ("__bpf_prog_enter_recur+54", "__x86_return_thunk+0"),
            ("__x86_return_thunk+0", "bpf_trampoline_1+3e"),
            ("bpf_trampoline_1+4a", "bpf_prog_0123456789abcdef_en_f+0"),
            SNAPSHOT,
        ];
        assert_eq!(left(&all).len(), 3);
    }

    #[test]
    fn tracepoints_and_kprobes() {
        let tracepoint = [
            ("caller+12", "do_trace_x+0"),
            ("do_trace_x+44", "__bpf_trace_x+0"),
            ("__bpf_trace_x+4", "bpf_trace_run1+0"),
            ("bpf_trace_run1+6f", "__rcu_read_lock+0"),
            ("__rcu_read_lock+25", "bpf_trace_run1+74"),
            ("bpf_trace_run1+82", "bpf_prog_0123456789abcdef_tp_x+0"),
            ("bpf_prog_0123456789abcdef_tp_x+40", "bpf_get_branch_snapshot+0"),
            ("bpf_get_branch_snapshot+20", "intel_pmu_snapshot_branch_stack+0"),
        ];
        assert_eq!(left(&tracepoint), ["caller+12 -> do_trace_x+0"]);
        let kprobe = [
            ("caller+12", "tcp_connect+0"),
            ("tcp_connect+0", "ftrace_trampoline+0"),
            ("ftrace_trampoline+f0", "kprobe_ftrace_handler+0"),
            ("kprobe_ftrace_handler+b4", "get_kprobe+0"),
            ("get_kprobe+43", "kprobe_ftrace_handler+b9"),
            ("kprobe_ftrace_handler+151", "kprobe_dispatcher+0"),
            ("kprobe_dispatcher+68", "kprobe_perf_func+0"),
            ("kprobe_perf_func+55", "trace_call_bpf+0"),
            ("trace_call_bpf+b4", "bpf_prog_0123456789abcdef_en_t+0"),
            ("bpf_prog_0123456789abcdef_en_t+40", "amd_pmu_v2_snapshot_branch_stack+0"),
        ];
        assert_eq!(left(&kprobe), ["caller+12 -> tcp_connect+0"]);
        let kretprobe = [
            ("tcp_connect+90", "arch_rethook_trampoline+0"),
            ("arch_rethook_trampoline+30", "arch_rethook_trampoline_callback+0"),
            ("trace_call_bpf+b4", "bpf_prog_0123456789abcdef_ex_t+0"),
        ];
        assert_eq!(left(&kretprobe), ["tcp_connect+90 -> arch_rethook_trampoline+0"]);
    }

    #[test]
    fn another_trampoline_further_back_is_none_of_ours() {
        let mut all = vec![
            ("bpf_trampoline_7+90", "caller+5"),
            ("caller+10", "caller+40"),
            ("caller+42", "f+0"),
            ("f+4", "bpf_trampoline_1+0"),
        ];
        all.extend(ENTER);
        assert_eq!(left(&all).len(), 3);
        // The call that led to ours was filtered out: what is older stays.
        all.remove(3);
        assert_eq!(left(&all).len(), 3);
    }

    #[test]
    fn filtered_records() {
        // Returns alone: those to tracing go, what the function called stays.
        let returns = [
            ("__bpf_prog_exit_recur+60", "bpf_trampoline_7+90"),
            ("inner+20", "caller+44"),
            ("__rcu_read_lock+25", "__bpf_prog_enter_recur+12"),
            ("migrate_disable+5b", "__bpf_prog_enter_recur+17"),
            ("__bpf_prog_enter_recur+54", "bpf_trampoline_1+3e"),
        ];
        assert_eq!(left(&returns).len(), 2);
        let conditional = [("f+10", "f+40"), ("migrate_disable+17", "migrate_disable+2c")];
        assert_eq!(left(&conditional).len(), 2, "nothing tells that this is of tracing");
        assert_eq!(left(&[("f+10", "f+40")]).len(), 1);
        assert_eq!(left(&[]).len(), 0);
    }

    #[test]
    fn names_that_are_hidden() {
        let entry = [
            ("caller+42", "f+0"),
            ("f+4", "?+0"),
            ("?+0", "__bpf_prog_enter_recur+0"),
            ("__bpf_prog_enter_recur+54", "?+0"),
            ("?+0", "?+0"),
            ("?+0", "intel_pmu_snapshot_branch_stack+0"),
        ];
        assert_eq!(left(&entry), ["caller+42 -> f+0"]);
        let mut exit = entry;
        exit[1] = ("f+60", "?+0");
        assert_eq!(left(&exit), ["caller+42 -> f+0", "f+60 -> ?+0"]);
    }

    #[test]
    fn somebody_elses_program_is_shown() {
        let all = [
            ("bpf_prog_ffffffffffffffff_g+10", "bpf_prog_ffffffffffffffff_g+20"),
            ("bpf_prog_ffffffffffffffff_g+30", "bpf_trampoline_1+0"),
            ("bpf_trampoline_1+4a", "bpf_prog_0123456789abcdef_en_f+0"),
            SNAPSHOT,
        ];
        assert_eq!(left(&all).len(), 1);
        let only_ours = [ENTER[7], SNAPSHOT];
        assert_eq!(left(&only_ours).len(), 0);
    }
}
