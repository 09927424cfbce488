//! Targets: patterns resolved against BTF to functions and tracepoints with their prototypes.

use crate::arch;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::pattern::Pattern;
use crate::program_target::{self, ProgramFunction};
use crate::request::{Scope, TargetKind, TargetSpec};
use crate::suggest;
use crate::syscalls::{self, Syscall};
use crate::systems;
use btf::{Btf, Kind, TypeId};
use std::collections::HashSet;
use std::sync::Arc;

/// Typedefs of this prefix carry the prototype of a tracepoint (include/trace/bpf_probe.h).
pub(crate) const TRACEPOINT_TYPEDEF: &str = "btf_trace_";

/// What a scope calls the kernel itself.
const VMLINUX: &str = "vmlinux";

/// A function, a tracepoint or a BPF program to trace.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which of them.
    pub kind: TargetKind,
    /// Its name.
    pub name: String,
    /// The module that it is in; `None` for the kernel itself.
    pub module: Option<String>,
    /// The BPF program that it is a function of.
    pub program: Option<ProgramFunction>,
    /// What a tracing program attaches to: the FUNC, or the tracepoint's typedef. An id of [`Kernel::types_of`] it.
    pub btf_id: TypeId,
    /// Arguments in order.
    pub params: Vec<btf::Param>,
    /// Type of the return value; void for a tracepoint.
    pub ret: TypeId,
    /// Takes `...` besides.
    pub variadic: bool,
    /// The system call that it is the wrapper of.
    pub syscall: Option<Syscall>,
    /// Where it is, for what only kallsyms knows; its arguments are then the registers as they are.
    pub address: Option<u64>,
}

/// What patterns came to.
#[derive(Debug, Default)]
pub struct Resolved {
    /// Each once.
    pub targets: Vec<Target>,
    /// What matched and has no usable prototype, with the reason.
    pub refused: Vec<(String, String)>,
    /// What is to be said of targets, a line each.
    pub remarks: Vec<String>,
}

/// Most register slots that a trampoline passes on (`MAX_BPF_FUNC_ARGS`, include/linux/bpf.h).
const MOST_SLOTS: u64 = 12;

