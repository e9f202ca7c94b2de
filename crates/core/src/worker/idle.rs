//! Waits of a worker: for hints, for due times, after store failures, and before a restart after a panic.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::error::{Explain as _, Retry};
use crate::process;
use crate::runtime::jitter::spread;
use crate::runtime::panic::text;
use crate::runtime::timer::sleep_until;
use crate::store::{StoreError, Watch};
use crate::telemetry::WORKER;

/// The least time between two polls: hints that arrive close together cause one.
pub(crate) const MIN_POLL_DELAY: Duration = Duration::from_millis(1);

/// Waits for a hint of the store, and at least until an instant. A store that was dropped sends no more hints.
pub(crate) async fn hinted(hints: &mut Watch, not_before: Instant) {
    if !hints.changed().await {
        std::future::pending::<()>().await;
    }
    sleep_until(not_before).await;
}

/// Waits for a time, or until the worker is stopping.
pub(crate) async fn pause(wait: Duration, stopping: &CancellationToken) {
    tokio::select! {
        biased;
        () = stopping.cancelled() => {}
        () = sleep_until(process::now() + wait) => {}
    }
}

/// Returns the delay after a failure of the store.
pub(crate) fn backoff(error: &StoreError, poll_interval: Duration) -> Duration {
    let wait = match error.retry() {
        Retry::After(wait) => wait,
        Retry::Now => Duration::from_millis(10),
        Retry::Never => poll_interval.max(Duration::from_secs(1)),
    };
    spread(wait, 0.5..1.5)
}

/// Runs a task, and restarts it after a panic.
pub(crate) async fn supervised<Fut>(
    task: &'static str,
    run: impl Fn() -> Fut,
    pause_after_panic: Duration,
    stopping: &CancellationToken,
) where
    Fut: Future<Output = ()> + Send,
{
    while let Err(panic) = AssertUnwindSafe(run()).catch_unwind().await {
        tracing::error!(target: WORKER, task, error = text(&*panic), "worker task panicked");
        pause(pause_after_panic, stopping).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::supervised;

    #[tokio::test]
    async fn a_task_restarts_after_a_panic() {
        let starts = AtomicU32::new(0);
        let run = || async { assert!(starts.fetch_add(1, Ordering::SeqCst) > 0, "first start") };
        supervised("test", run, Duration::ZERO, &CancellationToken::new()).await;
        assert_eq!(starts.load(Ordering::SeqCst), 2);
    }
}
