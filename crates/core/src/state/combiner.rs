//! Flat combining over one record: a driver runs the queued mutations in order on one draft and writes once.
//!
//! The driver runs on a runtime of the library, so a caller's runtime may be idle, blocked or gone. It starts with the first
//! queued mutation and ends when the queue is empty. It carries the version that it wrote to the next batch, so a warm write
//! is one round trip. The store alone decides whether that version is still the newest (optimistic concurrency).
//!
//! User code runs under `catch_unwind`: a panic fails the mutation that caused it, and the driver continues. If the process
//! dies, the record is as the last acknowledged write left it, or as the next one did.

mod combine;
mod merge;
mod notify;
mod storage;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location};
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use parking_lot::Mutex;

use super::StateOptions;
use super::codec::{Codec, Value};
use super::error::{Stage, StateError};
use super::history::History;
use super::mutation::Mutation;
use super::mutator::{End, Mutator};
use super::observe::Observer;
use super::reentry::{self, Within};
use crate::id::{DocVersion, Epoch};
use crate::key::{Key, reserved};
use crate::payload::Payload;
use crate::runtime::background::Background;
use crate::runtime::contention::Contention;
use crate::runtime::panic::{discard, dispose, isolate, text};
use crate::store::{ApplyError, Delta, SharedStore};
use crate::telemetry;

/// The runtime of all drivers, and of the async mutators that they run.
static DRIVERS: Background = Background::multi_thread("tidelock-state");

/// The source location of a mutation request.
pub(super) type CallSite = &'static Location<'static>;
/// A validation of a new value.
pub(super) type Check<T> = Arc<dyn Fn(&T) -> Result<(), String> + Send + Sync>;

/// The combiner of one record.
pub(super) struct Combiner<T> {
    pub(super) store: SharedStore,
    pub(super) key: Key,
    pub(super) options: StateOptions,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) history: Option<History>,
    pub(super) check: Option<Check<T>>,
    pub(super) codec: Arc<dyn Codec<T>>,
    pub(super) number: u64,
    queue: Mutex<Queue<T>>,
    /// Held by the driver while it works on a batch.
    known: tokio::sync::Mutex<CachedRecord<T>>,
}

struct Queue<T> {
    waiting: VecDeque<Pending<T>>,
    /// Whether a driver runs.
    driven: bool,
}

/// The driver's knowledge of the record between two batches.
struct CachedRecord<T> {
    carried: Option<Carried<T>>,
    contention: Contention,
}

/// A mutation that waits for its turn.
pub(super) struct Pending<T> {
    pub(super) work: Work<T>,
    pub(super) mutation: Arc<Mutation>,
    pub(super) within: Within,
    pub(super) since: Instant,
    pub(super) place: CallSite,
}

pub(super) enum Work<T> {
    Mutate(Box<dyn Mutator<T>>),
    /// Deltas, which need no draft. The mutator only delivers the result.
    Deltas(Vec<Delta>, Box<dyn Mutator<T>>),
}

/// The record as the driver last wrote or read it.
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
    mutation: Arc<Mutation>,
    within: Within,
    since: Instant,
    place: CallSite,
    /// Whether the change is in the draft.
    fine: bool,
    /// The reason why the change is not in the draft, unless the mutator itself reports it.
    failure: Option<StateError>,
}