impl Target {
    /// `name`, `module:name`, or `name[bpf:id]`.
    pub fn label(&self) -> String {
        if let Some(function) = &self.program {
            return program_target::label(&self.name, function.program.id);
        }
        match &self.module {
            Some(module) => format!("{module}:{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Its C prototype, without a semicolon: a tracepoint reads as a function without a type.
    pub fn prototype(&self, kernel: &Kernel) -> Result<String, Error> {
        if self.address.is_some() {
            return Ok(format!("{}()", self.name));
        }
        let btf = kernel.types_of(self)?;
        Ok(match self.kind {
            TargetKind::Function | TargetKind::Program => btf.func_decl(self.btf_id),
            TargetKind::Tracepoint => {
                let params: Vec<String> = self.params.iter().map(|p| btf.declare(p.ty, &p.name)).collect();
                format!(
                    "{}({})",
                    self.name,
                    if params.is_empty() { "void".into() } else { params.join(", ") }
                )
            }
        })
    }

    /// Why no trampoline of any kernel can pass its values, if so (`btf_distill_func_proto`, kernel/bpf/btf.c).
    pub(crate) fn obstacle(&self, kernel: &Kernel) -> Result<Option<String>, Error> {
        if self.address.is_some() {
            return Ok(Some("no prototype is known for it".into()));
        }
        if self.variadic {
            return Ok(Some("takes a variable number of arguments, which trampolines do not support".into()));
        }
        let btf = kernel.types_of(self)?;
        let mut slots = 0;
        for param in &self.params {
            let size = btf.size_of(param.ty)?;
            if size > 16 {
                return Ok(Some(format!(
                    "{} is {size} bytes by value; tracing programs see values of at most 16",
                    btf.declare(param.ty, &param.name)
                )));
            }
            slots += size.div_ceil(8).max(1);
        }
        if slots > MOST_SLOTS {
            return Ok(Some(format!(
                "its arguments take {slots} registers; trampolines pass on {MOST_SLOTS}"
            )));
        }
        if self.kind != TargetKind::Tracepoint && btf.get(btf.resolve(self.ret))?.kind().is_composite() {
            return Ok(Some(format!(
                "returns {} by value, which trampolines do not support",
                btf.type_name(self.ret)
            )));
        }
        Ok(None)
    }
}

impl Target {
    /// The type that argument `index` really has, and the BTF that it is of: `own` and what the prototype says, unless it
    /// is a BPF program's context, which the kernel passes as a structure of its own.
    pub(crate) fn argument_type<'a>(
        &self,
        kernel: &'a Kernel,
        own: &'a Btf,
        index: usize,
        declared: TypeId,
    ) -> (&'a Btf, TypeId) {
        let contexts = self.program.iter().flat_map(|function| &function.contexts);
        match contexts.into_iter().find(|(at, _)| *at == index) {
            Some((_, pointer)) => (&kernel.btf, *pointer),
            None => (own, declared),
        }
    }
}

/// Resolves all patterns, in their order, each target once.
pub fn resolve(kernel: &Kernel, specs: &[TargetSpec]) -> Result<Resolved, Error> {
    let mut resolved = Resolved::default();
    let mut seen = HashSet::new();
    for spec in specs {
        let mut found = false;
        for ((module, btf), ids) in found_by(kernel, spec)? {
            for id in ids {
                found = true;
                if !seen.insert((module.clone(), id)) {
                    continue;
                }
                match target(&btf, spec.kind, module.as_deref(), id) {
                    Ok(target) => resolved.targets.push(target),
                    Err(error) => {
                        let name = btf.get(id)?.name().unwrap_or("?").to_string();
                        resolved.refused.push((name, format!("its prototype cannot be read: {error}")));
                    }
                }
            }
        }
        if !found {
            let untyped = untyped(kernel, spec)?;
            if untyped.is_empty() {
                return Err(unknown(kernel, spec));
            }
            let names = untyped.iter().map(|t| t.name.as_str());
            let names: Vec<&str> = names.filter(|name| !syscalls::is_wrapper(name)).collect();
            if !names.is_empty() {
                resolved.remarks.push(format!(
                    "{}: no prototype is known for {}: the registers that may hold arguments are shown",
                    spec.pattern,
                    names.join(", ")
                ));
            }
            resolved.targets.extend(untyped);
        }
    }
    merge(kernel, &mut resolved)?;
    syscalls::unwrap(kernel, resolved.targets.iter_mut())?;
    match (resolved.targets.as_slice(), resolved.refused.as_slice()) {
        ([], [(target, reason)]) => Err(Error::Target { target: target.clone(), reason: reason.clone() }),
        ([], [(target, reason), ..]) => {
            Err(Error::AllFailed { count: resolved.refused.len(), first: format!("{target}: {reason}") })
        }
        _ => Ok(resolved),
    }
}

/// Of several FUNCs with one name the kernel attaches every one to the same address, the first that its symbol table has of
/// the name: only one is kept, lest each call be told twice; and which of unlike prototypes is that function's is not known.
fn merge(kernel: &Kernel, resolved: &mut Resolved) -> Result<(), Error> {
    let mut first: std::collections::HashMap<(Option<String>, String), usize> =
        std::collections::HashMap::new();
    let mut kept: Vec<Target> = Vec::with_capacity(resolved.targets.len());
    for target in resolved.targets.drain(..) {
        if target.kind != TargetKind::Function || target.address.is_some() {
            kept.push(target);
            continue;
        }
        match first.entry((target.module.clone(), target.name.clone())) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(kept.len());
                kept.push(target);
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                let Some(one) = kept.get(*entry.get()) else { continue };
                let (a, b) = (one.prototype(kernel)?, target.prototype(kernel)?);
                if a != b {
                    resolved.refused.push((
                        target.label(),
                        format!("of several functions of that name, the kernel attaches to the first only; its types are shown as in \"{a}\", and may be those of \"{b}\""),
                    ));
                }
            }
        }
    }
    resolved.targets = kept;
    Ok(())
}

/// A module's name, `None` for the kernel itself, and its types.
type Place = (Option<String>, Arc<Btf>);

/// What a pattern found somewhere: ids of that place's types.
pub(crate) type Found = (Place, Vec<TypeId>);

