//! Tests of the pure decisions: no clock, no task, no database.

mod claim;
mod commit;
mod delta;
mod lease;
mod limits;
mod pattern;
mod retry;
mod truncate;
mod working_set;

use std::time::Duration;

use super::batch::{Batch, NewWork};
use super::commit::{Stop, decide};
use super::receipt::Receipt;
use super::refusal::Refusal;
use super::rows::{Lease, WorkRow};
use super::working_set::{Counters, Footprint, WorkingSet};
use crate::clock::Timestamp;
use crate::id::{Fence, Owner, QueueName};
use crate::key::Key;

pub(super) const NOW: Timestamp = Timestamp::from_micros(1_000_000);
pub(super) const TTL: Duration = Duration::from_micros(100);

pub(super) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(super) fn key(name: &str) -> Key {
    Key::single(name).unwrap()
}

pub(super) fn queue_name() -> QueueName {
    QueueName::new("queue").unwrap()
}

pub(super) fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// A store for single decisions: fills the slots that a batch needs and decides.
pub(super) struct Desk {
    pub(super) facts: WorkingSet,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self { facts: WorkingSet::new(Counters::default()) }
    }

    pub(super) fn apply(&mut self, batch: &Batch, now: Timestamp) -> Result<Receipt, Refusal> {
        let needs = Footprint::of(batch);
        for k in needs.streams.into_iter().filter(|k| !self.facts.knows_stream(k)).collect::<Vec<_>>() {
            self.facts.load_stream(k, None);
        }
        for k in needs.documents.into_iter().filter(|k| !self.facts.knows_document(k)).collect::<Vec<_>>() {
            self.facts.load_document(k, None);
        }
        for k in needs.work.into_iter().filter(|k| !self.facts.knows_work(k)).collect::<Vec<_>>() {
            self.facts.load_work(k, None);
        }
        for id in batch.event_ids() {
            self.facts.load_event_id(id, None);
        }
        match decide(&mut self.facts, batch, &[], now) {
            Ok(receipt) => Ok(receipt),
            Err(Stop::Refused(refusal)) => Err(*refusal),
            Err(Stop::NeedEventIds(_)) => panic!("ids were loaded"),
        }
    }

    pub(super) fn enqueue(&mut self, name: &str, now: Timestamp) {
        self.apply(&Batch::new().enqueue(NewWork::once(key(name), queue_name())), now).unwrap();
    }

    /// Claims a row by key and returns the lease.
    pub(super) fn claim(&mut self, name: &str, who: &str, now: Timestamp) -> Option<Lease> {
        let (key, owner) = (key(name), owner(who));
        let granted = super::claim::grant_named(&mut self.facts, &key, None, &owner, TTL, now).ok()?;
        Some(Lease { key, fence: granted.row.lease.map_or(Fence(0), |l| l.fence), owner: Some(owner) })
    }

    pub(super) fn row(&self, name: &str) -> &WorkRow {
        self.facts.work(&key(name)).unwrap()
    }
}
