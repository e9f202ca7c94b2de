//! Two processes on one file whose clocks disagree: live leases are not taken over.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::ManualClock;
use tidelock_core::id::{Owner, QueueName};
use tidelock_core::key::Key;
use tidelock_core::store::{Batch, Claim, ClaimDenied, Grant, Store};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

const TTL: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_mins(5);

struct Process {
    clock: Arc<ManualClock>,
    store: SqliteStore,
    name: &'static str,
}

impl Process {
    async fn open(directory: &tempfile::TempDir, name: &'static str) -> Self {
        let clock = Arc::new(ManualClock::default());
        let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() };
        let store = SqliteStore::open(directory.path().join("a.db"), options).await.unwrap();
        Self { clock, store, name }
    }

    async fn take(&self, lock: &str) -> Result<Grant, ClaimDenied> {
        let (owner, queue) = (Owner::new(self.name).unwrap(), QueueName::new("locks").unwrap());
        let claim = Claim::named(&owner, &Key::single(lock).unwrap(), &queue, TTL);
        let mut claimed = self.store.claim(claim).await.unwrap();
        claimed.grants.pop().ok_or_else(|| claimed.denied.unwrap())
    }

    fn step_back(&self, by: Duration) {
        use tidelock_core::clock::{Clock as _, Timestamp};
        let now = self.clock.now().as_micros();
        self.clock.set(Timestamp::from_micros(now - i64::try_from(by.as_micros()).unwrap()));
    }
}

async fn two() -> (tempfile::TempDir, Process, Process) {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (Process::open(&directory, "a").await, Process::open(&directory, "b").await);
    (directory, a, b)
}

#[tokio::test]
async fn a_process_whose_clock_stepped_back_keeps_its_lease() {
    let (_directory, a, b) = two().await;
    a.take("other").await.unwrap();
    b.step_back(STEP);
    let grant = b.take("lock").await.unwrap();
    assert!(matches!(a.take("lock").await, Err(ClaimDenied::Held(_))), "a live lease was taken over");
    for _ in 0..3 {
        [&a, &b].iter().for_each(|process| process.clock.advance(Duration::from_secs(20)));
        b.store.apply(Batch::new().renew(&grant.lease(), TTL)).await.unwrap();
        assert!(matches!(a.take("lock").await, Err(ClaimDenied::Held(_))), "a renewed lease was taken over");
    }
    a.clock.advance(TTL);
    assert!(a.take("lock").await.unwrap().taken_over, "a lease that is not renewed ends");
}

#[tokio::test]
async fn a_process_that_opens_with_a_clock_behind_runs_on_from_the_time_of_the_file() {
    let (directory, a, b) = two().await;
    a.take("other").await.unwrap();
    b.store.close().await;
    let late = Process::open(&directory, "late").await;
    late.step_back(STEP);
    late.take("lock").await.unwrap();
    assert!(matches!(a.take("lock").await, Err(ClaimDenied::Held(_))));
}

#[tokio::test]
async fn after_a_step_ahead_new_leases_hold_on_both_sides() {
    let (_directory, a, b) = two().await;
    b.take("before").await.unwrap();
    a.clock.advance(STEP);
    // A lease of the old time has expired by the new one; the fence keeps its holder from writing.
    assert!(a.take("before").await.unwrap().taken_over);
    b.take("lock").await.unwrap();
    assert!(matches!(a.take("lock").await, Err(ClaimDenied::Held(_))));
    a.step_back(STEP);
    a.take("mine").await.unwrap();
    assert!(matches!(b.take("mine").await, Err(ClaimDenied::Held(_))));
}
