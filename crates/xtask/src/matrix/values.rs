//! Values of every shape, argument by argument.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
