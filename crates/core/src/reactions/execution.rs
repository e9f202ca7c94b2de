//! Execution of one grant. The events of a key are handled in order, and their effects are committed with the progress.
//!
//! If the process dies, uncommitted events have no effect in the store, and committed events have all their effects.
//! Another worker claims the row when its lease expires. The attempts remain counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::decide::{self, End, Pace, Verdict};
use super::definition::Definition;
use super::invoke::{Call, Called};
use super::row_note::RowNote;
use super::stored::Stored;
use super::suspect;
use super::{inbox, parked};
use crate::clock::{Due, Timestamp};
use crate::error::{Explain as _, Retry};
use crate::failure::Failure;
use crate::id::{Position, StreamVersion};
use crate::key::Key;
use crate::runtime::jitter::fraction;
use crate::store::{Batch, Effect, Event, Grant, Lease, NewWork, Refusal};
use crate::telemetry::{REACTION_AGE_SECONDS, REACTIONS, seconds};
use crate::worker::{Committed, LeasedWork, LostReason, Worker};

/// The number of identical refusals in a row after which a refusal counts as a failure. Until then the handler runs again
/// at once. An identical refusal means that no other process wrote in between.
const SAME_REFUSALS: u32 = 5;
/// The number of lost races in a row after which the row is deferred, so that others get its slot.
const LOST_RACES: u32 = 20;
/// The longest such deferral.
const RACE_WAIT: Duration = Duration::from_millis(100);

/// The refusals of the effects of one event.
#[derive(Debug, Default)]
struct Races {
    last: Option<Refusal>,
    same: u32,
    lost: u32,
}

/// The consequence of a refusal that may be a lost race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Race {
    /// The race was, or may have been, lost. The handler runs again.
    Again,
    /// Too many races in a row were lost. The row is deferred.
    Later,
    /// No other process wrote. The refusal is the handler's failure.
    None,
}

impl Races {
    /// Records a refusal. If it differs from the last one, another process has written since, and the race was lost. A lost
    /// race is not a failure.
    fn lost(&mut self, refusal: &Refusal) -> Race {
        self.same = if self.last.as_ref() == Some(refusal) { self.same + 1 } else { 0 };
        self.last = Some(refusal.clone());
        self.lost += 1;
        match (self.same, self.lost) {
            (SAME_REFUSALS.., _) => Race::None,
            (0, LOST_RACES..) => Race::Later,
            _ => Race::Again,
        }
    }
}

/// An event to handle, and the position of its row afterwards.
#[derive(Debug)]
struct Item {
    to: Position,
    event: Event,
    /// The reason why the event cannot be handled at all.
    broken: Option<String>,
}

/// Handled events and their uncommitted effects.
#[derive(Debug)]
struct Step {
    items: Vec<Item>,
    effects: Batch,
}

/// Whether the grant continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantFlow {
    On,
    Over,
}

/// A grant in progress.
pub(super) struct Job {
    worker: Arc<Worker>,
    definition: Arc<Definition>,
    key: Key,
    grant: Grant,
    work: LeasedWork,
    /// Attempts since the last progress, including the current one.
    attempts: u32,
    races: Races,
    pace: Pace,
    /// Events to handle.
    queue: VecDeque<Item>,
    /// Handled events that are not committed.
    handled: Vec<Step>,
    /// The position of the last event of the grant, and the state of the row after it.
    last: Option<Position>,
    end: End,
    /// The inbox of the key, and the version below which it is truncated at the end of the grant.
    inbox: Option<(Key, StreamVersion)>,
}

