//! A record of a store, as the tasks of this process change it together: whoever carries out runs everything that is queued,
//! in the order of arrival, on one draft, and writes once.
//!
//! The version that was written is carried to the next batch, so a warm write is one trip to the store. The store alone says
//! whether it is still the newest. If the process dies, the record is as the last acknowledged write left it, or the next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::error::StateError;
use super::mutator::{End, Mutator, Running};
use super::observe::{Change, Observer};
use super::ticket::Ticket;
use super::{Options, Outcome, State, reentry};
use crate::id::{DocVersion, OpId};
use crate::key::Key;
use crate::lock::sleep_until;
use crate::payload::Payload;
use crate::random::spread;
use crate::store::{
    ApplyError, Batch, Delta, Document, DocumentFound, Expect, Receipt, Refusal, SharedStore,
};

/// Checks a new value.
pub(super) type Check<T> = Arc<dyn Fn(&T) -> Result<(), String> + Send + Sync>;

/// A record.
pub(super) struct Cell<T> {
    pub(super) store: SharedStore,
    pub(super) key: Key,
    pub(super) options: Options,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) check: Option<Check<T>>,
    pub(super) number: u64,
    queue: Mutex<Queue<T>>,
    carried: tokio::sync::Mutex<Option<Carried<T>>>,
}

struct Queue<T> {
    waiting: VecDeque<Pending<T>>,
    driven: bool,
}

/// A mutation that waits for its turn.
pub(super) struct Pending<T> {
    pub(super) work: Work<T>,
    pub(super) ticket: Arc<Ticket>,
    pub(super) since: Instant,
}

pub(super) enum Work<T> {
    Mutate(Box<dyn Mutator<T>>),
    /// Deltas, which need no draft. The mutator only answers.
    Deltas(Vec<Delta>, Box<dyn Mutator<T>>),
}

/// What was last seen of the record.
#[derive(Clone)]
struct Carried<T> {
    /// `None` when there is no record.
    found: Option<(DocVersion, Payload)>,
    value: T,
}

/// A mutation whose mutator ran.
struct Ran<T> {
    mutator: Box<dyn Mutator<T>>,
    ticket: Arc<Ticket>,
    since: Instant,
    /// Whether its change is in the draft.
    fine: bool,
    /// Why its change is not valid.
    invalid: Option<String>,
}

/// What became of a write.
enum Wrote {
    Done(DocVersion),
    Conflict(DocumentFound),
    Failed(StateError),
}

impl<T: State> Cell<T> {
    pub(super) fn new(store: SharedStore, key: Key, options: Options, check: Option<Check<T>>) -> Self {
        Self {
            store,
            key,
            options,
            observer: None,
            check,
            number: reentry::next_number(),
            queue: Mutex::new(Queue { waiting: VecDeque::new(), driven: false }),
            carried: tokio::sync::Mutex::new(None),
        }
    }

    pub(super) fn name(&self) -> String {
        self.key.to_string()
    }

    /// Queues a mutation, and sees to it that somebody carries it out.
    pub(super) fn push(self: &Arc<Self>, pending: Pending<T>) -> Result<(), StateError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| StateError::NoRuntime { container: self.name() })?;
        let mut queue = self.queue.lock();
        queue.waiting.push_back(pending);
        if !std::mem::replace(&mut queue.driven, true) {
            runtime.spawn(Driver { cell: Arc::clone(self), done: false }.run());
        }
        Ok(())
    }

    /// The mutations that wait, up to as many as share a write; of one kind.
    fn take(&self) -> Vec<Pending<T>> {
        let mut queue = self.queue.lock();
        let mut taken: Vec<Pending<T>> = Vec::new();
        while let Some(next) = queue.waiting.front() {
            let same = taken.last().is_none_or(|last| last.work.is_delta() == next.work.is_delta());
            if !same || taken.len() >= self.options.most {
                break;
            }
            taken.extend(queue.waiting.pop_front());
        }
        if taken.is_empty() {
            queue.driven = false;
        }
        taken
    }
}

