//! The router of a reaction. It reads the log after its position. One batch wakes rows, copies events to inboxes and
//! records the position.
//!
//! Every process runs a router, and one of them holds the row. If that process dies, the batch is committed as a whole or
//! not at all. The next holder resumes from the position in the row, so no event is skipped or routed twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decide::Plan;
use super::definition::Definition;
use super::error::ReactionsError;
use super::keys;
use super::parked::Note;
use super::stored::{DefinitionState, Stored, StoredAt};
use crate::id::{DocVersion, Position};
use crate::key::Key;
use crate::lease::LeaseError;
use crate::model::lease::{self, held_against};
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{
    Batch, Claim, Event, EventPage, Expect, Get, LogQuery, NewWork, Refusal, StoreError, Watch,
};
use crate::telemetry::REACTIONS;
use crate::worker::{Committed, LeasedWork, Worker, idle};

/// The number of events that are read at once.
const PAGE: usize = 500;

/// The router of one reaction in this process.
pub(super) struct Router {
    worker: Arc<Worker>,
    definition: Arc<Definition>,
    hints: Watch,
}

/// The result of claiming the router row.
enum Taken {
    Mine(Box<Reading>),
    /// Another process routes, as far as is known; the duration until its lease expires.
    Others(Option<Duration>),
}

/// The state of a router that holds its row.
struct Reading {
    work: LeasedWork,
    /// The current definition, which every commit checks.
    stored: Arc<Stored>,
    version: DocVersion,
    /// The position up to which the log was read.
    position: Position,
    /// The position recorded in the row.
    noted: Position,
    noted_at: Instant,
    /// Whether the log was read since the row was claimed.
    begun: bool,
}