impl Job {
    pub(super) fn new(
        worker: Arc<Worker>,
        definition: Arc<Definition>,
        stored: Arc<Stored>,
        key: Key,
        mut grant: Grant,
        work: LeasedWork,
    ) -> Self {
        let mut events = std::mem::take(&mut grant.events);
        // Reactions that share a queue claim with the largest of their limits.
        events.truncate(definition.events);
        let end = decide::end(grant.more || events.len() >= definition.events);
        let last = events.last().map(|event| event.position);
        let copied = events.last().filter(|_| definition.to.is_some());
        let inbox = copied.map(|copy| (copy.stream.clone(), copy.version.next()));
        let queue = wanted(&stored, events);
        let attempts = grant.row.attempts;
        let (pace, races, handled) = (decide::pace(attempts), Races::default(), Vec::new());
        Self { worker, definition, key, grant, work, attempts, races, pace, queue, handled, last, end, inbox }
    }

    pub(super) async fn run(mut self) {
        self.definition.counters.grants.add(1);
        let note = RowNote::of(&self.grant.row);
        if let Some(RowNote::PutOff { until, .. }) = note
            && self.granted_at().is_some_and(|now| !until.has_come(now))
        {
            // New events wake the row before the deferral that its handler asked for has passed.
            return drop(self.commit(Batch::new().defer(self.lease(), Due::At(until))).await);
        }
        let Some(first) = self.queue.front() else {
            return drop(self.commit(self.ended(Batch::new())).await);
        };
        self.note_lag(first.event.at);
        let mut flow = match self.sentenced(note) {
            Some(verdict) => self.sentence(verdict).await,
            None => GrantFlow::On,
        };
        while flow == GrantFlow::On {
            flow = self.turn().await;
            // The store may return without yielding; other tasks need to run.
            tokio::task::yield_now().await;
        }
        if self.end == End::More {
            self.worker.wake.notify_one();
        }
    }

    fn lease(&self) -> &Lease {
        self.work.lease()
    }

    fn granted_at(&self) -> Option<Timestamp> {
        self.grant.row.lease.as_ref().map(|lease| lease.since)
    }

    /// Returns the verdict that precedes the handler: an operator parked the event, or the attempts are used up.
    fn sentenced(&self, note: Option<RowNote>) -> Option<Verdict> {
        if let Some(RowNote::Park { error, .. }) = note {
            return Some(Verdict::Park { error });
        }
        self.definition.rules.before(self.attempts, self.grant.row.last_error.as_deref())
    }

    fn note_lag(&self, at: Timestamp) {
        let waited = self.granted_at().map_or(Duration::ZERO, |granted| granted.since(at));
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.definition.counters.lag_micros.store(micros, Ordering::Relaxed);
        seconds(REACTION_AGE_SECONDS, Duration::from_micros(micros));
    }

    /// Passes the next events to the handler, and acts on the result.
    async fn turn(&mut self) -> GrantFlow {
        if self.worker.stopping.is_cancelled() {
            return self.stop().await;
        }
        let bite = self.pace.bite(self.definition.several(), self.queue.len());
        let items: Vec<Item> = self.queue.drain(..bite).collect();
        if let Some(reason) = items.iter().find_map(|item| item.broken.clone()) {
            return self.failed(items, Failure::permanent(reason)).await;
        }
        let call = Call {
            worker: &self.worker,
            definition: &self.definition,
            key: &self.key,
            attempt: self.attempts,
            lease: self.work.token(),
        };
        match call.run(items.iter().map(|item| item.event.clone()).collect()).await {
            Called::Did(effects) => {
                self.handled.push(Step { items, effects: effects.0 });
                let handled = self.handled.iter().map(|step| step.items.len()).sum();
                if self.pace.commits(handled, self.definition.together, self.queue.len()) {
                    return self.progress().await;
                }
                GrantFlow::On
            }
            Called::Failed(failure) => self.failed(items, failure).await,
            Called::Lost => self.lost(),
            Called::Cut => self.stop().await,
        }
    }

    /// Commits the handled events. When the queue is empty, the commit also ends the grant.
    async fn progress(&mut self) -> GrantFlow {
        let steps = std::mem::take(&mut self.handled);
        let last = self.queue.is_empty();
        let batch = if last { self.ended(effects_of(&steps)) } else { self.done(&steps) };
        match self.commit(batch).await {
            Committed::Done(_) => {
                self.progressed(&steps);
                if last { GrantFlow::Over } else { GrantFlow::On }
            }
            Committed::Gone => GrantFlow::Over,
            Committed::Refused(refusal) => self.refused(steps, &refusal).await,
        }
    }