impl<T> Work<T> {
    fn is_delta(&self) -> bool {
        matches!(self, Self::Deltas(..))
    }
}

/// Carries out what is queued, until nothing is.
struct Driver<T: State> {
    cell: Arc<Cell<T>>,
    /// Whether it came to its end by itself.
    done: bool,
}

impl<T: State> Driver<T> {
    async fn run(mut self) {
        loop {
            let batch = self.cell.take();
            let deltas = batch.first().map(|first| first.work.is_delta());
            match deltas {
                None => {
                    self.done = true;
                    return;
                }
                Some(true) => self.cell.merge(batch).await,
                Some(false) => self.cell.mutate(batch).await,
            }
        }
    }
}

/// A driver that is ended by its runtime leaves nobody waiting: callers hear that nobody carries out their mutations.
impl<T: State> Drop for Driver<T> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut queue = self.cell.queue.lock();
        queue.driven = false;
        let left = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(left);
    }
}

impl<T: State> Cell<T> {
    /// Runs mutators in order on one draft and writes it, again and again while others are faster.
    async fn mutate(&self, batch: Vec<Pending<T>>) {
        let mut waiting: Vec<Ran<T>> = batch.into_iter().filter_map(Ran::of).collect();
        let mut carried = self.carried.lock().await;
        let mut attempts = 0;
        loop {
            waiting.retain(|ran| ran.ticket.run());
            if waiting.is_empty() {
                return;
            }
            let base = match self.base(&mut carried).await {
                Ok(base) => base,
                Err(error) => return self.fail(waiting, &error),
            };
            let draft = self.run_all(&mut waiting, base.value.clone()).await;
            let id = OpId::new();
            if !waiting.iter().all(|ran| !ran.fine || ran.ticket.write(id)) {
                // Somebody went away after its mutator ran: the draft is made again without it.
                waiting.iter().for_each(|ran| ran.ticket.again());
                continue;
            }
            attempts += 1;
            let changed = waiting.iter().any(|ran| ran.fine);
            match self.write(&base, &draft, changed, id).await {
                Wrote::Done(version) => {
                    self.settled(waiting, &base, draft, version, attempts, &mut carried);
                    return;
                }
                Wrote::Failed(error) => {
                    *carried = None;
                    return self.fail(waiting, &error);
                }
                Wrote::Conflict(found) => {
                    let current = version_of(&found);
                    waiting.iter().for_each(|ran| ran.ticket.conflict(current));
                    *carried = self.adopt(found).ok();
                    waiting = self.give_up_late(waiting, attempts, current);
                    self.breathe(attempts).await;
                }
            }
        }
    }

    /// What is known of the record: what was carried, or what the store says.
    async fn base(&self, carried: &mut Option<Carried<T>>) -> Result<Carried<T>, StateError> {
        if let Some(base) = carried {
            return Ok(base.clone());
        }
        let found = self.store.document(&self.key).await?;
        let base = self.adopt(found.map_or(DocumentFound::Absent, DocumentFound::Present))?;
        *carried = Some(base.clone());
        Ok(base)
    }

    fn adopt(&self, found: DocumentFound) -> Result<Carried<T>, StateError> {
        match found {
            DocumentFound::Present(Document { version, value, .. }) => {
                let read = value.parse().map_err(|error| StateError::Undecodable {
                    container: self.name(),
                    version,
                    reason: error.to_string(),
                })?;
                Ok(Carried { found: Some((version, value)), value: read })
            }
            DocumentFound::Absent | DocumentFound::Gone(_) => {
                Ok(Carried { found: None, value: T::default() })
            }
        }
    }

    /// Runs every mutator on the draft. One that fails leaves the draft as it was before it.
    async fn run_all(&self, waiting: &mut [Ran<T>], mut draft: T) -> T {
        for ran in waiting {
            let changed = match ran.mutator.run(draft.clone(), self.number) {
                Running::Now(changed) => changed,
                // Nobody waits for a mutator that nobody wants.
                Running::Later(running) => tokio::select! {
                    changed = running => changed,
                    () = ran.ticket.gone() => None,
                },
            };
            let check = |changed: &T| self.check.as_ref().map_or(Ok(()), |check| check(changed));
            ran.invalid = changed.as_ref().and_then(|changed| check(changed).err());
            ran.fine = changed.is_some() && ran.invalid.is_none();
            if let Some(changed) = changed.filter(|_| ran.fine) {
                draft = changed;
            }
        }
        draft
    }

