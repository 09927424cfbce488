//! Which privilege is wanting, when the kernel only says EPERM.

use crate::doctor::system::{self, Capabilities};
use trace::Error;

/// What to say of a refusal for want of permission, if a capability is missing that would have been needed; `None` when it is
/// about something else, or when all are there and the kernel's own words must do.
pub fn wanting(error: &anyhow::Error) -> Option<String> {
    let denied = error.chain().any(|cause| match cause.downcast_ref::<Error>() {
        Some(Error::Permission(_) | Error::MethodRefused { .. }) => true,
        Some(Error::Sys(error)) => error.is_permission(),
        _ => cause.downcast_ref::<bpf::Error>().is_some_and(bpf::Error::is_permission),
    });
    denied.then(missing).flatten()
}

/// Refuses what needs programs, if we may load none: said before anything else that we may not know either.
pub fn check() -> anyhow::Result<()> {
    missing().map_or(Ok(()), |line| Err(anyhow::Error::msg(line)))
}

/// What of the rights to trace is missing; `None` when all are there.
pub fn missing() -> Option<String> {
    said(Capabilities::own(), system::first_user_namespace())
}

fn said(own: Capabilities, first_namespace: Option<bool>) -> Option<String> {
    let missing = own.missing_for_bpf();
    if !missing.is_empty() {
        let (names, verb) = (missing.join(" and "), if missing.len() == 1 { "is" } else { "are" });
        return Some(format!("not permitted to trace: {names} {verb} missing; {}", own.gain(&names)));
    }
    (first_namespace == Some(false)).then(|| {
        "not permitted to trace: capabilities count in the machine's first user namespace only; run btrace there".into()
    })
}

#[cfg(test)]
mod tests {
    use super::said;
    use crate::doctor::system::Capabilities;

    #[test]
    fn the_missing_ones_are_named() {
        let own = |set: u64| Capabilities::of(&format!("Uid:\t7\t7\t7\t7\nCapEff:\t{set:016x}\n"));
        let line = |set: u64| said(own(set), Some(true));
        assert_eq!(
            line(0).as_deref(),
            Some(
                "not permitted to trace: CAP_BPF and CAP_PERFMON are missing; run btrace as root, or with CAP_BPF and \
                 CAP_PERFMON"
            )
        );
        assert!(line(1 << 39).is_some_and(|l| l.contains("CAP_PERFMON is missing")));
        assert_eq!(line(1 << 39 | 1 << 38), None);
        assert!(said(own(1 << 21), Some(false)).is_some_and(|l| l.contains("user namespace")));
    }
}
