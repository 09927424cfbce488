//! What the running kernel is like: its types, and what they tell of its abilities.
//!
//! A helper that the kernel has is an enumerator of `enum bpf_func_id` in its own BTF, so that asking costs no system
//! call and no version number is ever compared.

use crate::error::Error;
use crate::modules::Modules;
use crate::notes::Views;
use crate::target::Target;
use btf::{Btf, Kind, TypeId};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kernel's types and the few facts that every program needs.
#[derive(Debug)]
pub struct Kernel {
    /// Type information of vmlinux; dropped once the plan is made.
    pub btf: Arc<Btf>,
    /// Type information of the loaded modules.
    pub modules: Modules,
    /// Where the fields of a task lie.
    pub(crate) task: TaskFields,
    /// `bpf_get_current_task_btf` (5.11): fields of the current task by plain loads.
    pub(crate) current_task_btf: bool,
    /// Whether it is the one that we run on, so that its files tell of it too.
    pub(crate) is_running: bool,
    /// Structures that what is shown behind pointers needs by name; found when first needed.
    views: OnceCell<Views>,
}

/// Kernel functions for programs that run at both ends of a call, by their ids in vmlinux's BTF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionKfuncs {
    /// `bpf_session_is_return`: which end.
    pub is_return: TypeId,
    /// `bpf_session_cookie`: 8 bytes of the call's own, zero at first.
    pub cookie: TypeId,
}

/// Ways to attach that newer kernels have, as far as their BTF tells; whether they are granted shows when they are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Newer {
    /// fsession (7.0).
    pub fsession: Option<SessionKfuncs>,
    /// fentry and fsession for many functions by one program (7.2).
    pub tracing_multi: Option<SessionKfuncs>,
    /// kprobe_multi (5.18) with cookies.
    pub kprobe_multi: bool,
    /// kprobe_multi as a session (6.10).
    pub kprobe_session: Option<SessionKfuncs>,
}

/// Offsets in `struct task_struct`, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskFields {
    pub pid: u32,
    pub tgid: u32,
    pub comm: u32,
}

impl Kernel {
    /// Where the kernel shows its BTF.
    pub const BTF_PATH: &'static str = "/sys/kernel/btf/vmlinux";

    /// Reads the running kernel's.
    pub fn running() -> Result<Kernel, Error> {
        let path = Path::new(Kernel::BTF_PATH);
        let btf = opened(path)?;
        let release = || std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let unsigned = has_unsigned_char(&btf, release);
        let mut kernel = Kernel::new(btf.with_unsigned_char(unsigned), path.parent().unwrap_or(path))?;
        kernel.is_running = true;
        Ok(kernel)
    }

    /// Reads a kernel's BTF from a file.
    pub fn from_btf_at(path: &Path) -> Result<Kernel, Error> {
        // Modules' types lie beside those of vmlinux.
        Kernel::new(opened(path)?, path.parent().unwrap_or(path))
    }

    /// Takes facts from BTF; `modules` is the folder where that of modules lies.
    pub fn new(btf: Btf, modules: &Path) -> Result<Kernel, Error> {
        let task = btf
            .find(Kind::Struct, "task_struct")
            .ok_or_else(|| Error::Kernel { what: "struct task_struct".into() })?;
        let task = TaskFields {
            pid: offset(&btf, task, "pid")?,
            tgid: offset(&btf, task, "tgid")?,
            comm: offset(&btf, task, "comm")?,
        };
        let has = |name| btf.enum_has("bpf_func_id", name).is_some();
        if !has("BPF_FUNC_ringbuf_reserve") {
            return Err(Error::Kernel { what: "BPF ring buffer".into() });
        }
        let current_task_btf = has("BPF_FUNC_get_current_task_btf");
        let btf = Arc::new(btf);
        let modules = Modules::new(modules, Arc::clone(&btf));
        Ok(Kernel { btf, modules, task, current_task_btf, is_running: false, views: OnceCell::new() })
    }
}