    /// Writes the draft if it differs, and otherwise makes sure that nobody else wrote.
    async fn write(&self, base: &Carried<T>, draft: &T, changed: bool, id: OpId) -> Wrote {
        let value = match Payload::of(draft) {
            Ok(value) => value,
            Err(error) => {
                let reason = error.to_string();
                return Wrote::Failed(StateError::Invalid { container: self.name(), reason });
            }
        };
        let expect = match &base.found {
            Some((version, known)) if !changed || *known == value => {
                return self.confirm(Some(*version)).await;
            }
            Some((version, _)) => Expect::Exact(*version),
            None if !changed => return self.confirm(None).await,
            None => Expect::Absent,
        };
        match self.store.apply(Batch::new().put(&self.key, expect, value).op_id(id)).await {
            Ok(receipt) => written(&receipt),
            Err(ApplyError::Refused(refusal)) => match *refusal {
                Refusal::Document { found, .. } => Wrote::Conflict(*found),
                other => Wrote::Failed(StateError::Write(Box::new(other.into()))),
            },
            Err(error) => Wrote::Failed(StateError::Write(Box::new(error))),
        }
    }

    /// Nothing changed, if the record is still the one that was seen.
    async fn confirm(&self, version: Option<DocVersion>) -> Wrote {
        let found = match self.store.document(&self.key).await {
            Ok(found) => found,
            Err(error) => return Wrote::Failed(StateError::Read(error)),
        };
        match (found, version) {
            (None, None) => Wrote::Done(DocVersion(0)),
            (Some(document), Some(version)) if document.version == version => Wrote::Done(version),
            (Some(document), _) => Wrote::Conflict(DocumentFound::Present(document)),
            (None, Some(_)) => Wrote::Conflict(DocumentFound::Absent),
        }
    }

    fn settled(
        &self,
        waiting: Vec<Ran<T>>,
        base: &Carried<T>,
        draft: T,
        version: DocVersion,
        attempts: u32,
        carried: &mut Option<Carried<T>>,
    ) {
        let before = base.found.as_ref();
        let changed = waiting.iter().filter(|ran| ran.fine).count();
        let unchanged = changed == 0 || before.is_some_and(|(known, _)| *known == version);
        let outcome = if unchanged { Outcome::Unchanged { version } } else { Outcome::Committed { version } };
        let value = if unchanged { before.map(|(_, value)| value.clone()) } else { Payload::of(&draft).ok() };
        if let Some(observer) = self.observer.as_ref().filter(|_| changed > 0) {
            let longest = waiting.iter().map(|ran| ran.since.elapsed()).max().unwrap_or_default();
            observer.mutated(&Change {
                key: &self.key,
                old: before.map(|(_, value)| value),
                new: value.as_ref(),
                outcome,
                attempts,
                mutations: changed,
                waited: longest,
            });
        }
        *carried = value.map(|value| Carried { found: Some((version, value)), value: draft });
        for ran in waiting {
            let end = match ran.invalid {
                Some(reason) => End::Failed(StateError::Invalid { container: self.name(), reason }),
                // Those that refused tell their own reason.
                None if !ran.fine => End::ItsOwn,
                None => End::Did(outcome),
            };
            ran.mutator.end(end);
        }
    }

    fn fail(&self, waiting: Vec<Ran<T>>, error: &StateError) {
        waiting.into_iter().for_each(|ran| ran.mutator.end(End::Failed(error.clone())));
    }

