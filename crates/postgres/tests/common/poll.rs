//! Polling for a condition with a time limit: a test that would hang fails instead.

use std::time::{Duration, Instant};

/// The time limit of any wait on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// The poll interval.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits for a result within the time limit.
pub(crate) async fn in_time<T>(what: &str, answer: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, answer).await {
        Ok(answer) => answer,
        Err(_) => panic!("not within {LIMIT:?}: {what}"),
    }
}
