//! bpf(2) itself: attribute layouts (include/uapi/linux/bpf.h, `union bpf_attr`) and the call.
//!
//! Each command's attributes are a struct of their own, zeroed to the last byte; the kernel accepts a longer
//! struct than it knows as long as the rest is zero (`bpf_check_uarg_tail_zero`), so the newest layout serves
//! every kernel.

use crate::error::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};

pub const MAP_CREATE: u32 = 0;
pub const MAP_LOOKUP_ELEM: u32 = 1;
pub const MAP_UPDATE_ELEM: u32 = 2;
pub const MAP_DELETE_ELEM: u32 = 3;
pub const MAP_GET_NEXT_KEY: u32 = 4;
pub const PROG_LOAD: u32 = 5;
pub const OBJ_PIN: u32 = 6;
pub const OBJ_GET: u32 = 7;
pub const PROG_TEST_RUN: u32 = 10;
pub const PROG_GET_NEXT_ID: u32 = 11;
pub const MAP_GET_NEXT_ID: u32 = 12;
pub const PROG_GET_FD_BY_ID: u32 = 13;
pub const MAP_GET_FD_BY_ID: u32 = 14;
pub const OBJ_GET_INFO_BY_FD: u32 = 15;
pub const RAW_TRACEPOINT_OPEN: u32 = 17;
pub const BTF_LOAD: u32 = 18;
pub const BTF_GET_FD_BY_ID: u32 = 19;
pub const BTF_GET_NEXT_ID: u32 = 23;
pub const LINK_CREATE: u32 = 28;
pub const LINK_GET_NEXT_ID: u32 = 31;

/// Longest object name the kernel takes, without the terminator (`BPF_OBJ_NAME_LEN` - 1).
pub const NAME_MAX: usize = 15;

/// A bpf(2) attribute struct: plain old data, every bit pattern valid, no padding left unset.
///
/// # Safety
/// Implementors are `#[repr(C)]`, hold integers only, and have no implicit padding.
pub unsafe trait Attr {}

macro_rules! attr {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        pub struct $name { $(pub $field: $ty),* }
        // SAFETY: repr(C), integers and integer arrays only; the fields add up to the size, so no padding.
        unsafe impl Attr for $name {}
        const _: () = assert!(0 $(+ size_of::<$ty>())* == size_of::<$name>());
    };
}

attr!(
    /// BPF_MAP_CREATE.
    MapCreate {
        map_type: u32, key_size: u32, value_size: u32, max_entries: u32, map_flags: u32, inner_map_fd: u32,
        numa_node: u32, map_name: [u8; 16], map_ifindex: u32, btf_fd: u32, btf_key_type_id: u32,
        btf_value_type_id: u32, btf_vmlinux_value_type_id: u32, map_extra: u64,
    }
);
attr!(
    /// BPF_MAP_*_ELEM and BPF_MAP_GET_NEXT_KEY.
    MapElem { map_fd: u32, pad: u32, key: u64, value: u64, flags: u64 }
);
attr!(
    /// BPF_PROG_LOAD, as of 6.4. `attach_prog_fd` is also `attach_btf_obj_fd`.
    ProgLoad {
        prog_type: u32, insn_cnt: u32, insns: u64, license: u64, log_level: u32, log_size: u32, log_buf: u64,
        kern_version: u32, prog_flags: u32, prog_name: [u8; 16], prog_ifindex: u32, expected_attach_type: u32,
        prog_btf_fd: u32, func_info_rec_size: u32, func_info: u64, func_info_cnt: u32, line_info_rec_size: u32,
        line_info: u64, line_info_cnt: u32, attach_btf_id: u32, attach_prog_fd: u32, core_relo_cnt: u32,
        fd_array: u64, core_relos: u64, core_relo_rec_size: u32, log_true_size: u32,
    }
);
attr!(
    /// BPF_PROG_TEST_RUN.
    TestRunAttr {
        prog_fd: u32, retval: u32, data_size_in: u32, data_size_out: u32, data_in: u64, data_out: u64,
        repeat: u32, duration: u32, ctx_size_in: u32, ctx_size_out: u32, ctx_in: u64, ctx_out: u64, flags: u32,
        cpu: u32, batch_size: u32, pad: u32,
    }
);
attr!(
    /// BPF_OBJ_GET_INFO_BY_FD.
    GetInfo { bpf_fd: u32, info_len: u32, info: u64 }
);
attr!(
    /// BPF_OBJ_PIN and BPF_OBJ_GET.
    PathAndFd { pathname: u64, bpf_fd: u32, file_flags: u32 }
);
attr!(
    /// `struct bpf_prog_info` up to `attach_btf_id` (6.0); `flags` is `gpl_compatible`, a bit.
    ProgInfoRaw {
        ty: u32, id: u32, tag: [u8; 8], jited_prog_len: u32, xlated_prog_len: u32, jited_prog_insns: u64,
        xlated_prog_insns: u64, load_time: u64, created_by_uid: u32, nr_map_ids: u32, map_ids: u64, name: [u8; 16],
        ifindex: u32, flags: u32, netns_dev: u64, netns_ino: u64, nr_jited_ksyms: u32, nr_jited_func_lens: u32,
        jited_ksyms: u64, jited_func_lens: u64, btf_id: u32, func_info_rec_size: u32, func_info: u64, nr_func_info: u32,
        nr_line_info: u32, line_info: u64, jited_line_info: u64, nr_jited_line_info: u32, line_info_rec_size: u32,
        jited_line_info_rec_size: u32, nr_prog_tags: u32, prog_tags: u64, run_time_ns: u64, run_cnt: u64,
        recursion_misses: u64, verified_insns: u32, attach_btf_obj_id: u32, attach_btf_id: u32, pad: u32,
    }
);
attr!(
    /// BPF_*_GET_NEXT_ID (the id to start after) and BPF_*_GET_FD_BY_ID (the id).
    ById { id: u32, next_id: u32, open_flags: u32 }
);
attr!(
    /// BPF_RAW_TRACEPOINT_OPEN.
    RawTracepointOpen { name: u64, prog_fd: u32, pad: u32, cookie: u64 }
);
attr!(
    /// BPF_LINK_CREATE for `kprobe_multi`.
    LinkKprobeMulti {
        prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32, multi_flags: u32, cnt: u32, syms: u64, addrs: u64,
        cookies: u64,
    }
);
attr!(
    /// BPF_LINK_CREATE for `tracing_multi`.
    LinkTracingMulti {
        prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32, ids: u64, cookies: u64, cnt: u32, pad: u32,
    }
);
attr!(
    /// BPF_BTF_LOAD.
    BtfLoad {
        btf: u64, btf_log_buf: u64, btf_size: u32, btf_log_size: u32, btf_log_level: u32, btf_log_true_size: u32,
    }
);

