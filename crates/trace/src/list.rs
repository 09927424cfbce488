//! What can be traced, and how: for people who look for a target.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::plan::Method;
use crate::request::{TargetKind, TargetSpec};
use crate::target;
use bpf::{AttachType, Load, ProgType, Program};
use btf::Kind;

/// A function or tracepoint, and what btrace can do with it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Function or tracepoint.
    pub kind: TargetKind,
    /// Its module; `None` for the kernel itself.
    pub module: Option<String>,
    /// C prototype, no semicolon; of one that cannot be read, the name.
    pub prototype: String,
    /// Why no kernel can trace it, if so.
    pub obstacle: Option<String>,
}

impl Listed {
    /// The methods for it, as far as its prototype decides.
    pub fn methods(&self) -> &'static [Method] {
        match (self.kind, &self.obstacle) {
            (_, Some(_)) => &[],
            (TargetKind::Function, None) => &[Method::Fentry, Method::Fexit],
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
        for id in ids {
            let listed =
                |prototype, obstacle| Listed { kind: spec.kind, module: module.clone(), prototype, obstacle };
            let one = target::target(&btf, spec.kind, module.as_deref(), id)
                .and_then(|t| Ok(listed(t.prototype(kernel)?, t.obstacle(kernel)?)));
            all.push(one.unwrap_or_else(|error| listed(btf.func_decl(id), Some(error.to_string()))));
        }
    }
    if all.is_empty() {
        return Err(target::unknown(kernel, spec));
    }
    Ok(all)
}

/// What the running kernel grants us: asked by loading a program of two instructions, which is gone at once.
#[derive(Clone, Debug)]
pub struct Offers {
    fentry: Option<String>,
    fexit: Option<String>,
    tp_btf: Option<String>,
    raw_tp: Option<String>,
}

impl Offers {
    /// Asks the kernel.
    pub fn ask(kernel: &Kernel) -> Offers {
        // Any function and any tracepoint will do: these are in every kernel with BPF and networking, or with a scheduler.
        let names = [
            (Kind::Func, "bpf_fentry_test1"),
            (Kind::Func, "vfs_read"),
            (Kind::Typedef, "btf_trace_sched_switch"),
        ];
        let found = kernel.btf.find_many(&names);
        let id = |at: usize| found.get(at).copied().flatten();
        let function = id(0).or(id(1));
        Offers {
            fentry: ask(AttachType::Fentry, function),
            fexit: ask(AttachType::Fexit, function),
            tp_btf: ask(AttachType::TpBtf, id(2)),
            raw_tp: granted(&Load::new("offered", ProgType::RawTracepoint, &NOTHING)),
        }
    }

    /// Why a method is not to be had; `None` when it is.
    pub fn refusal(&self, method: Method) -> Option<&str> {
        match method {
            Method::Fentry => self.fentry.as_deref(),
            Method::Fexit => self.fexit.as_deref(),
            Method::TpBtf => self.tp_btf.as_deref(),
            Method::RawTp => self.raw_tp.as_deref(),
        }
    }
}

/// `r0 = 0; exit`.
const NOTHING: [u64; 2] = [0xb7, 0x95];

fn ask(attach_type: AttachType, id: Option<btf::TypeId>) -> Option<String> {
    let Some(id) = id else { return Some("nothing to try it on was found in the kernel's BTF".into()) };
    let load = Load { attach_type, attach_btf_id: id.0, ..Load::new("offered", ProgType::Tracing, &NOTHING) };
    granted(&load)
}

/// Why the program is refused; `None` when it is not.
fn granted(load: &Load<'_>) -> Option<String> {
    match Program::load(load) {
        Ok(_) => None,
        Err(error) if error.is_permission() && error.log().is_none() => Some(
            "refused with EPERM and no reason: by this kernel, or for want of CAP_BPF and CAP_PERFMON".into(),
        ),
        Err(error) => Some(error.to_string()),
    }
}
