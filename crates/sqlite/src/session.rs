//! A working set over one connection inside a write transaction: it loads the rows of a batch, decides, and writes the
//! changes. The writer keeps one warm between groups; [`apply_in`](crate::SqliteStore::apply_in) makes one for a single batch.
//!
//! If the process dies in the middle, the transaction is rolled back, and the working set is lost with the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _};
use rusqlite::{Connection, OptionalExtension as _};
use tidelock_core::clock::Timestamp;
use tidelock_core::error::InvalidInput;
use tidelock_core::id::{DocVersion, Epoch, EventId, Fence, OpId, Position};
use tidelock_core::key::Key;
use tidelock_core::model::commit::{self, Stop};
use tidelock_core::model::limits;
use tidelock_core::model::working_set::{Counters, Footprint, WorkingSet};
use tidelock_core::store::{
    ApplyError, Batch, Effect, Receipt, Refusal, Resolution, Selection, StoreErrorKind, WorkFilter,
};

use crate::clock::FileTime;
use crate::error::Failure;
use crate::event_locator::{EventLocator, IndexView, Stream};
use crate::index_merge::IndexMerger;
use crate::memtable::{EventLocation, Memtable};
use crate::read;
use crate::rows::{self, int, uint};
use crate::work_filter::WorkCondition;

/// The number of slots beyond which the cache is cleared after a group. It stays small, and hot rows return at once.
const WARM_SLOTS: usize = 50_000;
/// The number of payload bytes beyond which the cache is cleared after a group.
const WARM_BYTES: usize = 32 * 1024 * 1024;

/// The result of one batch: a receipt or a refusal. Failures of the database concern the group, not the batch.
pub(crate) type Verdict = Result<Receipt, Box<Refusal>>;

/// An operation record that is written with the group.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) id: OpId,
    pub(crate) at: Timestamp,
    pub(crate) resolution: Resolution,
}

/// The working set.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) facts: WorkingSet,
    /// The row numbers of streams whose slots are filled and that exist.
    pub(crate) streams: HashMap<Key, i64>,
    /// The counters as stored in the database, to write only those that changed.
    pub(crate) stored: Counters,
    /// The time of the file.
    pub(crate) time: FileTime,
    /// Operation records that are written with the group.
    pub(crate) operations: Vec<Operation>,
    /// The positions of the newest events of streams. Shared with the readers, so it holds committed events only.
    tail: Arc<Memtable>,
    /// The newest position that was committed when the transaction began.
    committed: i64,
    /// The position up to which the index of streams is complete.
    indexed: i64,
    /// The number of truncations, including those of the open transaction.
    pub(crate) truncations: i64,
    /// The places of events that were written in the open transaction.
    fresh: Vec<(i64, EventLocation)>,
    /// The numbers of the store after the last commit of this process.
    pub(crate) known: Counters,
    /// The keys of work rows that claims skip, because they do not decode.
    pub(crate) unreadable: BTreeSet<String>,
}

impl Session {
    /// Creates a cold working set with the store's counters.
    pub(crate) fn open(connection: &Connection, tail: Arc<Memtable>) -> Result<Self, Failure> {
        let mut session = Self { tail, ..Self::default() };
        session.reload(connection)?;
        Ok(session)
    }

    /// Drops all rows, changed ones included, and keeps the counters.
    pub(crate) fn forget(&mut self) {
        self.facts.forget();
        self.streams = HashMap::new();
        self.operations.clear();
    }

    /// Drops everything and reads the counters again: another connection wrote, or the transaction was rolled back.
    pub(crate) fn reload(&mut self, db: &Connection) -> Result<(), Failure> {
        let before = self.facts.counters;
        self.forget();
        let mut counters = load_counters(db)?;
        counters.work_seq = counters.work_seq.max(before.work_seq);
        self.facts.counters = counters;
        self.stored = counters;
        self.time.stored = load_time(db)?;
        let view = IndexView::of(db)?;
        self.indexed = view.indexed;
        self.truncations = view.truncations;
        Ok(())
    }

