//! SIGSTOP test (K8): a process that holds a lease is stopped until the lease has expired, then continued. It commits
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_core::clock::{Due, ManualClock, SystemClock};
use tidelock_core::error::Explain as _;
use tidelock_core::id::Fence;
use tidelock_core::lease::{self, LeaseError};
use tidelock_core::store::{Batch, Delta, Expect, Lease};

use crate::Backend;
use crate::builders::{events, job, key, number};
use crate::conn::Conn;
use crate::dump::Dump;
use crate::process::{Process, Task, listen, say};

/// TTL of the lease of the stopped process.
const TTL: Duration = Duration::from_secs(1);

/// The findings of the process after it was continued.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// The kind of write and the code of its rejection; `None` if the write was accepted.
    words: Vec<(String, Option<String>)>,
    /// Whether the guard let the process build a batch.
    guarded: bool,
    token_fired: bool,
    /// The result of the release.
    release: String,
}

/// Stops a process that holds a lease until another one has taken the lease over, then continues it. Checks that none
/// of its later writes is committed. The test program must contain [`child!`](crate::child).
///
/// # Panics
/// If the process could write, or did not learn that it lost the lease.
pub async fn round(backend: &dyn Backend) {
    let database = backend.fresh(Arc::new(ManualClock::default())).await;
    let address = database.address().expect("a backend with processes has addresses");
    let conn = Conn(backend.attach(&address, SystemClock::shared()).await);
    let mut process = Process::start(backend, &address, Task::Hold { name: "k8".to_owned() }).await;
    process.go().await;
    let fence: Fence = process.hear().await.expect("the process takes the lease");
    process.signal("STOP").await;
    let held = lease::request(&conn.0, key("k8")).ttl(TTL * 20).acquire().await.expect("the lease expires");
    assert!(held.fence() > fence);
    let view = lease::view(&conn.0, &key("k8")).await.expect("the store answers").expect("it is held");
    assert_eq!(view.takeovers, 1);
    conn.done(held.guard(Batch::new().put(&key("k8"), Expect::Absent, number(1))).expect("it is held")).await;
    let before = Dump::of(&conn).await;
    process.signal("CONT").await;
    process.go().await;
    let found: Found = process.hear().await.expect("the process continues");
    for (word, refusal) in &found.words {
        assert_eq!(refusal.as_deref(), Some("TL0204"), "{word} of the process that was stopped");
    }
    assert!(found.token_fired, "the cancellation token has fired");
    assert!(!found.guarded, "its guard let it begin something");
    assert_eq!(found.release, "TL0513");
    assert_eq!(Dump::of(&conn).await, before, "something of it was committed");
    assert!(!held.is_lost());
    held.release().await.expect("the new holder is not disturbed");
    drop(process.finish::<Found>().await);
}

/// The role of the child process that is stopped.
pub(crate) async fn hold(conn: Conn, name: &str) {
    let held = lease::request(&conn.0, key(name)).ttl(TTL).try_acquire().await.expect("the lease is free");
    say(&held.fence());
    listen().await;
    let guarded = held.guard(Batch::new()).is_ok();
    let token = held.token();
    let token_fired = tokio::time::timeout(Duration::from_secs(20), token.cancelled()).await.is_ok();
    let mut words = Vec::new();
    for (word, batch) in writes(held.lease()) {
        let refusal = conn.apply(batch).await.err().map(|error| error.code().to_string());
        words.push((word.to_owned(), refusal));
    }
    let release = held.release().await.err();
    let lost = matches!(release, Some(LeaseError::Lost { .. }));
    let release = release.filter(|_| lost).map_or_else(String::new, |error| error.code().to_string());
    say(&Found { words, guarded, token_fired, release });
}

/// Returns every kind of write under a lease.
fn writes(lease: &Lease) -> Vec<(&'static str, Batch)> {
    let guard = || Batch::new().guard_lease(lease);
    let put = |batch: Batch| batch.put(&key("stale"), Expect::Any, number(9));
    vec![
        ("append", guard().append(&key("stale"), Expect::Any, events(1))),
        ("put", put(guard())),
        ("merge", guard().merge_or_create(&key("k8"), number(0), [Delta::inc("/n", 1)])),
        ("delete", guard().delete(&key("k8"), Expect::Any)),
        ("enqueue", guard().enqueue(job("stale"))),
        ("ack", put(Batch::new()).ack(lease)),
        ("fail", put(Batch::new()).fail(lease, "stale", Due::Now)),
        ("renew", put(Batch::new()).renew(lease, TTL)),
        ("release", put(Batch::new()).release(lease)),
    ]
}
