//! The working set of a decision: the rows a group of batches touches, and what has changed in them.
//!
//! A backend loads slots before it asks; an empty slot means "the store holds no such row", a missing one means
//! "nobody looked", which a decision never guesses at. A store without foreign writers may keep slots warm between
//! groups. Refused batches leave no trace: [`Facts::undo_to`] restores every slot and counter.

use std::mem;

use foldhash::{HashMap, HashMapExt as _};

use super::batch::{Batch, Effect, Selection};
use super::draft::Draft;
use super::rows::{DocumentRow, Event, StreamRow, WorkRow};
use crate::id::{DocVersion, Epoch, EventId, Fence, Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// Numbers that belong to the store as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The highest position in use.
    pub position: Position,
    /// The highest fence ever granted.
    pub fence: Fence,
    /// The highest creation number of a work row.
    pub work_seq: u64,
    /// No document begins at or below this version: tombstones up to it were swept.
    pub document_floor: DocVersion,
    /// The epoch that the numbers belong to.
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

/// The keys that deciding a batch needs to know about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Streams whose heads are needed.
    pub streams: Vec<Key>,
    /// Documents that are needed.
    pub documents: Vec<Key>,
    /// Work rows that are needed, but for those that a filter selects.
    pub work: Vec<Key>,
}

impl Footprint {
    /// What the batch touches by name.
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

/// About what a slot takes beside its texts: the row itself and its place in the map.
const SLOT_BYTES: usize = 200;

fn key_bytes(key: &Key) -> usize {
    key.canonical().len()
}

/// What a slot held before it was changed.
enum Before {
    Stream(Key, Option<StreamRow>),
    Document(Key, Option<DocumentRow>),
    Work(Key, Option<Box<WorkRow>>),
}

/// The rows that changed and the events that were added since the last [`Facts::take_changes`].
#[derive(Debug, Default)]
pub struct Changes {
    /// Streams that changed.
    pub streams: Vec<Key>,
    /// Documents that changed.
    pub documents: Vec<Key>,
    /// Work rows that changed; an empty slot means the row was removed.
    pub work: Vec<Key>,
    /// Events to be written, in order of position.
    pub events: Vec<Event>,
    /// Events to be removed once those are written, each stream once.
    pub truncated: Vec<Truncated>,
}

/// Events of one stream that are removed. Some of them may be among the events to be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Truncated {
    /// The stream.
    pub stream: Key,
    /// The first version that goes.
    pub from: StreamVersion,
    /// The first version that stays.
    pub before: StreamVersion,
}

/// A point to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    undo: usize,
    events: usize,
    truncated: usize,
    counters: Counters,
}

/// The working set.
#[derive(Default)]
pub struct Facts {
    streams: HashMap<Key, Option<StreamRow>>,
    documents: HashMap<Key, Option<DocumentRow>>,
    work: HashMap<Key, Option<Box<WorkRow>>>,
    /// Documents that merges of this group have taken apart, as of a version of their rows.
    drafts: HashMap<Key, (DocVersion, Draft)>,
    /// Documents whose rows do not have the text of their drafts yet, with the places of the merges in the receipt.
    unsettled: HashMap<Key, Vec<usize>>,
    /// Events whose ids were looked up in the log; an empty slot means the id is free.
    events_by_id: HashMap<EventId, Option<Event>>,
    /// The numbers of the store as a whole.
    pub counters: Counters,
    undo: Vec<Before>,
    added: Vec<Event>,
    truncated: Vec<Truncated>,
    /// Bytes that were put into slots since the last [`Facts::forget`].
    weight: usize,
}

impl std::fmt::Debug for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts").field("slots", &self.len()).field("counters", &self.counters).finish()
    }
}

impl Facts {
    /// An empty working set of a store with these numbers.
    #[must_use]
    pub fn new(counters: Counters) -> Self {
        Self { counters, ..Self::default() }
    }

