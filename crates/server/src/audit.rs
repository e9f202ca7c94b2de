//! Every write that comes over the API leaves an event in the stream `tidelock.audit`: who, what, on what, and the details.
//!
//! Where the change is a batch, the event is in it: both happen, or neither. Where the engine of runs makes the change, the
//! event is written first, as something that was asked for: nothing is done without one, but what it says may have been refused.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tidelock::error::InvalidInput;
use tidelock::id::{EventId, EventType};
use tidelock::key::Key;
use tidelock::payload::Payload;
use tidelock::store::{Batch, Expect, NewEvent};

use crate::problem::Problem;
use crate::shared::Shared;
use crate::token::Caller;

/// The name of the stream.
pub(crate) const STREAM: &str = "tidelock.audit";
/// The type of its events.
const DONE: &str = "tidelock.audit-done";
/// The type of those that come before the change.
const ASKED: &str = "tidelock.audit-asked";

/// What is told about a write.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Told<'a> {
    /// Who.
    by: &'a str,
    /// What.
    did: &'static str,
    /// The key, or the id of a run.
    on: String,
    /// More about it.
    details: Value,
}

impl<'a> Told<'a> {
    pub(crate) fn new(caller: &'a Caller, did: &'static str, on: impl ToString, details: Value) -> Self {
        Self { by: &caller.name, did, on: on.to_string(), details }
    }

    fn event(&self, name: &str) -> Result<NewEvent, InvalidInput> {
        Ok(NewEvent::new(EventType::new(name)?, Payload::of(self)?))
    }

    /// The batch, with the event that tells of it.
    pub(crate) fn with(&self, batch: Batch) -> Result<Batch, InvalidInput> {
        Ok(batch.append(&stream()?, Expect::Any, [self.event(DONE)?]))
    }

    /// Like [`with`](Self::with), for appends whose author chose the ids: sent again, the same event is told, so that the
    /// store recognises the repetition as a whole.
    pub(crate) fn with_repeatable(&self, batch: Batch, ids: &[EventId]) -> Result<Batch, InvalidInput> {
        let event = self.event(DONE)?;
        let id = derived(event.payload.as_str(), ids);
        Ok(batch.append(&stream()?, Expect::Any, [event.with_id(id)]))
    }

    /// Writes the event by itself, before a change that is no batch of ours.
    pub(crate) async fn asked(&self, app: &Shared) -> Result<(), Problem> {
        let batch = Batch::new().append(&stream()?, Expect::Any, [self.event(ASKED)?]);
        app.store().apply(batch).await?;
        Ok(())
    }
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
