//! Targets of a kernel and two modules made here.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::list::list;
use crate::plan::Plan;
use crate::request::{Mode, Request};
use crate::{Filter, Method};
use btf::{Builder, Linkage, NewMember};

/// A kernel of a few functions, in a folder with the modules `alpha` and `beta`.
fn kernel() -> (tempfile::TempDir, Kernel) {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let char = b.int("char", 1, true);
    let long = b.int("long int", 8, true);
    let comm = b.array(char, int, 16);
    let members =
        [NewMember::at("pid", int, 0), NewMember::at("tgid", int, 4), NewMember::at("comm", comm, 8)];
    b.strukt("task_struct", 24, &members);
    b.enumeration("bpf_func_id", 4, false, &[("BPF_FUNC_ringbuf_reserve", 131)]);
    let big = b.strukt("big", 24, &[NewMember::at("a", long, 0)]);
    let data = b.ptr(TypeId::VOID);
    let plain = b.func_proto(int, &[("a", int)]);
    b.func("plain", plain, Linkage::Static);
    let variadic = b.func_proto(int, &[("fmt", data), ("", TypeId::VOID)]);
    b.func("variadic", variadic, Linkage::Static);
    let by_value = b.func_proto(int, &[("b", big)]);
    b.func("by_value", by_value, Linkage::Static);
    let returns = b.func_proto(big, &[]);
    b.func("returns", returns, Linkage::Static);
    // A prototype that is none, and an argument without a size.
    b.func("odd", int, Linkage::Static);
    let unsized_ = b.fwd("unsized", false);
    let no_size = b.func_proto(int, &[("u", unsized_)]);
    b.func("no_size", no_size, Linkage::Static);
    // Two of one name with unlike prototypes, two with the same.
    let other = b.func_proto(int, &[("l", long)]);
    b.func("unlike", plain, Linkage::Static);
    b.func("unlike", other, Linkage::Static);
    b.func("alike", plain, Linkage::Static);
    b.func("alike", plain, Linkage::Static);
    b.func("shared", plain, Linkage::Static);
    let tp = b.func_proto(TypeId::VOID, &[("", data), ("", int)]);
    let tp = b.ptr(tp);
    b.typedef("btf_trace_tick", tp);
    let vmlinux = b.finish();
    let base = Btf::from_bytes(vmlinux.clone()).unwrap();

    let module = |functions: &[&str], tracepoint: &str| {
        let mut b = Builder::split(&base);
        let device = b.strukt("device_of_the_module", 8, &[NewMember::at("n", long, 0)]);
        let pointer = b.ptr(device);
        let color = b.enumeration("color", 4, false, &[("RED", 0), ("GREEN", 1)]);
        let proto = b.func_proto(color, &[("dev", pointer), ("n", int)]);
        for name in functions {
            b.func(name, proto, Linkage::Static);
        }
        let tp = b.func_proto(TypeId::VOID, &[("", data), ("", pointer)]);
        let tp = b.ptr(tp);
        b.typedef(&format!("btf_trace_{tracepoint}"), tp);
        b.finish()
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("vmlinux", &vmlinux);
    write("alpha", &module(&["alpha_open", "both", "shared"], "alpha_tick"));
    write("beta", &module(&["beta_open", "both"], "beta_tick"));
    write("broken", b"no BTF at all");
    let kernel = Kernel::from_btf_at(&folder.path().join("vmlinux")).unwrap();
    (folder, kernel)
}

fn spec(text: &str, everywhere: bool) -> TargetSpec {
    TargetSpec::new(TargetKind::Function, text, everywhere).unwrap()
}

fn labels(kernel: &Kernel, text: &str, everywhere: bool) -> Vec<String> {
    resolve(kernel, &[spec(text, everywhere)]).unwrap().targets.iter().map(Target::label).collect()
}

fn refusal(kernel: &Kernel, text: &str) -> String {
    resolve(kernel, &[spec(text, false)]).unwrap_err().to_string()
}

#[test]
fn names_are_looked_for_in_modules_when_the_kernel_has_them_not() {
    let (_folder, kernel) = kernel();
    assert_eq!(labels(&kernel, "alpha_open", false), ["alpha:alpha_open"]);
    assert_eq!(labels(&kernel, "both", false), ["alpha:both", "beta:both"]);
    assert_eq!(labels(&kernel, "shared", false), ["shared"], "the kernel itself has it");
    assert_eq!(labels(&kernel, "shared", true), ["shared", "alpha:shared"]);
    assert_eq!(labels(&kernel, "alpha:shared", false), ["alpha:shared"]);
    assert_eq!(labels(&kernel, "vmlinux:shared", false), ["shared"]);
}

#[test]
fn globs_cover_modules_when_asked_to() {
    let (_folder, kernel) = kernel();
    assert!(
        resolve(&kernel, &[spec("*_open", false)]).unwrap_err().to_string().contains("--kfunc-all-kmods")
    );
    assert_eq!(labels(&kernel, "*_open", true), ["alpha:alpha_open", "beta:beta_open"]);
    assert_eq!(labels(&kernel, "alpha:*", false), ["alpha:alpha_open", "alpha:both", "alpha:shared"]);
    assert_eq!(labels(&kernel, "*a:*_open", false), ["alpha:alpha_open", "beta:beta_open"]);
}

#[test]
fn what_is_attached_a_second_time_has_probes_of_its_own() {
    let (_folder, kernel) = kernel();
    let mut request = Request {
        targets: vec![spec("beta:beta_open", false)],
        programs: Vec::new(),
        mode: Mode::Both,
        filter: Filter::default(),
        expressions: Default::default(),
        force: false,
        path: None,
        stack: false,
        branches: false,
        string_size: 64,
        pointees: true,
        ring_size: 1 << 16,
    };
    let mut plan = Plan::new(&kernel, &request).unwrap();
    assert_eq!((plan.probes.len(), plan.again(1), plan.again(9)), (2, Some(3), None));
    let ends: Vec<_> = plan.probes.iter().map(|p| (p.method, p.at_exit, p.pair)).collect();
    let (fentry, fexit, kprobe) = (Method::Fentry, Method::Fexit, Method::Kprobe);
    let planned = [(fentry, false, Some(1)), (fexit, true, Some(0))];
    let again = [(kprobe, false, Some(3)), (kprobe, true, Some(2))];
    assert_eq!(ends, [planned, again].concat());
    request.mode = Mode::Exit;
    let mut plan = Plan::new(&kernel, &request).unwrap();
    assert_eq!((plan.again(0), plan.probes[1].pair, plan.probes[1].method), (Some(1), None, kprobe));
}

#[test]
fn a_modules_types_read_right() {
    let (_folder, kernel) = kernel();
    let targets = vec![spec("beta:beta_open", false)];
    let request = Request {
        targets,
        programs: Vec::new(),
        mode: Mode::Exit,
        filter: Filter::default(),
        expressions: Default::default(),
        force: false,
        path: None,
        stack: false,
        branches: false,
        string_size: 64,
        pointees: true,
        ring_size: 1 << 16,
    };
    let plan = Plan::new(&kernel, &request).unwrap();
    let probe = &plan.probes[0];
    assert_eq!((probe.method, probe.target.module.as_deref()), (Method::Fexit, Some("beta")));
    assert_eq!(probe.layout.args[0].type_name, "struct device_of_the_module *");
    let ret = probe.layout.ret.as_ref().unwrap();
    let mut out = Vec::new();
    ret.shape.text(&1u32.to_le_bytes(), &mut out);
    assert_eq!((ret.type_name.as_str(), String::from_utf8(out).unwrap().as_str()), ("enum color", "GREEN"));
    assert_eq!(
        probe.target.prototype(&kernel).unwrap(),
        "enum color beta_open(struct device_of_the_module *dev, int n)"
    );
}

#[test]
fn tracepoints_of_modules_are_found_alike() {
    let (_folder, kernel) = kernel();
    let tick = |text: &str, everywhere| {
        let spec = TargetSpec::new(TargetKind::Tracepoint, text, everywhere).unwrap();
        resolve(&kernel, &[spec]).map(|r| r.targets.iter().map(Target::label).collect::<Vec<_>>())
    };
    assert_eq!(tick("alpha_tick", false).unwrap(), ["alpha:alpha_tick"]);
    assert_eq!(tick("*tick", false).unwrap(), ["tick"]);
    assert_eq!(tick("*tick", true).unwrap(), ["tick", "alpha:alpha_tick", "beta:beta_tick"]);
    assert_eq!(tick("timer:tick", false).unwrap(), ["tick"], "a system, which cannot be checked here");
    assert!(tick("alpha:tick", false).unwrap_err().to_string().contains("the kernel itself has it"));
    assert!(tick("timer:tikc", false).unwrap_err().to_string().contains("no module timer is loaded"));
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let (_folder, kernel) = kernel();
    assert!(refusal(&kernel, "alpha:beta_open").contains("in alpha"));
    assert!(refusal(&kernel, "alpha:alpha_opne").contains("did you mean alpha_open?"));
    assert!(refusal(&kernel, "alpha:plain").contains("the kernel itself has it: btrace -k plain"));
    assert!(refusal(&kernel, "alhpa:x").contains("no module alhpa is loaded; did you mean alpha?"));
    assert!(refusal(&kernel, "odd").contains("odd: its prototype cannot be read"));
}

#[test]
fn one_name_twice_is_traced_once_and_said_when_the_types_differ() {
    let (_folder, kernel) = kernel();
    let resolved = resolve(&kernel, &[spec("{alike,unlike}", false)]).unwrap();
    let names: Vec<&str> = resolved.targets.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["unlike", "alike"]);
    assert_eq!(resolved.refused.len(), 1);
    assert!(
        resolved.refused[0].1.contains("may be those of \"int unlike(long int l)\""),
        "{:?}",
        resolved.refused
    );
}