impl<T: Value> Combiner<T> {
    pub(super) fn new(store: SharedStore, key: Key, options: StateOptions, codec: Arc<dyn Codec<T>>) -> Self {
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
            known: tokio::sync::Mutex::new(CachedRecord { carried: None, contention: Contention::default() }),
        }
    }

    pub(super) fn name(&self) -> String {
        self.key.to_string()
    }

    /// Queues a mutation, and starts a driver if none runs.
    pub(super) fn push(self: &Arc<Self>, pending: Pending<T>) -> Result<(), StateError> {
        reserved::check_document(&self.key).map_err(ApplyError::from)?;
        // Started before the mutation is queued: spawning on it cannot fail.
        let runtime = DRIVERS
            .spawner()
            .map_err(|error| StateError::NoRuntime { key: self.name(), reason: error.to_string() })?;
        let mut queue = self.queue.lock();
        queue.waiting.push_back(pending);
        let driven = std::mem::replace(&mut queue.driven, true);
        // Released before the driver is spawned: nothing may run under this mutex that could lock it again.
        drop(queue);
        if !driven {
            runtime.spawn(drive(Arc::clone(self)));
        }
        Ok(())
    }

    /// Takes waiting mutations of one kind, up to the maximum that shares a write.
    fn take(&self) -> Vec<Pending<T>> {
        let mut queue = self.queue.lock();
        let mut taken = Vec::new();
        self.move_waiting(&mut queue, &mut taken);
        if taken.is_empty() {
            queue.driven = false;
        }
        taken
    }

    /// Adds waiting mutations of the same kind to a batch, up to the maximum that shares a write.
    fn fill(&self, batch: &mut Vec<Pending<T>>) {
        self.move_waiting(&mut self.queue.lock(), batch);
    }

    fn move_waiting(&self, queue: &mut Queue<T>, batch: &mut Vec<Pending<T>>) {
        while let Some(next) = queue.waiting.front() {
            let same = batch.last().is_none_or(|last| last.work.is_delta() == next.work.is_delta());
            if !same || batch.len() >= self.options.most.max(1) {
                break;
            }
            batch.extend(queue.waiting.pop_front());
        }
    }

    /// Runs a batch of one kind.
    async fn run_batch(&self, batch: Vec<Pending<T>>) {
        if batch.first().is_some_and(|first| first.work.is_delta()) {
            self.merge(batch).await;
        } else {
            self.mutate(batch).await;
        }
    }

    fn fail(&self, waiting: Vec<Ran<T>>, error: &StateError) {
        waiting.into_iter().for_each(|ran| ran.end(End::Failed(error.clone())));
    }

    /// Returns the error of a mutation whose user code panicked before anything was written.
    fn panicked(&self, reason: String) -> StateError {
        StateError::Panicked { key: self.name(), reason, stage: Stage::NotApplied }
    }
}

impl<T> Work<T> {
    fn is_delta(&self) -> bool {
        matches!(self, Self::Deltas(..))
    }
}

/// Runs the queue until it is empty.
///
/// A panic that no isolation caught, such as one of the store, ends its batch and not the driver. The callers of that batch
/// get the stage that their mutation had reached.
async fn drive<T: Value>(combiner: Arc<Combiner<T>>) {
    let mut driver = Driver { combiner, ended: false };
    loop {
        let combiner = &driver.combiner;
        let batch = combiner.take();
        if batch.is_empty() {
            driver.ended = true;
            return;
        }
        if let Err(panic) = AssertUnwindSafe(combiner.run_batch(batch)).catch_unwind().await {
            let reason = text(&*panic);
            tracing::error!(target: telemetry::STATE, key = %combiner.key, reason, "mutation driver panicked");
            dispose(panic);
            discard(combiner.known.lock().await.carried.take());
        }
    }
}

/// A driver that is replaced when it ends before the queue is empty, for example by a panic of a log subscriber.
struct Driver<T: Value> {
    combiner: Arc<Combiner<T>>,
    ended: bool,
}

impl<T: Value> Drop for Driver<T> {
    fn drop(&mut self) {
        if !self.ended
            && let Ok(runtime) = DRIVERS.spawner()
        {
            runtime.spawn(drive(Arc::clone(&self.combiner)));
        }
    }
}

impl<T> Ran<T> {
    fn of(pending: Pending<T>) -> Option<Self> {
        match pending.work {
            Work::Mutate(mutator) => Some(Self {
                mutator,
                mutation: pending.mutation,
                within: pending.within,
                since: pending.since,
                place: pending.place,
                fine: false,
                failure: None,
            }),
            Work::Deltas(..) => None,
        }
    }

    /// Reports the end to the caller. A panic during the drop of the mutator is contained.
    fn end(self, end: End) {
        let Self { mutator, .. } = self;
        if let Err(panic) = isolate("the drop of a mutator", || mutator.end(end)) {
            tracing::error!(target: telemetry::STATE, %panic, "drop panicked");
        }
    }
}
