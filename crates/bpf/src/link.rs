//! Attaching: a link lives as long as its file descriptor, so it dies with us whatever ends us.

use crate::error::{Error, Result};
use crate::prog::AttachType;
use crate::prog::Program;
use crate::sys::{
    self, Attr, GetInfo, LinkKprobeMulti, LinkTracingMulti, RawTracepointOpen, addr, addr_mut, bpf, bpf_fd,
};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// An attached program; dropping it detaches.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

/// `BPF_LINK_TYPE_KPROBE_MULTI` (include/uapi/linux/bpf.h, `enum bpf_link_type`).
const KPROBE_MULTI: u32 = 8;

impl Link {
    /// A descriptor whose closing detaches.
    pub(crate) fn of(fd: OwnedFd) -> Link {
        Link { fd }
    }

    /// Calls that a kprobe_multi link passed over, the filter's and others': for want of room for their returns, or of
    /// recursion (`struct bpf_link_info`, `kprobe_multi.missed`; 6.7). 0 for other links and on older kernels.
    pub fn missed(&self) -> Result<u64> {
        // In 64-bit words: type and id; the program's id; of kprobe_multi the addresses, their number and flags, and this.
        let mut info = [0u64; 8];
        let mut attr = GetInfo {
            bpf_fd: self.fd.as_raw_fd() as u32,
            info_len: size_of_val(&info) as u32,
            info: addr_mut(&mut info),
        };
        match bpf(sys::OBJ_GET_INFO_BY_FD, &mut attr) {
            Ok(_) if info[0] as u32 == KPROBE_MULTI => Ok(info[4]),
            Ok(_) => Ok(0),
            // A perf event's descriptor is no link, and before 5.8 nothing tells of links.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(0),
            Err(source) => Err(Error::Sys { action: "information on a link".into(), source }),
        }
    }
}

/// Attaches a tracing program (fentry, fexit, tp_btf) to what it was loaded for.
///
/// BPF_RAW_TRACEPOINT_OPEN without a name does this on every kernel since 5.5; BPF_LINK_CREATE only since 5.13.
pub fn attach_trampoline(prog: &Program, target: &str) -> Result<Link> {
    open(0, prog, target)
}

/// Attaches a raw tracepoint program to a tracepoint by name.
pub fn open_raw_tracepoint(prog: &Program, tracepoint: &str) -> Result<Link> {
    let name = CString::new(tracepoint)
        .map_err(|_| Error::Protocol(format!("tracepoint name {tracepoint:?} holds a zero byte")))?;
    open(name.as_ptr() as u64, prog, tracepoint)
}

fn open(name: u64, prog: &Program, target: &str) -> Result<Link> {
    let mut attr = RawTracepointOpen { name, prog_fd: prog.as_fd().as_raw_fd() as u32, ..Default::default() };
    bpf_fd(sys::RAW_TRACEPOINT_OPEN, &mut attr)
        .map(|fd| Link { fd })
        .map_err(|source| Error::Sys { action: format!("attach to {target}"), source })
}

/// Attaches one program to many functions by their addresses ([`AttachType::KprobeMulti`] or
/// [`AttachType::KprobeSession`]), each with a cookie for `bpf_get_attach_cookie`. All or nothing: one address that ftrace
/// does not know fails the whole call, and the kernel does not say which.
pub fn attach_kprobe_multi(
    prog: &Program,
    attach_type: AttachType,
    addrs: &[u64],
    cookies: &[u64],
) -> Result<Link> {
    let attr = LinkKprobeMulti {
        prog_fd: prog.as_fd().as_raw_fd() as u32,
        attach_type: attach_type as u32,
        cnt: count(addrs.len(), cookies.len())?,
        addrs: addr(addrs),
        cookies: addr(cookies),
        ..Default::default()
    };
    create(attr, || format!("attach to {} functions", addrs.len()))
}

/// Attaches one program to a function by its name, which must be one function's alone ([`AttachType::KprobeMulti`] or
/// [`AttachType::KprobeSession`]). `at_return`: to its return, of the first.
pub fn attach_kprobe_multi_named(
    prog: &Program,
    attach_type: AttachType,
    name: &str,
    at_return: bool,
) -> Result<Link> {
    /// `BPF_F_KPROBE_MULTI_RETURN`.
    const RETURN: u32 = 1;
    let symbol = CString::new(name)
        .map_err(|_| Error::Protocol(format!("function name {name:?} holds a zero byte")))?;
    let names = [symbol.as_ptr() as u64];
    let attr = LinkKprobeMulti {
        prog_fd: prog.as_fd().as_raw_fd() as u32,
        attach_type: attach_type as u32,
        multi_flags: if at_return { RETURN } else { 0 },
        cnt: 1,
        syms: addr(&names),
        ..Default::default()
    };
    create(attr, || format!("attach to {name}"))
}

/// Attaches one program to many functions by their ids in the BTF that it was loaded for ([`AttachType::FentryMulti`],
/// [`AttachType::FsessionMulti`]), each with a cookie. All or nothing, as [`attach_kprobe_multi`].
pub fn attach_tracing_multi(
    prog: &Program,
    attach_type: AttachType,
    ids: &[u32],
    cookies: &[u64],
) -> Result<Link> {
    let attr = LinkTracingMulti {
        prog_fd: prog.as_fd().as_raw_fd() as u32,
        attach_type: attach_type as u32,
        cnt: count(ids.len(), cookies.len())?,
        ids: addr(ids),
        cookies: addr(cookies),
        ..Default::default()
    };
    create(attr, || format!("attach to {} functions", ids.len()))
}

/// BPF_LINK_CREATE, whatever part of its union `attr` is.
pub(crate) fn create<A: Attr>(mut attr: A, action: impl FnOnce() -> String) -> Result<Link> {
    bpf_fd(sys::LINK_CREATE, &mut attr)
        .map(Link::of)
        .map_err(|source| Error::Sys { action: action(), source })
}

/// The kernel reads as many of both as we say there are.
fn count(targets: usize, cookies: usize) -> Result<u32> {
    u32::try_from(targets)
        .ok()
        .filter(|_| targets == cookies)
        .ok_or_else(|| Error::Protocol(format!("{targets} functions and {cookies} cookies")))
}
