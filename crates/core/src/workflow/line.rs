//! One queue as a worker sees it: its lanes, its limits, and how it is claimed from when there are any.

use std::sync::Arc;

use super::claiming::{Claiming, Got};
use super::error::WorkflowError;
use super::queue::{self, QueueLimits};
use super::seats::Seats;
use super::shared::Shared;
use super::{names, pace};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::Lane;
use crate::lease::Hand;
use crate::store::Claim;

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
    pub(super) fn new(shared: &Shared, queue: &str) -> Self {
        let seats = Seats::new(&shared.store, &shared.owner, shared.options.ttl, queue);
        let (limits, new, under_way) = Default::default();
        Self { queue: queue.to_owned(), limits, new, under_way, seats }
    }

    /// Takes up what the store says of the queue.
    pub(super) async fn refresh(&mut self, shared: &Shared) -> Result<(), WorkflowError> {
        // Without limits that read, there are no lanes to look at.
        self.under_way.clear();
        self.new.clear();
        self.limits = queue::read(&shared.store, &self.queue).await?;
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
        claiming: &mut Claiming,
        hands: &mut Vec<Hand>,
    ) -> Result<Got, WorkflowError> {
        let (some_wait, next) = due(&claiming.shared, self.under_way.clone()).await?;
        let (some_begin, first) = self.may_begin(&claiming.shared).await?;
        if !some_wait && !some_begin {
            return Ok((0, [next, first].into_iter().flatten().min()));
        }
        let mut seats = Vec::new();
        if let Some(most) = self.limits.concurrency {
            seats = self.seats.take(&claiming.shared.claims, hands.len(), most).await?;
            if seats.is_empty() {
                // Whoever hands one back is heard.
                return Ok((0, None));
            }
        }
        let room = if self.limits.concurrency.is_some() { seats.len() } else { hands.len() };
        if self.limits.rate.is_none() {
            let lanes = self.lanes().cloned().collect();
            return Ok(claiming.take(lanes, room, hands, &mut seats).await?);
        }
        let (under_way, _) = claiming.take(self.under_way.clone(), room, hands, &mut seats).await?;
        let (new, next_at) = self.claim_new(claiming, room - under_way, hands, &mut seats).await?;
        Ok((under_way + new, next_at))
    }

    /// Whether a run may begin that has not, and else when one may.
    async fn may_begin(&self, shared: &Shared) -> Result<(bool, Option<Timestamp>), WorkflowError> {
        let (due, first) = due(shared, self.new.clone()).await?;
        match self.limits.rate {
            Some(rate) if due => {
                let closed = pace::closed_until(&shared.store, &self.queue, rate).await?;
                Ok((closed.is_none(), closed))
            }
            _ => Ok((due, first)),
        }
    }

    /// Claims runs that have not begun, as many as the rate lets begin.
    async fn claim_new(
        &self,
        claiming: &mut Claiming,
        room: usize,
        hands: &mut Vec<Hand>,
        seats: &mut Vec<super::seats::Seat>,
    ) -> Result<Got, WorkflowError> {
        let Some(rate) = self.limits.rate.filter(|_| room > 0) else { return Ok((0, None)) };
        let (may, next_at) = self.may_begin(&claiming.shared).await?;
        if !may {
            return Ok((0, next_at));
        }
        let wanted = u32::try_from(room).unwrap_or(u32::MAX);
        let store = Arc::clone(&claiming.shared.store);
        let share = pace::take(&store, &self.queue, rate, wanted).await?;
        let granted = share.taken.granted;
        if granted == 0 {
            return Ok((0, Some(share.taken.next_at)));
        }
        let most = usize::try_from(granted).unwrap_or(usize::MAX).min(room);
        let got = claiming.take(self.new.clone(), most, hands, seats).await;
        // Somebody else was faster; whether a claim that failed has taken any is not known.
        if let Ok((count, _)) = got {
            let unused = granted.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
            pace::give_back(&store, &self.queue, rate, &share, unused).await?;
        }
        Ok(got?)
    }
}

/// Whether there is something in the lanes, and else when there is.
async fn due(shared: &Shared, lanes: Vec<Lane>) -> Result<(bool, Option<Timestamp>), WorkflowError> {
    let ask = Claim::lanes(&shared.owner, lanes, 0, shared.options.ttl);
    let (first, now) = (shared.store.claim(ask).await?.next_at, shared.store.now().await?);
    Ok((first.is_some_and(|at| at.has_come(now)), first))
}
