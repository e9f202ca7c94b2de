//! The working set of one group: the rows of its batches, the beliefs about them, and the verdicts.
//!
//! A row's slot is filled from the rows that this process caches, by a guess, or by reading the row under a lock. A
//! batch that expects version 7 supports the guess that the version is 7. In each case, the server compares the beliefs
//! with the actual rows before it writes. If the process dies in the middle, the transaction is rolled back.

use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{DocVersion, Epoch, EventId, Fence, OpId, Position, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::model::commit::{self, Stop};
use tidelock_core::model::rows::{DocumentRow, Event, StreamRow};
use tidelock_core::model::working_set::{Counters, Footprint, WorkingSet};
use tidelock_core::store::{Batch, Effect, Expect, Receipt, Refusal, Resolution};

use crate::row_cache::{Noun, Rows, Stamped};
use crate::rows::{Stamp, int, uint};

/// Numbers of work rows above this one are places among the numbers that will be drawn.
pub(crate) const NEW_SEQS: u64 = 1 << 62;

/// The verdict on one batch.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// Applied together with the group. Its positions are places among those that will be drawn.
    Applied(Receipt),
    /// Applied earlier, with its first receipt.
    Repeated(Receipt),
    /// A duplicate of an earlier batch of this group, the one with this number.
    Same(usize),
    /// Refused.
    Refused(Box<Refusal>),
}

/// The beliefs about the rows.
#[derive(Debug, Default)]
pub(crate) struct Beliefs {
    pub(crate) streams: HashMap<Key, Option<StreamRow>>,
    /// Versions; negative for a row without a value.
    pub(crate) documents: HashMap<Key, Option<i64>>,
    pub(crate) work: HashMap<Key, Option<Stamp>>,
}

/// A receipt that is written with the group, and the events that belong to it.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) id: OpId,
    pub(crate) receipt: Receipt,
    pub(crate) events: Vec<EventId>,
    batch: usize,
}

/// The working set.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) facts: WorkingSet,
    pub(crate) beliefs: Beliefs,
    /// Rows that do not exist, and must not exist until the end of the transaction.
    pub(crate) pinned: HashSet<(Noun, Key)>,
    pub(crate) operations: Vec<Operation>,
    /// Operation records from earlier transactions.
    pub(crate) recorded: HashMap<OpId, Resolution>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) now: Timestamp,
    /// The highest fence when the group began. Fences that the group grants count from there until they are drawn.
    pub(crate) turn: Fence,
}

impl Session {
    /// Creates an empty working set. Positions count from 1 until they are drawn, work rows from [`NEW_SEQS`].
    pub(crate) fn new(now: Timestamp, turn: Fence, floor: DocVersion, epoch: Epoch) -> Self {
        let (position, work_seq) = (Position(0), NEW_SEQS);
        let counters = Counters { position, fence: turn, work_seq, document_floor: floor, epoch };
        Self {
            facts: WorkingSet::new(counters),
            beliefs: Beliefs::default(),
            pinned: HashSet::new(),
            operations: Vec::new(),
            recorded: HashMap::new(),
            verdicts: Vec::new(),
            now,
            turn,
        }
    }

    /// Returns the epoch that its rows belong to.
    pub(crate) fn epoch(&self) -> Epoch {
        self.facts.counters.epoch
    }

    /// Fills the slots that a batch needs without a request to the server. Returns `false` when one cannot be guessed.
    pub(crate) fn predict(&mut self, rows: &Rows, batch: &Batch) -> bool {
        for effect in batch.effects() {
            let filled = match effect {
                Effect::Append { stream, expect, .. }
                | Effect::Close { stream, expect }
                | Effect::GuardStream { stream, expect } => self.foresee_stream(rows, stream, *expect),
                Effect::Put { key, expect: Expect::Any, .. } => self.foresee_put(rows, key),
                Effect::Put { key, expect, .. }
                | Effect::Delete { key, expect }
                | Effect::GuardDocument { key, expect } => self.foresee_document(rows, key, *expect),
                Effect::Merge { key, .. } => self.foresee_document(rows, key, Expect::Any),
                Effect::Enqueue(work) => self.foresee_work(rows, &work.key, true),
                // The remaining size of a stream is not cached. It is read with the row locked.
                Effect::Operate { .. } | Effect::Truncate { .. } | Effect::GuardWork { .. } => false,
                Effect::Ack { lease }
                | Effect::Advance { lease, .. }
                | Effect::Defer { lease, .. }
                | Effect::Fail { lease, .. }
                | Effect::Block { lease, .. }
                | Effect::Renew { lease, .. }
                | Effect::Release { lease }
                | Effect::GuardLease { lease } => self.foresee_work(rows, &lease.key, false),
            };
            if !filled {
                return false;
            }
        }
        true
    }

