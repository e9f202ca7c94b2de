//! The hands of a worker: as many as it works with at once, the tasks that do, and the claims that it sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Holding, MIN_TTL};
use crate::id::Owner;
use crate::key::Key;
use crate::runtime::panic::text;
use crate::runtime::timer::sleep_until;
use crate::store::{Claim, Claimed, Grant, SharedStore, StoreError};
use crate::telemetry::LEASE;

/// The claims of a worker. One that was sent is carried out, whether anybody waits for the answer or not; so they are kept account of.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    store: SharedStore,
    sent: TaskTracker,
}

impl Claims {
    pub(crate) fn new(store: &SharedStore) -> Self {
        Self { store: Arc::clone(store), sent: TaskTracker::new() }
    }

    /// Sends a claim and waits for its answer.
    pub(crate) async fn send(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let store = Arc::clone(&self.store);
        match self.sent.spawn(async move { store.claim(claim).await }).await {
            Ok(answer) => answer,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and this with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until every claim is carried out: one that comes later would hold a row for somebody who is gone. The last one is sent
    /// here, so that a store which takes writes in order has also carried out all others.
    pub(crate) async fn settle(&self, owner: &Owner) {
        self.sent.close();
        self.sent.wait().await;
        let Ok(nobody) = Key::single("tidelock.nobody") else { return };
        drop(self.store.claim(Claim::existing(owner, &nobody, MIN_TTL)).await);
    }
}

/// A hand that is free, or at work.
pub(crate) type Hand = OwnedSemaphorePermit;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hands {
    store: SharedStore,
    free: Arc<Semaphore>,
    jobs: JoinSet<()>,
}

impl Hands {
    pub(crate) fn new(store: &SharedStore, count: usize) -> Self {
        let free = Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Self { store: Arc::clone(store), free, jobs: JoinSet::new() }
    }

    /// As many free hands as are wanted and there are, at least one; `None` when nothing new is to be begun.
    pub(crate) async fn free(&mut self, wanted: usize, stopping: &CancellationToken) -> Option<Vec<Hand>> {
        let first = tokio::select! {
            biased;
            () = stopping.cancelled() => return None,
            first = Arc::clone(&self.free).acquire_owned() => first.ok()?,
        };
        while let Some(ended) = self.jobs.try_join_next() {
            tell(ended);
        }
        let mut hands = vec![first];
        while hands.len() < wanted
            && let Ok(another) = Arc::clone(&self.free).try_acquire_owned()
        {
            hands.push(another);
        }
        Some(hands)
    }

    /// Works on a row that was granted, in a task of its own, and keeps it meanwhile. What is `with` it is dropped at the end.
    pub(crate) fn hold<Fut>(
        &mut self,
        grant: Grant,
        ttl: Duration,
        sent: Instant,
        with: impl Send + 'static,
        work: impl FnOnce(Grant, Holding) -> Fut + Send + 'static,
    ) where
        Fut: Future<Output = ()> + Send,
    {
        let store = Arc::clone(&self.store);
        self.jobs.spawn(async move {
            let _with = with;
            match Holding::start(&store, &grant, ttl, sent) {
                Ok(holding) => work(grant, holding).await,
                // Nobody renews it, so it ends by itself.
                Err(error) => {
                    tracing::error!(target: LEASE, row = %grant.row.key, %error, "a row is not kept")
                }
            }
        });
    }

    /// Lets what has begun come to its end within the grace period, and then breaks it off.
    pub(crate) async fn wind_down(&mut self, grace: Duration, cut: &CancellationToken) {
        let end = Instant::now() + grace;
        loop {
            tokio::select! {
                ended = self.jobs.join_next() => match ended {
                    Some(ended) => tell(ended),
                    None => return,
                },
                () = sleep_until(end), if !cut.is_cancelled() => cut.cancel(),
            }
        }
    }

    /// Breaks off everything, as a crash would.
    pub(crate) async fn break_off(&mut self) {
        self.jobs.shutdown().await;
    }
}

/// What users' code does wrong is told where it is called. This is for what is wrong here: the row is claimed again when its lease ends.
fn tell(ended: Result<(), JoinError>) {
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        tracing::error!(target: LEASE, error = text(&*panic), "the work on a row panicked; it is taken up again when its lease ends");
    }
}
