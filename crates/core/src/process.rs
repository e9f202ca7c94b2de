//! Process-wide values, tasks, time and randomness.
//!
//! Normally these are a static, a tokio task, the machine's clock and its random numbers. With the feature `sim`, code that
//! runs inside a `SimProcess` gets those of its simulated process instead. Many processes then share one thread, and a
//! crash of one drops its tasks and its values. Code outside a simulation is unaffected by the feature.
//!
//! Engines must not call `tokio::spawn`, `Instant::now` or `Uuid::now_v7` themselves.

#[cfg(feature = "sim")]
mod simulated;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use uuid::Uuid;

#[cfg(feature = "sim")]
pub use simulated::{Scheduler, SimProcess, SimTurn};

/// A value that each process has once, created at its first use. Meant for a `static`.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static> {
    create: fn() -> T,
    value: OnceLock<T>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Declares a value and its constructor.
    pub(crate) const fn new(create: fn() -> T) -> Self {
        Self { create, value: OnceLock::new() }
    }

    /// Calls a function with the value of the current process.
    pub(crate) fn with<R>(&'static self, call: impl FnOnce(&T) -> R) -> R {
        #[cfg(feature = "sim")]
        if let Some(process) = SimProcess::current() {
            return call(&process.local(std::ptr::from_ref(self).addr(), self.create));
        }
        call(self.value.get_or_init(self.create))
    }
}

/// Spawns a task of the current process on the current Tokio runtime.
///
/// # Panics
/// Panics outside a Tokio runtime, like `tokio::spawn`.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(bound(future))
}

/// Binds a future to the current process, for sets and trackers that spawn tasks themselves.
pub fn bound<F>(future: F) -> impl Future<Output = F::Output> + Send + 'static
where
    F: Future<Output: Send> + Send + 'static,
{
    #[cfg(feature = "sim")]
    let future = simulated::Bound::new(future);
    future
}

/// Returns whether this code runs inside a simulated process, where no thread may be started.
#[must_use]
pub fn is_simulated() -> bool {
    #[cfg(feature = "sim")]
    return SimProcess::is_current();
    #[cfg(not(feature = "sim"))]
    false
}

/// Returns the name of the simulated process that runs this code.
#[must_use]
pub(crate) fn simulated_name() -> Option<String> {
    #[cfg(feature = "sim")]
    return SimProcess::current().map(|process| process.name().to_owned());
    #[cfg(not(feature = "sim"))]
    None
}

/// Returns the instant of the monotonic clock.
#[must_use]
#[inline]
pub fn now() -> Instant {
    #[cfg(feature = "sim")]
    if SimProcess::is_current() {
        return tokio::time::Instant::now().into_std();
    }
    Instant::now()
}

/// Returns the time since an instant of the monotonic clock.
#[must_use]
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Returns random bits that differ between calls, threads and processes. Not for secrets.
#[must_use]
pub(crate) fn random() -> u64 {
    #[cfg(feature = "sim")]
    if let Some(process) = SimProcess::current() {
        return process.scheduler().random();
    }
    RandomState::new().build_hasher().finish()
}

/// Returns a new UUID v7, which is unique and rises with time.
#[must_use]
pub(crate) fn uuid() -> Uuid {
    #[cfg(feature = "sim")]
    if let Some(process) = SimProcess::current() {
        return process.scheduler().uuid();
    }
    Uuid::now_v7()
}