#[test]
fn no_odd_function_ends_a_listing_or_a_glob() {
    let (_folder, kernel) = kernel();
    let all = list(&kernel, &spec("*", true)).unwrap();
    assert_eq!(all.len(), 16);
    let why = |name: &str| {
        all.iter()
            .find(|l| l.prototype.contains(&format!("{name}(")) || l.prototype == name)
            .and_then(|l| l.obstacle.clone())
    };
    assert_eq!(why("plain"), None);
    assert!(why("variadic").unwrap().contains("variable number"));
    assert!(why("by_value").unwrap().contains("struct big b is 24 bytes"));
    assert!(why("returns").unwrap().contains("returns struct big by value"));
    assert!(why("no_size").unwrap().contains("no size"));
    assert_eq!(all.iter().filter(|l| l.obstacle.is_some()).count(), 5);
    let request = Request {
        targets: vec![spec("*", true)],
        programs: Vec::new(),
        mode: Mode::Exit,
        filter: Filter::default(),
        expressions: Default::default(),
        force: false,
        path: None,
        stack: false,
        branches: false,
        string_size: 64,
        pointees: true,
        ring_size: 1 << 16,
    };
    let plan = Plan::new(&kernel, &request).unwrap();
    // What no trampoline serves is left to kprobes.
    let kprobes = plan.probes.iter().filter(|p| p.method == Method::Kprobe).count();
    assert_eq!((plan.probes.len(), kprobes, plan.refused.len()), (12, 3, 3));
}
