//! What the workers of every engine share: slots, waits for hints and after failures, an end in peace, and going on after a panic.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::{Explain as _, Retry};
use crate::lock::sleep_until;
use crate::random::spread;
use crate::state::calm::text;
use crate::store::{StoreError, Watch};

/// As many free slots as are wanted and there are, at least one; `None` when nothing new is to be begun.
pub(crate) async fn free_slots(
    all: &Arc<Semaphore>,
    wanted: usize,
    stopping: &CancellationToken,
) -> Option<Vec<OwnedSemaphorePermit>> {
    let first = tokio::select! {
        biased;
        () = stopping.cancelled() => return None,
        first = Arc::clone(all).acquire_owned() => first.ok()?,
    };
    let mut slots = vec![first];
    while slots.len() < wanted
        && let Ok(another) = Arc::clone(all).try_acquire_owned()
    {
        slots.push(another);
    }
    Some(slots)
}

/// Waits for a hint, and until an instant: hints that come close together are one. A store that is gone gives no more.
pub(crate) async fn hinted(hints: &mut Watch, not_before: Instant) {
    if !hints.changed().await {
        std::future::pending::<()>().await;
    }
    sleep_until(not_before).await;
}

/// Waits for a while, or until nothing new is to be begun.
pub(crate) async fn pause(wait: Duration, stopping: &CancellationToken) {
    tokio::select! {
        () = stopping.cancelled() => {}
        () = sleep_until(Instant::now() + wait) => {}
    }
}

/// How long to wait after a failure of the store.
pub(crate) fn after(error: &StoreError, look_again: Duration) -> Duration {
    let wait = match error.retry() {
        Retry::After(wait) => wait,
        Retry::Now => Duration::from_millis(10),
        Retry::Never => look_again.max(Duration::from_secs(1)),
    };
    spread(wait, 0.5..1.5)
}

/// Lets what has begun come to its end within the grace period, and then breaks it off.
pub(crate) async fn wind_down(jobs: &mut JoinSet<()>, grace: Duration, cut: &CancellationToken) {
    let end = Instant::now() + grace;
    loop {
        tokio::select! {
            ended = jobs.join_next() => if ended.is_none() { return },
            () = sleep_until(end), if !cut.is_cancelled() => cut.cancel(),
        }
    }
}

/// Runs something, and again after a pause if it panics: a worker must not stop without a word.
pub(crate) async fn supervised<Fut>(
    make: impl Fn() -> Fut,
    panicked: impl Fn(&str),
    wait: Duration,
    stopping: &CancellationToken,
) where
    Fut: Future<Output = ()> + Send,
{
    while let Err(panic) = AssertUnwindSafe(make()).catch_unwind().await {
        panicked(text(&*panic));
        pause(wait, stopping).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::supervised;

    #[tokio::test]
    async fn what_panics_is_begun_again() {
        let (begun, told) = (AtomicU32::new(0), AtomicU32::new(0));
        let make = || async { assert!(begun.fetch_add(1, Ordering::SeqCst) > 0, "of all things") };
        let panicked = |error: &str| {
            assert_eq!(error, "of all things");
            told.fetch_add(1, Ordering::SeqCst);
        };
        supervised(make, panicked, Duration::ZERO, &CancellationToken::new()).await;
        assert_eq!((begun.load(Ordering::SeqCst), told.load(Ordering::SeqCst)), (2, 1));
    }
}
