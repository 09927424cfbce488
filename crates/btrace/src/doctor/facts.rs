//! The questions, one after the other, and what the answers come to.

use super::Verdict;
use super::system::{self, CAPABILITIES, Capabilities};
use crate::branch_records;
use bpf::BranchFilter;
use std::io::ErrorKind;
use std::path::Path;
use trace::Kernel;
use trace::abilities::{self, Answer, Subjects};

/// Yes, no, or not to be told from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ok,
    No,
    Unknown,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its heading.
    pub group: &'static str,
    /// What was asked.
    pub what: String,
    /// The answer.
    pub state: State,
    /// What was found, or the reason.
    pub found: String,
    /// What would change it; `None` when nothing need change.
    pub remedy: Option<String>,
}

/// Collects findings of one group after another.
struct Findings {
    all: Vec<Finding>,
    group: &'static str,
}

impl Findings {
    fn add(&mut self, what: &str, state: State, found: impl Into<String>, remedy: Option<&str>) {
        self.all.push(Finding {
            group: self.group,
            what: what.into(),
            state,
            found: found.into(),
            remedy: remedy.map(str::to_string),
        });
    }
}

/// An attach method: its name, its use, and what it takes.
struct Asked {
    name: &'static str,
    purpose: &'static str,
    takes: &'static str,
    answer: Answer,
}

/// Whether live code can be disassembled: it is found by kallsyms, and read from /proc/kcore or by a BPF program.
fn disassembly(addresses: bool) -> Result<(), String> {
    if !addresses {
        return Err("kallsyms hides the addresses of code".into());
    }
    symbols::Live::open().map(drop).map_err(|unreadable| unreadable.to_string())
}

/// Asks everything.
pub fn ask() -> (Vec<Finding>, Verdict) {
    let limits = Limits::own();
    // Our own alone, as a trace does, lest a limit answer for the kernel.
    bpf::raise_limits();
    let mut findings = Findings { all: Vec::new(), group: "This machine" };
    let capabilities = machine(&mut findings);
    let may = may_use_bpf(capabilities);
    findings.group = "Types";
    let kernel = types(&mut findings);
    let Some(kernel) = kernel else {
        findings.group = "Files and limits";
        files(&mut findings, None, &limits);
        let reason = "there are no types of the kernel to read".to_string();
        let mut works: Vec<_> = ["-k", "-p", "-t", "-c", "--output-stack", "--output-path", "--output-lbr"]
            .map(|o| (o, Err(reason.clone())))
            .into();
        works.push((
            "-d",
            disassembly(symbols::find("_stext").is_ok_and(|all| all.iter().any(|s| s.address != 0))),
        ));
        return (findings.all, Verdict { works });
    };
    findings.group = "Ways to attach";
    let methods = methods(&kernel);
    for asked in &methods {
        let denied = asked.answer.as_ref().err().is_some_and(|r| r.permission);
        match (&asked.answer, &may) {
            (Ok(()), _) => findings.add(asked.name, State::Ok, asked.purpose, None),
            (Err(_), Err(want)) if denied => findings.add(
                asked.name,
                State::Unknown,
                format!("{}: not permitted to try", asked.purpose),
                Some(want),
            ),
            (Err(refusal), _) if denied => findings.add(
                asked.name,
                State::No,
                format!("{}: {refusal}", asked.purpose),
                Some("the privileges are there, so the kernel or a security module of it does not want it"),
            ),
            (Err(refusal), _) => findings.add(
                asked.name,
                State::No,
                format!("{}: {refusal}", asked.purpose),
                Some(asked.takes),
            ),
        }
    }
    findings.group = "What programs can do";
    let ring = programs(&mut findings, &kernel, &may);
    findings.group = "Files and limits";
    let files = files(&mut findings, Some(&kernel), &limits);
    let verdict = verdict(&methods, &may, &ring, &files, &kernel);
    (findings.all, verdict)
}

