//! Leases between real processes on one server, and under an executor that is blocked.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test fails by panicking; it uses a part of what tests share"
)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidelock_core::key::Key;
use tidelock_core::lease::{self, LostReason};
use tidelock_core::store::SharedStore;

const TTL: Duration = Duration::from_secs(1);

tidelock_tck::child!(crate::common::Postgres::default());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k8_a_process_that_was_stopped_past_its_lease_commits_nothing() {
    tidelock_tck::stop::round(&common::Postgres::default()).await;
}

/// The connections of the store are driven by the runtime that opened it. If all of its threads are blocked, nothing can
/// be renewed; the holder is told in time.
#[test]
fn a_blocked_runtime_of_the_store_loses_the_lease_and_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let backend = common::Postgres::default();
        let address = common::address(&backend.schema());
        let store: SharedStore = Arc::new(common::open(&address, None).await);
        let lock = Key::single("blocked").unwrap();
        // Connections are there before the time counts.
        lease::hold(&store, &Key::single("before").unwrap()).now().await.unwrap().release().await.unwrap();
        let asked = Instant::now();
        let held = lease::hold(&store, &lock).ttl(TTL).now().await.unwrap();
        let token = held.token();
        let watching = std::thread::spawn(move || {
            while !token.is_cancelled() && asked.elapsed() < TTL * 30 {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            asked.elapsed()
        });
        // This is what the test is about: the only thread of the runtime is blocked for longer than the lease lasts.
        std::thread::sleep(TTL * 2);
        let fired = watching.join().unwrap();
        assert!(fired < TTL, "the token fired after {fired:?}");
        let lost = held.lost().await;
        assert!(matches!(lost, LostReason::CouldNotRenew { .. }), "{lost}");
    });
}
