//! BPF programs as targets: found by id, name, tag, pin or process, each of their functions typed by the program's own
//! BTF.
//!
//! A tracing program attaches to a function of another program when it is loaded with that program's descriptor and the id
//! of the FUNC in that program's BTF (`bpf_check_attach_target`, kernel/bpf/verifier.c). Which functions there are, the
//! program's func_info tells; the first is its main function.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::pattern::Pattern;
use crate::program_spec::{ProgramSelector, ProgramSpec, shown};
use crate::request::TargetKind;
use crate::suggest;
use crate::target::{Resolved, Target};
use btf::{Btf, Kind, TypeId};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// A loaded BPF program whose functions can be looked up.
#[derive(Debug)]
pub struct TracedProgram {
    /// As bpftool shows it.
    pub id: u32,
    /// The whole name: that of its main function where its BTF tells it, else the 15 characters that the kernel keeps.
    pub name: String,
    /// What kind of program: `sched_cls`, `kprobe`, …
    pub kind: String,
    /// Hash of its instructions, 16 hexadecimal digits.
    pub tag: String,
    /// Of a tracing program, the kernel's function or tracepoint that it runs at, if the kernel tells.
    pub runs_at: Option<String>,
    /// Its own BTF, which its functions' ids are of.
    pub(crate) btf: Arc<Btf>,
    /// Keeps it from going away, and names it to the kernel.
    pub(crate) handle: bpf::Program,
}

/// A function of a BPF program.
#[derive(Clone, Debug)]
pub struct ProgramFunction {
    /// The program.
    pub program: Arc<TracedProgram>,
    /// Whether it is the one that the program begins with.
    pub is_main: bool,
    /// Where its machine code begins, if the kernel tells.
    pub(crate) address: Option<u64>,
    /// Parameters that are the program's context: which one, and the type of what is really passed, a pointer of
    /// vmlinux's BTF. (A program that takes a `struct __sk_buff *` is called with a `struct sk_buff *`.)
    pub(crate) contexts: Vec<(usize, TypeId)>,
}

/// A program as it was found.
pub(crate) struct Found {
    pub id: u32,
    pub name: String,
    /// The name that it was loaded by, which may be cut.
    pub kept: String,
    pub kind: String,
    pub tag: String,
    /// All its functions; or why none can be traced.
    pub functions: Result<Vec<Target>, String>,
}

impl Found {
    /// What a refusal is said of.
    pub fn label(&self) -> String {
        label(&self.name, self.id)
    }
}

/// A function's name with its program's id.
pub(crate) fn label(name: &str, id: u32) -> String {
    format!("{name}[bpf:{id}]")
}

/// Resolves what `-p` named, adding to `resolved`, each function once.
pub fn resolve(kernel: &Kernel, specs: &[ProgramSpec], resolved: &mut Resolved) -> Result<(), Error> {
    let mut seen = HashSet::new();
    let mut look = Look::new(kernel);
    for spec in specs {
        let found = look.find(spec)?;
        let (mut of_no_program, mut unknown) = (Vec::new(), Vec::new());
        let mut meant: Vec<String> = Vec::new();
        for program in found {
            let label = program.label();
            let functions = match program.functions {
                Ok(functions) => functions,
                Err(reason) => {
                    if !may_mean(spec, &program.name) {
                        unknown.push((label, reason));
                        continue;
                    }
                    meant.push(label.clone());
                    if seen.insert((program.id, TypeId::VOID)) {
                        resolved.refused.push((label, reason));
                    }
                    continue;
                }
            };
            let names: Vec<String> = functions.iter().map(|f| f.name.clone()).collect();
            let wanted: Vec<Target> = functions
                .into_iter()
                .enumerate()
                .filter(|(i, f)| wants(spec, *i, f))
                .map(|(_, f)| f)
                .collect();
            if wanted.is_empty() {
                of_no_program.push((label, names));
            } else {
                meant.push(label);
            }
            for target in wanted {
                if seen.insert((program.id, target.btf_id)) {
                    resolved.targets.push(target);
                }
            }
        }
        if spec.is_plural() && meant.len() > 1 {
            resolved.remarks.push(how_many(spec, &meant));
        }
        match (!meant.is_empty(), of_no_program.first(), &spec.function) {
            (false, Some((label, names)), Some(function)) => {
                return Err(no_function(label, names, function, of_no_program.len()));
            }
            (false, ..) => resolved.refused.append(&mut unknown),
            (true, ..) => {}
        }
    }
    resolved.remarks.extend(tail_called(&resolved.targets));
    match (resolved.targets.as_slice(), resolved.refused.as_slice()) {
        ([], [(target, reason)]) => Err(Error::Target { target: target.clone(), reason: reason.clone() }),
        ([], [(target, reason), ..]) => {
            Err(Error::AllFailed { count: resolved.refused.len(), first: format!("{target}: {reason}") })
        }
        _ => Ok(()),
    }
}

