//! The router of a reaction: reads the log after its position, and commits which rows are woken, what is copied to inboxes
//! and how far it has come, in one batch.
//!
//! Every process runs one, and one of them holds the row. If it dies anywhere, the batch is there as a whole or not at all,
//! and the next holder goes on from the position that the row says: no event is left out, and none is routed twice.

use std::sync::Arc;
use std::time::Instant;

use super::decide::Plan;
use super::definition::{Definition, Noted};
use super::error::ReactionsError;
use super::names;
use super::parked::Note;
use super::reaction::WhenExhausted;
use crate::clock::Timestamp;
use crate::id::Position;
use crate::lease::LeaseError;
use crate::model::lease::{self, held_against};
use crate::runtime::timer::sleep_until;
use crate::store::{Batch, Claim, Event, EventPage, Expect, LogQuery, NewWork, StoreError, Watch};
use crate::telemetry::REACTIONS;
use crate::worker::{Committed, LeasedWork, Worker, idle};

/// How many events are read at once.
const PAGE: usize = 500;

/// The router of one reaction in this process.
pub(super) struct Router {
    worker: Arc<Worker>,
    definition: Arc<Definition>,
    hints: Watch,
}

/// Whether this process may route.
enum Taken {
    Mine(Box<Reading>),
    /// Somebody else does, as far as is known until then.
    Others(Option<Timestamp>),
}

/// A log that is being read.
struct Reading {
    work: LeasedWork,
    generation: u64,
    /// Up to where the log was looked at.
    position: Position,
    /// Up to where the row says so.
    noted: Position,
    noted_at: Instant,
    /// Whether the log was read since the row was taken.
    begun: bool,
}

/// Whether the router goes on with its row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Over,
}

impl Router {
    pub(super) fn new(worker: Arc<Worker>, definition: Arc<Definition>) -> Self {
        let hints = worker.store.watch();
        Self { worker, definition, hints }
    }

    pub(super) async fn run(mut self) {
        while !self.worker.stopping.is_cancelled() {
            match self.take().await {
                Ok(Taken::Mine(reading)) => self.route(*reading).await,
                Ok(Taken::Others(until)) => {
                    let wait = self.worker.until(until).await;
                    self.worker.pause(wait).await;
                }
                Err(ReactionsError::Store(error)) => {
                    tracing::warn!(target: REACTIONS, %error, "router row not claimed");
                    self.worker.back_off(&error).await;
                }
                Err(error) => {
                    let reaction = &self.definition.name;
                    tracing::error!(target: REACTIONS, %reaction, %error, "router row not claimed");
                    self.worker.pause(self.worker.options.poll_interval).await;
                }
            }
        }
    }

    /// Takes the row if nobody holds it. Looking is cheaper than asking for it.
    async fn take(&self) -> Result<Taken, ReactionsError> {
        let (store, owner) = (&self.worker.store, &self.worker.owner);
        let (name, ttl) = (&self.definition.name, self.definition.ttl);
        let key = names::router(name)?;
        let Some(row) = store.work(&key).await? else {
            self.definition.subscribe(store).await?;
            return Ok(Taken::Others(Some(Timestamp::EPOCH)));
        };
        if row.blocked.is_some() {
            return Ok(Taken::Others(None));
        }
        if let Some(holder) = held_against(&row, owner, store.now().await?) {
            return Ok(Taken::Others(Some(holder.until)));
        }
        let sent = Instant::now();
        let claimed = self.worker.claims.send(Claim::existing(owner, &key, ttl)).await?;
        let Some(grant) = claimed.grants.first() else { return Ok(Taken::Others(None)) };
        let work = LeasedWork::start(store, grant, ttl, sent).map_err(LeaseError::from)?;
        // Read under the lease: whoever begins another life of the reaction takes the row away in the same batch.
        let noted = store.document(&names::definition(name)?).await?;
        let noted = noted.as_ref().map(Noted::read).transpose()?;
        let generation = noted.as_ref().map_or(0, |noted| noted.generation);
        if noted.is_none_or(|noted| noted.keyed.is_none()) {
            // It was reset, and nobody has said since what it is.
            self.definition.subscribe(store).await?;
        }
        let position = grant.row.position.unwrap_or(Position(0));
        let (noted, noted_at) = (position, Instant::now());
        let reading = Reading { work, generation, position, noted, noted_at, begun: false };
        Ok(Taken::Mine(Box::new(reading)))
    }

    /// Routes until the row is lost, blocked, or to be handed back.
    async fn route(&mut self, mut reading: Reading) {
        while reading.work.lost().is_none() {
            if self.worker.stopping.is_cancelled() {
                let _ = self.note(&mut reading).await;
                return reading.work.release().await;
            }
            if reading.work.is_of_another_epoch() {
                // The position in memory may be that of a lost event; the row knows better.
                return reading.work.release().await;
            }
            let looked = Instant::now();
            let query = LogQuery {
                filter: self.definition.interest.filter(),
                ..LogQuery::after(reading.position, PAGE)
            };
            let page = match self.worker.store.read_log(query).await {
                Ok(page) => page,
                Err(error) if error.continue_after.is_some() => {
                    return self.displaced(&reading, &error).await;
                }
                Err(error) => {
                    tracing::warn!(target: REACTIONS, %error, "log read failed");
                    self.worker.back_off(&error).await;
                    continue;
                }
            };
            reading.begun = true;
            if self.route_page(&mut reading, &page).await == Flow::Over {
                return;
            }
            if !page.end {
                tokio::task::yield_now().await;
                continue;
            }
            if looked.duration_since(reading.noted_at) >= self.worker.options.poll_interval
                && self.note(&mut reading).await == Flow::Over
            {
                return;
            }
            tokio::select! {
                biased;
                () = self.worker.stopping.cancelled() => {}
                () = reading.work.token().cancelled() => return,
                () = idle::hinted(&mut self.hints, looked + idle::MIN_POLL_DELAY) => {}
                () = sleep_until(looked + self.worker.options.poll_interval) => {}
            }
        }
    }

