//! Options of the command: filters, colours, `doctor`, what is said.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