/// Everything that a pattern matches. What stands before a tracepoint's colon is a module, or else a system.
pub(crate) fn found_by(kernel: &Kernel, spec: &TargetSpec) -> Result<Vec<Found>, Error> {
    let all = |places: Vec<Place>| -> Vec<Found> {
        let found = places.into_iter().map(|place| {
            let ids = ids(&place.1, spec, place.0.is_some());
            (place, ids)
        });
        found.filter(|(_, ids)| !ids.is_empty()).collect()
    };
    let (TargetKind::Tracepoint, Scope::Module(scope)) = (spec.kind, &spec.scope) else {
        return Ok(all(places(kernel, spec)?));
    };
    if scope.as_str() == VMLINUX {
        return Ok(all(places(kernel, spec)?));
    }
    let mut found = all(modules(kernel, &|name| scope.matches(name)));
    if found.is_empty() || scope.is_glob() || spec.pattern.is_glob() {
        match systems::find(kernel, spec, scope) {
            Ok(None) if found.is_empty() => return Ok(all(places(kernel, spec)?)),
            Err(error) if found.is_empty() => return Err(error),
            Ok(None) | Err(_) => {}
            Ok(Some(more)) => found.extend(more),
        }
    }
    Ok(found)
}

/// The modules of that name, as far as their types are known.
pub(crate) fn modules(kernel: &Kernel, wanted: &dyn Fn(&str) -> bool) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for name in kernel.modules.names().into_iter().filter(|n| wanted(n)) {
        match kernel.modules.types(&name) {
            Ok(btf) => places.push((Some(name), btf)),
            // Unloaded meanwhile, or built for another kernel: the others are none the worse.
            Err(error) => log::debug!("types of module {name}: {error}"),
        }
    }
    places
}

/// Where a pattern is to be looked for. What a module's BTF has of its own is asked for there, never its base's.
pub(crate) fn places(kernel: &Kernel, spec: &TargetSpec) -> Result<Vec<Place>, Error> {
    let vmlinux = (None, Arc::clone(&kernel.btf));
    let modules = |wanted: &dyn Fn(&str) -> bool| modules(kernel, wanted);
    Ok(match &spec.scope {
        Scope::Kernel if spec.pattern.is_glob() => vec![vmlinux],
        // Opening every module's types is for names that the kernel itself has not.
        Scope::Kernel => {
            if ids(&kernel.btf, spec, false).is_empty() {
                modules(&|_| true)
            } else {
                vec![vmlinux]
            }
        }
        Scope::Everywhere => {
            let mut places = vec![vmlinux];
            places.append(&mut modules(&|_| true));
            places
        }
        Scope::Module(module) if module.as_str() == VMLINUX => vec![vmlinux],
        Scope::Module(module) => {
            let places = modules(&|name| module.matches(name));
            if places.is_empty() {
                let reason = if module.is_glob() {
                    format!("no loaded module whose types are known matches {module}")
                } else {
                    kernel.modules.absence(module.as_str())
                };
                return Err(Error::Target { target: format!("{module}:{}", spec.pattern), reason });
            }
            places
        }
    })
}

/// Everything in one BTF that the pattern matches; `split`: only what is not its base's.
pub(crate) fn ids(btf: &Btf, spec: &TargetSpec, split: bool) -> Vec<TypeId> {
    let (kind, prefix) = match spec.kind {
        TargetKind::Function | TargetKind::Program => (Kind::Func, ""),
        TargetKind::Tracepoint => (Kind::Typedef, TRACEPOINT_TYPEDEF),
    };
    let first = if split { btf.base().map_or(1, |base| base.len()) } else { 1 };
    let mut ids: Vec<TypeId> = if spec.pattern.is_glob() {
        btf.names_from(kind, prefix)
            .filter(|(_, name)| name.strip_prefix(prefix).is_some_and(|n| spec.pattern.matches(n)))
            .map(|(id, _)| id)
            .collect()
    } else {
        btf.find_all(kind, &format!("{prefix}{}", spec.pattern))
    };
    ids.retain(|id| id.0 >= first);
    ids
}

