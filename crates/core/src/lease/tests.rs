//! Tests of leases on the memory store. They wait for events instead of time wherever possible.

mod acquire;
mod loss;
mod view;
mod wait_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{LeaseError, LeaseGuard, LeaseRequest, LeaseView, keys};
use crate::id::{OpId, Owner};
use crate::key::Key;
use crate::store::*;

/// Timeout of any operation, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(30);
/// A lease that does not expire while a test runs.
const LONG: Duration = Duration::from_secs(60);

fn store() -> SharedStore {
    Arc::new(MemoryStore::new())
}

fn key(name: &str) -> Key {
    Key::new("test", [name]).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// Starts a request under this owner's name.
#[track_caller]
fn asked(store: &SharedStore, key: &Key, who: &str) -> LeaseRequest {
    crate::lease::request(store, key).owner(owner(who)).ttl(LONG)
}

/// Waits for a future that must complete in time.
async fn in_time<T>(what: &str, answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, answer).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

/// Polls a condition until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn view_of(store: &SharedStore, key: &Key) -> Option<LeaseView> {
    super::view(store, key).await.unwrap()
}

/// Returns the waiters by their given names.
async fn waiting(store: &SharedStore, key: &Key) -> Vec<String> {
    let waiters = view_of(store, key).await.map(|view| view.waiters).unwrap_or_default();
    waiters.iter().map(|waiter| given_part(&waiter.owner)).collect()
}

/// Returns the given part of an owner's name.
fn given_part(owner: &Owner) -> String {
    owner.as_str().split_once('/').unwrap().0.to_owned()
}

/// Starts to wait in a separate task, and returns when it is in the queue.
async fn in_line(store: &SharedStore, key: &Key, who: &str) -> JoinHandle<Result<LeaseGuard, LeaseError>> {
    let task = tokio::spawn(asked(store, key, who).acquire());
    until("it stands in line", async || waiting(store, key).await.iter().any(|waiter| waiter == who)).await;
    task
}

/// A store that can be switched to fail.
#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    /// Writes fail.
    broken: AtomicBool,
    /// Writes never return.
    silent: AtomicBool,
    /// Claims of leases are executed, but their results are held back until they are let through.
    stopped: AtomicBool,
    let_through: Notify,
    stopped_claims: AtomicUsize,
}

impl Faulty {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(),
            broken: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            let_through: Notify::new(),
            stopped_claims: AtomicUsize::new(0),
        })
    }

    fn break_writes(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    fn error() -> StoreError {
        StoreError::new(StoreErrorKind::Unreachable, "a test", "the wire is cut")
    }
}

#[async_trait]
impl crate::store::layer::StoreLayer for Faulty {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(ApplyError::not_applied(Self::error()));
        }
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.inner.apply(batch).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let lease = matches!(&claim.pick, ClaimTarget::Named { key, .. } if keys::leased_key(key).is_some());
        let answer = self.inner.claim(claim).await;
        if lease && self.stopped.load(Ordering::SeqCst) {
            self.stopped_claims.fetch_add(1, Ordering::SeqCst);
            self.let_through.notified().await;
        }
        answer
    }
}
