//! The rows of the three nouns, as every backend holds them and every reader sees them.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{DocVersion, EventId, EventType, Fence, Lane, Owner, Position, Priority, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// An event as it stands in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the whole log.
    pub position: Position,
    /// The stream it belongs to.
    pub stream: Key,
    /// Its place in the stream.
    pub version: StreamVersion,
    /// The id its author gave it.
    pub id: EventId,
    /// What it is called.
    pub event_type: EventType,
    /// When it was committed, by the store's clock.
    pub at: Timestamp,
    /// What it says.
    pub payload: Payload,
    /// What its author noted beside it; `null` when nothing.
    pub meta: Payload,
    /// The id of the conversation that it belongs to.
    pub correlation: Option<String>,
}

/// A stream: where it begins and ends, and whether it is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRow {
    /// The version of its last event, removed or not; `None` when it never had one.
    pub head: Option<StreamVersion>,
    /// No event is left below this version; one above the head when none is left at all.
    #[serde(default = "beginning")]
    pub first: StreamVersion,
    /// When it was closed. A closed stream takes no more events.
    pub closed_at: Option<Timestamp>,
}

impl StreamRow {
    /// The version of the oldest event that is left.
    #[must_use]
    pub fn oldest(&self) -> Option<StreamVersion> {
        self.head.filter(|head| self.first <= *head).map(|_| self.first)
    }
}

/// Where streams begin.
fn beginning() -> StreamVersion {
    StreamVersion(0)
}

/// A document that exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its key.
    pub key: Key,
    /// Its version.
    pub version: DocVersion,
    /// Its value.
    pub value: Payload,
    /// When it was last written, by the store's clock.
    pub updated_at: Timestamp,
    /// When it ceases to be, if ever.
    pub expires_at: Option<Timestamp>,
}

/// What a store keeps about a document key, deleted ones included: the version outlives the value.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentRow {
    /// The version of the last write or delete.
    pub version: DocVersion,
    /// The value; `None` after a delete.
    pub value: Option<Payload>,
    /// When the last write or delete happened.
    pub updated_at: Timestamp,
    /// When the value ceases to be, if ever.
    pub expires_at: Option<Timestamp>,
}

impl DocumentRow {
    /// The document that a reader sees at `now`: none when it is deleted or has expired.
    #[must_use]
    pub fn visible(&self, key: &Key, now: Timestamp) -> Option<Document> {
        let value = self.value.clone()?;
        if self.expires_at.is_some_and(|at| at.has_come(now)) {
            return None;
        }
        Some(Document {
            key: key.clone(),
            version: self.version,
            value,
            updated_at: self.updated_at,
            expires_at: self.expires_at,
        })
    }
}

/// One piece of work: when it is due, how far it is, and who holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkRow {
    /// Its name.
    pub key: Key,
    /// The queue that it is claimed from.
    pub lane: Lane,
    /// The order of creation, which breaks ties between rows that are due at the same instant.
    pub seq: u64,
    /// How urgent it is.
    pub priority: Priority,
    /// What happens to the row when it is acknowledged.
    pub lifetime: Lifetime,
    /// When it is next due; `None` when it rests until it is enqueued again.
    pub due: Option<Timestamp>,
    /// The earliest due time that was asked for since the present lease began.
    pub woken: Option<Timestamp>,
    /// How far it has come in the log.
    pub position: Option<Position>,
    /// The stream whose events after `position` are handed out with a grant.
    pub follow: Option<Key>,
    /// What its author gave it.
    pub payload: Payload,
    /// Claims since the last progress, the present one included.
    pub attempts: u32,
    /// How often a lease on it ran out before its holder was done, and the row was granted again.
    pub takeovers: u32,
    /// The last error that was reported.
    pub last_error: Option<String>,
    /// Why it is blocked, if it is.
    pub blocked: Option<Blocked>,
    /// Who holds it, if anybody. A lease whose end has come opens the row to others, and is the holder's until then.
    pub lease: Option<LeaseRow>,
    /// When it was first enqueued.
    pub enqueued_at: Timestamp,
}

/// Whether a row outlives its acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// A job: acknowledged, it is gone.
    #[default]
    Once,
    /// A subscription, a run, a named lock: acknowledged, it rests with its position until it is enqueued again.
    Standing,
}

/// Why and since when a row is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The reason that was given.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// One lease on a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRow {
    /// Who holds it.
    pub owner: Owner,
    /// The token that every write under this lease carries.
    pub fence: Fence,
    /// When it was granted.
    pub since: Timestamp,
    /// From when on somebody else may take it.
    pub until: Timestamp,
}

/// What a holder shows to write under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The work row.
    pub key: Key,
    /// The fence of the grant.
    pub fence: Fence,
    /// The holder. A fence that is shown without its owner is compared alone.
    #[serde(default)]
    pub owner: Option<Owner>,
}
