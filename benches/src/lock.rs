//! Keyed locks under the same loads: Tidelock's, a tokio mutex for each key, and the crate `lockable`.
//!
//! The loads use the trait [`Keyed`] only. The `lock` suite runs them in turns and prints the ratios.

mod clock;
mod held;
mod lockable;
mod queue;
mod repeated;
mod tidelock;
mod tokio;
mod zipf;

use std::error::Error;
use std::future::Future;

use ::tidelock_core::key::Key;

pub use self::clock::{CPU_TIME_IS_KNOWN, Spent, Stopwatch};
pub use self::held::{Footprint, HoldAll, footprint};
pub use self::lockable::{HashMap, Pool};
pub use self::queue::{Drained, HandOffs, drain, hand_offs};
pub use self::repeated::{alone, crowd};
pub use self::tidelock::Ours;
pub use self::tokio::Mutexes;
pub use self::zipf::Zipf;

/// Why a load was not carried out.
pub type Failed = Box<dyn Error + Send + Sync>;

/// Whether our locks detect re-entrancy, order and deadlocks in this build.
pub const DETECTION: bool = ::tidelock_core::lock::DETECTION;

/// Locks that are found by a key. Clones share them.
pub trait Keyed: Clone + Send + Sync + 'static {
    /// How a lock is named, as fast as the library can take it.
    type Key: Clone + Send + Sync + 'static;
    /// Holds a lock until it is dropped.
    type Guard<'a>: Send;

    /// Locks for the keys from 0 up to a number, and the keys. Keys that are text are the same text everywhere.
    ///
    /// # Errors
    /// When there is no such key.
    fn with_keys(count: u32) -> Result<(Self, Vec<Self::Key>), Failed>;

    /// Takes a lock, waiting for its turn.
    fn lock<'a>(
        &'a self,
        key: &'a Self::Key,
    ) -> impl Future<Output = Result<Self::Guard<'a>, Failed>> + Send + 'a;
}

/// The kind of all keys.
const KIND: &str = "bench-lock";

/// The keys from 0 up to a number.
fn keys(count: u32) -> Result<Vec<Key>, Failed> {
    (0..count).map(|number| Ok(Key::new(KIND, [number])?)).collect()
}
