//! What /proc and /sys tell of the machine and of ourselves. A file that cannot be read is an answer too.

use std::io;

/// Capabilities that matter to us, by number (include/uapi/linux/capability.h).
pub const CAPABILITIES: [(u32, &str, &str); 6] = [
    (39, "CAP_BPF", "loading programs"),
    (38, "CAP_PERFMON", "attaching them, and reading kernel memory"),
    (21, "CAP_SYS_ADMIN", "stands for both where they are missing; programs by id"),
    (24, "CAP_SYS_RESOURCE", "raising the limits of files and locked memory"),
    (19, "CAP_SYS_PTRACE", "looking into other users' processes"),
    (34, "CAP_SYSLOG", "addresses in kallsyms"),
];

/// CAP_SYS_ADMIN, which implies CAP_BPF and CAP_PERFMON.
const SYS_ADMIN: u32 = 21;

/// The effective capabilities of this process.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// A bit each; `None` if /proc does not tell.
    set: Option<u64>,
    /// Its effective user is root.
    root: bool,
}

impl Capabilities {
    /// Reads them.
    pub fn own() -> Capabilities {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Capabilities::of(&status)
    }

    /// Of a /proc/PID/status.
    pub fn of(status: &str) -> Capabilities {
        let line = |key| status.lines().find_map(|l| l.strip_prefix(key));
        let set = line("CapEff:").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        let root = line("Uid:").and_then(|ids| ids.split_ascii_whitespace().nth(1)) == Some("0");
        Capabilities { set, root }
    }

    /// Whether this one is there.
    pub fn has(self, number: u32) -> Option<bool> {
        self.set.map(|set| set >> number & 1 == 1)
    }

    /// How to come by capabilities that are missing: root has them, unless they were taken from it.
    pub fn gain(self, names: &str) -> String {
        match self.root {
            false => format!("run btrace as root, or with {names}"),
            true => format!("root is without {names} here, as in many containers: run btrace with {names}"),
        }
    }

    /// Those of CAP_BPF and CAP_PERFMON that are missing, CAP_SYS_ADMIN counted as both.
    pub fn missing_for_bpf(self) -> Vec<&'static str> {
        if self.has(SYS_ADMIN) != Some(false) {
            return Vec::new();
        }
        CAPABILITIES
            .iter()
            .take(2)
            .filter(|(n, ..)| self.has(*n) == Some(false))
            .map(|(_, name, _)| *name)
            .collect()
    }
}

/// Whether we live in the machine's first user namespace; capabilities in any other do not count for BPF.
pub fn first_user_namespace() -> Option<bool> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let numbers: Vec<&str> = map.split_ascii_whitespace().collect();
    Some(numbers == ["0", "0", "4294967295"])
}

/// The choice in brackets: `none [integrity] confidentiality`.
pub fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// Where a file system of this type is mounted, first of all.
pub fn mounted(fs: &str) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mount_point(&mounts, fs).map(str::to_string)
}

fn mount_point<'a>(mounts: &'a str, fs: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let point = fields.nth(1)?;
        (fields.next()? == fs).then_some(point)
    })
}

/// A file's text, trimmed.
pub fn read(path: &str) -> io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_string())
}

/// What the first bytes of a file say, for one too large to be read whole.
pub fn head(path: &str) -> io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(4096).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the beginning of kallsyms shows addresses: with them hidden, all are zero. The first symbols may be per-CPU
/// offsets, whose addresses are small or zero by nature, so any will do that is not.
pub fn shows_addresses(kallsyms: &str) -> bool {
    kallsyms
        .lines()
        .any(|l| l.split(' ').next().is_some_and(|a| a.len() == 16 && a.bytes().any(|b| b != b'0')))
}

/// The soft limit of a line of /proc/self/limits.
pub fn limit(name: &str) -> Option<String> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let rest = limits.lines().find_map(|l| l.strip_prefix(name))?;
    rest.split_ascii_whitespace().next().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_by_bit() {
        let root = Capabilities::of("Name:\tx\nCapEff:\t000001ffffffffff\n");
        assert!(root.has(39) == Some(true) && root.missing_for_bpf().is_empty());
        let none = Capabilities::of("CapEff:\t0000000000000000\n");
        assert_eq!(none.missing_for_bpf(), ["CAP_BPF", "CAP_PERFMON"]);
        // CAP_BPF alone; CAP_SYS_ADMIN alone.
        assert_eq!(Capabilities::of("CapEff:\t0000008000000000\n").missing_for_bpf(), ["CAP_PERFMON"]);
        assert!(Capabilities::of("CapEff:\t0000000000200000\n").missing_for_bpf().is_empty());
        assert_eq!(Capabilities::of("").has(39), None);
        assert_eq!(
            Capabilities::of("Uid:\t1000\t1000\t1000\t1000\n").gain("it"),
            "run btrace as root, or with it"
        );
        // Who is root already is not told to become it.
        let root = Capabilities::of("Uid:\t0\t0\t0\t0\n").gain("it");
        assert!(root.contains("run btrace with it") && !root.contains("as root"), "{root}");
    }

    #[test]
    fn files_of_proc_and_sys() {
        assert_eq!(chosen("none [integrity] confidentiality"), Some("integrity"));
        assert_eq!(chosen("none"), None);
        let mounts = "proc /proc proc rw 0 0\nnone /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(mount_point(mounts, "tracefs"), Some("/sys/kernel/tracing"));
        assert_eq!(mount_point(mounts, "tracing"), None);
        assert!(shows_addresses("0000000000000000 A a\nffffffff81000000 T b\n"));
        assert!(!shows_addresses("0000000000000000 A a\n0000000000000000 T b\nffff"));
    }
}