impl Kernel {
    /// What the kernel's BTF tells of newer ways to attach.
    pub(crate) fn newer(&self) -> Newer {
        let wanted = [
            (Kind::Enum, "bpf_attach_type"),
            (Kind::Func, "bpf_session_is_return"),
            (Kind::Func, "bpf_session_cookie"),
            // The attach type is there without CONFIG_FPROBE too (Debian's 6.1), the function that it rests on is not.
            (Kind::Func, "register_fprobe_ips"),
        ];
        let found = self.btf.find_many(&wanted);
        let &[Some(attach_types), is_return, cookie, fprobe] = found.as_slice() else {
            return Newer::default();
        };
        let Ok(attach_types) = self.btf.get(attach_types) else { return Newer::default() };
        let has = |name: &str| attach_types.enumerators().any(|e| e.name == name);
        let kfuncs = is_return.zip(cookie).map(|(is_return, cookie)| SessionKfuncs { is_return, cookie });
        Newer {
            fsession: kfuncs.filter(|_| has("BPF_TRACE_FSESSION")),
            tracing_multi: kfuncs.filter(|_| has("BPF_TRACE_FSESSION_MULTI")),
            kprobe_multi: fprobe.is_some() && has("BPF_TRACE_KPROBE_MULTI"),
            kprobe_session: kfuncs.filter(|_| fprobe.is_some() && has("BPF_TRACE_KPROBE_SESSION")),
        }
    }

    /// The types that a target's ids are of: its program's, its module's, or vmlinux's.
    pub fn types_of(&self, target: &Target) -> Result<Arc<Btf>, Error> {
        if let Some(function) = &target.program {
            return Ok(Arc::clone(&function.program.btf));
        }
        match &target.module {
            Some(module) if target.address.is_none() => self.modules.types(module),
            _ => Ok(Arc::clone(&self.btf)),
        }
    }

    pub(crate) fn views(&self) -> &Views {
        self.views.get_or_init(|| Views::of(&self.btf))
    }
}

fn opened(path: &Path) -> Result<Btf, Error> {
    if let Err(e) = std::fs::metadata(path) {
        return Err(Error::NoBtf { path: PathBuf::from(path), reason: e.to_string() });
    }
    Ok(Btf::open(path)?)
}

/// Whether plain `char` is unsigned: the kernel is built with `-funsigned-char` from 6.2 on. Its BTF tells where it tells the sign of
/// `signed char`, and else the release.
fn has_unsigned_char(btf: &Btf, release: impl FnOnce() -> String) -> bool {
    let found = btf.find_many(&[(Kind::Int, "char"), (Kind::Int, "signed char")]);
    let is_signed = |at: usize| {
        let int = found.get(at).copied().flatten().and_then(|id| btf.get(id).ok()?.int());
        int.is_some_and(|int| int.signed)
    };
    match (is_signed(0), is_signed(1)) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => is_from(&release(), (6, 2)),
    }
}

/// Whether a release (`6.12.57-amd64`) is that one or a later.
fn is_from(release: &str, first: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= first)
}

/// Offset of a member, in whole bytes.
fn offset(btf: &Btf, strukt: TypeId, path: &str) -> Result<u32, Error> {
    Ok(btf.member(strukt, path)?.bit_offset / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared() {
        for (release, is) in
            [("6.2.0", true), ("6.12.57+deb13-amd64", true), ("7.0-rc1", true), ("10.1", true)]
        {
            assert_eq!(is_from(release, (6, 2)), is, "{release}");
        }
        for release in ["6.1.0-40-cloud-amd64", "5.10.0", "", "odd", "6"] {
            assert!(!is_from(release, (6, 2)), "{release}");
        }
    }

    #[test]
    fn the_sign_of_char_is_told_by_btf_or_the_release() {
        let btf = |char: bool, signed: bool| {
            let mut b = btf::Builder::new();
            b.int("char", 1, char);
            b.int("signed char", 1, signed);
            Btf::from_bytes(b.finish()).expect("BTF")
        };
        let unasked = || panic!("BTF tells");
        assert!(!has_unsigned_char(&btf(true, true), unasked));
        assert!(has_unsigned_char(&btf(false, true), unasked));
        assert!(has_unsigned_char(&btf(false, false), || "6.2.1".into()));
        assert!(!has_unsigned_char(&btf(false, false), || "6.1.9".into()));
    }
}
