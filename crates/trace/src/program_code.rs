//! The code of BPF programs: what disassembly shows of them. Programs without BTF, which cannot be traced, have code all the
//! same.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::program_spec::ProgramSpec;
use crate::program_target::{self, Found, Look, permission};
use bpf::{ImageFunction, MapInfo};

/// A program and what the kernel shows of its code.
#[derive(Clone, Debug)]
pub struct ProgramCode {
    /// As bpftool shows it.
    pub id: u32,
    /// The whole name where its BTF tells it, else the 15 characters that the kernel keeps.
    pub name: String,
    /// What kind of program: `sched_cls`, `kprobe`, …
    pub kind: String,
    /// Hash of its instructions, 16 hexadecimal digits.
    pub tag: String,
    /// The functions that were asked for, in the order of their instructions.
    pub functions: Vec<FunctionCode>,
    /// Its instructions after verification (`struct bpf_insn`), all functions'.
    pub xlated: Vec<u64>,
    /// The maps that it names.
    pub maps: Vec<MapInfo>,
}

/// Machine code of a function of a program.
#[derive(Clone, Debug)]
pub struct FunctionCode {
    /// Its name, if the program's BTF tells it.
    pub name: Option<String>,
    /// C prototype, no semicolon; as the name.
    pub prototype: Option<String>,
    /// Where its code begins.
    pub address: u64,
    /// The code, as the compiler of the kernel left it.
    pub code: Vec<u8>,
    /// Its instructions, as a range of [`ProgramCode::xlated`]; empty when nothing tells where they lie.
    pub insns: std::ops::Range<usize>,
}

/// The code of every program that `spec` means: of all its functions, unless it names some.
///
/// # Errors
/// There is no such program or function, listing programs is not allowed, or none of them has machine code that the kernel
/// shows, each with its reason.
pub fn program_code(kernel: &Kernel, spec: &ProgramSpec) -> Result<Vec<ProgramCode>, Error> {
    let mut all = Vec::new();
    let mut refused: Option<Error> = None;
    for found in Look::new(kernel).find(spec)? {
        match code_of(kernel, spec, &found) {
            Ok(Some(code)) => all.push(code),
            // Gone meanwhile.
            Ok(None) => {}
            Err(error @ Error::Target { .. }) => {
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

fn code_of(kernel: &Kernel, spec: &ProgramSpec, found: &Found) -> Result<Option<ProgramCode>, Error> {
    let Some(program) = bpf::Program::by_id(found.id).map_err(permission)? else { return Ok(None) };
    let refuse = |reason: &str| Err(Error::Target { target: found.label(), reason: reason.into() });
    let details = program.details()?;
    let image = program.image()?;
    if image.functions.is_empty() {
        return match details.jited_len {
            0 => refuse(
                "it is interpreted: it has no machine code (sysctl net.core.bpf_jit_enable=1, and load it again)",
            ),
            _ => {
                let hidden = symbols::Hidden::here();
                refuse(&format!(
                    "the kernel does not show its machine code here ({}): {}",
                    hidden.cause(),
                    hidden.remedy()
                ))
            }
        };
    }
    let known = found.functions.as_deref().unwrap_or_default();
    let mut starts: Vec<usize> = details.func_info.iter().map(|(insn, _)| *insn as usize).collect();
    if image.functions.len() == 1 {
        // Loaded without types, it is one function all the same.
        starts = vec![0];
    }
    let mut functions = Vec::new();
    for (index, ImageFunction { address, code }) in image.functions.into_iter().enumerate() {
        let target = known.get(index);
        let wanted = match (&spec.function, target) {
            (None, _) => true,
            (Some(pattern), Some(target)) => pattern.matches(&target.name),
            // Nothing has a name but the program.
            (Some(pattern), None) => index == 0 && pattern.matches(&found.name),
        };
        if !wanted {
            continue;
        }
        let first = starts.get(index).copied().filter(|first| *first <= image.xlated.len());
        let next = starts.get(index + 1).copied().filter(|next| *next <= image.xlated.len());
        let insns = first.map_or(0..0, |first| first..next.unwrap_or(image.xlated.len()).max(first));
        functions.push(FunctionCode {
            name: target.map(|t| t.name.clone()),
            prototype: target.map(|t| t.prototype(kernel)).transpose()?,
            address,
            code,
            insns,
        });
    }
    if let (true, Some(pattern)) = (functions.is_empty(), &spec.function) {
        let names: Vec<String> = known.iter().map(|f| f.name.clone()).collect();
        return Err(program_target::no_function(&found.label(), &names, pattern, 1));
    }
    let mut maps = Vec::new();
    for id in image.maps {
        maps.extend(bpf::map_info(id)?);
    }
    Ok(Some(ProgramCode {
        id: found.id,
        name: found.name.clone(),
        kind: found.kind.clone(),
        tag: found.tag.clone(),
        functions,
        xlated: image.xlated,
        maps,
    }))
}
