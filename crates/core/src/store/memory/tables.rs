//! Maps of the reference store, with the application of batches and claims through the model.

use std::collections::{BTreeMap, HashMap};

use super::super::{
    ApplyError, Batch, Claim, ClaimTarget, Claimed, Gathering, Grant, HistoryCut, Receipt, Refusal,
    Resolution, Sweep, Swept,
};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, EventId, OpId, Position};
use crate::key::Key;
use crate::model::batch::{Effect, Selection};
use crate::model::claim::{self, Candidate, Granted};
use crate::model::commit::{self, Stop};
use crate::model::epoch;
use crate::model::lease;
use crate::model::limits::{self, OPERATE_ROWS};
use crate::model::rows::{DocumentRow, Event, StreamRow, WorkRow};
use crate::model::working_set::{Counters, Footprint, Truncated, WorkingSet};

/// All data of the reference store.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) events: BTreeMap<Position, Event>,
    pub(super) by_stream: HashMap<Key, Vec<Position>>,
    pub(super) streams: BTreeMap<Key, StreamRow>,
    pub(super) documents: BTreeMap<Key, DocumentRow>,
    pub(super) work: BTreeMap<Key, WorkRow>,
    ids: HashMap<EventId, Position>,
    operations: HashMap<OpId, Operation>,
    pub(super) counters: Counters,
    pub(super) cuts: Vec<HistoryCut>,
}

/// The record of an operation id.
#[derive(Clone, Debug)]
struct Operation {
    at: Timestamp,
    resolution: Resolution,
}

impl Operation {
    fn applied(receipt: Receipt) -> Self {
        Self { at: receipt.at, resolution: Resolution::Applied(receipt.into_repeated()) }
    }

    fn void(at: Timestamp) -> Self {
        Self { at, resolution: Resolution::NotApplied }
    }
}

impl Tables {
    pub(super) fn epoch(&self) -> Epoch {
        self.counters.epoch
    }

    pub(super) fn declare_cut(&mut self, now: Timestamp, reason: &str) -> HistoryCut {
        let cut = epoch::begin(&mut self.counters, now, reason);
        self.cuts.push(cut.clone());
        cut
    }

    pub(super) fn operation(&self, id: OpId) -> Option<Resolution> {
        Some(self.operations.get(&id)?.resolution.clone())
    }

    pub(super) fn resolve(&mut self, id: OpId, now: Timestamp) -> Resolution {
        self.operations.entry(id).or_insert_with(|| Operation::void(now)).resolution.clone()
    }

    pub(super) fn apply(&mut self, batch: &Batch, now: Timestamp) -> Result<Receipt, ApplyError> {
        if let Some(id) = batch.id()
            && let Some(known) = self.operation(id)
        {
            return known.verdict(id).map_err(ApplyError::Refused);
        }
        let selected = self.select(batch)?;
        let mut facts = self.load(batch, &selected);
        let receipt = match commit::decide(&mut facts, batch, &selected, now) {
            Ok(receipt) => receipt,
            Err(Stop::Refused(refusal)) => return Err(ApplyError::Refused(refusal)),
            Err(Stop::NeedEventIds(ids)) => {
                let what = format!("{} event ids were not loaded", ids.len());
                return Err(ApplyError::not_applied(super::super::StoreError::new(
                    super::super::StoreErrorKind::Bug,
                    "deciding a batch",
                    what,
                )));
            }
        };
        if let Some(id) = batch.id() {
            self.operations.insert(id, Operation::applied(receipt.clone()));
        }
        self.write(&mut facts);
        Ok(receipt)
    }

    /// Returns the keys of work rows that the batch's filters may match: those that match now, and those that the batch
    /// itself touches.
    fn select(&self, batch: &Batch) -> Result<Vec<Key>, Refusal> {
        let mut selected = Vec::new();
        for effect in batch.effects() {
            if let Effect::Operate { selection: Selection::Filter(filter), .. } = effect {
                let filter = filter.for_operation();
                selected
                    .extend(self.work.values().filter(|row| filter.matches(row)).map(|row| row.key.clone()));
                selected.extend(Footprint::of(batch).work);
            }
        }
        selected.sort_unstable();
        selected.dedup();
        limits::within("the number of rows selected", "a filter", selected.len(), OPERATE_ROWS)
            .map_err(|e: InvalidInput| Refusal::Invalid(e))?;
        Ok(selected)
    }

    fn load(&self, batch: &Batch, selected: &[Key]) -> WorkingSet {
        let needs = Footprint::of(batch);
        let mut facts = WorkingSet::new(self.counters);
        for key in needs.streams {
            let row = self.streams.get(&key).cloned();
            facts.load_stream(key, row);
        }
        for key in needs.documents {
            let row = self.documents.get(&key).cloned();
            facts.load_document(key, row);
        }
        for key in needs.work.iter().chain(selected) {
            facts.load_work(key.clone(), self.work.get(key).cloned());
        }
        for id in batch.event_ids() {
            let event = self.ids.get(&id).and_then(|position| self.events.get(position)).cloned();
            facts.load_event_id(id, event);
        }
        facts
    }

