//! Our own process id as the kernel's programs see it.

use crate::error::Error;
use crate::filter::PidNamespace;
use asm::{Alu, Helper, Program, Width};
use bpf::{Load, ProgType, TestRun};
use std::os::unix::fs::MetadataExt;

/// The pid namespace we live in, unless it is the machine's first: process ids that a user gives are its own.
pub fn own_pid_namespace() -> Result<Option<PidNamespace>, Error> {
    if bpf::pid_namespace_is_initial() {
        return Ok(None);
    }
    const PATH: &str = "/proc/self/ns/pid";
    let file = std::fs::metadata(PATH)
        .map_err(|source| bpf::Error::Sys { action: format!("look at {PATH}"), source })?;
    Ok(Some(PidNamespace { dev: file.dev(), ino: file.ino() }))
}

/// Our thread group id in the machine's first pid namespace.
///
/// Inside a container getpid(2) gives another number, so there the kernel is asked by a small program, run once.
pub fn own_tgid() -> Result<u32, Error> {
    if bpf::pid_namespace_is_initial() {
        return Ok(std::process::id());
    }
    let mut program = Program::new("own_tgid", "own");
    program.main(|f| {
        f.line("own process id", 1, 1);
        let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
        let tgid = f.alu(Alu::Rsh, Width::W64, both, 32);
        f.ret(tgid);
    });
    let unassembled = |source| Error::Assemble { target: "own_tgid".into(), source };
    let code = program.assemble(&asm::Options::default()).map_err(unassembled)?;
    let insns = code.relocate(|_| -1).map_err(unassembled)?;
    let loaded = bpf::Program::load(&Load::new("own_tgid", ProgType::RawTracepoint, &insns))
        .map_err(|e| if e.is_permission() { Error::Permission(e) } else { Error::Sys(e) })?;
    Ok(loaded.test_run(&TestRun::default())?.retval)
}