/// Of main functions that tail calls lead to: that those are not seen. A tail call jumps behind the first instructions of
/// a program, which are what is patched to call ours (`emit_prologue`, arch/x86/net/bpf_jit_comp.c; other architectures
/// do the same).
fn tail_called(targets: &[Target]) -> Vec<String> {
    let mains = targets.iter().filter(|t| t.program.as_ref().is_some_and(|f| f.is_main));
    let mains: BTreeMap<u32, String> =
        mains.filter_map(|t| Some((t.program.as_ref()?.program.id, t.label()))).collect();
    if mains.is_empty() {
        return Vec::new();
    }
    let jumps = bpf::tail_called_programs().unwrap_or_else(|error| {
        log::debug!("whether tail calls lead to a program is not known: {error}");
        Vec::new()
    });
    let mut notes: BTreeMap<u32, String> = BTreeMap::new();
    for (id, map) in jumps {
        if let Some(label) = mains.get(&id) {
            notes.entry(id).or_insert_with(|| {
                format!("{label}: tail calls lead to it (map {map}), and these are not seen: they jump past its entry; its subprograms are (-p {id}:*)")
            });
        }
    }
    notes.into_values().collect()
}

/// Whether a program's function number `index` is meant.
pub(crate) fn wants(spec: &ProgramSpec, index: usize, function: &Target) -> bool {
    match &spec.function {
        None => index == 0,
        Some(pattern) => pattern.matches(&function.name),
    }
}

/// Most programs that are named where only their number is asked for.
const NAMED: usize = 8;

/// Whether a program of whose functions nothing is known can be meant: none but the main one has a name then.
pub(crate) fn may_mean(spec: &ProgramSpec, name: &str) -> bool {
    spec.function.as_ref().is_none_or(|pattern| pattern.matches(name))
}

fn how_many(spec: &ProgramSpec, programs: &[String]) -> String {
    let named = programs.get(..NAMED).unwrap_or(programs);
    let more = if named.len() < programs.len() { ", …" } else { "" };
    format!("-p {spec}: {} programs: {}{more}", programs.len(), named.join(", "))
}

/// The error for a function that no program has.
pub(crate) fn no_function(label: &str, names: &[String], function: &Pattern, programs: usize) -> Error {
    let reason = match programs {
        1 => format!("it has no function {function}; it has {}", names.join(", ")),
        n => format!("neither it nor the other {} have a function {function}", n - 1),
    };
    Error::Target { target: label.into(), reason }
}

/// Looks programs up, each BTF read once.
pub(crate) struct Look<'a> {
    kernel: &'a Kernel,
    btfs: BTreeMap<u32, Result<Arc<Btf>, String>>,
    /// By type of program.
    contexts: BTreeMap<String, Vec<(String, TypeId)>>,
}

