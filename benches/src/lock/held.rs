//! The memory footprint of held locks, and of the table after their release.

use std::future::Future;

use super::{Failed, Keyed};

/// Locks that can be held without borrowing them.
pub trait HoldAll: Keyed {
    /// A guard that holds a lock until it is dropped.
    type Owned: Send;

    /// Acquires a lock.
    fn hold(&self, key: &Self::Key) -> impl Future<Output = Result<Self::Owned, Failed>> + Send;
}

/// The resident memory of this process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// With the keys, and none of them held.
    pub before: u64,
    /// With all of them held, guards included.
    pub held: u64,
    /// With all of them released.
    pub released: u64,
}

/// Holds `count` locks at once and releases them all. It must run in a separate process, or memory left by other
/// measurements is counted as well. Returns `None` where the resident memory is unknown.
///
/// # Errors
/// When a lock is refused.
pub async fn footprint<K: HoldAll>(count: u32) -> Result<Option<Footprint>, Failed> {
    let (locks, keys) = K::with_keys(count)?;
    if let Some(first) = keys.first() {
        drop(locks.hold(first).await?);
    }
    let before = resident();
    let mut guards = Vec::with_capacity(keys.len());
    for key in &keys {
        guards.push(locks.hold(key).await?);
    }
    let held = resident();
    drop(guards);
    let released = resident();
    let known = before.zip(held).zip(released);
    Ok(known.map(|((before, held), released)| Footprint { before, held, released }))
}

#[cfg(target_os = "linux")]
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(not(target_os = "linux"))]
fn resident() -> Option<u64> {
    None
}
