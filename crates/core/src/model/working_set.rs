//! Working set of a decision: the rows that a group of batches touches, and their changes.
//!
//! A backend loads slots before it decides. An empty slot means that the store holds no such row. A missing slot means
//! that the backend did not load it, and a decision never guesses its content. A store that is the only writer may keep
//! slots cached between groups. Refused batches leave no trace, because [`WorkingSet::undo_to`] restores every slot and
//! counter.

use std::mem;

use foldhash::{HashMap, HashMapExt as _};

use super::batch::{Batch, Effect, Selection};
use super::draft::Draft;
use super::rows::{DocumentRow, Event, StreamRow, WorkRow};
use crate::id::{DocVersion, Epoch, EventId, Fence, Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// The counters of the store as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The highest assigned position.
    pub position: Position,
    /// The highest fence ever granted.
    pub fence: Fence,
    /// The highest creation number of a work row.
    pub work_seq: u64,
    /// The version floor of documents. Every new document starts above it, because tombstones up to it were swept.
    pub document_floor: DocVersion,
    /// The epoch that the counters belong to.
    pub epoch: Epoch,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            position: Position(0),
            fence: Fence(0),
            work_seq: 0,
            document_floor: DocVersion(0),
            epoch: Epoch(0),
        }
    }
}

/// The keys that the decision about a batch needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The streams whose heads are needed.
    pub streams: Vec<Key>,
    /// The documents that are needed.
    pub documents: Vec<Key>,
    /// The work rows that are needed, except those that a filter selects.
    pub work: Vec<Key>,
}

impl Footprint {
    /// Returns the keys that the batch names.
    #[must_use]
    pub fn of(batch: &Batch) -> Self {
        let mut needs = Self::default();
        for effect in batch.effects() {
            match effect {
                Effect::Append { stream, .. }
                | Effect::Close { stream, .. }
                | Effect::Truncate { stream, .. }
                | Effect::GuardStream { stream, .. } => needs.streams.push(stream.clone()),
                Effect::Put { key, .. }
                | Effect::Delete { key, .. }
                | Effect::Merge { key, .. }
                | Effect::GuardDocument { key, .. } => needs.documents.push(key.clone()),
                Effect::Enqueue(work) => needs.work.push(work.key.clone()),
                Effect::GuardWork { key, .. } => needs.work.push(key.clone()),
                Effect::Ack { lease }
                | Effect::Advance { lease, .. }
                | Effect::Defer { lease, .. }
                | Effect::Fail { lease, .. }
                | Effect::Block { lease, .. }
                | Effect::Renew { lease, .. }
                | Effect::Release { lease }
                | Effect::GuardLease { lease } => needs.work.push(lease.key.clone()),
                Effect::Operate { selection: Selection::Keys(keys), .. } => {
                    needs.work.extend_from_slice(keys)
                }
                Effect::Operate { selection: Selection::Filter(_), .. } => {}
            }
        }
        needs
    }
}

/// The approximate size of a slot without its texts: the row itself and its entry in the map.
const SLOT_BYTES: usize = 200;

fn key_bytes(key: &Key) -> usize {
    key.canonical().len()
}

/// The previous content of a changed slot.
enum Before {
    Stream(Key, Option<StreamRow>),
    Document(Key, Option<DocumentRow>),
    Work(Key, Option<Box<WorkRow>>),
}

/// The rows that changed and the events that were added since the last [`WorkingSet::take_changes`].
#[derive(Debug, Default)]
pub struct Changes {
    /// The streams that changed.
    pub streams: Vec<Key>,
    /// The documents that changed.
    pub documents: Vec<Key>,
    /// The work rows that changed. An empty slot means that the row was removed.
    pub work: Vec<Key>,
    /// The events to write, in order of position.
    pub events: Vec<Event>,
    /// The events to remove after `events` are written, with one entry per stream.
    pub truncated: Vec<Truncated>,
}

/// The removed events of one stream. Some of them may be among the events to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Truncated {
    /// The stream.
    pub stream: Key,
    /// The first removed version.
    pub from: StreamVersion,
    /// The first version that stays.
    pub before: StreamVersion,
}

/// An undo point.
#[derive(Clone, Copy, Debug)]
pub struct UndoMark {
    undo: usize,
    events: usize,
    truncated: usize,
    counters: Counters,
}