/// Release, privileges, lockdown, namespaces.
fn machine(findings: &mut Findings) -> Capabilities {
    let release = system::read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "of unknown release".into());
    let arch = std::env::consts::ARCH;
    match arch {
        "x86_64" => findings.add("kernel", State::Ok, format!("Linux {release}, {arch}"), None),
        _ => findings.add(
            "kernel",
            State::Unknown,
            format!("Linux {release}, {arch}"),
            Some("btrace has been tried on x86_64 only"),
        ),
    }
    let cpus = system::read("/sys/devices/system/cpu/online").unwrap_or_else(|_| "?".into());
    let possible = system::read("/sys/devices/system/cpu/possible").unwrap_or_else(|_| "?".into());
    findings.add("CPUs", State::Ok, format!("{cpus} online, {possible} possible"), None);
    let capabilities = Capabilities::own();
    for (number, name, purpose) in CAPABILITIES {
        let implied = matches!(name, "CAP_BPF" | "CAP_PERFMON") && capabilities.missing_for_bpf().is_empty();
        match capabilities.has(number) {
            Some(true) => findings.add(name, State::Ok, purpose, None),
            Some(false) if implied => {
                findings.add(name, State::Ok, format!("{purpose}, by CAP_SYS_ADMIN"), None)
            }
            Some(false) => findings.add(name, State::No, purpose, Some(&capabilities.gain("it"))),
            None => findings.add(
                name,
                State::Unknown,
                format!("{purpose}; /proc/self/status does not tell"),
                None,
            ),
        }
    }
    match system::first_user_namespace() {
        Some(true) => findings.add("user namespace", State::Ok, "the machine's first", None),
        Some(false) => findings.add(
            "user namespace",
            State::No,
            "not the machine's first: capabilities here do not count for BPF",
            Some("run btrace outside of it (in a privileged container, or on the host)"),
        ),
        None => findings.add("user namespace", State::Unknown, "/proc/self/uid_map cannot be read", None),
    }
    match trace::own_pid_namespace() {
        Ok(None) => findings.add("pid namespace", State::Ok, "the machine's first", None),
        Ok(Some(_)) => findings.add(
            "pid namespace",
            State::Ok,
            "not the machine's first: --filter-pid and --filter-tid take numbers as seen from here",
            None,
        ),
        Err(error) => findings.add("pid namespace", State::Unknown, error.to_string(), None),
    }
    match system::read("/sys/kernel/security/lockdown") {
        Ok(text) => match system::chosen(&text) {
            Some("confidentiality") => findings.add(
                "lockdown",
                State::No,
                "confidentiality: no BPF program may read kernel memory",
                Some("boot with lockdown=integrity or without it (Secure Boot may ask for it)"),
            ),
            Some(mode) => findings.add("lockdown", State::Ok, mode, None),
            None => findings.add("lockdown", State::Unknown, format!("{text:?}"), None),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => findings.add(
            "lockdown",
            State::Unknown,
            "not in this kernel, or securityfs is not mounted on /sys/kernel/security",
            None,
        ),
        Err(error) => findings.add("lockdown", State::Unknown, error.to_string(), None),
    }
    capabilities
}

/// Whether the kernel lets no BPF program read its memory (LOCKDOWN_BPF_READ_KERNEL, include/linux/security.h).
fn is_locked_down() -> bool {
    let text = system::read("/sys/kernel/security/lockdown");
    text.is_ok_and(|text| system::chosen(&text) == Some("confidentiality"))
}

/// Whether BPF may be used at all; if not, what is wanting.
fn may_use_bpf(capabilities: Capabilities) -> Result<(), String> {
    let missing = capabilities.missing_for_bpf();
    if !missing.is_empty() {
        return Err(capabilities.gain(&missing.join(" and ")));
    }
    match system::first_user_namespace() {
        Some(false) => Err("run btrace in the machine's first user namespace".into()),
        _ => Ok(()),
    }
}

/// The kernel's types, and its modules'.
fn types(findings: &mut Findings) -> Option<Kernel> {
    let kernel = match Kernel::running() {
        Ok(kernel) => kernel,
        Err(error) => {
            findings.add("types of the kernel", State::No, error.to_string(), None);
            return None;
        }
    };
    let size = kernel.btf.as_bytes().len() >> 10;
    let how = if kernel.btf.is_mapped() {
        "mapped"
    } else {
        "read, for this kernel cannot map it (6.16 and later can)"
    };
    findings.add(
        "types of the kernel",
        State::Ok,
        format!("{}: {} types, {size} KiB, {how}", Kernel::BTF_PATH, kernel.btf.len()),
        None,
    );
    let modules = kernel.modules.names();
    if modules.is_empty() {
        let (state, remedy) = match system::read("/proc/modules") {
            Ok(loaded) if !loaded.is_empty() => (
                State::No,
                Some(
                    "Linux 5.11 and later have them, with CONFIG_DEBUG_INFO_BTF_MODULES: -k module:name needs them",
                ),
            ),
            _ => (State::Ok, None),
        };
        findings.add("types of modules", state, "none", remedy);
    } else {
        let what = if modules.len() == 1 { "1 module".into() } else { format!("{} modules", modules.len()) };
        findings.add("types of modules", State::Ok, format!("of {what}"), None);
    }
    Some(kernel)
}