/// Makes the call; a negative answer becomes the errno.
pub fn bpf<A: Attr>(cmd: u32, attr: &mut A) -> std::io::Result<i64> {
    // SAFETY: `attr` is a live, fully initialised struct of the size given. The addresses inside it were taken by
    // the callers in this crate from slices that outlive the call.
    let ret = unsafe { libc::syscall(libc::SYS_bpf, cmd, attr as *mut A, size_of::<A>()) };
    if ret < 0 { Err(std::io::Error::last_os_error()) } else { Ok(ret) }
}

/// Makes a call whose answer is a new file descriptor.
pub fn bpf_fd<A: Attr>(cmd: u32, attr: &mut A) -> std::io::Result<OwnedFd> {
    let fd = bpf(cmd, attr)?;
    let fd = i32::try_from(fd).map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
    // SAFETY: the kernel just made this descriptor for us (close-on-exec, as all of bpf(2)'s); nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel takes it: at most 15 bytes of `[A-Za-z0-9_.]`, others replaced by `_`, zero-terminated.
pub fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0u8; 16];
    for (to, from) in out.iter_mut().take(NAME_MAX).zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() || from == b'_' || from == b'.' { from } else { b'_' };
    }
    out
}

/// The address of a slice as bpf(2) wants it.
pub fn addr<T>(slice: &[T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_ptr() as u64 }
}

/// The same for a buffer that the kernel writes to.
pub fn addr_mut<T>(slice: &mut [T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_mut_ptr() as u64 }
}

/// Size of a page (sysconf(3), `_SC_PAGESIZE`).
pub fn page_size() -> Result<usize> {
    // SAFETY: sysconf has no memory effects.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).map_err(|_| Error::last("sysconf(_SC_PAGESIZE)"))
}

/// A clock, in ns.
fn now(clock: libc::clockid_t) -> Result<i64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a live timespec.
    match unsafe { libc::clock_gettime(clock, &mut t) } {
        0 => Ok(t.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec)),
        _ => Err(Error::last("clock_gettime")),
    }
}

/// CLOCK_MONOTONIC in ns, as `bpf_ktime_get_ns` has it; but for the offset of a time namespace, if we are in one.
pub fn monotonic_ns() -> Result<u64> {
    now(libc::CLOCK_MONOTONIC).map(|ns| u64::try_from(ns).unwrap_or(0))
}

/// Wall clock minus CLOCK_MONOTONIC, in ns, now.
///
/// Read several times; the pair that was read with the least delay in between counts.
pub fn realtime_offset_ns() -> Result<i64> {
    let mut best = (i64::MAX, 0);
    for _ in 0..5 {
        let before = now(libc::CLOCK_MONOTONIC)?;
        let wall = now(libc::CLOCK_REALTIME)?;
        let after = now(libc::CLOCK_MONOTONIC)?;
        best = best.min((after - before, wall - before - (after - before) / 2));
    }
    Ok(best.1)
}
