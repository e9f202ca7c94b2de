//! Builders with short names for the test data of the cases.

use std::time::Duration;

use serde_json::{Value, json};
use tidelock_core::id::{DocVersion, EventType, Owner, QueueName, StreamVersion};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::model::batch::{Batch, Expect, NewEvent, NewWork, WorkFilter};
use tidelock_core::payload::Payload;
use tidelock_core::store::{Operation, Pattern, Selection};

/// TTL of leases in the cases.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// The smallest step of the clock.
pub(crate) const TICK: Duration = Duration::from_micros(1);

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn key(name: &str) -> Key {
    Key::new("tck", [name]).unwrap()
}

/// Returns the prefix of all keys that [`key`] creates.
pub(crate) fn all_keys() -> KeyPrefix {
    KeyPrefix::kind("tck")
}

pub(crate) fn queue_name(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

pub(crate) fn event_type(name: &str) -> EventType {
    EventType::new(name).unwrap()
}

pub(crate) fn payload(value: Value) -> Payload {
    Payload::of(&value).unwrap()
}

/// Returns the payload that represents a number.
pub(crate) fn number(n: i64) -> Payload {
    payload(json!({ "n": n }))
}

pub(crate) fn event(name: &str, n: i64) -> NewEvent {
    NewEvent::new(event_type(name), number(n))
}

/// Returns events numbered from 0.
pub(crate) fn events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| event("Happened", n as i64)).collect()
}

pub(crate) fn at(version: u64) -> Expect<StreamVersion> {
    Expect::Exact(StreamVersion(version))
}

pub(crate) fn doc_at(version: u64) -> Expect<DocVersion> {
    Expect::Exact(DocVersion(version))
}

/// Returns the queue of cases that need only one.
pub(crate) fn jobs() -> QueueName {
    queue_name("jobs")
}

/// Returns a job in the queue of [`jobs`].
pub(crate) fn job(name: &str) -> NewWork {
    NewWork::once(key(name), jobs())
}

/// Returns a standing row in the queue of [`jobs`].
pub(crate) fn standing(name: &str) -> NewWork {
    NewWork::standing(key(name), jobs())
}

pub(crate) fn enqueue(work: NewWork) -> Batch {
    Batch::new().enqueue(work)
}

pub(crate) fn by_names(names: &[&str], operation: Operation) -> Batch {
    let keys = names.iter().map(|name| key(name)).collect();
    Batch::new().operate(Selection::Keys(keys), operation)
}

pub(crate) fn by_filter(filter: WorkFilter, operation: Operation) -> Batch {
    Batch::new().operate(Selection::Filter(filter), operation)
}

pub(crate) fn pattern(source: &str) -> WorkFilter {
    WorkFilter { pattern: Some(Pattern::new(source).unwrap()), ..WorkFilter::default() }
}