/// What is known of one function or tracepoint.
pub(crate) fn target(btf: &Btf, kind: TargetKind, module: Option<&str>, id: TypeId) -> Result<Target, Error> {
    let mut target = match kind {
        TargetKind::Function | TargetKind::Program => function(btf, id)?,
        TargetKind::Tracepoint => tracepoint(btf, id)?,
    };
    target.module = module.map(str::to_string);
    Ok(target)
}

fn function(btf: &Btf, id: TypeId) -> Result<Target, Error> {
    let proto = btf.proto(id)?;
    Ok(Target {
        kind: TargetKind::Function,
        name: btf.get(id)?.name().unwrap_or_default().to_string(),
        module: None,
        program: None,
        btf_id: id,
        params: proto.params,
        ret: proto.ret,
        variadic: proto.variadic,
        syscall: None,
        address: None,
    })
}

fn tracepoint(btf: &Btf, id: TypeId) -> Result<Target, Error> {
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
    Ok(Target {
        kind: TargetKind::Tracepoint,
        name,
        module: None,
        program: None,
        btf_id: id,
        params,
        ret: TypeId(0),
        variadic: false,
        syscall: None,
        address: None,
    })
}

/// Functions that only the kernel's symbol table knows: by that very name, or copies that the compiler made of it. What is
/// known of them is where they are.
fn untyped(kernel: &Kernel, spec: &TargetSpec) -> Result<Vec<Target>, Error> {
    if spec.kind != TargetKind::Function || spec.pattern.is_glob() || spec.scope != Scope::Kernel {
        return Ok(Vec::new());
    }
    let mut found = variants(spec.pattern.as_str());
    // A cold part is jumped to: a return probe there would take something else for the return address.
    found.retain(|s| s.address != 0 && !s.name.contains(".cold"));
    if found.iter().any(|s| s.name == spec.pattern.as_str()) {
        found.retain(|s| s.name == spec.pattern.as_str());
    }
    let ints = [(Kind::Int, "long unsigned int"), (Kind::Int, "unsigned long")];
    let Some(word) = kernel.btf.find_many(&ints).into_iter().flatten().next() else { return Ok(Vec::new()) };
    let registers = || arch::REGISTER_NAMES.iter().map(|name| btf::Param { name: (*name).into(), ty: word });
    let targets = found.into_iter().map(|symbol| Target {
        kind: TargetKind::Function,
        name: symbol.name,
        module: symbol.module,
        program: None,
        btf_id: TypeId(0),
        params: registers().collect(),
        ret: word,
        variadic: false,
        syscall: None,
        address: Some(symbol.address),
    });
    Ok(targets.collect())
}

/// The error for a pattern that matched nothing, with the nearest names, or with what kallsyms knows.
pub(crate) fn unknown(kernel: &Kernel, spec: &TargetSpec) -> Error {
    let name = spec.pattern.as_str();
    let btf = &kernel.btf;
    let tracepoint_names = || {
        btf.names_from(Kind::Typedef, TRACEPOINT_TYPEDEF)
            .filter_map(|(_, n)| n.strip_prefix(TRACEPOINT_TYPEDEF))
    };
    let hint = if spec.pattern.is_glob() {
        match spec.scope {
            Scope::Kernel => {
                " in the kernel itself: the pattern matches nothing (--kfunc-all-kmods looks in modules too)"
                    .into()
            }
            _ => ": the pattern matches nothing".to_string(),
        }
    } else if let Scope::Module(module) = &spec.scope {
        in_module(kernel, spec, module)
    } else if spec.kind == TargetKind::Tracepoint {
        if btf.find(Kind::Func, name).is_some() {
            format!("; there is a kernel function of that name: btrace -k {name}")
        } else {
            suggest::hint(&suggest::near(name, tracepoint_names()))
        }
    } else if tracepoint_names().any(|n| n == name) {
        format!("; there is a tracepoint of that name: btrace -t {name}")
    } else if let Some(function) = syscalls::meant(btf, name) {
        format!("; the system call's function is {function}: btrace -k {function}")
    } else {
        match variants(name) {
            found if !found.is_empty() => {
                let in_modules: Vec<&str> =
                    found.iter().filter(|s| s.name == name).filter_map(|s| s.module.as_deref()).collect();
                if in_modules.is_empty() {
                    format!(" in the kernel's BTF: {}", only_variants(&found))
                } else {
                    format!(
                        " in the kernel itself; {} has it, but {}",
                        in_modules.join(", "),
                        kernel.modules.poverty()
                    )
                }
            }
            // Without kallsyms there is one clue fewer; the near names do not need it.
            _ => suggest::hint(&suggest::near(name, btf.names(Kind::Func).map(|(_, n)| n))),
        }
    };
    Error::Unknown { kind: spec.kind, name: name.into(), hint }
}

