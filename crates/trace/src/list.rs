//! What can be traced, and how: for people who look for a target.

use crate::abilities;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::plan::Method;
use crate::program_spec::ProgramSpec;
use crate::program_target::{self, Found, Look};
use crate::request::{TargetKind, TargetSpec};
use crate::syscalls;
use crate::target::{self, Target};
use bpf::{AttachTo, AttachType, Load, ProgType, Program};
use std::os::fd::AsFd;

/// A function, tracepoint or BPF program, and what btrace can do with it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Which of them.
    pub kind: TargetKind,
    /// Its module; `None` for the kernel itself.
    pub module: Option<String>,
    /// Of a function of a BPF program, `bpf:ID`, the program's type, name and tag.
    pub program: Option<String>,
    /// C prototype, no semicolon; of one that cannot be read, the name.
    pub prototype: String,
    /// Why no kernel can trace it, if so.
    pub obstacle: Option<String>,
    /// Of a system call's wrapper, the call's own prototype.
    pub syscall: Option<String>,
}

impl Listed {
    /// The methods for it, as far as its prototype decides.
    pub fn methods(&self) -> &'static [Method] {
        match (self.kind, &self.obstacle) {
            // What no trampoline serves a kprobe may.
            (TargetKind::Function, Some(_)) => &[Method::Kprobe],
            (_, Some(_)) => &[],
            (TargetKind::Function, None) => &[
                Method::Fentry,
                Method::Fexit,
                Method::Fsession,
                Method::TracingMulti,
                Method::Kprobe,
                Method::KprobeMulti,
            ],
            (TargetKind::Program, None) => &[Method::Fentry, Method::Fexit, Method::Fsession],
            (TargetKind::Tracepoint, None) => &[Method::TpBtf],
        }
    }
}

/// Everything that a pattern matches, in the order of the kernel's types; vmlinux first.
///
/// One that is odd is listed with what is odd about it: a listing never ends for the sake of one.
pub fn list(kernel: &Kernel, spec: &TargetSpec) -> Result<Vec<Listed>, Error> {
    let mut all = Vec::new();
    for ((module, btf), ids) in target::found_by(kernel, spec)? {
        let mut found: Vec<_> =
            ids.into_iter().map(|id| (id, target::target(&btf, spec.kind, module.as_deref(), id))).collect();
        syscalls::unwrap(kernel, found.iter_mut().filter_map(|(_, target)| target.as_mut().ok()))?;
        for (id, target) in found {
            let listed = |prototype, obstacle, syscall| Listed {
                kind: spec.kind,
                module: module.clone(),
                program: None,
                prototype,
                obstacle,
                syscall,
            };
            let one = target.and_then(|t| {
                let syscall = t.syscall.as_ref().map(|call| call.prototype());
                Ok(listed(t.prototype(kernel)?, t.obstacle(kernel)?, syscall))
            });
            all.push(one.unwrap_or_else(|error| listed(btf.func_decl(id), Some(error.to_string()), None)));
        }
    }
    if all.is_empty() {
        return Err(target::unknown(kernel, spec));
    }
    Ok(all)
}

/// The functions of the programs that `spec` names: all of them, unless it names some or `only_wanted` says to list
/// those alone that would be traced. Unless it does, the kernel is asked of each whether it attaches something there.
pub fn list_programs(kernel: &Kernel, spec: &ProgramSpec, only_wanted: bool) -> Result<Vec<Listed>, Error> {
    let mut all = Vec::new();
    let found = Look::new(kernel).find(spec)?;
    let programs = found.len();
    let (mut without, mut unknown) = (None, Vec::new());
    for program in found {
        let about = format!("bpf:{} {} {} {}", program.id, program.kind, program.name, program.tag);
        let label = program.label();
        let listed = |prototype, obstacle| Listed {
            syscall: None,
            kind: TargetKind::Program,
            module: None,
            program: Some(about.clone()),
            prototype,
            obstacle,
        };
        let Found { name, functions, .. } = program;
        let functions = match functions {
            Ok(functions) => functions,
            Err(reason) => {
                let to = if program_target::may_mean(spec, &name) { &mut all } else { &mut unknown };
                to.push(listed(name, Some(reason)));
                continue;
            }
        };
        let whole = spec.function.is_none() && !only_wanted;
        let names: Vec<String> = functions.iter().map(|f| f.name.clone()).collect();
        let before = all.len();
        for (index, function) in functions.iter().enumerate() {
            if whole || program_target::wants(spec, index, function) {
                let obstacle =
                    if only_wanted { function.obstacle(kernel)? } else { obstacle_of(kernel, function)? };
                all.push(listed(function.prototype(kernel)?, obstacle));
            }
        }
        if all.len() == before {
            without.get_or_insert((label, names));
        }
    }
    match (all.is_empty(), without, &spec.function) {
        (true, Some((label, names)), Some(function)) => {
            Err(program_target::no_function(&label, &names, function, programs - unknown.len()))
        }
        (true, ..) => Ok(unknown),
        _ => Ok(all),
    }
}

/// Why nothing can be attached to a function of a program, asked by loading a program of two instructions for it.
fn obstacle_of(kernel: &Kernel, function: &Target) -> Result<Option<String>, Error> {
    if let Some(obstacle) = function.obstacle(kernel)? {
        return Ok(Some(obstacle));
    }
    let Some(of) = &function.program else { return Ok(None) };
    let load = Load {
        attach_type: AttachType::Fentry,
        attach_btf_id: function.btf_id.0,
        attach_to: AttachTo::Program(of.program.handle.as_fd()),
        ..Load::new("offered", ProgType::Tracing, &NOTHING)
    };
    Ok(match Program::load(&load) {
        Ok(_) => None,
        // Whether this kernel grants such programs at all is for Offers to say.
        Err(error) if error.is_permission() => None,
        Err(error) => {
            let known = error.log().and_then(program_target::refusal).map(str::to_string);
            let last = error
                .log()
                .and_then(|log| log.lines().rfind(|l| !l.is_empty() && !l.starts_with("processed")));
            Some(
                known
                    .or_else(|| last.map(|l| format!("the kernel refuses it: {l}")))
                    .unwrap_or(error.to_string()),
            )
        }
    })
}

/// What the running kernel grants us: asked by loading a program of two instructions, which is gone at once.
#[derive(Clone, Debug)]
pub struct Offers {
    refusals: Vec<(Method, abilities::Refusal)>,
}

impl Offers {
    /// Asks the kernel.
    pub fn ask(kernel: &Kernel) -> Offers {
        let subjects = abilities::Subjects::of(kernel);
        let answers = [
            (Method::Fentry, abilities::fentry(&subjects)),
            (Method::Fexit, abilities::fexit(&subjects)),
            (Method::Fsession, abilities::fsession(&subjects)),
            (Method::TracingMulti, abilities::tracing_multi(&subjects)),
            (Method::Kprobe, abilities::kprobe(&subjects)),
            (Method::KprobeMulti, abilities::kprobe_multi(&subjects)),
            (Method::TpBtf, abilities::tp_btf(&subjects)),
            (Method::RawTp, abilities::raw_tp()),
        ];
        let refusals = answers.into_iter().filter_map(|(method, answer)| Some((method, answer.err()?)));
        Offers { refusals: refusals.collect() }
    }

    /// Why a method is not to be had; `None` when it is.
    pub fn refusal(&self, method: Method) -> Option<&abilities::Refusal> {
        self.refusals.iter().find(|(refused, _)| *refused == method).map(|(_, refusal)| refusal)
    }
}

/// `r0 = 0; exit`.
const NOTHING: [u64; 2] = [0xb7, 0x95];