impl<'a> Look<'a> {
    pub fn new(kernel: &'a Kernel) -> Look<'a> {
        // Each program that is found takes a descriptor.
        bpf::raise_limits();
        Look { kernel, btfs: BTreeMap::new(), contexts: BTreeMap::new() }
    }

    /// The programs that are meant, by id, at least one.
    pub fn find(&mut self, spec: &ProgramSpec) -> Result<Vec<Found>, Error> {
        let missing = |reason: &str| Error::Target { target: format!("-p {spec}"), reason: reason.into() };
        match &spec.selector {
            ProgramSelector::Id(id) => {
                let found = self.open(*id)?;
                Ok(vec![
                    found.ok_or_else(|| missing("there is no BPF program with this id (btrace list -p)"))?,
                ])
            }
            ProgramSelector::Pinned(path) => {
                let id = pinned(path).map_err(|reason| missing(&reason))?;
                Ok(vec![self.open(id)?.ok_or_else(|| missing("the program is gone"))?])
            }
            ProgramSelector::Process(pid) => {
                let ids = of_process(*pid).map_err(|reason| missing(&reason))?;
                let found = self.open_all(&ids, |_| true)?;
                if found.is_empty() {
                    return Err(missing("the process holds no BPF program, and no link to one"));
                }
                Ok(found)
            }
            ProgramSelector::All => {
                let found = self.open_all(&bpf::program_ids().map_err(permission)?, |_| true)?;
                if found.is_empty() {
                    return Err(missing("no BPF program is loaded"));
                }
                Ok(found)
            }
            ProgramSelector::Tag(tag) => {
                let tag = hexadecimal(tag);
                let found = self.open_all(&bpf::program_ids().map_err(permission)?, |f| f.tag == tag)?;
                if found.is_empty() {
                    return Err(missing("no BPF program has this tag"));
                }
                Ok(found)
            }
            ProgramSelector::Name(pattern) => self.named(pattern),
        }
    }

    fn named(&mut self, pattern: &Pattern) -> Result<Vec<Found>, Error> {
        let mut names = Vec::new();
        let found = self.open_all(&bpf::program_ids().map_err(permission)?, |found| {
            // The 15 characters that the kernel keeps are what other tools show.
            let named = pattern.matches(&found.name) || pattern.matches(&found.kept);
            if !named {
                names.push(found.name.clone());
            }
            named
        })?;
        if !found.is_empty() {
            return Ok(found);
        }
        let hint = if pattern.is_glob() {
            ": the pattern matches none".into()
        } else {
            suggest::hint(&suggest::near(pattern.as_str(), names.iter().map(String::as_str)))
        };
        Err(Error::Unknown { kind: TargetKind::Program, name: pattern.to_string(), hint })
    }

    fn open_all(&mut self, ids: &[u32], mut keep: impl FnMut(&Found) -> bool) -> Result<Vec<Found>, Error> {
        let mut all = Vec::new();
        for id in ids {
            // One that has gone meanwhile is no match.
            all.extend(self.open(*id)?.filter(&mut keep));
        }
        Ok(all)
    }

    /// One program with its functions.
    fn open(&mut self, id: u32) -> Result<Option<Found>, Error> {
        let Some(handle) = bpf::Program::by_id(id).map_err(permission)? else { return Ok(None) };
        let details = handle.details()?;
        let btf = self.types(details.btf_id);
        let main = match (&btf, details.func_info.first()) {
            (Ok(btf), Some((_, main))) => btf.get(TypeId(*main)).ok().and_then(|t| t.name()),
            _ => None,
        };
        let mut found = Found {
            id,
            name: main.map_or_else(|| details.name.clone(), str::to_string),
            kept: details.name,
            kind: kind_name(&self.kernel.btf, details.ty),
            tag: hexadecimal(&details.tag),
            functions: Err(String::new()),
        };
        found.functions = match (btf, details.func_info.is_empty(), details.jited_len) {
            (Err(reason), ..) => Err(reason),
            (Ok(_), true, _) => {
                Err("it was loaded without func_info, so that nothing tells where its functions begin".into())
            }
            (Ok(_), _, 0) => Err("it is interpreted: only compiled programs can be traced (sysctl net.core.bpf_jit_enable=1, and load it again)".into()),
            (Ok(btf), ..) => {
                let (name, kind, tag) = (found.name.clone(), found.kind.clone(), found.tag.clone());
                let runs_at = details.attached_to.and_then(|at| {
                    Some(self.kernel.btf.get(TypeId(at)).ok()?.name()?.to_string())
                });
                let program = Arc::new(TracedProgram { id, name, kind, tag, runs_at, btf, handle });
                let ids = details.func_info.iter().map(|(_, id)| TypeId(*id)).enumerate();
                let functions = ids.map(|(n, id)| {
                    let address = details.addresses.get(n).copied().filter(|address| *address != 0);
                    self.function(&program, n == 0, address, id)
                });
                functions.collect::<Result<Vec<Target>, Error>>().map_err(|e| format!("its types cannot be read: {e}"))
            }
        };
        Ok(Some(found))
    }

    fn types(&mut self, id: u32) -> Result<Arc<Btf>, String> {
        if id == 0 {
            return Err(
                "it was loaded without BTF, and nothing can be attached to a program without types".into()
            );
        }
        self.btfs
            .entry(id)
            .or_insert_with(|| {
                let blob = bpf::btf_bytes(id).map_err(|e| e.to_string())?;
                let blob = blob.ok_or("its BTF is gone")?;
                Btf::from_bytes(blob).map(Arc::new).map_err(|e| format!("its BTF cannot be read: {e}"))
            })
            .clone()
    }

    fn function(
        &mut self,
        program: &Arc<TracedProgram>,
        is_main: bool,
        address: Option<u64>,
        id: TypeId,
    ) -> Result<Target, Error> {
        let btf = &program.btf;
        let proto = btf.proto(id)?;
        let vmlinux = &self.kernel.btf;
        let known =
            self.contexts.entry(program.kind.clone()).or_insert_with(|| contexts(vmlinux, &program.kind));
        let mut contexts = Vec::new();
        for (index, param) in proto.params.iter().enumerate() {
            let strukt = pointee_name(btf, param.ty);
            if let Some((_, pointer)) = known.iter().find(|(name, _)| Some(name.as_str()) == strukt) {
                contexts.push((index, *pointer));
            }
        }
        Ok(Target {
            kind: TargetKind::Program,
            name: btf.get(id)?.name().unwrap_or("?").to_string(),
            module: None,
            program: Some(ProgramFunction { program: Arc::clone(program), is_main, address, contexts }),
            btf_id: id,
            params: proto.params,
            ret: proto.ret,
            variadic: proto.variadic,
            address: None,
            syscall: None,
        })
    }
}

/// `0123…`, two digits a byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Why the kernel attaches nothing to a function of a program, out of its log (`bpf_check_attach_target`,
/// kernel/bpf/verifier.c).
pub(crate) fn refusal(log: &str) -> Option<&'static str> {
    const REASONS: [(&str, &str); 6] = [
        (
            "Cannot recursively attach",
            "it is a tracing program itself, and this kernel attaches none to another",
        ),
        (
            "Cannot nest tracing program attach more than once",
            "it is a tracing program at another program, and the kernel attaches none to such",
        ),
        ("Can attach to only JITed progs", "it is interpreted: only compiled programs can be traced"),
        ("only be attached to another program annotated with BTF", "it was loaded without BTF"),
        ("Target program bound device mismatch", "it is bound to a network device"),
        ("exception callback", "it is an exception callback, to which the kernel attaches nothing"),
    ];
    REASONS.iter().find(|(said, _)| log.contains(said)).map(|(_, reason)| *reason)
}

