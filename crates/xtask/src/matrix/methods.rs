//! Attach methods: each way to a function, and many functions at once.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
