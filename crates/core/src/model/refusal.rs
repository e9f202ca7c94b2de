//! Why a batch was refused: the precondition that failed, with what was found instead, so that the loser need not
//! read again.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::batch::Expect;
use super::limits::TRUNCATE_EVENTS;
use super::rows::{Document, LeaseRow};
use crate::error::{InvalidInput, Retry, codes};
use crate::id::{DocVersion, Epoch, EventId, Fence, OpId, StreamVersion};
use crate::key::Key;

/// The state of a stream that did not meet an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamFound {
    /// It has no events.
    Absent,
    /// Its last event has this version.
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
    /// It never was.
    Absent,
    /// It was deleted or has expired; the version is the last it had.
    Gone(DocVersion),
    /// It is there.
    Present(Document),
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

/// Who has the row that a stale holder wrote to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// The row is gone.
    Gone,
    /// Nobody holds it.
    Nobody,
    /// Somebody else does.
    Held(LeaseRow),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("the row is gone"),
            Self::Nobody => f.write_str("nobody holds it now"),
            Self::Held(lease) => {
                write!(f, "{} holds it with fence {} until {}", lease.owner, lease.fence, lease.until)
            }
        }
    }
}

/// Why nothing of a batch was applied. `index` counts the effects of the batch from 0.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Refusal {
    /// A stream is not as expected.
    #[error(
        "stream {stream}: expected {expected:?}, but {found}; reload it and decide again (effect {index})"
    )]
    Stream {
        /// Which effect.
        index: usize,
        /// Which stream.
        stream: Key,
        /// What was expected.
        expected: Expect<StreamVersion>,
        /// What was found.
        found: StreamFound,
    },
    /// A document is not as expected.
    #[error(
        "document {key}: expected {expected:?}, but {found}; adopt the value that was found and decide again (effect {index})"
    )]
    Document {
        /// Which effect.
        index: usize,
        /// Which document.
        key: Key,
        /// What was expected.
        expected: Expect<DocVersion>,
        /// What was found, with its value.
        found: Box<DocumentFound>,
    },
    /// Work of that name exists and must not, or does not exist and must.
    #[error("work {key}: expected it to be {}, but it is not (effect {index})", if *.exists { "absent" } else { "there" })]
    Work {
        /// Which effect.
        index: usize,
        /// Which row.
        key: Key,
        /// Whether the row exists.
        exists: bool,
    },
    /// The lease is not the writer's any more.
    #[error(
        "work {key}: fence {fence} is stale, {holder}; stop, somebody else may own the work (effect {index})"
    )]
    Fenced {
        /// Which effect.
        index: usize,
        /// Which row.
        key: Key,
        /// The fence that was shown.
        fence: Fence,
        /// Who holds it instead.
        holder: Box<Holder>,
    },
    /// The stream was closed.
    #[error("stream {stream} is closed at version {}; append to another stream (effect {index})", .head.map_or_else(|| "none".to_owned(), |v| v.to_string()))]
    StreamClosed {
        /// Which effect.
        index: usize,
        /// Which stream.
        stream: Key,
        /// Its last version.
        head: Option<StreamVersion>,
    },
    /// Deltas were sent to a document that does not exist.
    #[error(
        "document {key} does not exist, so there is nothing to merge into; create it first or use merge_or_create (effect {index})"
    )]
    NotFound {
        /// Which effect.
        index: usize,
        /// Which document.
        key: Key,
    },
    /// A delta does not fit the value it meets.
    #[error("document {key}: a delta at {path:?} needs {needed}, found {found} (effect {index})")]
    Delta {
        /// Which effect.
        index: usize,
        /// Which document.
        key: Key,
        /// The place inside the document.
        path: String,
        /// What the delta needs there.
        needed: &'static str,
        /// What is there.
        found: String,
    },
    /// An event id is in the log already, and this is not a repetition of the append that put it there.
    #[error("event id {id} is in use in stream {stream} at version {version}: {reason} (effect {index})")]
    EventIdReused {
        /// Which effect.
        index: usize,
        /// The id.
        id: EventId,
        /// The stream that has it.
        stream: Key,
        /// Its version there.
        version: StreamVersion,
        /// Why it is no repetition.
        reason: &'static str,
    },
    /// Events were to be removed that the stream does not have yet.
    #[error(
        "stream {stream}: nothing can be removed below version {before}, its last event has version {head}; truncate it before version {} at most (effect {index})",
        .head.next()
    )]
    TruncateBeyond {
        /// Which effect.
        index: usize,
        /// Which stream.
        stream: Key,
        /// The version below which events were to be removed.
        before: StreamVersion,
        /// Its last version.
        head: StreamVersion,
    },
    /// A batch was to remove more events than one may.
    #[error(
        "stream {stream}: truncating it before version {before} makes {found} events that the batch removes, at most {limit} are allowed; go in steps, each in a batch of its own, the next one before version {step_to} (effect {index})",
        limit = TRUNCATE_EVENTS
    )]
    TruncateTooMuch {
        /// Which effect.
        index: usize,
        /// Which stream.
        stream: Key,
        /// The version below which events were to be removed.
        before: StreamVersion,
        /// How many events the batch would have removed, with those of the truncates before this one.
        found: u64,
        /// How far a batch of its own may go.
        step_to: StreamVersion,
    },
    /// The history of the store was cut since the batch was decided.
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
