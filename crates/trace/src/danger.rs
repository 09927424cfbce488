//! Functions that our own programs depend on: traced, they would bring down the machine or the trace.
//!
//! A program that writes an event holds the ring buffer's spin lock for a moment. If another of our programs runs at a
//! function called under that lock, it waits for the lock on the very CPU that holds it: a hang (seen on 5.10, 6.1 and 6.12
//! with `_raw_spin_unlock_irqrestore` beside any other target). The hash of calls under way has such locks too.
//! The kernel's own guard is for one program at a time.

/// A family of functions and why they are refused.
struct Danger {
    /// Whole names, or beginnings when they end in `*`.
    names: &'static [&'static str],
    reason: &'static str,
}

const DANGERS: &[Danger] = &[
    Danger {
        names: &[
            "_raw_spin_*",
            "__raw_spin_*",
            "do_raw_spin_*",
            "native_queued_spin_lock_slowpath",
            "queued_spin_lock_slowpath",
            "__pv_queued_spin_*",
            "pv_queued_spin_*",
            "resilient_queued_spin_lock_slowpath",
            "rqspinlock_*",
            "raw_res_spin_*",
        ],
        reason: "the ring buffer's own lock is taken through it: a program there can wait for itself for ever",
    },
    Danger {
        names: &[
            "bpf_ringbuf_*",
            "__bpf_ringbuf_*",
            "htab_lock_bucket",
            "htab_unlock_bucket",
            "htab_map_update_elem",
            "htab_map_delete_elem",
            "alloc_htab_elem",
            "free_htab_elem",
            "pcpu_freelist_*",
            "__pcpu_freelist_*",
            "___pcpu_freelist_*",
        ],
        reason: "our programs run through it, some of it under a lock",
    },
    Danger {
        // A trampoline's own read-side section ends there, once the program's guard is given back: it would end another one,
        // and so on, until the stack is full (seen on 7.2, whose RCU is preemptible). Until the grace period is told of, what
        // is called on the way is called each time.
        names: &[
            "__rcu_read_lock",
            "__rcu_read_unlock",
            "rcu_read_unlock_*",
            "rcu_preempt_*",
            "rcu_report_*",
            "rcu_qs",
            "rcu_exp_*",
            "rcu_note_context_switch",
            "rcu_core*",
            "invoke_rcu_core",
            "raise_softirq_irqoff",
            "__raise_softirq_irqoff",
            "wakeup_softirqd",
            "irq_work_queue_on",
            "__bpf_prog_enter*",
            "__bpf_prog_exit*",
            "__bpf_tramp_enter",
            "__bpf_tramp_exit",
            "migrate_disable",
            "migrate_enable",
            "___migrate_*",
            "preempt_count_add",
            "preempt_count_sub",
        ],
        reason: "the kernel runs through it after each of our programs, which would be a call again, without end",
    },
    Danger {
        names: &["irq_work_queue", "__irq_work_queue_local", "arch_irq_work_raise", "irq_work_claim"],
        reason: "every event of ours calls it to wake the reader, which would be an event again",
    },
];

/// What our programs call, which some programs would see of others: where thousands of functions are traced by several programs, an
/// event would make more of them, and the kernel's stack holds only so many programs at once.
const OURS: Danger = Danger {
    names: &[
        "rcu_*",
        "arch_cpu_idle",
        "default_idle",
        "copy_from_kernel_nofault*",
        "copy_from_user_nofault",
        "strncpy_from_kernel_nofault",
        "strncpy_from_user_nofault",
        "bpf_probe_read_*",
        "bpf_ktime_get_*",
        "bpf_get_*",
        "bpf_this_cpu_ptr",
        "bpf_per_cpu_ptr",
        "bpf_session_*",
        "bpf_dispatcher_*",
        "bpf_map_lookup_elem",
        "array_map_lookup_elem",
        "percpu_array_map_lookup_elem",
        "array_of_map_lookup_elem",
        "__htab_map_lookup_elem",
        "htab_map_lookup_elem",
        "lookup_elem_raw",
        "lookup_nulls_elem_raw",
        "kprobe_multi_link_*",
        "fprobe_*",
        "kallsyms_*",
    ],
    reason: "among so many: our own programs, or the kernel's idle tasks, run through it",
};

/// Why a function is not to be traced, if it is one of these; `many`: among thousands.
pub fn reason(function: &str, many: bool) -> Option<&'static str> {
    let named = |name: &&str| match name.strip_suffix('*') {
        Some(start) => function.starts_with(start),
        None => function == *name,
    };
    let all = DANGERS.iter().chain(many.then_some(&OURS));
    all.into_iter().find(|danger| danger.names.iter().any(named)).map(|danger| danger.reason)
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn locks_are_dangerous_and_plain_functions_are_not() {
        assert!(reason("_raw_spin_unlock_irqrestore", false).is_some_and(|r| r.contains("lock")));
        for refused in ["__bpf_ringbuf_reserve", "irq_work_queue", "rcu_read_unlock_special"] {
            assert!(reason(refused, false).is_some(), "{refused}");
        }
        for plain in ["vfs_read", "raw_spin", "irq_work_sync", "mutex_lock", "tcp_connect"] {
            assert!(reason(plain, true).is_none(), "{plain}");
        }
        assert!(reason("rcu_barrier", true).is_some() && reason("rcu_barrier", false).is_none());
    }
}
