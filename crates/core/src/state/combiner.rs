//! A record of a store, as the tasks of this process change it together: whoever carries out runs everything that is queued,
//! in the order of arrival, on one draft, and writes once.
//!
//! The version that was written is carried to the next batch, so a warm write is one trip to the store. The store alone says
//! whether it is still the newest. If the process dies, the record is as the last acknowledged write left it, or the next.

mod combine;
mod merge;
mod observed;
mod record;

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::codec::{Codec, Value};
use super::error::StateError;
use super::history::History;
use super::mutator::{End, Mutator};
use super::observe::Observer;
use super::ticket::Ticket;
use super::{Options, Outcome, reentry};
use crate::id::{DocVersion, Epoch};
use crate::key::{Key, reserved};
use crate::payload::Payload;
use crate::store::{ApplyError, Delta, SharedStore};

/// Where in the program a mutation was asked for.
pub(super) type Place = &'static Location<'static>;
/// Checks a new value.
pub(super) type Check<T> = Arc<dyn Fn(&T) -> Result<(), String> + Send + Sync>;

/// A record.
pub(super) struct Cell<T> {
    pub(super) store: SharedStore,
    pub(super) key: Key,
    pub(super) options: Options,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) history: Option<History>,
    pub(super) check: Option<Check<T>>,
    pub(super) codec: Arc<dyn Codec<T>>,
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
    pub(super) place: Place,
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
    /// The epoch of the store in which it was seen.
    epoch: Epoch,
}

/// A mutation whose mutator ran.
struct Ran<T> {
    mutator: Box<dyn Mutator<T>>,
    ticket: Arc<Ticket>,
    since: Instant,
    place: Place,
    /// Whether its change is in the draft.
    fine: bool,
    /// Why its change is not valid.
    invalid: Option<String>,
}

impl<T: Value> Cell<T> {
    pub(super) fn new(store: SharedStore, key: Key, options: Options, codec: Arc<dyn Codec<T>>) -> Self {
        Self {
            store,
            key,
            options,
            observer: None,
            history: None,
            check: None,
            codec,
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
        reserved::check_document(&self.key).map_err(ApplyError::from)?;
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
            if !same || taken.len() >= self.options.most.max(1) {
                break;
            }
            taken.extend(queue.waiting.pop_front());
        }
        if taken.is_empty() {
            queue.driven = false;
        }
        taken
    }

    fn fail(&self, waiting: Vec<Ran<T>>, error: &StateError) {
        waiting.into_iter().for_each(|ran| ran.mutator.end(End::Failed(error.clone())));
    }
}

impl<T> Work<T> {
    fn is_delta(&self) -> bool {
        matches!(self, Self::Deltas(..))
    }
}

/// Carries out what is queued, until nothing is.
struct Driver<T: Value> {
    cell: Arc<Cell<T>>,
    /// Whether it came to its end by itself.
    done: bool,
}

impl<T: Value> Driver<T> {
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
impl<T: Value> Drop for Driver<T> {
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

impl<T> Ran<T> {
    fn of(pending: Pending<T>) -> Option<Self> {
        match pending.work {
            Work::Mutate(mutator) => Some(Self {
                mutator,
                ticket: pending.ticket,
                since: pending.since,
                place: pending.place,
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
