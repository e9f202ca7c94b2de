//! A queue of a worker: its lanes, its limits, and how runs are claimed within the limits.

use std::sync::Arc;

use super::concurrency_slots::{ConcurrencySlot, ConcurrencySlots};
use super::engine::WorkflowEngine;
use super::error::WorkflowError;
use super::keys;
use super::queue::{self, QueueLimits};
use super::rate_limit::RateState;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::QueueName;
use crate::model::rate::Rate;
use crate::worker::{Poll, Worker};

/// One queue, as a worker polls it.
#[derive(Clone, Debug)]
pub(super) struct QueuePoller {
    queue: String,
    pub(super) limits: QueueLimits,
    /// The lanes of runs that have not begun.
    new: Vec<QueueName>,
    /// The lanes of runs that have begun.
    under_way: Vec<QueueName>,
    pub(super) seats: Arc<ConcurrencySlots>,
}

impl QueuePoller {
    pub(super) fn new(worker: &Worker, queue: &str) -> Self {
        let seats = ConcurrencySlots::new(&worker.store, &worker.owner, worker.options.lease_ttl, queue);
        let (limits, new, under_way) = Default::default();
        Self { queue: queue.to_owned(), limits, new, under_way, seats }
    }

    /// Reads the limits of the queue from the store, and derives its lanes.
    pub(super) async fn refresh(&mut self, engine: &WorkflowEngine) -> Result<(), WorkflowError> {
        // While the limits cannot be read, there are no lanes to claim from.
        self.under_way.clear();
        self.new.clear();
        self.limits = queue::read(&engine.worker.store, &self.queue).await?;
        if self.limits.concurrency.is_none() {
            self.seats.hand_back().await;
        }
        self.under_way = vec![keys::queue_name(&self.queue)?];
        self.new = vec![keys::new_queue_name(&self.queue)?];
        if self.limits.fair {
            let shares = (0..keys::SHARES).map(|share| keys::share_queue_name(&self.queue, share));
            self.new.extend(shares.collect::<Result<Vec<_>, InvalidInput>>()?);
        }
        Ok(())
    }

    /// Returns the name of the queue.
    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns all lanes of the queue.
    pub(super) fn queue_names(&self) -> impl Iterator<Item = &QueueName> {
        self.new.iter().chain(&self.under_way)
    }

    /// Claims the runs that the limits admit. Nothing is written while no run may begin or continue.
    pub(super) async fn claim(
        &self,
        engine: &WorkflowEngine,
        poll: &mut Poll<'_, WorkflowEngine>,
    ) -> Result<usize, WorkflowError> {
        let worker = &engine.worker;
        let Some(limit) = self.limits.rate else {
            let lanes: Vec<QueueName> = self.queue_names().cloned().collect();
            let ready = worker.store.next_ready(&lanes).await?;
            if !ready.is_ready() {
                poll.due_at(ready.at, ready.now);
                return Ok(0);
            }
            let (room, mut seats) = self.room(worker, poll.free()).await?;
            return Ok(poll
                .claim(engine.claim_of(lanes), room, || seats.pop().map(ConcurrencySlot::used))
                .await?);
        };
        let (begun, new) =
            tokio::try_join!(worker.store.next_ready(&self.under_way), worker.store.next_ready(&self.new),)?;
        let mut rate = None;
        if new.is_ready() {
            rate = Some((limit, RateState::read(&worker.store, &self.queue).await?));
        }
        let closed = rate.as_ref().and_then(|(limit, state)| state.closed_until(*limit, new.now));
        let may_begin = new.is_ready() && closed.is_none();
        if !begun.is_ready() && !may_begin {
            poll.due_at(begun.at, begun.now);
            poll.due_at(closed.or(new.at), new.now);
            return Ok(0);
        }
        let (room, mut seats) = self.room(worker, poll.free()).await?;
        let mut claimed = 0;
        if begun.is_ready() {
            let spec = engine.claim_of(self.under_way.clone());
            claimed = poll.claim(spec, room, || seats.pop().map(ConcurrencySlot::used)).await?;
        }
        if let Some(rate) = rate.filter(|_| may_begin && room > claimed) {
            claimed += self.claim_new(engine, poll, rate, (room - claimed, new.now), &mut seats).await?;
        }
        Ok(claimed)
    }

    /// Takes seats for up to `free` runs if the queue limits its concurrency. Returns how many runs may be claimed, and the seats.
    async fn room(
        &self,
        worker: &Worker,
        free: usize,
    ) -> Result<(usize, Vec<ConcurrencySlot>), WorkflowError> {
        match self.limits.concurrency.filter(|_| free > 0) {
            Some(most) => {
                let seats = self.seats.take(&worker.claims, free, most).await?;
                Ok((seats.len(), seats))
            }
            None => Ok((free, Vec::new())),
        }
    }

    /// Claims runs that have not begun, within the rate.
    async fn claim_new(
        &self,
        engine: &WorkflowEngine,
        poll: &mut Poll<'_, WorkflowEngine>,
        (rate, state): (Rate, RateState),
        (room, now): (usize, Timestamp),
        seats: &mut Vec<ConcurrencySlot>,
    ) -> Result<usize, WorkflowError> {
        let (store, wanted) = (&engine.worker.store, u32::try_from(room).unwrap_or(u32::MAX));
        let share = state.take(store, &self.queue, rate, (wanted, now)).await?;
        let granted = share.taken.granted;
        if granted == 0 {
            poll.due_at(Some(share.taken.next_at), now);
            return Ok(0);
        }
        let most = usize::try_from(granted).unwrap_or(usize::MAX).min(room);
        let spec = engine.claim_of(self.new.clone());
        // After a failed claim it is unknown how many runs it took, so nothing is given back.
        let count = poll.claim(spec, most, || seats.pop().map(ConcurrencySlot::used)).await?;
        let unused = granted.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        share.give_back(store, &self.queue, rate, unused).await?;
        Ok(count)
    }
}