    fn progressed(&mut self, steps: &[Step]) {
        if !steps.is_empty() {
            self.definition.counters.handled.add(steps.iter().map(|step| step.items.len()).sum());
            self.attempts = 1;
            self.races = Races::default();
        }
    }

    /// Handles a refusal of the effects by the store.
    async fn refused(&mut self, steps: Vec<Step>, refusal: &Refusal) -> GrantFlow {
        let (steps_refused, events) = (steps.len(), steps.iter().map(|step| step.items.len()).sum::<usize>());
        self.put_back(steps);
        if steps_refused > 1 {
            // The handler may not have seen the effects of the event before. In separate commits it does.
            self.pace = Pace::Careful;
            return GrantFlow::On;
        }
        if refusal.retry() == Retry::Now {
            match self.races.lost(refusal) {
                Race::Again => return GrantFlow::On,
                Race::Later => return self.outrun().await,
                Race::None => {}
            }
        }
        if events > 1 {
            self.pace = Pace::Careful;
            return GrantFlow::On;
        }
        let failure = match refusal {
            Refusal::Invalid(_) => Failure::permanent(format!("its effects are refused: {refusal}")),
            _ => Failure::new(format!("its effects are refused: {refusal}")),
        };
        self.judge(&failure).await
    }

    /// Defers the row briefly after many lost races, without counting an attempt.
    async fn outrun(&mut self) -> GrantFlow {
        let wait = RACE_WAIT.mul_f64(fraction());
        let (reaction, key) = (&self.definition.name, &self.key);
        tracing::debug!(target: REACTIONS, %reaction, %key, ?wait, "reaction lost races, row deferred");
        drop(self.commit(Batch::new().defer(self.lease(), Due::After(wait))).await);
        GrantFlow::Over
    }

    /// Handles a failure of the handler.
    async fn failed(&mut self, items: Vec<Item>, failure: Failure) -> GrantFlow {
        let several = items.len() > 1;
        for item in items.into_iter().rev() {
            self.queue.push_front(item);
        }
        let last_chance = !self.definition.rules.retry.allows(self.attempts.saturating_add(1));
        if several && (last_chance || failure.is_permanent()) {
            // An event must not be given up because of another one.
            self.pace = Pace::Careful;
            return GrantFlow::On;
        }
        self.judge(&failure).await
    }

    async fn judge(&mut self, failure: &Failure) -> GrantFlow {
        let verdict = self.definition.rules.after(failure, self.attempts, fraction());
        self.sentence(verdict).await
    }

    /// Applies the verdict on the first event of the queue, in one commit with the events handled before it.
    async fn sentence(&mut self, verdict: Verdict) -> GrantFlow {
        let steps = std::mem::take(&mut self.handled);
        let batch = self.done(&steps);
        let batch = match &verdict {
            Verdict::Retry { error, wait } => {
                Some(batch.fail(self.lease(), error.as_str(), Due::After(*wait)))
            }
            Verdict::Block { reason } => {
                let batch = suspect::forget(batch, &self.grant.row);
                Some(batch.block(self.lease(), reason.as_str()))
            }
            Verdict::Defer(due) => self.deferred(batch, &steps, *due).await,
            Verdict::Park { error } => match self.parked(batch, error).await {
                Ok(parked) => parked,
                Err(reason) => {
                    self.put_back(steps);
                    return self.cannot_park(error, &reason).await;
                }
            },
        };
        let Some(batch) = batch else { return self.stop().await };
        match self.commit(batch).await {
            Committed::Done(_) => {
                self.progressed(&steps);
                self.pronounced(&verdict)
            }
            Committed::Gone => GrantFlow::Over,
            Committed::Refused(_) if !steps.is_empty() => {
                self.put_back(steps);
                self.pace = Pace::Careful;
                GrantFlow::On
            }
            Committed::Refused(refusal) => match verdict {
                Verdict::Park { error } => self.cannot_park(&error, &refusal.to_string()).await,
                _ => {
                    tracing::error!(target: REACTIONS, row = %self.grant.row.key, %refusal, "the end of a grant was refused");
                    self.stop().await
                }
            },
        }
    }

