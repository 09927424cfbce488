//! BPF programs as targets on the running kernel: finding and listing them, and what is refused. Tracing them is for the
//! lab: not every kernel lets us.

mod common;

use common::{btrace, text};
use std::process::Command;

/// A program with BTF that this process holds: `int a_program_with_a_long_name(u64 *ctx)` with a subprogram `helper_of_it`.
fn program() -> Option<(bpf::Program, bpf::ProgDetails)> {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        eprintln!("SKIP: this kernel shows no types (/sys/kernel/btf/vmlinux)");
        return None;
    }
    bpf::raise_limits();
    let mut types = btf::Builder::new();
    let int = types.int("int", 4, true);
    let long = types.int("unsigned long long", 8, false);
    let ctx = types.ptr(long);
    let main = types.func_proto(int, &[("ctx", ctx)]);
    let main = types.func("a_program_with_a_long_name", main, btf::Linkage::Global);
    let sub = types.func_proto(int, &[("n", int)]);
    let sub = types.func("helper_of_it", sub, btf::Linkage::Static);
    // r1 = 7; call +1; exit; r0 = r1; exit
    let insns = [0x0000_0007_0000_01b7, 0x0000_0001_0000_1085, 0x95, 0x10bf, 0x95];
    let func_info = [[0, main.0], [3, sub.0]];
    let loaded = bpf::load_btf(&types.finish()).and_then(|btf| {
        bpf::Program::load(&bpf::Load {
            btf: Some(std::os::fd::AsFd::as_fd(&btf)),
            func_info: &func_info,
            ..bpf::Load::new("a_program_with_a_long_name", bpf::ProgType::RawTracepoint, &insns)
        })
    });
    match loaded {
        Ok(program) => {
            let details = program.details().expect("details");
            Some((program, details))
        }
        Err(error) if error.is_permission() => {
            eprintln!("SKIP: this machine refuses to load BPF programs: {error}");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn tag(details: &bpf::ProgDetails) -> String {
    details.tag.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn found_by_id_name_tag_and_process() {
    let Some((_program, details)) = program() else { return };
    let (id, pid) = (details.id, std::process::id());
    let about = format!("[bpf:{id} raw_tracepoint a_program_with_a_long_name {}]", tag(&details));
    let main = format!("int a_program_with_a_long_name(unsigned long long *ctx) {about}");
    let sub = format!("int helper_of_it(int n) {about}");
    for (spec, whole) in [
        (format!("{id}"), true),
        (format!("i:{id}"), true),
        ("n:a_program_with_a_long_name".into(), true),
        ("name:a_program_with_*".into(), true),
        ("n:a_program_with_".to_string() + "{a_long_name,nothing}", true),
        // As much of the name as the kernel keeps.
        ("n:a_program_with_".into(), true),
        (format!("t:{}", tag(&details)), true),
        (format!("pid:{pid}"), true),
        ("*".into(), true),
        (format!("{id}:helper_of_it"), false),
        (format!("pid:{pid}:h*"), false),
        ("*:helper_of_it".into(), false),
    ] {
        let output = btrace(&["list", "-p", &spec]);
        let out = text(&output.stdout);
        assert!(output.status.success(), "{spec}: {}", text(&output.stderr));
        let has = |what: &str| out.lines().filter(|l| l.get(14..) == Some(what)).count();
        assert_eq!((has(&main), has(&sub)), (usize::from(whole), 1), "{spec}: {out}");
    }
    let output = btrace(&["--show-func-proto", "-p", &id.to_string()]);
    let main = main.split(" [").next().expect("prototype");
    assert!(text(&output.stdout).starts_with(&format!("{main}; /* bpf:{id} ")), "{}", text(&output.stdout));
    assert_eq!(text(&output.stdout).lines().count(), 1, "what would be traced, and no more");
}

#[test]
fn a_dry_run_shows_the_plan_and_loads_nothing() {
    let Some((_program, details)) = program() else { return };
    let id = details.id;
    let output = btrace(&["--dry-run", "-p", &format!("{id},{id}:helper_of_it,{id}"), "--mode", "entry"]);
    let out = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    for part in [
        format!("a_program_with_a_long_name[bpf:{id}] fentry, "),
        format!("helper_of_it[bpf:{id}] fentry, "),
        " (unsigned long long *)ctx, 8 bytes\n".into(),
        " (int)n, 4 bytes\n".into(),
    ] {
        assert_eq!(out.matches(&part).count(), 1, "{part:?} in {out}");
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let Some((_program, details)) = program() else { return };
    let no_function = format!("{}:no_such_function", details.id);
    let file = tempfile::NamedTempFile::new().expect("file");
    let no_pin = format!("p:{}", file.path().display());
    // A process that has ended, and whose number nobody else has: it is not waited for yet.
    let mut ended = Command::new("true").spawn().expect("spawn");
    let status = ended.wait().expect("wait");
    assert!(status.success());
    let gone = format!("pid:{}", ended.id());
    let mut idle = Command::new("sleep").arg("60").spawn().expect("spawn");
    let holds_none = format!("pid:{}", idle.id());
    let name = "n:a_program_with_a_long_nmae";
    for (spec, why) in [
        ("2147483647", "there is no BPF program with this id"),
        (
            name,
            "no BPF program is named a_program_with_a_long_nmae; did you mean a_program_with_a_long_name?",
        ),
        ("n:no_such_program_*", "no BPF program is named no_such_program_*: the pattern matches none"),
        ("t:0000000000000000", "no BPF program has this tag"),
        ("p:/no/such/pin", "No such file or directory"),
        (no_pin.as_str(), "it is no pin of a BPF file system"),
        (gone.as_str(), "there is no such process"),
        (holds_none.as_str(), "the process holds no BPF program"),
        (
            no_function.as_str(),
            "it has no function no_such_function; it has a_program_with_a_long_name, helper_of_it",
        ),
        ("foo", "n:foo means programs of that name"),
        ("", "an empty name"),
        ("t:12", "16 hexadecimal digits"),
    ] {
        for args in [&["-p", spec][..], &["list", "-p", spec], &["--dry-run", "-p", spec]] {
            let output = btrace(args);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.contains(why) && said.lines().count() == 1, "{args:?}: {said}");
            assert!(output.stdout.is_empty(), "{args:?}");
        }
    }
    idle.kill().expect("kill");
    idle.wait().expect("wait");
}

/// Where the kernel refuses fentry, one line says so; where it does not, a run is traced.
#[test]
fn traced_or_refused_in_one_line() {
    let Some((_program, details)) = program() else { return };
    let output = btrace(&["-p", &details.id.to_string(), "-c", "true"]);
    let said = text(&output.stderr);
    if output.status.success() {
        assert!(said.contains("(1 target)"), "{said}");
        return;
    }
    eprintln!("this kernel refuses to trace programs: {said}");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(said.lines().count(), 1, "{said}");
}