    /// Those whose attempts are used up hear of it; the others stay.
    fn give_up_late(&self, waiting: Vec<Ran<T>>, attempts: u32, current: Option<DocVersion>) -> Vec<Ran<T>> {
        let most = self.options.attempts.unwrap_or(u32::MAX);
        let (late, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|ran| ran.ticket.conflicts() >= most);
        let container = self.name();
        self.fail(late, &StateError::ConcurrentModification { container, attempts, current });
        rest
    }

    /// Once more at once, and then after a random while that grows.
    async fn breathe(&self, attempts: u32) {
        if attempts > 1 {
            let longest = Duration::from_millis(1) * (1 << attempts.min(7));
            sleep_until(Instant::now() + spread(longest, 0.0..1.0)).await;
        }
    }

    /// Sends deltas as one merge; if that is refused, each on its own.
    async fn merge(&self, batch: Vec<Pending<T>>) {
        let mut carried = self.carried.lock().await;
        let mut deltas = Vec::new();
        let mut waiting = Vec::new();
        for Pending { work, ticket, since } in batch {
            if let (Work::Deltas(its, mutator), true) = (work, ticket.run()) {
                deltas.push(its);
                waiting.push(Ran { mutator, ticket, since, fine: true, invalid: None });
            }
        }
        let id = OpId::new();
        let mut both: Vec<_> =
            deltas.into_iter().zip(waiting).filter(|(_, ran)| ran.ticket.write(id)).collect();
        if both.is_empty() {
            return;
        }
        let all = both.iter().flat_map(|(its, _)| its.iter().cloned());
        let result = self.store.apply(Batch::new().merge(&self.key, all).op_id(id)).await;
        let several = both.len() > 1;
        match result {
            Err(ApplyError::Refused(_)) if several => {
                for (its, ran) in both {
                    ran.ticket.again();
                    let id = OpId::new();
                    if ran.ticket.write(id) {
                        let batch = Batch::new().merge(&self.key, its).op_id(id);
                        let outcome = self.merged(self.store.apply(batch).await, &mut carried);
                        ran.answer(outcome);
                    }
                }
            }
            result => {
                let outcome = self.merged(result, &mut carried);
                both.drain(..).for_each(|(_, ran)| ran.answer(outcome.clone()));
            }
        }
    }

    fn merged(
        &self,
        result: Result<Receipt, ApplyError>,
        carried: &mut Option<Carried<T>>,
    ) -> Result<Outcome, StateError> {
        *carried = None;
        let error = match result {
            Ok(receipt) => {
                let Some(written) = receipt.documents.first() else {
                    return Err(StateError::NotFound { container: self.name() });
                };
                let found = written.value.clone().map(|value| (written.version, value));
                *carried = found.and_then(|(version, value)| {
                    Some(Carried { value: value.parse().ok()?, found: Some((version, value)) })
                });
                return Ok(Outcome::Committed { version: written.version });
            }
            Err(error) => error,
        };
        match error {
            ApplyError::Refused(refusal) if matches!(*refusal, Refusal::NotFound { .. }) => {
                Err(StateError::NotFound { container: self.name() })
            }
            other => Err(StateError::Write(Box::new(other))),
        }
    }
}

impl<T> Ran<T> {
    fn of(pending: Pending<T>) -> Option<Self> {
        match pending.work {
            Work::Mutate(mutator) => Some(Self {
                mutator,
                ticket: pending.ticket,
                since: pending.since,
                fine: false,
                invalid: None,
            }),
            Work::Deltas(..) => None,
        }
    }

    /// Answers a mutation that had nothing to run.
    fn answer(self, outcome: Result<Outcome, StateError>) {
        self.mutator.end(outcome.map_or_else(End::Failed, End::Did));
    }
}

fn written(receipt: &Receipt) -> Wrote {
    match receipt.documents.first() {
        Some(written) => Wrote::Done(written.version),
        None => Wrote::Conflict(DocumentFound::Absent),
    }
}

fn version_of(found: &DocumentFound) -> Option<DocVersion> {
    match found {
        DocumentFound::Absent => None,
        DocumentFound::Gone(version) => Some(*version),
        DocumentFound::Present(document) => Some(document.version),
    }
}
