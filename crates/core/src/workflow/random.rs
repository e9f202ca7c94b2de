//! Numbers that are the same on every replay.

use crate::model::hash;

/// The number of a run at its how manieth request.
pub(super) fn number(run: &str, count: u32) -> u64 {
    hash::mixed(hash::of(run).wrapping_add(u64::from(count).wrapping_mul(hash::STRIDE)))
}

/// A short text that differs when the text differs.
pub(super) fn short(text: &str) -> String {
    format!("{:016x}", hash::of(text))
}
