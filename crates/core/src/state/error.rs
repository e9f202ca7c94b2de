//! Errors of mutations, with the known state of their effect.

use std::time::Duration;

use thiserror::Error;

use crate::error::{Outcome, Retry, codes, conversions};
use crate::id::{DocVersion, OpId, StreamVersion};
use crate::store::{ApplyError, StoreError};

/// The progress of a mutation when it failed or its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The mutation was queued. The mutator never ran, and never will.
    NotStarted,
    /// The mutator ran, and its result was discarded.
    NotApplied,
    /// The write was in flight. [`Store::resolve`](crate::store::Store::resolve) returns whether it was applied.
    Unknown(OpId),
}

impl Stage {
    fn retry(self) -> Retry {
        match self {
            Self::NotStarted | Self::NotApplied => Retry::Now,
            Self::Unknown(_) => Retry::Never,
        }
    }

    fn outcome(self) -> Outcome {
        match self {
            Self::NotStarted | Self::NotApplied => Outcome::NotApplied,
            Self::Unknown(id) => Outcome::Unknown(Some(id)),
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the mutator was not started and never will be"),
            Self::NotApplied => f.write_str("nothing of it was applied"),
            Self::Unknown(id) => write!(f, "whether it was applied is unknown; resolve operation {id}"),
        }
    }
}

/// The reason why a mutation has no result.
#[derive(Clone, Debug, Error)]
pub enum StateError {
    /// The timeout was reached. It includes queueing and running.
    #[error("{key}: not done within {limit:?}; {stage}")]
    TimedOut {
        /// The key of the state.
        key: String,
        /// The timeout.
        limit: Duration,
        /// The progress of the mutation.
        stage: Stage,
    },
    /// Other writers wrote the record repeatedly, until the time or the attempts were used up.
    #[error(
        "{key}: {attempts} attempts met a newer version, the last one {}; allow more time, or send deltas",
        version_text(.current)
    )]
    ConcurrentModification {
        /// The key of the state.
        key: String,
        /// The number of attempts.
        attempts: u32,
        /// The version that was found last. `None` when the record did not exist.
        current: Option<DocVersion>,
    },
    /// A mutator of this state requested a mutation of the same state, and would wait for itself.
    #[error("{key}: a mutator asks for a mutation of its own state; change the draft that it has instead")]
    Reentrant {
        /// The key of the state.
        key: String,
    },
    /// The record does not decode as the type. It stays unchanged.
    #[error("{key}: version {version} does not read as the expected type: {reason}; it was left as it is")]
    Undecodable {
        /// The key of the state.
        key: String,
        /// The version of the record.
        version: DocVersion,
        /// The message of the decoder.
        reason: String,
    },
    /// The document was written under a newer schema than this program knows. It stays unchanged.
    #[error(
        "{key}: version {version} has schema {found}, and this program knows {known}; run a newer program. It was left \
         as it is"
    )]
    NewerSchema {
        /// The key of the state.
        key: String,
        /// The version of the record.
        version: DocVersion,
        /// The schema of the record.
        found: u64,
        /// The newest schema that this program knows.
        known: u64,
    },
    /// An event in the stream of a record's history was not written by a history.
    #[error(
        "{key}: event {event} of its history does not read: {reason}; something else appends to that stream"
    )]
    History {
        /// The key of the state.
        key: String,
        /// The event's version in the stream.
        event: StreamVersion,
        /// The message of the decoder.
        reason: String,
    },
    /// The result of a mutation is invalid. The old value stays.
    #[error("{key}: the new value is refused: {reason}; the old one stays")]
    Invalid {
        /// The key of the state.
        key: String,
        /// The message of the check.
        reason: String,
    },
    /// A delta was sent to a record that does not exist. Nothing was created.
    #[error("{key}: there is no record for the delta; create it with set or mutate first")]
    NotFound {
        /// The key of the state.
        key: String,
    },
    /// The operating system provides no thread for the driver of the mutations. Nothing was queued.
    #[error("cannot mutate {key}: no thread for the driver: {reason}; raise the limit of threads")]
    NoRuntime {
        /// The key of the state.
        key: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The value's `Clone`, another part of the user's code, or the store panicked.
    #[error("cannot mutate {key}: {reason}; {stage}")]
    Panicked {
        /// The key of the state.
        key: String,
        /// The code that panicked, and its message.
        reason: String,
        /// The progress of the mutation.
        stage: Stage,
    },
    /// The store refused or failed the write.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The store failed the read.
    #[error(transparent)]
    Read(#[from] StoreError),
}

fn version_text(version: &Option<DocVersion>) -> String {
    version.map_or_else(|| "a record that is gone".to_owned(), |version| format!("version {version}"))
}

conversions! {
    StateError {
        ApplyError => Write,
    }
}

codes! {
    StateError {
        TimedOut { stage } => ("TL0601", stage.retry(), stage.outcome()),
        ConcurrentModification => ("TL0602", Retry::Now),
        Reentrant => "TL0603",
        Undecodable => "TL0604",
        Invalid => "TL0605",
        NotFound => "TL0606",
        NoRuntime => "TL0607",
        NewerSchema => "TL0608",
        History => "TL0609",
        Panicked { stage } => ("TL0610", Retry::Never, stage.outcome()),
        Write(error) => error,
        Read(error) => error,
    }
}

/// The reason why a fallible mutation has no result.
#[derive(Clone, Debug, Error)]
pub enum MutateError<E> {
    /// The mutator returned an error. The old value stays.
    #[error("{0}")]
    Refused(E),
    /// The mutation failed for another reason.
    #[error(transparent)]
    State(#[from] StateError),
}

impl MutateError<std::convert::Infallible> {
    pub(super) fn state(self) -> StateError {
        match self {
            Self::State(error) => error,
            Self::Refused(never) => match never {},
        }
    }
}
