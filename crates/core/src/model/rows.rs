//! Rows of events, documents and work, as every backend stores them and every reader sees them.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{DocVersion, EventId, EventType, Fence, Owner, Position, Priority, QueueName, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// A recorded event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The position in the whole log.
    pub position: Position,
    /// The stream that the event belongs to.
    pub stream: Key,
    /// The version in the stream.
    pub version: StreamVersion,
    /// The id that the author assigned.
    pub id: EventId,
    /// The type of the event.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// The commit time, by the store's clock.
    #[serde(rename = "recorded_at")]
    pub at: Timestamp,
    /// The payload of the event.
    pub payload: Payload,
    /// The metadata of the event. `null` when there is none.
    pub meta: Payload,
    /// The correlation id of the conversation that the event belongs to.
    pub correlation: Option<String>,
}

/// A stream: its first and last version, and whether it is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRow {
    /// The version of the last event, removed or not. `None` when the stream never had one.
    pub head: Option<StreamVersion>,
    /// The version below which no event is left. It is one above the head when no event is left at all.
    #[serde(default = "beginning")]
    pub first: StreamVersion,
    /// The time at which the stream was closed. A closed stream accepts no more events.
    pub closed_at: Option<Timestamp>,
}

impl StreamRow {
    /// Returns the version of the oldest event that is left.
    #[must_use]
    pub fn oldest(&self) -> Option<StreamVersion> {
        self.head.filter(|head| self.first <= *head).map(|_| self.first)
    }
}

/// Returns the first version of a stream.
fn beginning() -> StreamVersion {
    StreamVersion(0)
}

/// A document that exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredDocument {
    /// The key of the document.
    pub key: Key,
    /// The version of the document.
    pub version: DocVersion,
    /// The value of the document.
    pub value: Payload,
    /// The time of the last write, by the store's clock.
    pub updated_at: Timestamp,
    /// The expiry time, if any.
    pub expires_at: Option<Timestamp>,
}

/// The stored row of a document key, including deleted ones. The version outlives the value.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentRow {
    /// The version of the last write or delete.
    pub version: DocVersion,
    /// The value. `None` after a delete.
    pub value: Option<Payload>,
    /// The time of the last write or delete.
    pub updated_at: Timestamp,
    /// The expiry time of the value, if any.
    pub expires_at: Option<Timestamp>,
}

impl DocumentRow {
    /// Returns the document that a reader sees at `now`: none when it is deleted or has expired.
    #[must_use]
    pub fn visible(&self, key: &Key, now: Timestamp) -> Option<StoredDocument> {
        let value = self.value.clone()?;
        if self.expires_at.is_some_and(|at| at.has_come(now)) {
            return None;
        }
        Some(StoredDocument {
            key: key.clone(),
            version: self.version,
            value,
            updated_at: self.updated_at,
            expires_at: self.expires_at,
        })
    }
}

/// One work item: its due time, its progress, and its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkRow {
    /// The key of the row.
    pub key: Key,
    /// The queue that workers claim it from.
    pub queue: QueueName,
    /// The creation number, which breaks ties between rows that are due at the same instant.
    pub seq: u64,
    /// The priority.
    pub priority: Priority,
    /// The effect of an acknowledgement on the row.
    pub lifetime: Lifetime,
    /// The next due time. `None` when the row rests until it is enqueued again.
    #[serde(rename = "due_at")]
    pub due: Option<Timestamp>,
    /// The earliest due time that was requested since the current lease began.
    #[serde(rename = "wake_at")]
    pub woken: Option<Timestamp>,
    /// The progress in the log.
    pub position: Option<Position>,
    /// The stream whose events after `position` come with a grant.
    #[serde(rename = "follows")]
    pub follow: Option<Key>,
    /// The payload that the author assigned.
    pub payload: Payload,
    /// The number of claims since the last progress, including the current one.
    pub attempts: u32,
    /// The number of times that a lease expired before its holder finished and the row was granted again.
    pub takeovers: u32,
    /// The last reported error.
    pub last_error: Option<String>,
    /// The reason for a block, if any.
    pub blocked: Option<Blocked>,
    /// The current lease, if any. An expired lease makes the row claimable, and stays valid until another owner
    /// acquires the row.
    pub lease: Option<LeaseRow>,
    /// The time of the first enqueue.
    pub enqueued_at: Timestamp,
}

/// The policy that decides whether a row outlives its acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// A job, which is removed when acknowledged.
    #[default]
    Once,
    /// A subscription, a run or a named lock. When acknowledged, it rests with its position until it is enqueued again.
    #[serde(rename = "recurring")]
    Standing,
}

/// The reason and the start of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The reason.
    pub reason: String,
    /// The time at which the row was blocked.
    #[serde(rename = "blocked_at")]
    pub since: Timestamp,
}

/// A lease on a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRow {
    /// The owner that holds the lease.
    pub owner: Owner,
    /// The fencing token that every write under this lease carries.
    pub fence: Fence,
    /// The time of the grant.
    #[serde(rename = "leased_at")]
    pub since: Timestamp,
    /// The expiry time, from which another owner may acquire the row.
    #[serde(rename = "expires_at")]
    pub until: Timestamp,
}

/// The proof of ownership that a holder presents with each write under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The work row.
    pub key: Key,
    /// The fence of the grant.
    pub fence: Fence,
    /// The holder. A fence that is presented without an owner is compared alone.
    #[serde(default)]
    pub owner: Option<Owner>,
}