    /// Called when a transaction has begun, before anything is written in it.
    pub(crate) fn begun(&mut self) {
        self.committed = int(self.facts.counters.position.0);
        self.fresh.clear();
    }

    /// Called when a transaction has begun: merges a slice of the tail into the index of streams. `events` is the
    /// number of events that recent groups added.
    pub(crate) fn merge(
        &mut self,
        db: &Connection,
        merger: &mut IndexMerger,
        events: usize,
    ) -> Result<(), Failure> {
        self.indexed = merger.work(db, &self.tail, self.view(), events)?;
        Ok(())
    }

    /// Called when a transaction was committed: adds its events to the tail.
    pub(crate) fn committed(&mut self, merger: &mut IndexMerger) {
        self.tail.add(&self.fresh);
        self.known = self.facts.counters;
        merger.committed(&self.tail, self.indexed);
    }

    /// Returns the state that was committed when the transaction began.
    fn view(&self) -> IndexView {
        let epoch = int(self.facts.counters.epoch.0);
        IndexView { indexed: self.indexed, newest: self.committed, truncations: self.truncations, epoch }
    }

    /// Returns the places of a stream's events, including those of the open transaction.
    pub(crate) fn places(&self, db: &Connection, stream: Stream) -> Result<EventLocator, Failure> {
        let mut tail = self.tail.of(db, stream.no, self.view())?;
        tail.extend(self.fresh.iter().filter(|(of, _)| *of == stream.no).map(|(_, place)| *place));
        Ok(EventLocator::new(stream, self.indexed, tail))
    }

    /// Returns the number of events that were written in the open transaction.
    pub(crate) fn written(&self) -> usize {
        self.fresh.len()
    }

    /// Drops the events after the first `to`: a savepoint was rolled back.
    pub(crate) fn unwrite(&mut self, to: usize) {
        self.fresh.truncate(to);
    }

    /// Records an event that was written in the open transaction.
    pub(crate) fn wrote(&mut self, stream: i64, place: EventLocation) {
        self.fresh.push((stream, place));
    }

    /// Drops all rows when the working set has grown too large.
    pub(crate) fn trim(&mut self) {
        if self.facts.len() > WARM_SLOTS || self.facts.weight() > WARM_BYTES {
            self.forget();
        }
    }

