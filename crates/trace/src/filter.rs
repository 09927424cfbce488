//! Whose events are taken. Tested first in every program, before anything is read or reserved.

/// Tests on the current task; all must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Process (thread group) ids, as the kernel's first pid namespace numbers them; empty: any.
    pub tgids: Vec<u32>,
    /// Never this process: our own, lest a trace of writes trace its own output.
    pub not_tgid: Option<u32>,
    /// Only tasks in the tracker's map: the command's and those of its descendants.
    pub followed: bool,
}
