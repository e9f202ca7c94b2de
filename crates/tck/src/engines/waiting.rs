//! Lease waiters (K2 and K5) on a store that is temporarily busy, and a waiter that blocks its thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use async_trait::async_trait;
use tidelock_core::lease;

use crate::fault_proxy::{Detour, ProxyHooks, Request};
use crate::prelude::*;

const LEASE: Duration = Duration::from_mins(10);
/// Number of initial requests of each kind that fail.
const FAILURES: usize = 3;
/// Time limit after which an answer is considered missing.
const LIMIT: Duration = Duration::from_secs(60);

/// A store that another process locks: the first requests of each kind fail as busy.
#[derive(Debug, Default)]
struct Busy {
    asked: [AtomicUsize; 5],
}

#[async_trait]
impl ProxyHooks for Busy {
    async fn there(&self) {}

    async fn back(&self) {}

    async fn asked(&self, request: Request) -> Result<(), StoreError> {
        if self.asked[request as usize].fetch_add(1, Ordering::SeqCst) < FAILURES {
            return Err(StoreError::new(StoreErrorKind::Busy, "cannot use the database", "it is locked"));
        }
        Ok(())
    }
}

/// A wait survives a busy store, at every one of its steps.
pub async fn k2_a_wait_outlasts_a_busy_store(env: &Env) {
    let lock = key("hold-busy");
    let first = lease::request(&env.store.0, &lock).ttl(LEASE).try_acquire().await.unwrap();
    let way = Arc::new(Busy::default());
    let busy = Detour::over(Arc::clone(&way), &env.other.0);
    let waiter = tokio::spawn(lease::request(&busy, &lock).ttl(LEASE).note("patient").acquire());
    let waits = async || {
        let view = lease::view(&env.store.0, &lock).await.expect("the store answers");
        view.is_some_and(|view| !view.waiters.is_empty())
    };
    while !waits().await {
        assert!(!waiter.is_finished(), "it gave up: {:?}", waiter.await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    first.release().await.unwrap();
    let held = waiter.await.unwrap().expect("a busy store is waited out");
    // The number of clock reads depends on timing.
    for request in [Request::Apply, Request::Claim, Request::ReadRow, Request::ReadPage] {
        let asked = way.asked[request as usize].load(Ordering::SeqCst);
        assert!(asked > FAILURES, "{request:?} was repeated until it was answered: {way:?}");
    }
    drop(held);
}

/// A hook that blocks the thread of a row read until it is opened.
#[derive(Debug, Default)]
struct Hog {
    state: Mutex<HogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HogState {
    arrived: bool,
    open: bool,
}

impl Hog {
    fn has_arrived(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).arrived
    }
}

#[async_trait]
impl ProxyHooks for Hog {
    async fn there(&self) {}

    async fn back(&self) {}

    async fn asked(&self, request: Request) -> Result<(), StoreError> {
        if request == Request::ReadRow {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.arrived = true;
            let closed = self.changed.wait_while(state, |state| !state.open);
            drop(closed.unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }
}

/// Opens the hook when the case ends, including by a panic: others need the thread.
struct Opened(Arc<Hog>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        self.0.changed.notify_all();
    }
}

/// A hook that counts the writes of a connection.
#[derive(Debug, Default)]
struct Writes(AtomicUsize);

#[async_trait]
impl ProxyHooks for Writes {
    async fn there(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    async fn back(&self) {}
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let come = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, come).await.is_ok(), "not within {LIMIT:?}: {what}");
}

/// A waiter that blocks its thread does not keep other leases of the process from being renewed.
pub async fn k5_waiters_do_not_delay_renewals(env: &Env) {
    let (other, contended) = (key("hold-other"), key("hold-contended"));
    let first = lease::request(&env.store.0, &contended).ttl(LEASE).try_acquire().await.unwrap();
    let hog = Arc::new(Hog::default());
    let opened = Opened(Arc::clone(&hog));
    let slow = Detour::over(Arc::clone(&hog), &env.other.0);
    let writes = Arc::new(Writes::default());
    let counted = Detour::over(Arc::clone(&writes), &env.store.0);
    // A short TTL, so that it is soon renewed.
    let held = lease::request(&counted, &other).ttl(secs(2)).try_acquire().await.unwrap();
    let before = writes.0.load(Ordering::SeqCst);
    let waiter = tokio::spawn(lease::request(&slow, &contended).ttl(LEASE).acquire());
    until("the waiter has stopped its thread", || hog.has_arrived()).await;
    until("the other lease is renewed", || writes.0.load(Ordering::SeqCst) > before).await;
    drop(opened);
    drop(held);
    first.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
}