    /// Decides one batch. The next [`flush`](Self::flush) writes its changes.
    pub(crate) fn apply(
        &mut self,
        db: &Connection,
        batch: &Batch,
        now: Timestamp,
    ) -> Result<Verdict, Failure> {
        if let Some(id) = batch.id()
            && let Some(known) = self.known(db, id)?
        {
            return Ok(known.verdict(id));
        }
        let selected = match self.select(db, batch)? {
            Ok(selected) => selected,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.load(db, &Footprint::of(batch))?;
        let verdict = match commit::decide(&mut self.facts, batch, &selected, now) {
            Err(Stop::NeedEventIds(ids)) => {
                self.flush(db)?;
                self.load_event_ids(db, ids)?;
                self.decide_with_ids(batch, &selected, now)?
            }
            Err(Stop::Refused(refusal)) => Err(refusal),
            Ok(receipt) => Ok(receipt),
        };
        if let (Some(id), Ok(receipt)) = (batch.id(), &verdict) {
            let resolution = Resolution::Applied(receipt.clone());
            self.operations.push(Operation { id, at: receipt.at, resolution });
        }
        Ok(verdict)
    }

    /// Returns the outcome of an operation. Without a record, the next [`flush`](Self::flush) makes the id void.
    pub(crate) fn resolve(
        &mut self,
        db: &Connection,
        id: OpId,
        now: Timestamp,
    ) -> Result<Resolution, Failure> {
        if let Some(known) = self.known(db, id)? {
            return Ok(known);
        }
        self.operations.push(Operation { id, at: now, resolution: Resolution::NotApplied });
        Ok(Resolution::NotApplied)
    }

    /// Like [`apply`](Self::apply), for the careful path: looks up every event id first, and writes the changes at
    /// once.
    pub(crate) fn apply_carefully(
        &mut self,
        db: &Connection,
        batch: &Batch,
        now: Timestamp,
    ) -> Result<Verdict, Failure> {
        self.flush(db)?;
        self.load_event_ids(db, batch.event_ids().collect())?;
        let verdict = self.apply(db, batch, now);
        self.facts.forget_event_ids();
        let verdict = verdict?;
        self.flush(db)?;
        Ok(verdict)
    }

    /// Decides again once the event ids are known.
    fn decide_with_ids(
        &mut self,
        batch: &Batch,
        selected: &[Key],
        now: Timestamp,
    ) -> Result<Verdict, Failure> {
        let decided = commit::decide(&mut self.facts, batch, selected, now);
        self.facts.forget_event_ids();
        match decided {
            Ok(receipt) => Ok(Ok(receipt)),
            Err(Stop::Refused(refusal)) => Ok(Err(refusal)),
            Err(Stop::NeedEventIds(ids)) => {
                let detail = format!("{} event ids are still unknown after they were loaded", ids.len());
                Err(Failure::new(StoreErrorKind::Bug, "deciding a batch", detail))
            }
        }
    }

    fn known(&self, db: &Connection, id: OpId) -> Result<Option<Resolution>, Failure> {
        match self.operations.iter().find(|pending| pending.id == id).map(|pending| &pending.resolution) {
            Some(Resolution::Applied(receipt)) => {
                Ok(Some(Resolution::Applied(receipt.clone().into_repeated())))
            }
            Some(Resolution::NotApplied) => Ok(Some(Resolution::NotApplied)),
            None => operation(db, id),
        }
    }

    /// Loads the rows that the batch's filters may match.
    fn select(&mut self, db: &Connection, batch: &Batch) -> Result<Result<Vec<Key>, Box<Refusal>>, Failure> {
        let mut selected = Vec::new();
        for effect in batch.effects() {
            if let Effect::Operate { selection: Selection::Filter(filter), .. } = effect {
                self.flush(db)?;
                selected.extend(matching_work(db, &filter.for_operation())?);
                selected.extend(Footprint::of(batch).work);
            }
        }
        selected.sort_unstable();
        selected.dedup();
        let (found, limit) = (selected.len(), limits::OPERATE_ROWS);
        if let Err(e) = limits::within("the number of rows selected", "a filter", found, limit) {
            return Ok(Err(Box::new(Refusal::Invalid(e))));
        }
        for key in &selected {
            self.load_work(db, key)?;
        }
        Ok(Ok(selected))
    }

    fn load(&mut self, db: &Connection, needs: &Footprint) -> Result<(), Failure> {
        for key in &needs.streams {
            self.load_stream(db, key)?;
        }
        for key in &needs.documents {
            if !self.facts.knows_document(key) {
                let row = document(db, key)?;
                self.facts.load_document(key.clone(), row);
            }
        }
        for key in &needs.work {
            self.load_work(db, key)?;
        }
        Ok(())
    }

    fn load_stream(&mut self, db: &Connection, key: &Key) -> Result<(), Failure> {
        if self.facts.knows_stream(key) {
            return Ok(());
        }
        let mut statement =
            db.prepare_cached("SELECT id, first_version, closed_at FROM tidelock_streams WHERE key = ?1")?;
        let found = statement.query_row([key.canonical()], |row| {
            Ok((Stream { no: row.get(0)?, first: row.get(1)? }, row.get(2)?))
        });
        let row = match found.optional()? {
            None => None,
            Some((stream, closed_at)) => {
                self.streams.insert(key.clone(), stream.no);
                let head = self.places(db, stream)?.head(db)?;
                Some(rows::stream(stream, head, closed_at))
            }
        };
        self.facts.load_stream(key.clone(), row);
        Ok(())
    }

    /// Fills a work row's slot.
    pub(crate) fn load_work(&mut self, db: &Connection, key: &Key) -> Result<(), Failure> {
        if self.facts.knows_work(key) {
            return Ok(());
        }
        self.facts.load_work(key.clone(), read::work(db, key)?);
        Ok(())
    }

    fn load_event_ids(&mut self, db: &Connection, ids: Vec<EventId>) -> Result<(), Failure> {
        let mut statement = db.prepare_cached(&format!(
            "SELECT {} FROM tidelock_events e JOIN tidelock_streams s ON s.id = e.stream WHERE e.id = ?1",
            rows::EVENT_COLUMNS
        ))?;
        for id in ids {
            let event = statement.query_row([id.0.as_bytes().as_slice()], rows::event).optional()?;
            self.facts.load_event_id(id, event);
        }
        Ok(())
    }
}

fn load_time(db: &Connection) -> Result<Timestamp, Failure> {
    let mut statement = db.prepare_cached("SELECT value FROM tidelock_counters WHERE name = 'clock'")?;
    Ok(Timestamp::from_micros(statement.query_row([], |row| row.get(0))?))
}

pub(crate) fn load_counters(db: &Connection) -> Result<Counters, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT max(coalesce((SELECT max(position) FROM tidelock_events), 0),
                    coalesce((SELECT value FROM tidelock_counters WHERE name = 'position'), 0)),
                coalesce((SELECT value FROM tidelock_counters WHERE name = 'fence'), 0),
                coalesce((SELECT max(seq) FROM tidelock_work), 0),
                coalesce((SELECT value FROM tidelock_counters WHERE name = 'document_floor'), 0),
                coalesce((SELECT value FROM tidelock_counters WHERE name = 'epoch'), 0)",
    )?;
    Ok(statement.query_row([], |row| {
        Ok(Counters {
            position: Position(uint(row.get(0)?)),
            fence: Fence(uint(row.get(1)?)),
            work_seq: uint(row.get(2)?),
            document_floor: DocVersion(uint(row.get(3)?)),
            epoch: Epoch(uint(row.get(4)?)),
        })
    })?)
}

