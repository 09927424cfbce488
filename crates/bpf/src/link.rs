//! Attaching: a link lives as long as its file descriptor, so it dies with us whatever ends us.

use crate::error::{Error, Result};
use crate::prog::Program;
use crate::sys::{self, RawTracepointOpen, bpf_fd};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// An attached program; dropping it detaches.
#[derive(Debug)]
pub struct Link {
    #[expect(dead_code, reason = "held for its drop")]
    fd: OwnedFd,
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
