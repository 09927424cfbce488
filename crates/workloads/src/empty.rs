//! The yardsticks of the benchmark, at a function's entry: a program that does nothing, and ones that a C compiler made.

use std::path::Path;

use bpf::{AttachType, Load, ProgType, Program};
use btf::{Btf, Kind};

/// `r0 = 0; exit`.
const CODE: [u64; 2] = [0xb7, 0x95];

/// Attaches it to a kernel function until the answer is dropped.
pub fn attach(function: &str) -> Result<(Program, bpf::Link), String> {
    load("empty", function, &CODE)
}

/// Attaches a program of the instructions in a file.
pub fn attach_file(function: &str, file: &str) -> Result<(Program, bpf::Link), String> {
    let bytes = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
    let (code, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(format!("{file}: {} bytes are no whole number of instructions", bytes.len()));
    }
    let code: Vec<u64> = code.iter().map(|insn| u64::from_le_bytes(*insn)).collect();
    load("by_hand", function, &code)
}

fn load(name: &str, function: &str, code: &[u64]) -> Result<(Program, bpf::Link), String> {
    bpf::raise_limits();
    let btf = Btf::open(Path::new("/sys/kernel/btf/vmlinux")).map_err(|e| e.to_string())?;
    let id = btf.find(Kind::Func, function).ok_or_else(|| format!("no function {function} in BTF"))?;
    let load = Load {
        attach_type: AttachType::Fentry,
        attach_btf_id: id.0,
        ..Load::new(name, ProgType::Tracing, code)
    };
    let program = Program::load(&load).map_err(|e| format!("{e}: {}", e.log().unwrap_or_default()))?;
    let link = bpf::attach_trampoline(&program, function).map_err(|e| e.to_string())?;
    Ok((program, link))
}