    /// Counts and logs a verdict. The grant continues only behind a parked event.
    fn pronounced(&mut self, verdict: &Verdict) -> GrantFlow {
        let (reaction, key, attempt, counters) =
            (&self.definition.name, &self.key, self.attempts, &self.definition.counters);
        match verdict {
            Verdict::Retry { error, wait } => {
                counters.failed.add(1);
                tracing::debug!(target: REACTIONS, %reaction, %key, attempt, error, ?wait, "a reaction failed");
            }
            Verdict::Block { reason } => {
                counters.blocked.add(1);
                tracing::error!(target: REACTIONS, %reaction, %key, attempt, reason, "a reaction is blocked");
            }
            Verdict::Defer(due) => {
                counters.deferred.add(1);
                tracing::debug!(target: REACTIONS, %reaction, %key, ?due, "a reaction put itself off");
            }
            Verdict::Park { error } => {
                counters.parked.add(1);
                tracing::error!(target: REACTIONS, %reaction, %key, attempt, error, "an event was parked");
                self.queue.pop_front();
                self.attempts = 1;
                self.races = Races::default();
                return if self.queue.is_empty() { GrantFlow::Over } else { GrantFlow::On };
            }
        }
        GrantFlow::Over
    }

    /// Builds the batch that defers the row. A note keeps the due time for workers that get the row earlier. Returns `None`
    /// when the store cannot be read.
    async fn deferred(&self, batch: Batch, steps: &[Step], due: Due) -> Option<Batch> {
        let now = self.worker.store.now().await.ok()?;
        let row = &self.grant.row;
        let position = last_item(steps).map(|item| item.to).or(row.position);
        let until = due.resolve(now);
        let note = RowNote::PutOff { until, position }.payload().ok()?;
        let work = NewWork::standing(row.key.clone(), self.definition.queue().clone()).priority(row.priority);
        let due = Due::At(until);
        Some(batch.defer(self.lease(), due).enqueue(work.due(due).payload(note)))
    }

    /// Builds the batch that parks the first event of the queue, and ends the grant if it is the last one. Returns `None`
    /// when the store cannot be read.
    async fn parked(&self, batch: Batch, error: &str) -> Result<Option<Batch>, String> {
        let Some(item) = self.queue.front() else { return Ok(Some(batch)) };
        let Ok(now) = self.worker.store.now().await else { return Ok(None) };
        let note = parked::Note::new(&item.event, error, self.attempts, now);
        let batch = note.written(batch, &self.definition.name, &self.key).map_err(|e| e.to_string())?;
        Ok(Some(if self.queue.len() == 1 { self.ended(batch) } else { self.advanced(batch, item.to) }))
    }

    /// Blocks the key of an event that cannot be parked, because the event must not be lost.
    async fn cannot_park(&mut self, error: &str, reason: &str) -> GrantFlow {
        let reason = format!("{error}; and the event cannot be parked: {reason}");
        let steps = std::mem::take(&mut self.handled);
        let batch = suspect::forget(self.done(&steps), &self.grant.row).block(self.lease(), reason.as_str());
        if matches!(self.commit(batch).await, Committed::Done(_)) {
            self.progressed(&steps);
            self.pronounced(&Verdict::Block { reason });
        }
        GrantFlow::Over
    }

    /// Releases the row, and commits the events handled so far.
    async fn stop(&mut self) -> GrantFlow {
        let steps = std::mem::take(&mut self.handled);
        let batch = self.done(&steps).release(self.lease());
        match self.commit(batch).await {
            Committed::Done(_) => self.progressed(&steps),
            Committed::Gone => {}
            Committed::Refused(_) => self.work.release().await,
        }
        GrantFlow::Over
    }