/// Whether the router keeps its row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RouterFlow {
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
                Ok(Taken::Others(wait)) => {
                    let longest = self.worker.options.poll_interval;
                    let wait = wait.map_or(longest, |wait| wait.max(idle::MIN_POLL_DELAY).min(longest));
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

    /// Claims the row if no other process holds it. Reading the row first is cheaper than claiming it.
    async fn take(&self) -> Result<Taken, ReactionsError> {
        let (store, owner) = (&self.worker.store, &self.worker.owner);
        let (name, ttl) = (&self.definition.name, self.definition.ttl);
        let key = keys::router(name)?;
        let Some(StoredAt { stored, .. }) = self.stored().await? else { return Ok(Taken::Others(None)) };
        let mut found = store.read(&[Get::Work(key.clone())]).await?;
        let Some(row) = found.take_work(0).filter(|_| stored.has_rows) else {
            self.definition.prepare(store).await?;
            return Ok(Taken::Others(Some(Duration::ZERO)));
        };
        if row.blocked.is_some() {
            return Ok(Taken::Others(None));
        }
        if let Some(holder) = held_against(&row, owner, found.now) {
            return Ok(Taken::Others(Some(holder.until.since(found.now))));
        }
        let sent = process::now();
        let claimed = self.worker.claims.send(Claim::existing(owner, &key, ttl)).await?;
        let Some(grant) = claimed.grants.first() else { return Ok(Taken::Others(None)) };
        let work = LeasedWork::start(store, grant, ttl, sent).map_err(LeaseError::from)?;
        // Read under the lease, because a reset fences the row in the batch that changes the definition.
        let Some(StoredAt { stored, version }) = self.stored().await? else {
            work.release().await;
            return Ok(Taken::Others(None));
        };
        let position = grant.row.position.unwrap_or(Position(0));
        let (noted, noted_at) = (position, process::now());
        let reading = Reading { work, stored, version, position, noted, noted_at, begun: false };
        Ok(Taken::Mine(Box::new(reading)))
    }

    /// Returns the stored definition, if this process has the same one.
    async fn stored(&self) -> Result<Option<StoredAt>, ReactionsError> {
        let found = StoredAt::read(&self.worker.store, &self.definition.name).await?;
        let standing = self.definition.compare(found.as_ref().map(|found| &*found.stored));
        Ok(found.filter(|_| standing == DefinitionState::Current))
    }

    /// Commits under the lease of the row, on condition that the definition has not changed. A page that was read under an
    /// older definition is never committed.
    async fn commit(&self, reading: &Reading, batch: Batch) -> Committed {
        let Ok(definition) = keys::definition(&self.definition.name) else { return Committed::Gone };
        let guarded = Batch::new().guard_document(&definition, Expect::Exact(reading.version)).and(batch);
        match reading.work.commit(guarded).await {
            Committed::Refused(refusal) if is_about(&refusal, &definition) => {
                reading.work.release().await;
                Committed::Gone
            }
            other => other,
        }
    }

    /// Routes until the row is lost, blocked or released.
    async fn route(&mut self, mut reading: Reading) {
        while reading.work.lost().is_none() {
            if self.worker.stopping.is_cancelled() {
                let _ = self.note(&mut reading).await;
                return reading.work.release().await;
            }
            if reading.work.is_of_another_epoch() {
                // The position in memory may belong to a lost event; the row has the valid one.
                return reading.work.release().await;
            }
            let looked = process::now();
            let query =
                LogQuery { filter: reading.stored.filter(), ..LogQuery::after(reading.position, PAGE) };
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
            if self.route_page(&mut reading, &page).await == RouterFlow::Over {
                return;
            }
            if !page.end {
                tokio::task::yield_now().await;
                continue;
            }
            if looked.duration_since(reading.noted_at) >= self.worker.options.poll_interval
                && self.note(&mut reading).await == RouterFlow::Over
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

    /// Handles a position that is not part of the store's history. A position from memory is replaced by that of the row.
    /// If the position of the row is invalid, the router is blocked until an operator decides.
    async fn displaced(&self, reading: &Reading, error: &StoreError) {
        if reading.begun {
            return reading.work.release().await;
        }
        self.block(reading, &error.to_string()).await;
    }

    /// Routes the events of a page in one or more batches.
    async fn route_page(&self, reading: &mut Reading, page: &EventPage) -> RouterFlow {
        let stored = Arc::clone(&reading.stored);
        let routing = self.definition.routing(&stored);
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
                && self.commit_plan(reading, plan, to).await == RouterFlow::Over
            {
                return RouterFlow::Over;
            }
            match (stuck, left) {
                (None, []) => return RouterFlow::On,
                (None, more) => rest = more,
                (Some(reason), [event, more @ ..]) => {
                    if self.stuck(reading, event, &reason).await == RouterFlow::Over {
                        return RouterFlow::Over;
                    }
                    rest = more;
                }
                (Some(_), []) => return RouterFlow::On,
            }
        }
    }

    /// Commits a plan with the progress. Progress without routed events is committed only from time to time.
    async fn commit_plan(&self, reading: &mut Reading, plan: Plan, to: Position) -> RouterFlow {
        reading.position = to;
        if plan.events == 0 {
            return RouterFlow::On;
        }
        let (rows, events) = (plan.wakes.len(), plan.events);
        let batch = self.batch(plan).advance(reading.work.lease(), to);
        match self.commit(reading, batch).await {
            Committed::Done(_) => {
                (reading.noted, reading.noted_at) = (to, process::now());
                self.definition.counters.routed.add(events);
                self.worker.wake.notify_one();
                tracing::trace!(target: REACTIONS, reaction = %self.definition.name, events, rows, %to, "routed");
                RouterFlow::On
            }
            Committed::Gone => RouterFlow::Over,
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
            let standing = NewWork::standing(wake.row, self.definition.queue().clone());
            batch.enqueue(NewWork { follow: Some(wake.follow), position: Some(wake.from), ..standing })
        })
    }

    /// Parks an event that cannot be routed as a dead letter, and continues with the others. If parking fails, the router
    /// is blocked until an operator decides.
    async fn stuck(&self, reading: &mut Reading, event: &Event, reason: &str) -> RouterFlow {
        let reason = format!("the event at position {} cannot be routed: {reason}", event.position);
        let Ok(now) = self.worker.store.now().await else {
            reading.work.release().await;
            return RouterFlow::Over;
        };
        let note = Note::new(event, &reason, 0, now).unrouted();
        if let Ok(batch) = note.written(Batch::new(), &self.definition.name, &event.stream) {
            match self.commit(reading, batch.advance(reading.work.lease(), event.position)).await {
                Committed::Done(_) => {
                    reading.position = event.position;
                    reading.noted = event.position;
                    self.definition.counters.parked.add(1);
                    tracing::error!(target: REACTIONS, reaction = %self.definition.name, reason, "event parked");
                    return RouterFlow::On;
                }
                Committed::Gone => return RouterFlow::Over,
                Committed::Refused(_) => {}
            }
        }
        self.block(reading, &reason).await
    }

    async fn block(&self, reading: &Reading, reason: &str) -> RouterFlow {
        let batch = Batch::new().block(reading.work.lease(), reason);
        if let Committed::Done(_) = self.commit(reading, batch).await {
            self.definition.counters.blocked.add(1);
            tracing::error!(target: REACTIONS, reaction = %self.definition.name, reason, "a router is blocked");
        }
        RouterFlow::Over
    }

    /// Records how far the log was read. If there is nothing to record, checks that the row and the definition still belong
    /// to this process. A reset or a newer definition takes effect without waiting for the next event.
    async fn note(&self, reading: &mut Reading) -> RouterFlow {
        reading.noted_at = process::now();
        if reading.position > reading.noted {
            reading.noted = reading.position;
            let lease = reading.work.lease();
            let noted = self.commit(reading, Batch::new().advance(lease, reading.position)).await;
            return if matches!(noted, Committed::Gone) { RouterFlow::Over } else { RouterFlow::On };
        }
        match self.stored().await {
            Ok(Some(found)) if found.version == reading.version => {}
            Ok(_) => {
                reading.work.release().await;
                return RouterFlow::Over;
            }
            Err(_) => return RouterFlow::On,
        }
        let lease = reading.work.lease();
        match self.worker.store.work(&lease.key).await {
            Ok(row) if lease::check(row.as_ref(), lease).is_err() => RouterFlow::Over,
            _ => RouterFlow::On,
        }
    }
}

/// Returns whether a batch was refused because of a document.
fn is_about(refusal: &Refusal, document: &Key) -> bool {
    matches!(refusal, Refusal::Document { key, .. } if key == document)
}
