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
    denied.then(|| said(&Capabilities::own().missing_for_bpf(), system::first_user_namespace())).flatten()
}

fn said(missing: &[&str], first_namespace: Option<bool>) -> Option<String> {
    if !missing.is_empty() {
        let (names, verb) = (missing.join(" and "), if missing.len() == 1 { "is" } else { "are" });
        return Some(format!(
            "not permitted to trace: {names} {verb} missing; run btrace as root, or with {names}"
        ));
    }
    (first_namespace == Some(false)).then(|| {
        "not permitted to trace: capabilities count in the machine's first user namespace only; run btrace there".into()
    })
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn the_missing_ones_are_named() {
        let line = |missing: &[&str]| said(missing, Some(true));
        assert_eq!(
            line(&["CAP_BPF", "CAP_PERFMON"]).as_deref(),
            Some(
                "not permitted to trace: CAP_BPF and CAP_PERFMON are missing; run btrace as root, or with CAP_BPF and \
                 CAP_PERFMON"
            )
        );
        assert!(line(&["CAP_PERFMON"]).is_some_and(|l| l.contains("CAP_PERFMON is missing")));
        assert_eq!(line(&[]), None);
        assert!(said(&[], Some(false)).is_some_and(|l| l.contains("user namespace")));
    }
}
