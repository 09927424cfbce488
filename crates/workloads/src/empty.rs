//! The yardstick of the benchmark: a program that does nothing, at a function's entry.

use std::path::Path;

use bpf::{AttachType, Load, ProgType, Program};
use btf::{Btf, Kind};

/// `r0 = 0; exit`.
const CODE: [u64; 2] = [0xb7, 0x95];

/// Attaches it to a kernel function until the answer is dropped.
pub fn attach(function: &str) -> Result<(Program, bpf::Link), String> {
    bpf::raise_limits();
    let btf = Btf::open(Path::new("/sys/kernel/btf/vmlinux")).map_err(|e| e.to_string())?;
    let id = btf.find(Kind::Func, function).ok_or_else(|| format!("no function {function} in BTF"))?;
    let load = Load {
        attach_type: AttachType::Fentry,
        attach_btf_id: id.0,
        ..Load::new("empty", ProgType::Tracing, &CODE)
    };
    let program = Program::load(&load).map_err(|e| e.to_string())?;
    let link = bpf::attach_trampoline(&program, function).map_err(|e| e.to_string())?;
    Ok((program, link))
}