    /// The position is not part of the store's history. One from memory is dropped for that of the row; if that is the bad
    /// one, nothing is routed until an operator has decided.
    async fn displaced(&self, reading: &Reading, error: &StoreError) {
        if reading.begun {
            return reading.work.release().await;
        }
        self.block(reading, &error.to_string()).await;
    }

    /// Routes the events of a page, in as many batches as they need.
    async fn route_page(&self, reading: &mut Reading, page: &EventPage) -> Flow {
        let routing = self.definition.routing(reading.generation);
        let mut rest = page.events.as_slice();
        loop {
            let plan = routing.plan(rest);
            let (covered, left) = rest.split_at_checked(plan.covered).unwrap_or((rest, &[]));
            let to = match left {
                [] => page.scanned_to,
                _ => covered.last().map(|event| event.position),
            };
            let stuck = plan.stuck.clone();
            if let Some(to) = to.filter(|to| *to > reading.position)
                && self.carry_out(reading, plan, to).await == Flow::Over
            {
                return Flow::Over;
            }
            match (stuck, left) {
                (None, []) => return Flow::On,
                (None, more) => rest = more,
                (Some(reason), [event, more @ ..]) => {
                    if self.stuck(reading, event, &reason).await == Flow::Over {
                        return Flow::Over;
                    }
                    rest = more;
                }
                (Some(_), []) => return Flow::On,
            }
        }
    }

    /// Commits a plan with the progress. Progress alone is committed now and then only.
    async fn carry_out(&self, reading: &mut Reading, plan: Plan, to: Position) -> Flow {
        reading.position = to;
        if plan.events == 0 {
            return Flow::On;
        }
        let (rows, events) = (plan.wakes.len(), plan.events);
        let batch = self.batch(plan).advance(reading.work.lease(), to);
        match reading.work.commit(batch).await {
            Committed::Done(_) => {
                (reading.noted, reading.noted_at) = (to, Instant::now());
                self.definition.counters.routed.add(events);
                self.worker.wake.notify_one();
                tracing::trace!(target: REACTIONS, reaction = %self.definition.name, events, rows, %to, "routed");
                Flow::On
            }
            Committed::Gone => Flow::Over,
            Committed::Refused(refusal) => {
                let reason = format!("routing up to position {to} is refused: {refusal}");
                self.block(reading, &reason).await
            }
        }
    }

    fn batch(&self, plan: Plan) -> Batch {
        let Plan { wakes, copies, .. } = plan;
        let batch = copies
            .into_iter()
            .fold(Batch::new(), |batch, (inbox, events)| batch.append(&inbox, Expect::Any, events));
        wakes.into_values().fold(batch, |batch, wake| {
            let standing = NewWork::standing(wake.row, self.definition.lane.clone());
            batch.enqueue(NewWork { follow: Some(wake.follow), position: Some(wake.from), ..standing })
        })
    }

    /// An event cannot be routed: it is set aside, or nothing is routed until somebody has looked at it.
    async fn stuck(&self, reading: &mut Reading, event: &Event, reason: &str) -> Flow {
        let reason = format!("the event at position {} cannot be routed: {reason}", event.position);
        if self.definition.rules.exhausted == WhenExhausted::Park
            && let Ok(now) = self.worker.store.now().await
            && let Ok(batch) =
                Note::new(event, &reason, 0, now).written(Batch::new(), &self.definition.name, &event.stream)
            && let Committed::Done(_) =
                reading.work.commit(batch.advance(reading.work.lease(), event.position)).await
        {
            reading.position = event.position;
            reading.noted = event.position;
            self.definition.counters.parked.add(1);
            tracing::error!(target: REACTIONS, reaction = %self.definition.name, reason, "an event was parked");
            return Flow::On;
        }
        self.block(reading, &reason).await
    }

    async fn block(&self, reading: &Reading, reason: &str) -> Flow {
        let batch = Batch::new().block(reading.work.lease(), reason);
        if let Committed::Done(_) = reading.work.commit(batch).await {
            self.definition.counters.blocked.add(1);
            tracing::error!(target: REACTIONS, reaction = %self.definition.name, reason, "a router is blocked");
        }
        Flow::Over
    }

    /// Writes down how far the log was looked at, for those who look on. If there is nothing to write, looks whether the row
    /// is still ours: whoever resets the reaction takes it away, and does not want to wait for the next event.
    async fn note(&self, reading: &mut Reading) -> Flow {
        reading.noted_at = Instant::now();
        let lease = reading.work.lease();
        if reading.position > reading.noted {
            reading.noted = reading.position;
            let noted = reading.work.commit(Batch::new().advance(lease, reading.position)).await;
            return if matches!(noted, Committed::Gone) { Flow::Over } else { Flow::On };
        }
        match self.worker.store.work(&lease.key).await {
            Ok(row) if lease::check(row.as_ref(), lease).is_err() => Flow::Over,
            _ => Flow::On,
        }
    }
}