    fn write(&mut self, facts: &mut WorkingSet) {
        let changes = facts.take_changes();
        for event in changes.events {
            self.ids.insert(event.id, event.position);
            self.by_stream.entry(event.stream.clone()).or_default().push(event.position);
            self.events.insert(event.position, event);
        }
        for truncated in changes.truncated {
            self.truncate(&truncated);
        }
        for key in changes.streams {
            if let Some(row) = facts.stream(&key) {
                self.streams.insert(key, row.clone());
            }
        }
        for key in changes.documents {
            if let Some(row) = facts.document(&key) {
                self.documents.insert(key, row.clone());
            }
        }
        for key in changes.work {
            match facts.work(&key) {
                Some(row) => drop(self.work.insert(key, row.clone())),
                None => drop(self.work.remove(&key)),
            }
        }
        self.counters = facts.counters;
    }

    fn truncate(&mut self, truncated: &Truncated) {
        let Some(positions) = self.by_stream.get_mut(&truncated.stream) else { return };
        let events = &self.events;
        let stays = |at: &Position| events.get(at).is_some_and(|event| event.version >= truncated.before);
        let count = positions.iter().take_while(|at| !stays(at)).count();
        for position in positions.drain(..count) {
            if let Some(event) = self.events.remove(&position) {
                self.ids.remove(&event.id);
            }
        }
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Claimed {
        let mut facts = WorkingSet::new(self.counters);
        let mut claimed = Claimed::nothing(now);
        let rows = match &claim.pick {
            ClaimTarget::Named { key, create } => {
                facts.load_work(key.clone(), self.work.get(key).cloned());
                let (owner, ttl) = (&claim.owner, claim.ttl);
                match claim::grant_named(&mut facts, key, create.as_ref(), owner, ttl, now) {
                    Ok(granted) => vec![granted],
                    Err(denied) => {
                        claimed.denied = Some(denied);
                        Vec::new()
                    }
                }
            }
            ClaimTarget::Lanes { queues, limit } => {
                let of_lanes = |row: &&WorkRow| queues.contains(&row.queue);
                let ready: Vec<Candidate> =
                    self.work.values().filter(of_lanes).filter_map(candidate).collect();
                let (open, waiting): (Vec<_>, Vec<_>) =
                    ready.into_iter().partition(|c| c.ready_at.has_come(now));
                claimed.next_at = waiting.iter().map(|c| c.ready_at).min().filter(|_| open.is_empty());
                let chosen = claim::choose(open, *limit, self.counters.fence);
                for key in &chosen {
                    facts.load_work(key.clone(), self.work.get(key).cloned());
                }
                let grant = |key| claim::grant_chosen(&mut facts, key, &claim.owner, claim.ttl, now);
                chosen.iter().filter_map(grant).collect()
            }
        };
        self.write(&mut facts);
        let grants = rows.len();
        let gathering = || Gathering::new(claim.events, grants);
        claimed.grants = rows.into_iter().filter_map(|granted| self.granted(granted, gathering())).collect();
        claimed
    }

    fn granted(&self, Granted { row, taken_over }: Granted, mut gathering: Gathering) -> Option<Grant> {
        let fence = row.lease.as_ref()?.fence;
        let after = row.position.unwrap_or(Position(0));
        let positions = row.follow.as_ref().and_then(|stream| self.by_stream.get(stream));
        let positions = positions.map_or(&[][..], Vec::as_slice);
        let seen = positions.partition_point(|position| *position <= after);
        let mut events = positions.iter().skip(seen).filter_map(|position| self.events.get(position));
        while gathering.is_open()
            && let Some(event) = events.next()
        {
            gathering.add(event.clone());
        }
        let (events, more) = gathering.end();
        Some(Grant { row, fence, epoch: self.counters.epoch, taken_over, events, more })
    }

    pub(super) fn sweep(&mut self, sweep: &Sweep, now: Timestamp) -> Swept {
        let mut swept = Swept::default();
        for row in self.documents.values_mut().filter(|row| expired(row, now)).take(sweep.limit) {
            *row = DocumentRow { value: None, expires_at: None, ..row.clone() };
            swept.expired += 1;
        }
        if let Some(before) = sweep.tombstones_before {
            let old = |row: &DocumentRow| row.value.is_none() && row.updated_at < before;
            let keys = self.documents.iter().filter(|(_, row)| old(row)).map(|(key, _)| key.clone());
            for key in keys.take(sweep.limit).collect::<Vec<_>>() {
                if let Some(row) = self.documents.remove(&key) {
                    self.counters.document_floor = self.counters.document_floor.max(row.version);
                    swept.tombstones += 1;
                }
            }
        }
        if let Some(before) = sweep.operations_before {
            let old = self.operations.iter().filter(|(_, kept)| kept.at < before).map(|(id, _)| *id);
            for id in old.take(sweep.limit).collect::<Vec<_>>() {
                self.operations.remove(&id);
                swept.operations += 1;
            }
        }
        swept
    }
}

fn candidate(row: &WorkRow) -> Option<Candidate> {
    let ready_at = lease::ready_at(row)?;
    Some(Candidate {
        key: row.key.clone(),
        queue: row.queue.clone(),
        priority: row.priority,
        ready_at,
        seq: row.seq,
    })
}

fn expired(row: &DocumentRow, now: Timestamp) -> bool {
    row.value.is_some() && row.expires_at.is_some_and(|at| at.has_come(now))
}
