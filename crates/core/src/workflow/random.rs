//! Deterministic random numbers, the same on every replay.

use crate::model::hash;

/// Returns the random number of a run's request with this count.
pub(super) fn number(run: &str, count: u32) -> u64 {
    hash::mixed(hash::of(run).wrapping_add(u64::from(count).wrapping_mul(hash::STRIDE)))
}

/// Returns a fingerprint of a text: its 64-bit hash in hexadecimal.
pub(super) fn short(text: &str) -> String {
    format!("{:016x}", hash::of(text))
}