fn methods(kernel: &Kernel) -> Vec<Asked> {
    let on = Subjects::of(kernel);
    let asked = |name, purpose, takes, answer| Asked { name, purpose, takes, answer };
    vec![
        asked(
            "fentry",
            "a function's entry",
            "it takes CONFIG_FUNCTION_TRACER and CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS, and the BPF JIT",
            abilities::fentry(&on),
        ),
        asked("fexit", "a function's return", "it takes what fentry takes", abilities::fexit(&on)),
        asked(
            "fsession",
            "a function's entry and return by one program",
            "Linux 7.0 and later have it",
            abilities::fsession(&on),
        ),
        asked(
            "tracing_multi",
            "many functions at once, typed",
            "Linux 7.2 and later have it",
            abilities::tracing_multi(&on),
        ),
        asked(
            "kprobe",
            "where there is no trampoline",
            "it takes CONFIG_KPROBES and CONFIG_KPROBE_EVENTS",
            abilities::kprobe(&on),
        ),
        asked("kretprobe", "the same at the return", "it takes what kprobe takes", abilities::kretprobe(&on)),
        asked(
            "kprobe_multi",
            "many functions at once",
            "Linux 5.18 and later have it, with CONFIG_FPROBE",
            abilities::kprobe_multi(&on),
        ),
        asked(
            "kprobe_session",
            "the same at entry and return",
            "Linux 6.10 and later have it, with CONFIG_FPROBE",
            abilities::kprobe_session(&on),
        ),
        asked(
            "tp_btf",
            "tracepoints, typed",
            "Linux 5.5 and later have it, with BTF",
            abilities::tp_btf(&on),
        ),
        asked("raw_tp", "tracepoints, untyped", "Linux 4.17 and later have it", abilities::raw_tp()),
    ]
}

/// Helpers by what they are for. The last of a line is when they came, as far as that helps anybody.
const HELPERS: &[(&str, &str, &str)] = &[
    ("BPF_FUNC_probe_read_kernel_str", "texts in kernel memory", "5.5"),
    ("BPF_FUNC_probe_read_user_str", "texts in user memory", "5.5"),
    ("BPF_FUNC_get_stack", "--output-stack", "4.18"),
    ("BPF_FUNC_get_ns_current_pid_tgid", "--filter-pid in a container", "5.7"),
    ("BPF_FUNC_get_current_task_btf", "pid and comm by plain loads", "5.11"),
    ("BPF_FUNC_get_attach_cookie", "many functions by one program", "5.15"),
    ("BPF_FUNC_get_func_arg", "any argument by number", "5.17"),
    ("BPF_FUNC_get_branch_snapshot", "branch records", "5.16"),
];

/// Kernel functions that programs may call.
const KFUNCS: &[(&str, &str, &str)] = &[
    ("bpf_rdonly_cast", "typed reads through a cast", "6.2"),
    ("bpf_session_cookie", "entry and return by one program", "6.10"),
];

/// Gives back what became of the ring buffer.
fn programs(findings: &mut Findings, kernel: &Kernel, may: &Result<(), String>) -> Answer {
    let ring = abilities::ring_buffer();
    let tried = |findings: &mut Findings, what, purpose: &str, answer: &Answer| match (answer, may) {
        (Ok(()), _) => findings.add(what, State::Ok, purpose, None),
        (Err(refusal), Err(want)) if refusal.permission => {
            findings.add(what, State::Unknown, format!("{purpose}: not permitted to try"), Some(want))
        }
        (Err(refusal), _) => findings.add(what, State::No, format!("{purpose}: {refusal}"), None),
    };
    tried(findings, "ring buffer", "what events go through", &ring);
    tried(findings, "test run", "asking for our own process id in a container", &abilities::test_run());
    if may.is_ok() {
        tried(findings, "preempt count", "context= of an event", &abilities::context(kernel));
        tried(findings, "cgroups", "--filter-cgroup", &abilities::cgroups(kernel));
    } else {
        let want = may.as_ref().err().map(String::as_str);
        findings.add("preempt count", State::Unknown, "context= of an event: not permitted to try", want);
        findings.add("cgroups", State::Unknown, "--filter-cgroup: not permitted to try", want);
    }
    for (names, has) in [
        (HELPERS, abilities::helper as fn(&Kernel, &str) -> bool),
        (KFUNCS, abilities::kfunc as fn(&Kernel, &str) -> bool),
    ] {
        for (name, purpose, since) in names {
            let plain = name.replace("BPF_FUNC_", "bpf_");
            if name.contains("probe_read_kernel") && is_locked_down() {
                findings.add(&plain, State::No, format!("{purpose}: the kernel is locked down"), None);
            } else if has(kernel, name) {
                findings.add(&plain, State::Ok, *purpose, None);
            } else {
                let remedy = format!("Linux {since} and later have it");
                findings.add(
                    &plain,
                    State::No,
                    format!("{purpose}: this kernel does not have it"),
                    Some(&remedy),
                );
            }
        }
    }
    ring
}

