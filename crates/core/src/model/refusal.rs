//! Refusals of a batch: the precondition that failed and the state that was found, so that the caller need not read
//! again.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::batch::Expect;
use super::limits::TRUNCATE_EVENTS;
use super::rows::{LeaseRow, StoredDocument};
use crate::error::{InvalidInput, Retry, codes};
use crate::id::{DocVersion, Epoch, EventId, Fence, OpId, StreamVersion};
use crate::key::Key;

/// The state of a stream that did not meet an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamFound {
    /// The stream has no events.
    Absent,
    /// The last event of the stream has this version.
    At(StreamVersion),
}

impl std::fmt::Display for StreamFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("it does not exist"),
            Self::At(version) => write!(f, "it is at version {version}"),
        }
    }
}

/// The state of a document that did not meet an expectation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DocumentFound {
    /// The document never existed.
    Absent,
    /// The document was deleted or has expired. The version is its last one.
    Gone(DocVersion),
    /// The document exists.
    Present(StoredDocument),
}

impl std::fmt::Display for DocumentFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("it does not exist"),
            Self::Gone(version) => write!(f, "it is gone since version {version}"),
            Self::Present(document) => write!(f, "it is at version {}", document.version),
        }
    }
}

/// The holder of the row that a stale owner wrote to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// The row does not exist.
    Gone,
    /// No owner holds the row.
    Nobody,
    /// Another owner holds the row.
    Held(LeaseRow),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("the row is gone"),
            Self::Nobody => f.write_str("it is not leased now"),
            Self::Held(lease) => {
                write!(f, "{} holds it with fence {} until {}", lease.owner, lease.fence, lease.until)
            }
        }
    }
}

/// The reason why nothing of a batch was applied. `index` counts the effects of the batch from 0.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Refusal {
    /// A stream is not as expected.
    #[error(
        "stream {stream}: expected {expected:?}, but {found}; reload it and decide again (effect {index})"
    )]
    Stream {
        /// The index of the effect.
        index: usize,
        /// The stream.
        stream: Key,
        /// The expectation.
        expected: Expect<StreamVersion>,
        /// The state that was found.
        found: StreamFound,
    },
    /// A document is not as expected.
    #[error(
        "document {key}: expected {expected:?}, but {found}; adopt the value that was found and decide again (effect {index})"
    )]
    Document {
        /// The index of the effect.
        index: usize,
        /// The document.
        key: Key,
        /// The expectation.
        expected: Expect<DocVersion>,
        /// The state that was found, with its value.
        found: Box<DocumentFound>,
    },
    /// A work row of that key exists and must not, or does not exist and must.
    #[error("work {key}: expected it to be {}, but it is not (effect {index})", if *.exists { "absent" } else { "there" })]
    Work {
        /// The index of the effect.
        index: usize,
        /// The row.
        key: Key,
        /// Whether the row exists.
        exists: bool,
    },
    /// The lease is no longer the writer's.
    #[error(
        "work {key}: fence {fence} is stale, {holder}; stop: another worker may hold it (effect {index})"
    )]
    Fenced {
        /// The index of the effect.
        index: usize,
        /// The row.
        key: Key,
        /// The fence that the writer presented.
        fence: Fence,
        /// The current holder.
        holder: Box<Holder>,
    },
    /// The stream was closed.
    #[error("stream {stream} is closed at version {}; append to another stream (effect {index})", .head.map_or_else(|| "none".to_owned(), |v| v.to_string()))]
    StreamClosed {
        /// The index of the effect.
        index: usize,
        /// The stream.
        stream: Key,
        /// The last version of the stream.
        head: Option<StreamVersion>,
    },
    /// Deltas were sent to a document that does not exist.
    #[error(
        "document {key} does not exist, so there is nothing to merge into; create it first or use merge_or_create (effect {index})"
    )]
    NotFound {
        /// The index of the effect.
        index: usize,
        /// The document.
        key: Key,
    },
    /// A delta does not fit the current value.
    #[error("document {key}: a delta at {path:?} needs {needed}, found {found} (effect {index})")]
    Delta {
        /// The index of the effect.
        index: usize,
        /// The document.
        key: Key,
        /// The path inside the document.
        path: String,
        /// The type that the delta needs there.
        needed: &'static str,
        /// The type that was found.
        found: String,
    },
    /// An event id is already in the log, and the batch is not a repetition of the append that wrote it.
    #[error("event id {id} is in use in stream {stream} at version {version}: {reason} (effect {index})")]
    EventIdReused {
        /// The index of the effect.
        index: usize,
        /// The id.
        id: EventId,
        /// The stream that contains the event.
        stream: Key,
        /// The version of the event in that stream.
        version: StreamVersion,
        /// The reason why the batch is not a repetition.
        reason: &'static str,
    },
    /// A truncate names events that the stream does not have yet.
    #[error(
        "stream {stream}: nothing can be removed below version {before}, its last event has version {head}; truncate it before version {} at most (effect {index})",
        .head.next()
    )]
    TruncateBeyond {
        /// The index of the effect.
        index: usize,
        /// The stream.
        stream: Key,
        /// The version below which the truncate removes events.
        before: StreamVersion,
        /// The last version of the stream.
        head: StreamVersion,
    },
    /// The batch removes more events than the limit allows.
    #[error(
        "stream {stream}: truncating it before version {before} makes {found} events that the batch removes, at most {limit} are allowed; go in steps, each in a batch of its own, the next one before version {step_to} (effect {index})",
        limit = TRUNCATE_EVENTS
    )]
    TruncateTooMuch {
        /// The index of the effect.
        index: usize,
        /// The stream.
        stream: Key,
        /// The version below which the truncate removes events.
        before: StreamVersion,
        /// The number of events that the batch would have removed, including those of its earlier truncates.
        found: u64,
        /// The version up to which a separate batch may truncate.
        step_to: StreamVersion,
    },
    /// The history of the store was cut after the batch was decided.
    #[error(
        "cannot apply the batch: it was decided in epoch {observed}, the store is in epoch {current}; read again and decide again"
    )]
    Epoch {
        /// The epoch in which the batch was decided.
        observed: Epoch,
        /// The epoch of the store.
        current: Epoch,
    },
    /// The id of the batch was resolved as not applied.
    #[error("cannot apply batch: operation {id} was resolved as not applied; use a new id")]
    OperationVoid {
        /// The id.
        id: OpId,
    },
    /// The input can never be accepted.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
}

codes! {
    Refusal {
        Stream => ("TL0201", Retry::Now),
        Document => ("TL0202", Retry::Now),
        Work => ("TL0203", Retry::Now),
        Fenced => "TL0204",
        StreamClosed => "TL0205",
        NotFound => "TL0206",
        Delta => "TL0207",
        EventIdReused => "TL0208",
        TruncateBeyond => "TL0209",
        TruncateTooMuch => "TL0210",
        Epoch => ("TL0212", Retry::Now),
        OperationVoid => "TL0213",
        Invalid(error) => error,
    }
}
