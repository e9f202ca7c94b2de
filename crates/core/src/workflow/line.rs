//! One queue as a worker sees it: its lanes, its limits, and how it is claimed from when there are any.

use std::sync::Arc;

use super::engine::WorkflowEngine;
use super::error::WorkflowError;
use super::queue::{self, QueueLimits};
use super::seats::{Seat, Seats};
use super::{names, pace};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::Lane;
use crate::store::Claim;
use crate::worker::{Poll, Worker};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Line {
    queue: String,
    pub(super) limits: QueueLimits,
    /// Where runs are that have not begun.
    new: Vec<Lane>,
    /// Where runs are that have.
    under_way: Vec<Lane>,
    pub(super) seats: Arc<Seats>,
}

impl Line {
    pub(super) fn new(worker: &Worker, queue: &str) -> Self {
        let seats = Seats::new(&worker.store, &worker.owner, worker.options.lease_ttl, queue);
        let (limits, new, under_way) = Default::default();
        Self { queue: queue.to_owned(), limits, new, under_way, seats }
    }

    /// Takes up what the store says of the queue.
    pub(super) async fn refresh(&mut self, engine: &WorkflowEngine) -> Result<(), WorkflowError> {
        // Without limits that read, there are no lanes to look at.
        self.under_way.clear();
        self.new.clear();
        self.limits = queue::read(&engine.worker.store, &self.queue).await?;
        if self.limits.concurrency.is_none() {
            self.seats.hand_back().await;
        }
        self.under_way = vec![names::lane(&self.queue)?];
        self.new = vec![names::new_lane(&self.queue)?];
        if self.limits.fair {
            let shares = (0..names::SHARES).map(|share| names::share_lane(&self.queue, share));
            self.new.extend(shares.collect::<Result<Vec<_>, InvalidInput>>()?);
        }
        Ok(())
    }

    /// Its name.
    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    /// All its lanes.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.new.iter().chain(&self.under_way)
    }

    /// Claims what the limits let it. Nothing is written while nothing can be begun.
    pub(super) async fn claim(
        &self,
        engine: &WorkflowEngine,
        poll: &mut Poll<'_, WorkflowEngine>,
    ) -> Result<usize, WorkflowError> {
        let (some_wait, next) = due(&engine.worker, self.under_way.clone()).await?;
        let (some_begin, first) = self.may_begin(&engine.worker).await?;
        if !some_wait && !some_begin {
            poll.due_at([next, first].into_iter().flatten().min());
            return Ok(0);
        }
        let mut seats = Vec::new();
        let mut room = poll.free();
        if let Some(most) = self.limits.concurrency {
            seats = self.seats.take(&engine.worker.claims, room, most).await?;
            room = seats.len();
        }
        if self.limits.rate.is_none() {
            let lanes = self.lanes().cloned().collect();
            return Ok(poll.claim(engine.claim_of(lanes), room, || seats.pop().map(Seat::used)).await?);
        }
        let lanes = engine.claim_of(self.under_way.clone());
        let under_way = poll.claim(lanes, room, || seats.pop().map(Seat::used)).await?;
        Ok(under_way + self.claim_new(engine, poll, room - under_way, &mut seats).await?)
    }

    /// Whether a run may begin that has not, and else when one may.
    async fn may_begin(&self, worker: &Worker) -> Result<(bool, Option<Timestamp>), WorkflowError> {
        let (due, first) = due(worker, self.new.clone()).await?;
        match self.limits.rate {
            Some(rate) if due => {
                let closed = pace::closed_until(&worker.store, &self.queue, rate).await?;
                Ok((closed.is_none(), closed))
            }
            _ => Ok((due, first)),
        }
    }

    /// Claims runs that have not begun, as many as the rate lets begin.
    async fn claim_new(
        &self,
        engine: &WorkflowEngine,
        poll: &mut Poll<'_, WorkflowEngine>,
        room: usize,
        seats: &mut Vec<Seat>,
    ) -> Result<usize, WorkflowError> {
        let Some(rate) = self.limits.rate.filter(|_| room > 0) else { return Ok(0) };
        let (may, next_at) = self.may_begin(&engine.worker).await?;
        if !may {
            poll.due_at(next_at);
            return Ok(0);
        }
        let (store, wanted) = (&engine.worker.store, u32::try_from(room).unwrap_or(u32::MAX));
        let share = pace::take(store, &self.queue, rate, wanted).await?;
        let granted = share.taken.granted;
        if granted == 0 {
            poll.due_at(Some(share.taken.next_at));
            return Ok(0);
        }
        let most = usize::try_from(granted).unwrap_or(usize::MAX).min(room);
        let spec = engine.claim_of(self.new.clone());
        // After a failed claim it is unknown how many runs it took, so nothing is given back.
        let count = poll.claim(spec, most, || seats.pop().map(Seat::used)).await?;
        let unused = granted.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        pace::give_back(store, &self.queue, rate, &share, unused).await?;
        Ok(count)
    }
}

/// Whether there is something in the lanes, and else when there is.
async fn due(worker: &Worker, lanes: Vec<Lane>) -> Result<(bool, Option<Timestamp>), WorkflowError> {
    let ask = Claim::lanes(&worker.owner, lanes, 0, worker.options.lease_ttl);
    let claimed = worker.store.claim(ask).await?;
    Ok((claimed.is_ready(), claimed.next_at))
}