/// What the files told that the verdict needs.
struct Files {
    addresses: bool,
    hold: Answer,
    cgroup2: bool,
}

fn files(findings: &mut Findings, kernel: Option<&Kernel>, own: &Limits) -> Files {
    let kallsyms = system::head("/proc/kallsyms");
    let addresses = kallsyms.as_deref().is_ok_and(system::shows_addresses);
    match &kallsyms {
        Ok(_) if addresses => {
            findings.add("/proc/kallsyms", State::Ok, "with addresses: stacks have names", None)
        }
        Ok(_) => {
            let hidden = symbols::Hidden::here();
            findings.add(
                "/proc/kallsyms",
                State::No,
                format!("without addresses ({}): stacks have no names", hidden.cause()),
                Some(&hidden.remedy()),
            );
        }
        Err(error) => findings.add("/proc/kallsyms", State::No, error.to_string(), None),
    }
    match symbols::lines::find_vmlinux() {
        Ok(file) => findings.add("debug information", State::Ok, file.path().display().to_string(), None),
        Err(remedy) => {
            findings.add(
                "debug information",
                State::No,
                "none found: stacks have no source lines",
                Some(&remedy),
            );
        }
    }
    let tracefs = system::mounted("tracefs");
    match &tracefs {
        Some(at) => findings.add("tracefs", State::Ok, format!("on {at}"), None),
        None => findings.add(
            "tracefs",
            State::No,
            "not mounted; btrace needs it only to check system:name",
            Some("mount -t tracefs none /sys/kernel/tracing"),
        ),
    }
    let functions =
        format!("{}/available_filter_functions", tracefs.as_deref().unwrap_or("/sys/kernel/tracing"));
    match system::head(&functions) {
        Ok(_) => findings.add("available_filter_functions", State::Ok, "readable", None),
        Err(error) => findings.add(
            "available_filter_functions",
            State::No,
            format!("{error}; btrace does without"),
            None,
        ),
    }
    match system::mounted("bpf") {
        Some(at) => findings.add("bpffs", State::Ok, format!("on {at}"), None),
        None => findings.add(
            "bpffs",
            State::No,
            "not mounted; needed only to name pinned programs",
            Some("mount -t bpf none /sys/fs/bpf"),
        ),
    }
    let cgroup2 = system::mounted("cgroup2");
    match &cgroup2 {
        Some(at) => findings.add("cgroup2", State::Ok, format!("on {at}: --filter-cgroup"), None),
        None => findings.add(
            "cgroup2",
            State::No,
            "not mounted: --filter-cgroup cannot find cgroups",
            Some("mount -t cgroup2 none /sys/fs/cgroup"),
        ),
    }
    for (path, purpose) in [
        ("/proc/kcore", "live machine code (else a BPF program reads it)"),
        ("/proc/modules", "where modules lie"),
    ] {
        match system::head(path) {
            Ok(_) => findings.add(path, State::Ok, purpose, None),
            Err(error) => findings.add(path, State::No, format!("{purpose}: {error}"), None),
        }
    }
    branches(findings);
    limits(findings, kernel, own);
    let hold = abilities::hold_command();
    match &hold {
        Ok(()) => findings.add("ptrace", State::Ok, "-c can hold its command", None),
        Err(refusal) => {
            let scope = system::read("/proc/sys/kernel/yama/ptrace_scope");
            let remedy = match scope.as_deref() {
                Ok("3") => "kernel.yama.ptrace_scope is 3: no ptrace until the next boot",
                _ => "a container's seccomp profile may forbid it (docker run --cap-add SYS_PTRACE)",
            };
            findings.add("ptrace", State::No, format!("-c cannot hold its command: {refusal}"), Some(remedy));
        }
    }
    Files { addresses, hold, cgroup2: cgroup2.is_some() }
}

/// Hardware that records branches.
fn branches(findings: &mut Findings) {
    const PMUS: [&str; 2] = ["cpu", "cpu_core"];
    let device = |pmu: &str| format!("/sys/bus/event_source/devices/{pmu}");
    match PMUS.iter().find(|pmu| Path::new(&device(pmu)).exists()) {
        None => findings.add(
            "branch records",
            State::No,
            "no hardware counters",
            Some("a virtual machine has them if its host passes them on"),
        ),
        Some(pmu) => match system::read(&format!("{}/caps/branches", device(pmu))).as_deref() {
            Ok("0") | Err(_) => {
                findings.add("branch records", State::No, "this processor's counters record none", None)
            }
            Ok(number) => {
                findings.add("branch records", State::Ok, format!("the last {number} branches"), None)
            }
        },
    }
}