/// Returns the document of a key, deleted and expired ones included.
pub(crate) fn document(
    db: &Connection,
    key: &Key,
) -> rusqlite::Result<Option<tidelock_core::model::rows::DocumentRow>> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {} FROM tidelock_documents WHERE key = ?1",
        rows::DOCUMENT_COLUMNS
    ))?;
    statement.query_row([key.canonical()], |row| Ok(rows::document(row)?.1)).optional()
}

/// Returns the record that is kept under an id. A void one has no receipt.
pub(crate) fn operation(db: &Connection, id: OpId) -> Result<Option<Resolution>, Failure> {
    let mut statement = db.prepare_cached("SELECT receipt FROM tidelock_receipts WHERE op_id = ?1")?;
    let found: Option<Option<String>> =
        statement.query_row([id.0.as_bytes().as_slice()], |row| row.get(0)).optional()?;
    let text = match found {
        None => return Ok(None),
        Some(None) => return Ok(Some(Resolution::NotApplied)),
        Some(Some(text)) => text,
    };
    match serde_json::from_str::<Receipt>(&text) {
        Ok(receipt) => Ok(Some(Resolution::Applied(receipt.into_repeated()))),
        Err(e) => {
            let detail = format!("the receipt of operation {id} does not read back: {e}");
            Err(Failure::unreadable("reading an operation", detail))
        }
    }
}

fn matching_work(db: &Connection, filter: &WorkFilter) -> Result<Vec<Key>, Failure> {
    let limit = int(limits::OPERATE_ROWS as u64 + 1);
    let condition = WorkCondition::new(filter, None);
    let sql = format!("SELECT key FROM {} ORDER BY key LIMIT ?5", condition.sql());
    let (queue, pattern, from, below) = condition.parameters();
    let mut statement = db.prepare_cached(&sql)?;
    let found = statement.query_map((queue, pattern, from, below, limit), |row| rows::key(row, 0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Input that only the backend can validate is rejected like any other.
impl From<InvalidInput> for Failure {
    fn from(input: InvalidInput) -> Self {
        Self { error: input.into(), local: true }
    }
}

/// Converts a verdict into the result for the caller.
pub(crate) fn answer(verdict: Verdict) -> Result<Receipt, ApplyError> {
    verdict.map_err(ApplyError::Refused)
}
