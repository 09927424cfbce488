//! Why the kernel hides addresses, and what brings them back.
//!
//! /proc/kallsyms asks kallsyms_show_value (kernel/ksyms_common.c): kernel.kptr_restrict=2 hides from everybody, 1 from who is without
//! CAP_SYSLOG, and so does 0, unless kernel.perf_event_paranoid is 1 or less, which lets everybody profile the kernel.

/// CAP_SYSLOG (include/uapi/linux/capability.h).
const SYSLOG: u32 = 34;

/// What decides whether we see addresses; `None` where /proc does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// kernel.kptr_restrict.
    pub restrict: Option<i32>,
    /// kernel.perf_event_paranoid.
    pub paranoid: Option<i32>,
    /// Whether we have CAP_SYSLOG.
    pub syslog: Option<bool>,
    /// Whether we are root all the same.
    pub root: bool,
}

impl Hidden {
    /// As it is for us.
    pub fn here() -> Hidden {
        let number =
            |name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Hidden {
            restrict: number("kptr_restrict"),
            paranoid: number("perf_event_paranoid"),
            syslog: has_syslog(&status),
            root: is_root(&status),
        }
    }

    /// What hides them.
    pub fn cause(self) -> String {
        let number = |n: Option<i32>| n.map_or("?".to_string(), |n| n.to_string());
        let restrict = format!("kernel.kptr_restrict={}", number(self.restrict));
        match (self.restrict, self.syslog) {
            (Some(0), Some(false)) => {
                format!("no CAP_SYSLOG, {restrict}, kernel.perf_event_paranoid={}", number(self.paranoid))
            }
            (Some(1), Some(false)) => format!("no CAP_SYSLOG, {restrict}"),
            _ => restrict,
        }
    }

    /// What brings them back.
    pub fn remedy(self) -> String {
        let open = match self.restrict {
            Some(..=1) => None,
            _ => Some("sysctl kernel.kptr_restrict=0"),
        };
        let gain = match (self.syslog, self.root) {
            // Capabilities of another user namespace do not count here.
            (Some(true), _) if open.is_none() => Some("run btrace in the machine's first user namespace"),
            (Some(true), _) => None,
            (_, true) => Some("run btrace with CAP_SYSLOG, which root is without here"),
            (_, false) => Some("run btrace as root, or with CAP_SYSLOG"),
        };
        [open, gain].into_iter().flatten().collect::<Vec<_>>().join(", and ")
    }
}

/// Whether the capability is among the effective ones of a /proc/PID/status.
fn has_syslog(status: &str) -> Option<bool> {
    let hex = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    let set = u64::from_str_radix(hex.trim(), 16).ok()?;
    Some(set >> SYSLOG & 1 == 1)
}

/// Whether its effective user is root.
fn is_root(status: &str) -> bool {
    let line = status.lines().find_map(|l| l.strip_prefix("Uid:"));
    line.and_then(|ids| ids.split_ascii_whitespace().nth(1)) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(restrict: i32, syslog: bool) -> Hidden {
        Hidden { restrict: Some(restrict), paranoid: Some(2), syslog: Some(syslog), root: false }
    }

    #[test]
    fn a_sysctl_is_named_only_where_it_helps() {
        for restrict in [0, 1] {
            let remedy = hidden(restrict, false).remedy();
            assert!(remedy.contains("CAP_SYSLOG") && !remedy.contains("sysctl"), "{remedy}");
        }
        assert_eq!(hidden(2, true).remedy(), "sysctl kernel.kptr_restrict=0");
        // With it set, whoever is without the capability sees nothing yet.
        let both = hidden(2, false).remedy();
        assert!(both.contains("sysctl kernel.kptr_restrict=0") && both.contains("CAP_SYSLOG"), "{both}");
        // Who is root already is not told to become it.
        let root = Hidden { root: true, ..hidden(0, false) }.remedy();
        assert!(root.contains("with CAP_SYSLOG") && !root.contains("as root"), "{root}");
        assert!(hidden(0, true).remedy().contains("user namespace"));
    }

    #[test]
    fn the_cause_is_what_decides() {
        assert_eq!(
            hidden(0, false).cause(),
            "no CAP_SYSLOG, kernel.kptr_restrict=0, kernel.perf_event_paranoid=2"
        );
        assert_eq!(hidden(1, false).cause(), "no CAP_SYSLOG, kernel.kptr_restrict=1");
        assert_eq!(hidden(2, false).cause(), "kernel.kptr_restrict=2");
        assert_eq!(Hidden::default().cause(), "kernel.kptr_restrict=?");
    }

    #[test]
    fn the_capability_by_its_bit() {
        assert!(is_root("Uid:\t1000\t0\t0\t0\n") && !is_root("Uid:\t0\t1000\t0\t0\n") && !is_root(""));
        assert_eq!(has_syslog("Name:\tx\nCapEff:\t0000000400000000\n"), Some(true));
        assert_eq!(has_syslog("CapEff:\t000001fbffffffff\n"), Some(false));
        assert_eq!(has_syslog("Name:\tx\n"), None);
    }
}