/// Listing and opening programs takes CAP_SYS_ADMIN, whatever else one has.
pub(crate) fn permission(error: bpf::Error) -> Error {
    if error.is_permission() {
        return Error::Target {
            target: "-p".into(),
            reason: format!(
                "{error}: the kernel hands out other people's BPF programs only to root (CAP_SYS_ADMIN)"
            ),
        };
    }
    Error::Sys(error)
}

/// The program at a pin, or why there is none.
fn pinned(path: &Path) -> Result<u32, String> {
    if let Err(error) = std::fs::metadata(path) {
        let unmounted = path.starts_with("/sys/fs/bpf") && !has_bpf_file_system();
        let why = if unmounted {
            "; no BPF file system is mounted (mount -t bpf bpf /sys/fs/bpf), so nothing is pinned there"
        } else {
            ""
        };
        return Err(format!("{error}{why}"));
    }
    match bpf::pinned_program_id(path) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err("what is pinned there is neither a program nor a link to one".into()),
        // `bpf_inode_type`, kernel/bpf/inode.c: any file that is not of a BPF file system.
        Err(error) if error.is_permission() => {
            Err("it is no pin of a BPF file system, or not ours to open (Permission denied)".into())
        }
        Err(error) => Err(shown(&error.to_string())),
    }
}

fn has_bpf_file_system() -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|l| l.split(' ').nth(2) == Some("bpf"))
}

fn of_process(pid: u32) -> Result<Vec<u32>, String> {
    bpf::program_ids_of_process(pid).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such process".to_string(),
        _ => format!("read /proc/{pid}/fdinfo: {error}"),
    })
}

/// The kernel's own word for a type of program, in lower case.
fn kind_name(vmlinux: &Btf, ty: u32) -> String {
    const PREFIX: &str = "BPF_PROG_TYPE_";
    let named = vmlinux.find(Kind::Enum, "bpf_prog_type").and_then(|id| {
        let types = vmlinux.get(id).ok()?;
        let name = types.enumerators().find(|e| e.value == i128::from(ty))?.name;
        Some(name.strip_prefix(PREFIX)?.to_ascii_lowercase())
    });
    named.unwrap_or_else(|| format!("type {ty}"))
}