    fn foresee_stream(&mut self, rows: &Rows, key: &Key, expect: Expect<StreamVersion>) -> bool {
        if self.facts.knows_stream(key) {
            return true;
        }
        let row = match (rows.streams.get(key), expect) {
            (Some(row), _) => row.clone(),
            _ if rows.is_contended(Noun::Stream, key) => return false,
            (None, Expect::Absent) => None,
            (None, Expect::Exact(version)) => Some(guessed(version)),
            (None, Expect::Any) if rows.is_probably_new(Noun::Stream, key) => None,
            (None, Expect::Any | Expect::Exists) => return false,
        };
        self.load_stream(key.clone(), row);
        true
    }

    fn foresee_document(&mut self, rows: &Rows, key: &Key, expect: Expect<DocVersion>) -> bool {
        if self.facts.knows_document(key) {
            return true;
        }
        let row = match (rows.documents.get(key), expect) {
            (Some(row), _) => row.clone(),
            _ if rows.is_contended(Noun::Document, key) => return false,
            (None, Expect::Absent) => None,
            (None, _) => return false,
        };
        self.load_document(key.clone(), row);
        true
    }

    /// Fills the slot of a document that is written whatever its version is.
    fn foresee_put(&mut self, rows: &Rows, key: &Key) -> bool {
        let new = !rows.documents.contains_key(key) && rows.is_probably_new(Noun::Document, key);
        self.foresee_document(rows, key, if new { Expect::Absent } else { Expect::Any })
    }

    fn foresee_work(&mut self, rows: &Rows, key: &Key, new: bool) -> bool {
        if self.facts.knows_work(key) {
            return true;
        }
        let row = match rows.work.get(key) {
            Some(row) => row.clone(),
            None if !new || rows.is_contended(Noun::Work, key) => return false,
            None => None,
        };
        self.load_work(key.clone(), row);
        true
    }

    pub(crate) fn load_stream(&mut self, key: Key, row: Option<StreamRow>) {
        self.beliefs.streams.insert(key.clone(), row.clone());
        self.facts.load_stream(key, row);
    }

    pub(crate) fn load_document(&mut self, key: Key, row: Option<DocumentRow>) {
        let belief = |row: &DocumentRow| int(row.version.0) * if row.value.is_some() { 1 } else { -1 };
        self.beliefs.documents.insert(key.clone(), row.as_ref().map(belief));
        self.facts.load_document(key, row);
    }

    pub(crate) fn load_work(&mut self, key: Key, row: Option<Stamped>) {
        let (row, stamp) = row.unzip();
        self.beliefs.work.insert(key.clone(), stamp);
        self.facts.load_work(key, row);
    }

    /// Fills the slots of event ids that were looked up.
    pub(crate) fn load_event_ids(&mut self, ids: &[EventId], events: Vec<Event>) {
        for id in ids {
            self.facts.load_event_id(*id, None);
        }
        for event in events {
            self.facts.load_event_id(event.id, Some(event));
        }
    }

    /// Records whether the rows that the batches write at any version, and that were not cached, are new.
    pub(crate) fn record_new(&self, rows: &mut Rows, batches: &[&Batch]) {
        for effect in batches.iter().flat_map(|batch| batch.effects()) {
            match effect {
                Effect::Append { stream, expect: Expect::Any, .. } if !rows.streams.contains_key(stream) => {
                    let row = self.beliefs.streams.get(stream);
                    rows.record_new(Noun::Stream, stream, row.is_some_and(Option::is_none));
                }
                Effect::Put { key, expect: Expect::Any, .. } if !rows.documents.contains_key(key) => {
                    let row = self.beliefs.documents.get(key);
                    rows.record_new(Noun::Document, key, row.is_some_and(Option::is_none));
                }
                _ => {}
            }
        }
    }

    /// Decides one batch.
    ///
    /// # Errors
    /// Event ids that must be looked up first.
    pub(crate) fn decide(&mut self, batch: &Batch, selected: &[Key]) -> Result<(), Vec<EventId>> {
        if let Some(known) = batch.id().and_then(|id| self.known(id)) {
            self.verdicts.push(known);
            return Ok(());
        }
        let verdict = match commit::decide(&mut self.facts, batch, selected, self.now) {
            Err(Stop::NeedEventIds(ids)) => return Err(ids),
            Err(Stop::Refused(refusal)) => Verdict::Refused(refusal),
            Ok(receipt) if receipt.repeated => Verdict::Repeated(receipt),
            Ok(receipt) => {
                self.pin(batch);
                Verdict::Applied(receipt)
            }
        };
        // A repetition that was recognised by its event ids is recorded under its new id as well.
        if let (Some(id), Verdict::Applied(receipt) | Verdict::Repeated(receipt)) = (batch.id(), &verdict) {
            let events = match verdict {
                Verdict::Applied(_) => batch.event_ids().collect(),
                _ => Vec::new(),
            };
            let batch = self.verdicts.len();
            self.operations.push(Operation { id, receipt: receipt.clone(), events, batch });
        }
        self.verdicts.push(verdict);
        Ok(())
    }

