//! Targets: patterns resolved against BTF to functions and tracepoints with their prototypes.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::request::{TargetKind, TargetSpec};
use crate::suggest;
use btf::{Kind, TypeId};

/// Typedefs of this prefix carry the prototype of a tracepoint (include/trace/bpf_probe.h).
const TRACEPOINT_TYPEDEF: &str = "btf_trace_";

/// A function or tracepoint to trace.
#[derive(Clone, Debug)]
pub struct Target {
    /// Function or tracepoint.
    pub kind: TargetKind,
    /// Its name.
    pub name: String,
    /// What a tracing program attaches to: the FUNC, or the tracepoint's typedef.
    pub btf_id: TypeId,
    /// Arguments in order.
    pub params: Vec<btf::Param>,
    /// Type of the return value; void for a tracepoint.
    pub ret: TypeId,
    /// Takes `...` besides.
    pub variadic: bool,
}

/// Resolves all patterns, in their order, each target once.
pub fn resolve(kernel: &Kernel, specs: &[TargetSpec]) -> Result<Vec<Target>, Error> {
    let mut targets: Vec<Target> = Vec::new();
    for spec in specs {
        let found = match spec.kind {
            TargetKind::Function => functions(kernel, spec)?,
            TargetKind::Tracepoint => tracepoints(kernel, spec)?,
        };
        if found.is_empty() {
            return Err(unknown(kernel, spec));
        }
        for target in found {
            if !targets.iter().any(|t| t.kind == target.kind && t.btf_id == target.btf_id) {
                targets.push(target);
            }
        }
    }
    Ok(targets)
}

fn functions(kernel: &Kernel, spec: &TargetSpec) -> Result<Vec<Target>, Error> {
    let ids: Vec<TypeId> = if spec.pattern.is_glob() {
        kernel
            .btf
            .names(Kind::Func)
            .filter(|(_, name)| spec.pattern.matches(name))
            .map(|(id, _)| id)
            .collect()
    } else {
        kernel.btf.find_all(Kind::Func, spec.pattern.as_str())
    };
    ids.into_iter().map(|id| function(kernel, id)).collect()
}

fn function(kernel: &Kernel, id: TypeId) -> Result<Target, Error> {
    let proto = kernel.btf.proto(id)?;
    Ok(Target {
        kind: TargetKind::Function,
        name: kernel.btf.get(id)?.name().unwrap_or_default().to_string(),
        btf_id: id,
        params: proto.params,
        ret: proto.ret,
        variadic: proto.variadic,
    })
}

fn tracepoints(kernel: &Kernel, spec: &TargetSpec) -> Result<Vec<Target>, Error> {
    let ids: Vec<TypeId> = if spec.pattern.is_glob() {
        kernel
            .btf
            .names(Kind::Typedef)
            .filter(|(_, name)| {
                name.strip_prefix(TRACEPOINT_TYPEDEF).is_some_and(|n| spec.pattern.matches(n))
            })
            .map(|(id, _)| id)
            .collect()
    } else {
        kernel.btf.find_all(Kind::Typedef, &format!("{TRACEPOINT_TYPEDEF}{}", spec.pattern))
    };
    ids.into_iter().map(|id| tracepoint(kernel, id)).collect()
}

fn tracepoint(kernel: &Kernel, id: TypeId) -> Result<Target, Error> {
    let btf = &kernel.btf;
    let typedef = btf.get(id)?.name().unwrap_or_default().to_string();
    let name = typedef.strip_prefix(TRACEPOINT_TYPEDEF).unwrap_or(&typedef).to_string();
    // typedef void (*btf_trace_NAME)(void *, …)
    let proto = btf
        .get(btf.resolve(id))?
        .target()
        .ok_or_else(|| Error::Kernel { what: format!("prototype of {typedef}") })?;
    let mut params = btf.proto(btf.resolve(proto))?.params;
    // The first parameter is the probe's own data, which no program sees.
    if !params.is_empty() {
        params.remove(0);
    }
    // The typedef's prototype has types without names. The functions that the TRACE_EVENT macros make have both.
    for prefix in ["__traceiter_", "__bpf_trace_", "__probestub_"] {
        let Some(func) = btf.find(Kind::Func, &format!("{prefix}{name}")) else { continue };
        let named = btf.proto(func)?.params;
        if named.len() != params.len() + 1 {
            continue;
        }
        for (param, named) in params.iter_mut().zip(named.into_iter().skip(1)) {
            if param.name.is_empty() {
                param.name = named.name;
            }
        }
        if params.iter().all(|p| !p.name.is_empty()) {
            break;
        }
    }
    Ok(Target { kind: TargetKind::Tracepoint, name, btf_id: id, params, ret: TypeId(0), variadic: false })
}

/// The error for a pattern that matched nothing, with the nearest names, or with what kallsyms knows.
fn unknown(kernel: &Kernel, spec: &TargetSpec) -> Error {
    let name = spec.pattern.as_str();
    let btf = &kernel.btf;
    let tracepoint_names =
        || btf.names(Kind::Typedef).filter_map(|(_, n)| n.strip_prefix(TRACEPOINT_TYPEDEF));
    let hint = if spec.pattern.is_glob() {
        " (a glob; quote it, lest the shell expand it)".to_string()
    } else if spec.kind == TargetKind::Tracepoint {
        if btf.find(Kind::Func, name).is_some() {
            format!("; there is a kernel function of that name: btrace -k {name}")
        } else {
            suggest::hint(&suggest::near(name, tracepoint_names()))
        }
    } else if tracepoint_names().any(|n| n == name) {
        format!("; there is a tracepoint of that name: btrace -t {name}")
    } else {
        match symbols::find(name) {
            Ok(found) if found.iter().any(|s| s.is_text()) => {
                let s: Vec<String> = found
                    .iter()
                    .filter(|s| s.is_text())
                    .map(|s| s.module.as_ref().map_or(s.name.clone(), |m| format!("{} [{m}]", s.name)))
                    .collect();
                format!(
                    " in the kernel's BTF; kallsyms has {}, but no prototype is known for it",
                    s.join(", ")
                )
            }
            // Without kallsyms there is one clue fewer; the near names do not need it.
            _ => suggest::hint(&suggest::near(name, btf.names(Kind::Func).map(|(_, n)| n))),
        }
    };
    Error::Unknown { kind: spec.kind, name: name.into(), hint }
}
