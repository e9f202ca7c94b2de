//! Every write that comes over the API leaves an event in the stream `tidelock.audit`: who, what, on what, and the details.
//!
//! It is in the batch of the change: both happen, or neither. Engines that make batches of their own are given it, and commit it with the
//! first of them that changes something; what changes nothing leaves no event. Taking a lease is the one exception: see
//! `api/leases.rs`.

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tidelock::error::InvalidInput;
use tidelock::id::{EventId, EventType};
use tidelock::key::Key;
use tidelock::payload::Payload;
use tidelock::store::{Batch, Expect, NewEvent};

use crate::request_id;
use crate::token::Caller;

/// The name of the stream.
pub(crate) const STREAM: &str = "tidelock.audit";
/// The type of its events.
const DONE: &str = "tidelock.audit-done";
/// How many keys are named in an event.
pub(crate) const KEYS: usize = 1_000;

/// What is told about a write.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Told<'a> {
    /// Who.
    by: &'a str,
    /// What.
    did: &'static str,
    /// The key, or the id of a run.
    on: String,
    /// The request, as the answer and the log name it. Not where the event must be the same when the request comes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    /// More about it.
    details: Value,
}

impl<'a> Told<'a> {
    pub(crate) fn new(caller: &'a Caller, did: &'static str, on: impl ToString, details: Value) -> Self {
        Self { by: &caller.name, did, on: on.to_string(), request: request_id::current(), details }
    }

    fn event(&self) -> Result<NewEvent, InvalidInput> {
        Ok(NewEvent::new(EventType::new(DONE)?, Payload::of(self)?))
    }

    /// The event alone, for an engine that commits it with its change.
    pub(crate) fn batch(&self) -> Result<Batch, InvalidInput> {
        self.with(Batch::new())
    }

    /// The batch, with the event that tells of it.
    pub(crate) fn with(&self, batch: Batch) -> Result<Batch, InvalidInput> {
        Ok(batch.append(&stream()?, Expect::Any, [self.event()?]))
    }

    /// Like [`with`](Self::with), for appends whose author chose the ids: sent again, the same event is told, so that the
    /// store recognises the repetition as a whole.
    pub(crate) fn with_repeatable(&self, batch: Batch, ids: &[EventId]) -> Result<Batch, InvalidInput> {
        let event = Self { request: None, ..self.clone() }.event()?;
        let id = derived(event.payload.as_str(), ids);
        Ok(batch.append(&stream()?, Expect::Any, [event.with_id(id)]))
    }
}

/// Keys as an event names them: the first of them, and how many there are.
pub(crate) fn keys(all: impl Iterator<Item = Key>) -> Value {
    let (mut named, mut count) = (Vec::new(), 0_u64);
    for key in all {
        if named.len() < KEYS {
            named.push(key);
        }
        count += 1;
    }
    json!({"count": count, "keys": named})
}

fn stream() -> Result<Key, InvalidInput> {
    Key::single(STREAM)
}

/// An id that is always the same for the same events.
fn derived(said: &str, ids: &[EventId]) -> EventId {
    let mut digest = Sha256::new();
    digest.update(STREAM.as_bytes());
    for id in ids {
        digest.update(id.0.as_bytes());
    }
    digest.update(said.as_bytes());
    let (mut bytes, whole) = ([0_u8; 16], digest.finalize());
    for (to, from) in bytes.iter_mut().zip(whole.iter()) {
        *to = *from;
    }
    EventId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derived_id_depends_on_all_that_was_said() {
        let (one, other) = (EventId::new(), EventId::new());
        assert_eq!(derived("a", &[one, other]), derived("a", &[one, other]));
        assert_ne!(derived("a", &[one, other]), derived("a", &[other, one]));
        assert_ne!(derived("a", &[one]), derived("b", &[one]));
        assert_eq!(derived("a", &[one]).0.get_version_num(), 8);
    }
}
