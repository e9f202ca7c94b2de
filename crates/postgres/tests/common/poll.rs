//! Waiting for something to become true, but not for ever: a test that would hang fails instead.

use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// Asks again and again until the answer is yes.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits for an answer that must come.
pub(crate) async fn in_time<T>(what: &str, answer: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, answer).await {
        Ok(answer) => answer,
        Err(_) => panic!("not within {LIMIT:?}: {what}"),
    }
}