    /// How many slots are filled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len() + self.documents.len() + self.work.len() + self.events_by_id.len()
    }

    /// Roughly how many bytes the slots hold: what was put into them since they were last forgotten.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Whether no slot is filled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every slot, changed ones included, and keeps the counters.
    pub fn forget(&mut self) {
        *self = Self { counters: self.counters, ..Self::default() };
    }

    /// Forgets ids that were looked up: they are only good for one decision.
    pub fn forget_event_ids(&mut self) {
        self.events_by_id = HashMap::new();
    }

    /// Whether the stream's slot is filled.
    #[must_use]
    pub fn knows_stream(&self, key: &Key) -> bool {
        self.streams.contains_key(key)
    }

    /// Whether the document's slot is filled.
    #[must_use]
    pub fn knows_document(&self, key: &Key) -> bool {
        self.documents.contains_key(key)
    }

    /// Whether the work row's slot is filled.
    #[must_use]
    pub fn knows_work(&self, key: &Key) -> bool {
        self.work.contains_key(key)
    }

    /// Fills a stream's slot with what the store holds.
    pub fn load_stream(&mut self, key: Key, row: Option<StreamRow>) {
        self.weigh_slot(&key, self.streams.contains_key(&key));
        self.streams.insert(key, row);
    }

    /// Fills a document's slot with what the store holds.
    pub fn load_document(&mut self, key: Key, row: Option<DocumentRow>) {
        self.weigh_slot(&key, self.documents.contains_key(&key));
        self.weigh_document(row.as_ref());
        self.drafts.remove(&key);
        self.documents.insert(key, row);
    }

    /// Fills a work row's slot with what the store holds.
    pub fn load_work(&mut self, key: Key, row: Option<WorkRow>) {
        self.weigh_slot(&key, self.work.contains_key(&key));
        self.weigh_work(row.as_ref());
        self.work.insert(key, row.map(Box::new));
    }

    /// Fills the slot of an event id with the event that has it.
    pub fn load_event_id(&mut self, id: EventId, event: Option<Event>) {
        self.events_by_id.insert(id, event);
    }

    /// The stream as the decision sees it.
    #[must_use]
    pub fn stream(&self, key: &Key) -> Option<&StreamRow> {
        self.streams.get(key)?.as_ref()
    }

    /// The document as the decision sees it.
    #[must_use]
    pub fn document(&self, key: &Key) -> Option<&DocumentRow> {
        self.documents.get(key)?.as_ref()
    }

    /// The work row as the decision sees it.
    #[must_use]
    pub fn work(&self, key: &Key) -> Option<&WorkRow> {
        self.work.get(key)?.as_deref()
    }

    /// What is known about an event id: `None` when nobody looked.
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

    /// The document in parts, if merges of this group have taken this version of it apart.
    pub(super) fn take_draft(&mut self, key: &Key, version: DocVersion) -> Option<Draft> {
        self.drafts.remove(key).filter(|(of, _)| *of == version).map(|(_, draft)| draft)
    }

    /// Sets a document by its draft. The row gets its value when the draft is settled.
    pub(super) fn set_draft(&mut self, key: &Key, row: DocumentRow, draft: Draft, merge: usize) {
        self.drafts.insert(key.clone(), (row.version, draft));
        self.unsettled.entry(key.clone()).or_default().push(merge);
        self.change_document(key, row);
    }

    /// The documents that wait to be settled.
    pub(super) fn unsettled(&self) -> Vec<Key> {
        self.unsettled.keys().cloned().collect()
    }

    /// Gives a document the value of its draft. That value, and the places of the merges in the receipt.
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

    /// A slot weighs something even when it is empty, but only once however often its row changes.
    fn weigh_slot(&mut self, key: &Key, filled: bool) {
        if !filled {
            self.weight = self.weight.saturating_add(SLOT_BYTES + key_bytes(key));
        }
    }

    pub(super) fn add_event(&mut self, event: Event) {
        self.added.push(event);
    }

    /// Removes the events of a stream from its first version on.
    pub(super) fn truncate(&mut self, key: &Key, row: StreamRow, before: StreamVersion) {
        self.truncated.push(Truncated { stream: key.clone(), from: row.first, before });
        self.set_stream(key, StreamRow { first: before, ..row });
    }

    /// A point to which a refused batch is taken back.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let truncated = self.truncated.len();
        Mark { undo: self.undo.len(), events: self.added.len(), truncated, counters: self.counters }
    }

    /// Takes everything back that happened since the mark.
    pub fn undo_to(&mut self, mark: Mark) {
        // A draft may have been changed in part.
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

    /// Everything that changed since the last time, each row once, and forgets how to undo it.
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

/// One entry for each stream. What a stream lost next begins where the removal before it ended.
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
