//! Concurrency slots of a queue, called seats: rows of the store, of which a worker holds one for each run that it drives.
//!
//! A seat is a work row that is always due. A worker claims it, drives run after run with it while there are any, and hands it
//! back when there are none. The seats of a process that dies are free again when their leases expire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::error::WorkflowError;
use super::{keys, queue};
use crate::id::Owner;
use crate::lease::LeaseError;
use crate::process;
use crate::store::{Batch, Claim, Grant, SharedStore};
use crate::telemetry::WORKFLOW;
use crate::worker::{Claims, LeasedWork};

/// The seats of one queue that this worker holds and does not use.
#[derive(Debug)]
pub(super) struct ConcurrencySlots {
    store: SharedStore,
    owner: Owner,
    ttl: Duration,
    queue: String,
    free: Mutex<Vec<(u32, LeasedWork)>>,
}

/// A seat that is in use. Dropping it frees it for the next run of this worker.
#[derive(Debug)]
pub(super) struct ConcurrencySlot {
    seats: Arc<ConcurrencySlots>,
    held: Option<(u32, LeasedWork)>,
    used: bool,
}

impl ConcurrencySlot {
    /// Marks the seat as used by a run.
    pub(super) fn used(mut self) -> Self {
        self.used = true;
        self
    }
}

impl Drop for ConcurrencySlot {
    fn drop(&mut self) {
        if let Some(held) = self.held.take().filter(|(_, holding)| holding.lost().is_none()) {
            self.seats.free.lock().push(held);
        }
        // A seat that no run used is no reason to wake the workers.
        if self.used {
            keys::wake(&self.seats.queue);
        }
    }
}

impl ConcurrencySlots {
    pub(super) fn new(store: &SharedStore, owner: &Owner, ttl: Duration, queue: &str) -> Arc<Self> {
        let (store, owner, queue) = (Arc::clone(store), owner.clone(), queue.to_owned());
        Arc::new(Self { store, owner, ttl, queue, free: Mutex::default() })
    }

    /// Takes up to `wanted` of the seats that the queue has.
    pub(super) async fn take(
        self: &Arc<Self>,
        claims: &Claims,
        wanted: usize,
        most: u32,
    ) -> Result<Vec<ConcurrencySlot>, WorkflowError> {
        let mut taken = Vec::new();
        loop {
            let Some((seat, holding)) = self.free.lock().pop() else { break };
            if seat >= most {
                self.retire(seat, &holding).await?;
            } else if holding.lost().is_none() {
                taken.push(self.seat(seat, holding));
            }
            if taken.len() >= wanted {
                return Ok(taken);
            }
        }
        let lane = keys::seats(&self.queue)?;
        let claim = Claim::queues(&self.owner, [lane], wanted - taken.len(), self.ttl);
        let sent = process::now();
        for grant in claims.send(claim).await?.grants {
            let Some(seat) = keys::seat_of(&grant.row.key) else { continue };
            let holding = self.hold(&grant, sent)?;
            if seat >= most {
                self.retire(seat, &holding).await?;
            } else {
                taken.push(self.seat(seat, holding));
            }
        }
        Ok(taken)
    }

    fn hold(&self, grant: &Grant, sent: Instant) -> Result<LeasedWork, WorkflowError> {
        Ok(LeasedWork::start(&self.store, grant, self.ttl, sent).map_err(LeaseError::from)?)
    }

    fn seat(self: &Arc<Self>, seat: u32, holding: LeasedWork) -> ConcurrencySlot {
        ConcurrencySlot { seats: Arc::clone(self), held: Some((seat, holding)), used: false }
    }

    /// Removes a seat that the limit in the store does not cover, and releases any other. One commit adds a seat and the limit
    /// that covers it.
    async fn retire(&self, seat: u32, holding: &LeasedWork) -> Result<(), WorkflowError> {
        let limits = queue::read(&self.store, &self.queue).await?;
        if limits.concurrency.is_some_and(|most| seat < most) {
            holding.release().await;
        } else {
            tracing::debug!(target: WORKFLOW, queue = self.queue, seat, "a seat is given up");
            drop(holding.commit(Batch::new().ack(holding.lease())).await);
        }
        Ok(())
    }

    /// Hands back the unused seats, for other workers.
    pub(super) async fn hand_back(&self) {
        let free = std::mem::take(&mut *self.free.lock());
        futures_util::future::join_all(free.iter().map(|(_, holding)| holding.release())).await;
    }
}