    fn lost(&self) -> GrantFlow {
        self.definition.counters.lost.add(1);
        if let Some(reason) = self.work.lost().filter(|reason| *reason != LostReason::Released) {
            let (reaction, key) = (&self.definition.name, &self.key);
            tracing::warn!(target: REACTIONS, %reaction, %key, %reason, "a handler was broken off: its lease is lost");
        }
        GrantFlow::Over
    }

    fn put_back(&mut self, steps: Vec<Step>) {
        for item in steps.into_iter().flat_map(|step| step.items).rev() {
            self.queue.push_front(item);
        }
    }

    /// Builds a batch with the effects of the handled events and the progress.
    fn done(&self, steps: &[Step]) -> Batch {
        let batch = effects_of(steps);
        match last_item(steps) {
            Some(item) => self.advanced(batch, item.to),
            None => batch,
        }
    }

    fn advanced(&self, batch: Batch, to: Position) -> Batch {
        batch.advance(self.lease(), to)
    }

    /// Adds the end of the grant to a batch, when all its events are handled or unwanted. The copies in the inbox are
    /// removed.
    fn ended(&self, batch: Batch) -> Batch {
        let batch = match self.last {
            Some(last) => self.advanced(batch, last),
            None => batch,
        };
        let batch = match &self.inbox {
            Some((inbox, below)) => batch.truncate(inbox, *below),
            None => batch,
        };
        match self.end {
            End::Rest => batch.ack(self.lease()),
            End::More => batch.defer(self.lease(), Due::Now),
        }
    }

    async fn commit(&self, batch: Batch) -> Committed {
        let mut committed = self.work.commit(batch.clone()).await;
        if let Some((inbox, step_to)) = self.too_much(&committed) {
            // The inbox holds more than one batch may truncate. The commit omits the truncation; one step of it follows,
            // and its result is ignored.
            committed = self.work.commit(without_truncate(batch, &inbox)).await;
            drop(self.worker.store.apply(Batch::new().truncate(&inbox, step_to)).await);
        }
        match &committed {
            Committed::Done(_) => self.definition.counters.batches.add(1),
            Committed::Gone => drop(self.lost()),
            Committed::Refused(_) => {}
        }
        committed
    }

    /// Returns the version up to which the inbox can be truncated, if a batch was refused because it truncates too much.
    fn too_much(&self, committed: &Committed) -> Option<(Key, StreamVersion)> {
        let Committed::Refused(refusal) = committed else { return None };
        let Refusal::TruncateTooMuch { stream, step_to, .. } = &**refusal else { return None };
        let (inbox, _) = self.inbox.as_ref().filter(|(inbox, _)| inbox == stream)?;
        Some((inbox.clone(), *step_to))
    }
}

/// Returns the batch without the truncation of a stream.
fn without_truncate(batch: Batch, of: &Key) -> Batch {
    let kept = |effect: &&Effect| !matches!(effect, Effect::Truncate { stream, .. } if stream == of);
    batch.effects().iter().filter(kept).cloned().fold(Batch::new(), Batch::with)
}

/// Returns the events of a grant that the reaction wants.
fn wanted(stored: &Stored, events: Vec<Event>) -> VecDeque<Item> {
    let item = |event: Event| {
        let to = event.position;
        let original = if stored.facts.keyed { inbox::original(&event) } else { Ok(event.clone()) };
        match original {
            Ok(event) => stored.wants(&event).then_some(Item { to, event, broken: None }),
            Err(error) => {
                let broken = Some(format!("cannot decode the inbox entry as an event: {error}"));
                Some(Item { to, event, broken })
            }
        }
    };
    events.into_iter().filter_map(item).collect()
}

fn effects_of(steps: &[Step]) -> Batch {
    steps.iter().fold(Batch::new(), |batch, step| batch.and(step.effects.clone()))
}

fn last_item(steps: &[Step]) -> Option<&Item> {
    steps.last().and_then(|step| step.items.last())
}
