//! `--output-lbr`: has the CPUs record branches, or says what there is instead.

use anyhow::{anyhow, bail};
use bpf::{BranchFilter, BranchRecords};
use btrace::cli::{Args, ModeArg};
use std::path::Path;

/// `unopened`: no perf events are opened, for something else gives the records. For tests, where a kernel module does.
const FORCE: &str = "BTRACE_LBR";

/// Where the kernel shows the PMUs of CPUs: one, those of a hybrid CPU, and arm64's.
const PMUS: &str = "/sys/bus/event_source/devices";

/// Begins to record, if it was asked for; recording ends when the answer is dropped.
pub fn start(args: &Args) -> anyhow::Result<Option<BranchRecords>> {
    if !args.output_lbr {
        return Ok(None);
    }
    let filter = args.filter_branch.unwrap_or(BranchFilter::ANY);
    record(filter).map_err(|error| anyhow!("--output-lbr: {error:#}{}", advice(args)))
}

/// What shows as much without branch records, where it can.
fn advice(args: &Args) -> &'static str {
    let of_functions = !args.kfunc.is_empty() && args.tracepoint.is_empty() && args.prog.is_empty();
    match of_functions && args.mode != Some(ModeArg::Entry) && trace::path::can_be_had().is_ok() {
        true => "; --output-path shows the way that a function went without them",
        false => "",
    }
}

/// An error of planning, with that advice where it is that the kernel gives no branch records.
pub fn advised(args: &Args, error: trace::Error) -> anyhow::Error {
    match error {
        trace::Error::NoBranchSnapshot => anyhow!("{error}{}", advice(args)),
        error => error.into(),
    }
}

/// Has every CPU record such branches, or says in one line what was found instead; `None` where something else gives the records.
pub fn record(filter: BranchFilter) -> anyhow::Result<Option<BranchRecords>> {
    match std::env::var_os(FORCE) {
        None => {}
        Some(word) if word == "unopened" => return Ok(None),
        Some(word) => bail!("{FORCE}={}: not unopened, which is all it can be", word.display()),
    }
    BranchRecords::start(filter).map(Some).map_err(|error| {
        let machine = Machine::this();
        let errno = error.errno().unwrap_or(0);
        anyhow!(refusal(&machine, errno, &error.to_string(), filter != BranchFilter::ANY))
    })
}

/// What is known of the machine.
struct Machine {
    /// Its CPUs have a PMU that the kernel knows.
    pmu: bool,
    /// It is a virtual one.
    is_virtual: bool,
    /// `kernel.perf_event_paranoid`.
    paranoid: Option<String>,
}

impl Machine {
    fn this() -> Machine {
        let is_cpus = |name: &str| {
            name == "cpu" || ["cpu_", "armv", "apple_"].iter().any(|prefix| name.starts_with(prefix))
        };
        let pmus = std::fs::read_dir(PMUS).into_iter().flatten().flatten();
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has_flag =
            |line: &str| line.starts_with("flags") && line.split_whitespace().any(|f| f == "hypervisor");
        Machine {
            pmu: pmus.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| is_cpus(&name)),
            is_virtual: flags.lines().any(has_flag) || Path::new("/sys/hypervisor/type").exists(),
            paranoid: std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
                .ok()
                .map(|s| s.trim().into()),
        }
    }
}

/// What to say of a refusal: what was found.
fn refusal(machine: &Machine, errno: i32, error: &str, filtered: bool) -> String {
    const EPERM: i32 = 1;
    const EACCES: i32 = 13;
    const EBUSY: i32 = 16;
    const ENOSYS: i32 = 38;
    let virtual_one =
        if machine.is_virtual { "; this is a virtual machine, and few hypervisors pass them on" } else { "" };
    match errno {
        EPERM | EACCES => {
            let paranoid = machine.paranoid.as_deref();
            let paranoid = paranoid.map_or(String::new(), |n| format!("; kernel.perf_event_paranoid is {n}"));
            format!(
                "not permitted to have the CPU record branches ({error}){paranoid}: run btrace as root, or with CAP_PERFMON"
            )
        }
        ENOSYS => "this kernel has no perf events (CONFIG_PERF_EVENTS)".into(),
        EBUSY => format!("somebody else has the CPU's counters ({error})"),
        _ if !machine.pmu => {
            format!(
                "no branch records here: the kernel knows no PMU of the CPU (no {PMUS}/cpu*){virtual_one}"
            )
        }
        _ if filtered => {
            format!(
                "this CPU records no branches, or not those of --filter-branch alone ({error}){virtual_one}"
            )
        }
        _ => format!("this CPU's PMU records no branches ({error}){virtual_one}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_found() {
        let said = |pmu, is_virtual, errno, filtered| {
            let machine = Machine { pmu, is_virtual, paranoid: Some("4".into()) };
            refusal(&machine, errno, "perf_event_open: error", filtered)
        };
        for (line, part) in [
            (
                said(false, true, 2, false),
                "no PMU of the CPU (no /sys/bus/event_source/devices/cpu*); this is a virtual machine",
            ),
            (said(false, false, 2, true), "no PMU of the CPU (no /sys/bus/event_source/devices/cpu*)"),
            (
                said(true, true, 95, false),
                "PMU records no branches (perf_event_open: error); this is a virtual machine",
            ),
            (said(true, false, 95, false), "PMU records no branches (perf_event_open: error)"),
            (said(true, false, 22, true), "not those of --filter-branch alone"),
            (
                said(true, false, 13, false),
                "kernel.perf_event_paranoid is 4: run btrace as root, or with CAP_PERFMON",
            ),
            (said(true, false, 16, false), "somebody else has the CPU's counters"),
            (said(false, false, 38, false), "CONFIG_PERF_EVENTS"),
        ] {
            assert!(line.contains(part), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }
}
