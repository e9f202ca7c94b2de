//! Audit events. Every write over the API appends one to the stream `tidelock.audit`: the caller, the action, its target and the details.
//!
//! The event is in the batch of the change, so that both are committed atomically. Engines that build their own batches receive the event
//! and commit it with the first batch that changes something. A request that changes nothing appends no event. Acquiring a lease is the
//! one exception: see `api/leases.rs`.

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tidelock_core::error::InvalidInput;
use tidelock_core::id::{EventId, EventType};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Expect, NewEvent};

use crate::request_id;
use crate::token::Caller;

/// The name of the audit stream.
pub(crate) const STREAM: &str = "tidelock.audit";
/// The type of audit events.
const DONE: &str = "tidelock.audit-done";
/// The maximum number of keys that an audit event lists.
pub(crate) const KEYS: usize = 1_000;

/// The payload of an audit event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AuditEntry<'a> {
    /// The name of the caller.
    by: &'a str,
    /// The action.
    did: &'static str,
    /// The key, or the id of a run.
    on: String,
    /// The request id, as in the response and the log. Absent where a repeated request must produce the same event.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    /// Further details of the action.
    details: Value,
}

impl<'a> AuditEntry<'a> {
    pub(crate) fn new(caller: &'a Caller, did: &'static str, on: impl ToString, details: Value) -> Self {
        Self { by: &caller.name, did, on: on.to_string(), request: request_id::current(), details }
    }

    fn event(&self) -> Result<NewEvent, InvalidInput> {
        Ok(NewEvent::new(EventType::new(DONE)?, Payload::of(self)?))
    }

    /// Returns a batch with only the audit event, for an engine that commits it with its change.
    pub(crate) fn batch(&self) -> Result<Batch, InvalidInput> {
        self.with(Batch::new())
    }

    /// Adds the audit event to a batch.
    pub(crate) fn with(&self, batch: Batch) -> Result<Batch, InvalidInput> {
        Ok(batch.append(&stream()?, Expect::Any, [self.event()?]))
    }

    /// Like [`with`](Self::with), for appends with event ids chosen by the caller. A repeated request produces the same audit event, so
    /// that the store recognises the whole batch as a repetition.
    pub(crate) fn with_repeatable(&self, batch: Batch, ids: &[EventId]) -> Result<Batch, InvalidInput> {
        let event = Self { request: None, ..self.clone() }.event()?;
        let id = derived(event.payload.as_str(), ids);
        Ok(batch.append(&stream()?, Expect::Any, [event.with_id(id)]))
    }
}

/// Returns keys as an audit event lists them: the first 1,000 keys, and their total number.
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

/// Derives an event id that is always the same for the same content and event ids.
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
    fn the_derived_id_depends_on_the_whole_request() {
        let (one, other) = (EventId::new(), EventId::new());
        assert_eq!(derived("a", &[one, other]), derived("a", &[one, other]));
        assert_ne!(derived("a", &[one, other]), derived("a", &[other, one]));
        assert_ne!(derived("a", &[one]), derived("b", &[one]));
        assert_eq!(derived("a", &[one]).0.get_version_num(), 8);
    }
}