/// Limits as we were started with them.
struct Limits {
    files: String,
    locked: String,
}

impl Limits {
    fn own() -> Limits {
        let limit = |name| system::limit(name).unwrap_or_else(|| "?".into());
        Limits { files: limit("Max open files"), locked: limit("Max locked memory") }
    }
}

fn limits(findings: &mut Findings, kernel: Option<&Kernel>, Limits { files, locked }: &Limits) {
    findings.add("open files", State::Ok, format!("{files}; two for each program, raised if we may"), None);
    // BPF memory went from this limit to the memory cgroup's account in 5.11, when this helper came too.
    let counts = kernel.is_some_and(|k| !abilities::helper(k, "BPF_FUNC_get_current_task_btf"));
    let why = match counts {
        true => "BPF memory counts against it; raised if we may",
        false => "BPF memory does not count against it",
    };
    findings.add("locked memory", State::Ok, format!("{locked}; {why}"), None);
}

/// What all that means for each option.
fn verdict(
    methods: &[Asked],
    may: &Result<(), String>,
    ring: &Answer,
    files: &Files,
    kernel: &Kernel,
) -> Verdict {
    let general = match (may, ring) {
        (Err(want), _) if ring.is_err() => Err(format!("BPF is not permitted: {want}")),
        (_, Err(refusal)) => Err(format!("there is no ring buffer: {refusal}")),
        _ => Ok(()),
    };
    let any_of = |names: &[&str], what: &str| {
        general.clone()?;
        let tried = || methods.iter().filter(|m| names.contains(&m.name));
        if tried().any(|m| m.answer.is_ok()) {
            return Ok(());
        }
        match (tried().find_map(|m| Some((m.name, m.answer.as_ref().err()?))), may) {
            (Some((_, refusal)), Err(want)) if refusal.permission => Err(format!("not permitted: {want}")),
            (Some((name, refusal)), _) => Err(format!(
                "nothing can be attached to {what} ({name}: {refusal}{})",
                if names.len() > 1 { "; the others, see above" } else { "" }
            )),
            (None, _) => Err(format!("nothing can be attached to {what}")),
        }
    };
    let functions = any_of(&["fentry", "fexit", "kprobe", "kprobe_multi"], "functions");
    let programs = any_of(&["fentry", "fexit"], "BPF programs");
    let tracepoints = any_of(&["tp_btf", "raw_tp"], "tracepoints");
    let anything = match (&functions, &tracepoints) {
        (Err(_), Err(reason)) => Err(reason.clone()),
        _ => Ok(()),
    };
    let command = anything.clone().and_then(|()| {
        if is_locked_down() {
            return Err(
                "a command's children are followed by reading kernel memory, and the kernel is locked down"
                    .into(),
            );
        }
        files.hold.as_ref().copied().map_err(|refusal| format!("its command cannot be held: {refusal}"))
    });
    let stack = anything.clone().and_then(|()| match files.addresses {
        true => Ok(()),
        false => Err("stacks are taken, but kallsyms hides the addresses that give them names".into()),
    });
    let path = functions.clone().and_then(|()| {
        trace::path::can_be_had()?;
        any_of(&["kprobe"], "basic blocks")?;
        any_of(&["kretprobe"], "returns")?;
        disassembly(files.addresses)
    });
    let lbr = anything.clone().and_then(|()| {
        if !abilities::helper(kernel, "BPF_FUNC_get_branch_snapshot") {
            return Err("this kernel gives BPF programs no branch records (since 5.16)".into());
        }
        branch_records::record(BranchFilter::ANY).map(drop).map_err(|error| format!("{error:#}"))
    });
    let cgroup = anything.and_then(|()| {
        if let Err(refusal) = abilities::cgroups(kernel) {
            Err(refusal.to_string())
        } else if !files.cgroup2 {
            Err("cgroup2 is not mounted".into())
        } else {
            Ok(())
        }
    });
    Verdict {
        works: vec![
            ("-k", functions),
            ("-p", programs),
            ("-t", tracepoints),
            ("-c", command),
            ("-d", disassembly(files.addresses)),
            ("--output-stack", stack),
            ("--output-path", path),
            ("--output-lbr", lbr),
            ("--filter-cgroup", cgroup),
        ],
    }
}
