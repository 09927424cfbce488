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
        names: &["irq_work_queue", "__irq_work_queue_local", "arch_irq_work_raise", "irq_work_claim"],
        reason: "every event of ours calls it to wake the reader, which would be an event again",
    },
];

/// Why a function is not to be traced, if it is one of these.
pub fn reason(function: &str) -> Option<&'static str> {
    let named = |name: &&str| match name.strip_suffix('*') {
        Some(start) => function.starts_with(start),
        None => function == *name,
    };
    DANGERS.iter().find(|danger| danger.names.iter().any(named)).map(|danger| danger.reason)
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn locks_are_dangerous_and_plain_functions_are_not() {
        assert!(reason("_raw_spin_unlock_irqrestore").is_some_and(|r| r.contains("lock")));
        assert!(reason("__bpf_ringbuf_reserve").is_some() && reason("irq_work_queue").is_some());
        for plain in ["vfs_read", "raw_spin", "irq_work_queue_on", "mutex_lock", "tcp_connect"] {
            assert!(reason(plain).is_none(), "{plain}");
        }
    }
}