    /// Decides one batch without any lookup. Returns `false` when it may have been applied before.
    pub(crate) fn decide_by_guess(&mut self, batch: &Batch) -> bool {
        if self.decide(batch, &[]).is_err() {
            return false;
        }
        // The id of an applied batch is checked when it is written. The id of a refused one is not.
        let refused = matches!(self.verdicts.last(), Some(Verdict::Refused(_)));
        !(refused && batch.id().is_some())
    }

    /// Returns whether a batch with this id was applied before, or is in this group.
    pub(crate) fn knows(&self, id: OpId) -> bool {
        self.known(id).is_some()
    }

    fn known(&self, id: OpId) -> Option<Verdict> {
        if let Some(operation) = self.operations.iter().find(|operation| operation.id == id) {
            return Some(Verdict::Same(operation.batch));
        }
        Some(match self.recorded.get(&id)?.clone().verdict(id) {
            Ok(receipt) => Verdict::Repeated(receipt),
            Err(refusal) => Verdict::Refused(refusal),
        })
    }

    /// Prevents the creation of rows that the batch found missing until it is applied.
    fn pin(&mut self, batch: &Batch) {
        let footprint = Footprint::of(batch);
        let missing = |noun, keys: Vec<Key>, there: &dyn Fn(&Key) -> bool| -> Vec<(Noun, Key)> {
            keys.into_iter().filter(|key| !there(key)).map(|key| (noun, key)).collect()
        };
        let facts = &self.facts;
        let mut pins = missing(Noun::Stream, footprint.streams, &|key| facts.stream(key).is_some());
        pins.extend(missing(Noun::Document, footprint.documents, &|key| facts.document(key).is_some()));
        pins.extend(missing(Noun::Work, footprint.work, &|key| facts.work(key).is_some()));
        self.pinned.extend(pins);
    }

    /// Drops work rows that are locked and unchanged: nothing about them needs to be confirmed.
    pub(crate) fn forget_unused(&mut self) {
        let (facts, turn) = (&self.facts, self.turn);
        let granted = |key: &Key| {
            let lease = facts.work(key).and_then(|row| row.lease.as_ref());
            lease.is_some_and(|lease| lease.fence > turn)
        };
        self.beliefs.work.retain(|key, _| granted(key));
    }
}

/// Returns an open stream at a version. Its first version is unknown, and no guess depends on it.
fn guessed(head: StreamVersion) -> StreamRow {
    StreamRow { head: Some(head), first: StreamVersion(0), closed_at: None }
}

/// Fills drawn positions into a receipt whose positions are places among them, counted from 1.
pub(crate) fn with_positions(mut receipt: Receipt, drawn: &[i64]) -> Receipt {
    let position = |place: Position| {
        let index = usize::try_from(place.0).ok().and_then(|place| place.checked_sub(1));
        let drawn = index.and_then(|index| drawn.get(index).copied());
        drawn.map_or(place, |drawn| Position(uint(drawn)))
    };
    for appended in &mut receipt.appended {
        appended.first_position = position(appended.first_position);
        appended.last_position = position(appended.last_position);
    }
    receipt
}

/// Returns the same receipt with places that count from 1 within it. It is stored in this form, beside the positions of
/// its events.
pub(crate) fn with_places(mut receipt: Receipt) -> Receipt {
    let first = receipt.appended.iter().map(|appended| appended.first_position.0).min().unwrap_or(1);
    for appended in &mut receipt.appended {
        appended.first_position = Position(appended.first_position.0 - first + 1);
        appended.last_position = Position(appended.last_position.0 - first + 1);
    }
    receipt
}

/// Returns the place of a work row's number among the drawn ones, counted from 1. `None`: the row already has its
/// number.
pub(crate) fn place_of_seq(seq: u64) -> Option<i64> {
    (seq > NEW_SEQS).then(|| int(seq - NEW_SEQS))
}

/// Returns the place of a fence among the drawn ones, counted from 1. `None`: the fence was granted before.
pub(crate) fn place_of(fence: Fence, turn: Fence) -> Option<i64> {
    (fence > turn).then(|| int(fence.0 - turn.0))
}