/// The working set of a decision.
#[derive(Default)]
pub struct WorkingSet {
    streams: HashMap<Key, Option<StreamRow>>,
    documents: HashMap<Key, Option<DocumentRow>>,
    work: HashMap<Key, Option<Box<WorkRow>>>,
    /// Documents that merges of this group have parsed into drafts, each with the version of its row.
    drafts: HashMap<Key, (DocVersion, Draft)>,
    /// Documents whose rows do not yet have the text of their drafts, with the indexes of the merges in the receipt.
    unsettled: HashMap<Key, Vec<usize>>,
    /// Events whose ids were looked up in the log. An empty slot means that the id is free.
    events_by_id: HashMap<EventId, Option<Event>>,
    /// The counters of the store as a whole.
    pub counters: Counters,
    undo: Vec<Before>,
    added: Vec<Event>,
    truncated: Vec<Truncated>,
    /// The number of bytes loaded into slots since the last [`WorkingSet::forget`].
    weight: usize,
}

impl std::fmt::Debug for WorkingSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts").field("slots", &self.len()).field("counters", &self.counters).finish()
    }
}

impl WorkingSet {
    /// Creates an empty working set of a store with these counters.
    #[must_use]
    pub fn new(counters: Counters) -> Self {
        Self { counters, ..Self::default() }
    }

