//! Leases between real processes on one server, and under an executor that is blocked.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::key::Key;
use tidelock_core::lease;
use tidelock_core::store::SharedStore;

const TTL: Duration = Duration::from_secs(3);

tidelock_tck::child!(crate::common::Postgres::default());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k8_a_process_that_was_stopped_past_its_lease_commits_nothing() {
    tidelock_tck::sigstop::round(&common::Postgres::default()).await;
}

/// The connections of the store and the renewal of leases run on runtimes of the library. A program that blocks all
/// threads of its own runtime keeps its leases.
#[test]
fn a_blocked_runtime_of_the_caller_keeps_the_lease() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let backend = common::Postgres::default();
        let address = common::address(&backend.schema());
        let store: SharedStore = Arc::new(common::open(&address, None).await);
        let lock = Key::single("blocked").unwrap();
        let held = lease::request(&store, &lock).ttl(TTL).try_acquire().await.unwrap();
        // The subject of the test: the only thread of the runtime is blocked for longer than the lease lasts.
        std::thread::sleep(TTL * 2);
        assert!(!held.token().is_cancelled(), "the lease was renewed in the meantime");
        held.release().await.unwrap();
    });
}
