//! What the workers of every engine share: waits for hints, until something is due and after failures, and going on after a panic.
//! What they work with is in [`hands`](super::hands).

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::MAX_TTL;
use crate::clock::Timestamp;
use crate::error::{Explain as _, Retry};
use crate::runtime::jitter::spread;
use crate::runtime::panic::text;
use crate::runtime::timer::sleep_until;
use crate::store::{SharedStore, StoreError, Watch};

/// Hints that come close together are one: nobody looks again sooner than this after it has found nothing.
pub(crate) const HUSH: Duration = Duration::from_millis(1);

/// A wait as long as it was asked for, and not so long that the instant of its end could not be told: "for ever" is a year.
pub(crate) fn bounded(wait: Duration) -> Duration {
    wait.min(MAX_TTL)
}

/// How often is looked, as it was asked for: not all the time, and now and then.
pub(crate) fn interval(asked: Duration) -> Duration {
    asked.clamp(Duration::from_millis(1), MAX_TTL)
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

/// How long it is until an instant of the store, and no longer than until the next look. Never nothing: what should be there and is
/// not is just being taken by others.
pub(crate) async fn until(store: &SharedStore, at: Option<Timestamp>, look_again: Duration) -> Duration {
    match at {
        None => look_again,
        Some(at) => store.now().await.map_or(look_again, |now| at.since(now).max(HUSH).min(look_again)),
    }
}

/// Runs something, unless everything is broken off first.
pub(crate) async fn unless(killed: &CancellationToken, run: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = killed.cancelled() => {}
        () = run => {}
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