    /// Returns the number of filled slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len() + self.documents.len() + self.work.len() + self.events_by_id.len()
    }

    /// Returns the approximate number of bytes loaded into slots since they were last forgotten.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns whether no slot is filled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every slot, including changed ones, and keeps the counters.
    pub fn forget(&mut self) {
        *self = Self { counters: self.counters, ..Self::default() };
    }

    /// Forgets the ids that were looked up. They are valid for one decision only.
    pub fn forget_event_ids(&mut self) {
        self.events_by_id = HashMap::new();
    }

    /// Returns whether the stream's slot is filled.
    #[must_use]
    pub fn knows_stream(&self, key: &Key) -> bool {
        self.streams.contains_key(key)
    }

    /// Returns whether the document's slot is filled.
    #[must_use]
    pub fn knows_document(&self, key: &Key) -> bool {
        self.documents.contains_key(key)
    }

    /// Returns whether the work row's slot is filled.
    #[must_use]
    pub fn knows_work(&self, key: &Key) -> bool {
        self.work.contains_key(key)
    }

    /// Fills a stream's slot with the stored row.
    pub fn load_stream(&mut self, key: Key, row: Option<StreamRow>) {
        self.weigh_slot(&key, self.streams.contains_key(&key));
        self.streams.insert(key, row);
    }

    /// Fills a document's slot with the stored row.
    pub fn load_document(&mut self, key: Key, row: Option<DocumentRow>) {
        self.weigh_slot(&key, self.documents.contains_key(&key));
        self.weigh_document(row.as_ref());
        self.drafts.remove(&key);
        self.documents.insert(key, row);
    }

    /// Fills a work row's slot with the stored row.
    pub fn load_work(&mut self, key: Key, row: Option<WorkRow>) {
        self.weigh_slot(&key, self.work.contains_key(&key));
        self.weigh_work(row.as_ref());
        self.work.insert(key, row.map(Box::new));
    }

    /// Fills the slot of an event id with the event that has it.
    pub fn load_event_id(&mut self, id: EventId, event: Option<Event>) {
        self.events_by_id.insert(id, event);
    }

    /// Returns the stream as the decision sees it.
    #[must_use]
    pub fn stream(&self, key: &Key) -> Option<&StreamRow> {
        self.streams.get(key)?.as_ref()
    }

    /// Returns the document as the decision sees it.
    #[must_use]
    pub fn document(&self, key: &Key) -> Option<&DocumentRow> {
        self.documents.get(key)?.as_ref()
    }

    /// Returns the work row as the decision sees it.
    #[must_use]
    pub fn work(&self, key: &Key) -> Option<&WorkRow> {
        self.work.get(key)?.as_deref()
    }

    /// Returns the lookup result of an event id. `None` means that the id was not looked up.
    pub(super) fn event_id(&self, id: EventId) -> Option<Option<&Event>> {
        if let Some(known) = self.events_by_id.get(&id) {
            return Some(known.as_ref());
        }
        None
    }

    pub(super) fn set_stream(&mut self, key: &Key, row: StreamRow) {
        self.weigh_slot(key, self.streams.contains_key(key));
        let before = self.streams.insert(key.clone(), Some(row)).flatten();
        self.undo.push(Before::Stream(key.clone(), before));
    }

    pub(super) fn set_document(&mut self, key: &Key, row: DocumentRow) {
        self.weigh_document(Some(&row));
        self.drafts.remove(key);
        self.change_document(key, row);
    }

    fn change_document(&mut self, key: &Key, row: DocumentRow) {
        self.weigh_slot(key, self.documents.contains_key(key));
        let before = self.documents.insert(key.clone(), Some(row)).flatten();
        self.undo.push(Before::Document(key.clone(), before));
    }

    /// Takes the draft of the document, if merges of this group have created one for this version.
    pub(super) fn take_draft(&mut self, key: &Key, version: DocVersion) -> Option<Draft> {
        self.drafts.remove(key).filter(|(of, _)| *of == version).map(|(_, draft)| draft)
    }

    /// Sets a document by its draft. The row gets its value when the draft is settled.
    pub(super) fn set_draft(&mut self, key: &Key, row: DocumentRow, draft: Draft, merge: usize) {
        self.drafts.insert(key.clone(), (row.version, draft));
        self.unsettled.entry(key.clone()).or_default().push(merge);
        self.change_document(key, row);
    }

    /// Returns the documents with unsettled drafts.
    pub(super) fn unsettled(&self) -> Vec<Key> {
        self.unsettled.keys().cloned().collect()
    }

    /// Sets the document to the value of its draft. Returns that value and the indexes of the merges in the receipt.
    pub(super) fn settle_draft(&mut self, key: &Key) -> Option<(Payload, Vec<usize>)> {
        let merges = self.unsettled.remove(key)?;
        let value = self.drafts.get(key)?.1.payload();
        self.weight = self.weight.saturating_add(value.len());
        self.documents.get_mut(key)?.as_mut()?.value = Some(value.clone());
        Some((value, merges))
    }

    pub(super) fn set_work(&mut self, key: &Key, row: Option<WorkRow>) {
        self.weigh_slot(key, self.work.contains_key(key));
        self.weigh_work(row.as_ref());
        let before = self.work.insert(key.clone(), row.map(Box::new)).flatten();
        self.undo.push(Before::Work(key.clone(), before));
    }

    fn weigh_document(&mut self, row: Option<&DocumentRow>) {
        let bytes = row.and_then(|row| row.value.as_ref()).map_or(0, Payload::len);
        self.weight = self.weight.saturating_add(bytes);
    }

    fn weigh_work(&mut self, row: Option<&WorkRow>) {
        let Some(row) = row else { return };
        let texts = [row.last_error.as_deref(), row.blocked.as_ref().map(|b| b.reason.as_str())];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        let follow = row.follow.as_ref().map_or(0, key_bytes);
        self.weight = self.weight.saturating_add(row.payload.len() + texts + follow);
    }

    /// Adds the size of a slot. Even an empty slot counts, but only once, regardless of how often its row changes.
    fn weigh_slot(&mut self, key: &Key, filled: bool) {
        if !filled {
            self.weight = self.weight.saturating_add(SLOT_BYTES + key_bytes(key));
        }
    }

    pub(super) fn add_event(&mut self, event: Event) {
        self.added.push(event);
    }

    /// Removes the events of a stream from its first version up to `before`.
    pub(super) fn truncate(&mut self, key: &Key, row: StreamRow, before: StreamVersion) {
        self.truncated.push(Truncated { stream: key.clone(), from: row.first, before });
        self.set_stream(key, StreamRow { first: before, ..row });
    }

    /// Returns an undo point for a batch that may be refused.
    #[must_use]
    pub fn mark(&self) -> UndoMark {
        let truncated = self.truncated.len();
        UndoMark { undo: self.undo.len(), events: self.added.len(), truncated, counters: self.counters }
    }

    /// Undoes everything since the mark.
    pub fn undo_to(&mut self, mark: UndoMark) {
        // A refused batch may have changed a draft in part.
        self.drafts.clear();
        self.unsettled.clear();
        while self.undo.len() > mark.undo {
            match self.undo.pop() {
                Some(Before::Stream(key, row)) => drop(self.streams.insert(key, row)),
                Some(Before::Document(key, row)) => drop(self.documents.insert(key, row)),
                Some(Before::Work(key, row)) => drop(self.work.insert(key, row)),
                None => break,
            }
        }
        self.added.truncate(mark.events);
        self.truncated.truncate(mark.truncated);
        self.counters = mark.counters;
    }

    /// Returns all changes since the last call, each row once, and discards the undo information.
    pub fn take_changes(&mut self) -> Changes {
        let (events, truncated) = (mem::take(&mut self.added), joined(mem::take(&mut self.truncated)));
        let mut changes = Changes { events, truncated, ..Changes::default() };
        self.drafts.clear();
        for before in mem::take(&mut self.undo) {
            match before {
                Before::Stream(key, _) => changes.streams.push(key),
                Before::Document(key, _) => changes.documents.push(key),
                Before::Work(key, _) => changes.work.push(key),
            }
        }
        for keys in [&mut changes.streams, &mut changes.documents, &mut changes.work] {
            keys.sort_unstable();
            keys.dedup();
        }
        changes
    }
}

/// Joins the entries of each stream into one. Each later removal of a stream starts where the one before it ended.
fn joined(mut truncated: Vec<Truncated>) -> Vec<Truncated> {
    truncated.sort_unstable();
    truncated.dedup_by(|next, before| {
        let same = next.stream == before.stream;
        if same {
            before.before = next.before;
        }
        same
    });
    truncated
}
