//! BPF programs as targets.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
