//! Helper numbers, from `___BPF_FUNC_MAPPER` in `include/uapi/linux/bpf.h`.

/// A BPF helper function by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Helper(pub i32);

macro_rules! helpers {
    ($($name:ident = $id:literal, $text:literal, $doc:literal;)*) => {
        impl Helper {
            $(#[doc = concat!("`bpf_", $text, "`: ", $doc)] pub const $name: Helper = Helper($id);)*

            /// Every helper of this table.
            pub const ALL: &[Helper] = &[$(Helper::$name),*];

            /// The kernel's name without `bpf_`, if this table has it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($id => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

helpers! {
    MAP_LOOKUP_ELEM = 1, "map_lookup_elem", "(map, key) → value or null";
    MAP_UPDATE_ELEM = 2, "map_update_elem", "(map, key, value, flags) → 0 or -errno; compare 32 bits: before Linux 6.4 the upper half of r0 is undefined";
    MAP_DELETE_ELEM = 3, "map_delete_elem", "(map, key) → 0 or -errno; compare 32 bits, as for updates";
    PROBE_READ = 4, "probe_read", "(dst, size, address) → 0 or -errno";
    KTIME_GET_NS = 5, "ktime_get_ns", "() → monotonic nanoseconds";
    TRACE_PRINTK = 6, "trace_printk", "(fmt, size, …) → bytes or -errno";
    GET_PRANDOM_U32 = 7, "get_prandom_u32", "() → random";
    GET_SMP_PROCESSOR_ID = 8, "get_smp_processor_id", "() → cpu";
    TAIL_CALL = 12, "tail_call", "(ctx, prog array, index)";
    GET_CURRENT_PID_TGID = 14, "get_current_pid_tgid", "() → tgid << 32 | tid";
    GET_CURRENT_UID_GID = 15, "get_current_uid_gid", "() → gid << 32 | uid";
    GET_CURRENT_COMM = 16, "get_current_comm", "(buf, size) → 0 or -errno";
    PERF_EVENT_READ = 22, "perf_event_read", "(map, flags) → counter";
    PERF_EVENT_OUTPUT = 25, "perf_event_output", "(ctx, map, flags, data, size) → 0 or -errno";
    SKB_LOAD_BYTES = 26, "skb_load_bytes", "(skb, offset, to, len) → 0 or -errno";
    GET_STACKID = 27, "get_stackid", "(ctx, map, flags) → id or -errno";
    CSUM_DIFF = 28, "csum_diff", "(from, from_size, to, to_size, seed) → sum";
    GET_CURRENT_TASK = 35, "get_current_task", "() → task_struct address";
    PROBE_READ_STR = 45, "probe_read_str", "(dst, size, address) → length or -errno";
    PERF_EVENT_READ_VALUE = 55, "perf_event_read_value", "(map, flags, buf, size) → 0 or -errno";
    PERF_PROG_READ_VALUE = 56, "perf_prog_read_value", "(ctx, buf, size) → 0 or -errno";
    GET_STACK = 67, "get_stack", "(ctx, buf, size, flags) → bytes or -errno";
    SKB_LOAD_BYTES_RELATIVE = 68, "skb_load_bytes_relative", "(skb, offset, to, len, start) → 0 or -errno";
    GET_CURRENT_CGROUP_ID = 80, "get_current_cgroup_id", "() → id";
    SPIN_LOCK = 93, "spin_lock", "(lock)";
    SPIN_UNLOCK = 94, "spin_unlock", "(lock)";
    STRTOUL = 106, "strtoul", "(buf, len, flags, result) → bytes or -errno";
    PROBE_READ_USER = 112, "probe_read_user", "(dst, size, address) → 0 or -errno";
    PROBE_READ_KERNEL = 113, "probe_read_kernel", "(dst, size, address) → 0 or -errno";
    PROBE_READ_USER_STR = 114, "probe_read_user_str", "(dst, size, address) → length or -errno";
    PROBE_READ_KERNEL_STR = 115, "probe_read_kernel_str", "(dst, size, address) → length or -errno";
    JIFFIES64 = 118, "jiffies64", "() → jiffies";
    READ_BRANCH_RECORDS = 119, "read_branch_records", "(ctx, buf, size, flags) → bytes or -errno";
    GET_NS_CURRENT_PID_TGID = 120, "get_ns_current_pid_tgid", "(dev, ino, buf, size) → 0 or -errno";
    XDP_OUTPUT = 121, "xdp_output", "(xdp, map, flags, data, size) → 0 or -errno";
    GET_CURRENT_ANCESTOR_CGROUP_ID = 123, "get_current_ancestor_cgroup_id", "(level) → id";
    KTIME_GET_BOOT_NS = 125, "ktime_get_boot_ns", "() → nanoseconds since boot, sleep included";
    RINGBUF_OUTPUT = 130, "ringbuf_output", "(ring, data, size, flags) → 0 or -errno";
    RINGBUF_RESERVE = 131, "ringbuf_reserve", "(ring, constant size, 0) → record or null";
    RINGBUF_SUBMIT = 132, "ringbuf_submit", "(record, flags)";
    RINGBUF_DISCARD = 133, "ringbuf_discard", "(record, flags)";
    RINGBUF_QUERY = 134, "ringbuf_query", "(ring, what) → value";
    GET_TASK_STACK = 141, "get_task_stack", "(task, buf, size, flags) → bytes or -errno";
    COPY_FROM_USER = 148, "copy_from_user", "(dst, size, user address) → 0 or -errno; may sleep";
    PER_CPU_PTR = 153, "per_cpu_ptr", "(per-cpu address, cpu) → address or null";
    THIS_CPU_PTR = 154, "this_cpu_ptr", "(per-cpu address) → address";
    TASK_STORAGE_GET = 156, "task_storage_get", "(map, task, value, flags) → value or null";
    TASK_STORAGE_DELETE = 157, "task_storage_delete", "(map, task) → 0 or -errno";
    GET_CURRENT_TASK_BTF = 158, "get_current_task_btf", "() → struct task_struct *";
    KTIME_GET_COARSE_NS = 160, "ktime_get_coarse_ns", "() → coarse monotonic nanoseconds";
    FOR_EACH_MAP_ELEM = 164, "for_each_map_elem", "(map, callback, ctx, flags) → count or -errno";
    SNPRINTF = 165, "snprintf", "(buf, size, fmt, data, data_len) → length or -errno";
    SYS_BPF = 166, "sys_bpf", "(cmd, attr, size) → result";
    GET_FUNC_IP = 173, "get_func_ip", "(ctx) → address";
    GET_ATTACH_COOKIE = 174, "get_attach_cookie", "(ctx) → cookie";
    TASK_PT_REGS = 175, "task_pt_regs", "(task) → struct pt_regs *";
    GET_BRANCH_SNAPSHOT = 176, "get_branch_snapshot", "(buf, size, flags) → bytes or -errno";
    TRACE_VPRINTK = 177, "trace_vprintk", "(fmt, size, data, data_len) → bytes or -errno";
    KALLSYMS_LOOKUP_NAME = 179, "kallsyms_lookup_name", "(name, size, flags, address) → 0 or -errno; programs of type syscall only";
    FIND_VMA = 180, "find_vma", "(task, address, callback, ctx, flags) → 0 or -errno";
    LOOP = 181, "loop", "(count, callback, ctx, flags) → iterations or -errno";
    STRNCMP = 182, "strncmp", "(s1, len, s2) → order";
    GET_FUNC_ARG = 183, "get_func_arg", "(ctx, n, value) → 0 or -errno";
    GET_FUNC_RET = 184, "get_func_ret", "(ctx, value) → 0 or -errno";
    GET_FUNC_ARG_CNT = 185, "get_func_arg_cnt", "(ctx) → count";
    COPY_FROM_USER_TASK = 191, "copy_from_user_task", "(dst, size, user address, task, flags); may sleep";
    MAP_LOOKUP_PERCPU_ELEM = 195, "map_lookup_percpu_elem", "(map, key, cpu) → value or null";
    DYNPTR_FROM_MEM = 197, "dynptr_from_mem", "(data, size, flags, dynptr) → 0 or -errno";
    RINGBUF_RESERVE_DYNPTR = 198, "ringbuf_reserve_dynptr", "(ring, size, flags, dynptr) → 0 or -errno";
    RINGBUF_SUBMIT_DYNPTR = 199, "ringbuf_submit_dynptr", "(dynptr, flags)";
    RINGBUF_DISCARD_DYNPTR = 200, "ringbuf_discard_dynptr", "(dynptr, flags)";
    DYNPTR_READ = 201, "dynptr_read", "(dst, len, dynptr, offset, flags) → 0 or -errno";
    DYNPTR_WRITE = 202, "dynptr_write", "(dynptr, offset, src, len, flags) → 0 or -errno";
    DYNPTR_DATA = 203, "dynptr_data", "(dynptr, offset, len) → address or null";
    KTIME_GET_TAI_NS = 208, "ktime_get_tai_ns", "() → TAI nanoseconds";
    CGRP_STORAGE_GET = 210, "cgrp_storage_get", "(map, cgroup, value, flags) → value or null";
}

impl std::fmt::Display for Helper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "helper#{}", self.0),
        }
    }
}