/// An extension replaces a function of a program of any type, and takes what that takes.
const EXTENSION: &str = "ext";

/// What a type of program is given: the structure's name that its source has for it, and a pointer to the one that the
/// kernel really passes (`struct bpf_ctx_convert`, kernel/bpf/btf.c: members in pairs). Empty where the context is no
/// structure; an extension may be given any.
fn contexts(vmlinux: &Btf, kind: &str) -> Vec<(String, TypeId)> {
    let Some(pairs) = vmlinux.find(Kind::Struct, "bpf_ctx_convert").and_then(|id| vmlinux.get(id).ok())
    else {
        return Vec::new();
    };
    let members: Vec<(&str, TypeId)> =
        pairs.members().filter_map(|m| Some((m.name?, vmlinux.resolve(m.ty)))).collect();
    let wanted = format!("BPF_PROG_TYPE_{}", kind.to_ascii_uppercase());
    let mut found: Vec<(String, TypeId)> = Vec::new();
    for (name, theirs) in &members {
        let Some(ty) = name.strip_suffix("_prog").filter(|ty| kind == EXTENSION || *ty == wanted) else {
            continue;
        };
        let strukt = vmlinux.get(*theirs).ok().filter(|t| t.kind() == Kind::Struct).and_then(|t| t.name());
        let kernels = members.iter().find(|(name, _)| name.strip_suffix("_kern") == Some(ty)).map(|m| m.1);
        let (Some(strukt), Some(kernels)) = (strukt, kernels) else { continue };
        if found.iter().any(|(name, _)| name == strukt) {
            continue;
        }
        let pointer =
            vmlinux.ids_of(Kind::Ptr).find(|id| vmlinux.get(*id).is_ok_and(|p| p.target() == Some(kernels)));
        found.extend(pointer.map(|pointer| (strukt.to_string(), pointer)));
    }
    found
}

/// Tag of the structure that a pointer leads to.
fn pointee_name(btf: &Btf, ty: TypeId) -> Option<&str> {
    let pointer = btf.get(btf.resolve(ty)).ok().filter(|t| t.kind() == Kind::Ptr)?;
    let strukt = btf.get(btf.resolve(pointer.target()?)).ok()?;
    matches!(strukt.kind(), Kind::Struct | Kind::Fwd).then(|| strukt.name()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_what_the_kernel_passes() {
        let kernel = match Kernel::running() {
            Ok(kernel) => kernel,
            Err(error) => return println!("SKIP: {error}"),
        };
        let types = |kind: &str| -> Vec<(String, String)> {
            let found = contexts(&kernel.btf, kind);
            found.into_iter().map(|(name, pointer)| (name, kernel.btf.type_name(pointer))).collect()
        };
        let pair = |theirs: &str, kernels: &str| (theirs.to_string(), format!("struct {kernels} *"));
        assert_eq!(types("sched_cls"), [pair("__sk_buff", "sk_buff")]);
        assert_eq!(types("xdp"), [pair("xdp_md", "xdp_buff")]);
        assert!(types("tracepoint").is_empty() && types("no_such_type").is_empty());
        let any = types("ext");
        assert!(
            any.contains(&pair("xdp_md", "xdp_buff")) && any.contains(&pair("__sk_buff", "sk_buff")),
            "{any:?}"
        );
    }

    #[test]
    fn types_of_programs_have_the_kernels_names() {
        let kernel = match Kernel::running() {
            Ok(kernel) => kernel,
            Err(error) => return println!("SKIP: {error}"),
        };
        assert_eq!(kind_name(&kernel.btf, 1), "socket_filter");
        assert_eq!(kind_name(&kernel.btf, 26), "tracing");
        assert_eq!(kind_name(&kernel.btf, 9999), "type 9999");
    }

    #[test]
    fn refusals_are_said_in_terms_of_the_program() {
        let log = "Cannot recursively attach\nprocessed 0 insns (limit 1000000)\n";
        assert!(refusal(log).is_some_and(|r| r.contains("tracing program itself")));
        assert_eq!(refusal("invalid bpf_context access off=8 size=8\n"), None);
    }
}
