//! A kernel with a few tracepoints, and a tracefs made of folders.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::request::{Scope, TargetKind};
use btf::{Builder, NewMember};

struct Machine {
    folder: tempfile::TempDir,
    kernel: Kernel,
}

/// Tracepoints in vmlinux, and `m_open` in the module `m`; events of them all but `bare`, and one without a tracepoint.
fn machine() -> Machine {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let char = b.int("char", 1, true);
    let comm = b.array(char, int, 16);
    let members =
        [NewMember::at("pid", int, 0), NewMember::at("tgid", int, 4), NewMember::at("comm", comm, 8)];
    b.strukt("task_struct", 24, &members);
    b.enumeration("bpf_func_id", 4, false, &[("BPF_FUNC_ringbuf_reserve", 131)]);
    let tracepoint = |b: &mut Builder, names: &[&str]| {
        let data = b.ptr(TypeId::VOID);
        let proto = b.func_proto(TypeId::VOID, &[("", data)]);
        let pointer = b.ptr(proto);
        for name in names {
            b.typedef(&format!("btf_trace_{name}"), pointer);
        }
    };
    tracepoint(&mut b, &["sched_switch", "sched_wakeup", "kmalloc", "sys_enter", "bare"]);
    let vmlinux = b.finish();
    let base = Btf::from_bytes(vmlinux.clone()).unwrap();
    let mut b = Builder::split(&base);
    tracepoint(&mut b, &["m_open"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vmlinux"), &vmlinux).unwrap();
    std::fs::write(folder.path().join("m"), b.finish()).unwrap();
    let kernel = Kernel::from_btf_at(&folder.path().join("vmlinux")).unwrap();
    for event in [
        "sched/sched_switch",
        "sched/sched_wakeup",
        "kmem/kmalloc",
        "raw_syscalls/sys_enter",
        "syscalls/sys_enter_openat",
        "files/m_open",
        "mine/probe",
    ] {
        std::fs::create_dir_all(folder.path().join("events").join(event)).unwrap();
    }
    std::fs::write(folder.path().join("events/enable"), "0").unwrap();
    Machine { folder, kernel }
}

impl Machine {
    fn find(&self, text: &str, tracefs: bool) -> Result<Option<Vec<String>>, String> {
        let spec = TargetSpec::new(TargetKind::Tracepoint, text, false).unwrap();
        let Scope::Module(system) = &spec.scope else { panic!("{text} names no system") };
        let events = self.folder.path().join("events");
        let found = find_in(&self.kernel, &spec, system, tracefs.then_some(events.as_path()));
        let names = |found: Vec<Found>| {
            let each = found.iter().flat_map(|((module, btf), ids)| {
                let module = module.as_ref().map_or(String::new(), |m| format!("{m}:"));
                ids.iter().map(move |id| format!("{module}{}", name(btf, *id).unwrap()))
            });
            each.collect()
        };
        found.map(|f| f.map(names)).map_err(|e| e.to_string())
    }

    fn right(&self, text: &str) -> Vec<String> {
        self.find(text, true).unwrap().unwrap()
    }

    fn wrong(&self, text: &str) -> String {
        self.find(text, true).unwrap_err()
    }
}

#[test]
fn tracefs_tells_which_tracepoints_a_system_has() {
    let machine = machine();
    assert_eq!(machine.right("sched:sched_switch"), ["sched_switch"]);
    assert_eq!(machine.right("sched:*"), ["sched_switch", "sched_wakeup"]);
    assert_eq!(machine.right("{kmem,sched}:*{malloc,switch}"), ["sched_switch", "kmalloc"]);
    assert_eq!(
        machine.right("files:m_open"),
        ["m:m_open"],
        "a module's tracepoint, a system of another name"
    );
    assert_eq!(machine.right("*:sys_enter*"), ["sys_enter"]);
}

#[test]
fn a_wrong_system_is_told_with_the_right_one() {
    let machine = machine();
    assert!(
        machine.wrong("kmem:sched_switch").ends_with("its system is sched: btrace -t sched:sched_switch")
    );
    assert!(machine.wrong("sched:sched_swich").ends_with("did you mean sched_switch?"));
    assert!(machine.wrong("sched:swtich").ends_with("did you mean sched_switch?"));
    assert!(machine.wrong("shced:x").contains("did you mean sched?"));
    assert!(machine.wrong("kmem:bare").ends_with("that tracepoint is in no system: btrace -t bare"));
    assert!(machine.wrong("mine:probe").contains("without a tracepoint"));
    assert!(machine.wrong("sched:x*").ends_with("no tracepoint that the pattern matches"));
    assert!(machine.wrong("nothing_like_it:x").contains("neither a tracepoint system nor a loaded module"));
}

#[test]
fn events_of_system_calls_are_told_apart() {
    let machine = machine();
    let said = machine.wrong("syscalls:sys_enter_openat");
    assert!(
        said.contains("-t raw_syscalls:sys_enter") && said.ends_with("btrace -k __x64_sys_openat"),
        "{said}"
    );
    assert!(machine.wrong("syscalls:*").contains("raw_syscalls:sys_exit"));
}

#[test]
fn without_tracefs_names_decide() {
    let machine = machine();
    let find = |text| machine.find(text, false).unwrap();
    assert_eq!(find("sched:sched_switch"), Some(vec!["sched_switch".into()]));
    assert_eq!(find("kmem:kmalloc"), Some(vec!["kmalloc".into()]));
    assert_eq!(find("sched:*"), Some(vec!["sched_switch".into(), "sched_wakeup".into()]));
    assert_eq!(find("m:sched_switch"), None, "a module of that name is loaded");
    assert_eq!(find("kmem:*"), None);
}

#[test]
fn without_tracefs_a_system_is_not_taken_for_a_module() {
    let machine = machine();
    let wrong = |text: &str| machine.find(text, false).unwrap_err();
    assert!(wrong("sched:nosuch").ends_with("system sched has no such tracepoint"));
    assert!(wrong("sched:sched_swich").ends_with("did you mean sched_switch?"));
    assert!(wrong("sched:swtich").ends_with("did you mean sched_switch?"));
    assert!(wrong("sched:x*").ends_with("no tracepoint that the pattern matches"));
    assert!(wrong("syscalls:sys_enter_openat").ends_with("btrace -k __x64_sys_openat"));
    // No tracepoint's name begins so.
    assert_eq!(machine.find("nothing_like_it:x", false), Ok(None));
}