/// A name that its module has not: the nearest that it has, or where else it is.
fn in_module(kernel: &Kernel, spec: &TargetSpec, module: &Pattern) -> String {
    let name = spec.pattern.as_str();
    let (kind, prefix, flag) = match spec.kind {
        TargetKind::Function | TargetKind::Program => (Kind::Func, "", "-k"),
        TargetKind::Tracepoint => (Kind::Typedef, TRACEPOINT_TYPEDEF, "-t"),
    };
    if module.as_str() != VMLINUX && kernel.btf.find(kind, &format!("{prefix}{name}")).is_some() {
        return format!(" in module {module}; the kernel itself has it: btrace {flag} {name}");
    }
    let places = places(kernel, spec).unwrap_or_default();
    let names: Vec<&str> = places
        .iter()
        .flat_map(|(module, btf)| {
            let first = if module.is_some() { btf.base().map_or(1, |b| b.len()) } else { 1 };
            btf.names_from(kind, prefix).filter(move |(id, _)| id.0 >= first)
        })
        .filter_map(|(_, n)| n.strip_prefix(prefix))
        .collect();
    format!(" in {module}{}", suggest::hint(&suggest::near(name, names.into_iter())))
}

/// What kallsyms has of that name, or with it as its base name: code only, nothing when kallsyms cannot be read.
pub(crate) fn variants(name: &str) -> Vec<symbols::Symbol> {
    let mut found = symbols::find(name).unwrap_or_else(|error| {
        log::debug!("{error}");
        Vec::new()
    });
    found.retain(symbols::Symbol::is_text);
    found
}

/// The functions that a target's name stands for, by the kernel's symbol table: those of the very name, in its module; else
/// the copies that the compiler made of it. A `.cold` part is no function: it is jumped to.
pub(crate) fn places_of(target: &Target) -> Vec<symbols::Symbol> {
    places_among(target, variants(&target.name))
}

/// The same of symbols that have its name or base name.
pub(crate) fn places_among(target: &Target, mut found: Vec<symbols::Symbol>) -> Vec<symbols::Symbol> {
    found.retain(|s| s.is_text() && s.module == target.module && !s.name.contains(".cold"));
    if found.iter().any(|s| s.name == target.name) {
        found.retain(|s| s.name == target.name);
    }
    found
}

/// What is to be said of a target that is traced at these places.
pub(crate) fn remark(target: &Target, places: &[symbols::Symbol]) -> Option<String> {
    let label = target.label();
    match places {
        [] => None,
        [one] if one.name == target.name => None,
        all if all.iter().all(|s| s.name == target.name) => {
            Some(format!("{label}: {} functions have this name; all are traced", all.len()))
        }
        all => {
            let names: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
            Some(format!(
                "{label}: traced as {}, made by the compiler to its own liking: arguments may be left out or differ from the \
                 prototype",
                names.join(", ")
            ))
        }
    }
}

/// Why functions that only kallsyms knows cannot be traced.
pub(crate) fn only_variants(found: &[symbols::Symbol]) -> String {
    let names: Vec<String> = found
        .iter()
        .map(|s| s.module.as_ref().map_or(s.name.clone(), |m| format!("{} [{m}]", s.name)))
        .collect();
    let suffixed = found.iter().all(|s| s.name.contains('.'));
    let why = if suffixed {
        "a copy that the compiler made to its own liking, arguments left out or changed; no prototype is known for it"
    } else {
        "but no prototype is known for it"
    };
    format!(
        "the kernel's symbol table has {}, {why}, so fentry cannot attach (a kprobe could, which btrace does not have yet)",
        names.join(", ")
    )
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
