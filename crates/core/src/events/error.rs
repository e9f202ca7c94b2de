//! Errors of aggregates and commands.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::error::{InvalidInput, Retry, codes, conversions};
use crate::id::{EventType, StreamVersion};
use crate::key::Key;
use crate::store::{ApplyError, Expect, StoreError, StreamFound};

/// The reason why an aggregate was not loaded, or a command failed.
#[derive(Clone, Debug, Error)]
pub enum EventsError {
    /// Other writers appended to the stream, in every attempt or after a pinned version.
    #[error("{stream}: decided on {}, but {actual} after {attempts} attempts; load it and decide again", expectation(.expected))]
    Concurrency {
        /// The stream.
        stream: Key,
        /// The version that the command was decided on.
        expected: Expect<StreamVersion>,
        /// The state of the stream that the store found.
        actual: StreamFound,
        /// The number of attempts.
        attempts: u32,
    },
    /// The stream is closed.
    #[error("{stream}: the stream is closed at version {}; begin another one", .head.map_or_else(|| "none".to_owned(), |head| head.to_string()))]
    Closed {
        /// The stream.
        stream: Key,
        /// Its last version.
        head: Option<StreamVersion>,
    },
    /// An event cannot be decoded.
    #[error(
        "{stream}: event {version} ({event_type}) does not read: {reason}; give the aggregate's schema a step for its shape"
    )]
    Undecodable {
        /// The stream.
        stream: Key,
        /// The event's version.
        version: StreamVersion,
        /// Its type.
        event_type: EventType,
        /// The error of the decoder.
        reason: String,
    },
    /// An event cannot be encoded.
    #[error("{stream}: an event cannot be written: {reason}")]
    Unwritable {
        /// The stream.
        stream: Key,
        /// The reason.
        reason: InvalidInput,
    },
    /// The state of an aggregate must be stored or loaded, and its encoding is not configured.
    #[error(
        "{stream}: its state stands for events that are gone, and the aggregate {kind:?} is not kept; name it in Events::snapshots"
    )]
    NotKept {
        /// The stream.
        stream: Key,
        /// The kind of the aggregate.
        kind: &'static str,
    },
    /// The events of the requested moment were removed.
    #[error(
        "cannot load {stream} as of that moment: its events were removed; the oldest stored version is {first}, look for older events in the archive"
    )]
    Archived {
        /// The stream.
        stream: Key,
        /// The oldest remaining event.
        first: StreamVersion,
    },
    /// Events were removed, and the base document that replaces them is missing or does not match. The remaining events are
    /// not folded without it.
    #[error(
        "cannot load {stream}: its events below version {first} were removed, and {base}, which stands for them, {reason}; put that document back from a backup"
    )]
    Base {
        /// The stream.
        stream: Key,
        /// The base document that should replace the removed events.
        base: Key,
        /// The oldest remaining event, or the version of the next one.
        first: StreamVersion,
        /// The fault of the document.
        reason: &'static str,
    },
    /// Events of a stream were archived before a subscription had read them. The subscription resumes after them.
    #[error(
        "cannot read the events {from} to {to} of {stream}: they were archived; take them from the archive, and call again for those that are left"
    )]
    Gap {
        /// The stream.
        stream: Key,
        /// The first removed event.
        from: StreamVersion,
        /// The last removed event.
        to: StreamVersion,
    },
    /// Other commands on the stream in this process used up the time limit of this one.
    #[error("cannot decide on {stream}: the commands before this one took {waited:?}; try again later")]
    Turn {
        /// The stream.
        stream: Key,
        /// How long the command waited.
        waited: Duration,
    },
    /// A name is not a valid key.
    #[error(transparent)]
    Name(#[from] InvalidInput),
    /// The store refused a write, or failed.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] StoreError),
}

fn expectation(expected: &Expect<StreamVersion>) -> String {
    match expected {
        Expect::Exact(version) => format!("version {version}"),
        Expect::Absent => "a stream without events".to_owned(),
        Expect::Any | Expect::Exists => "any version".to_owned(),
    }
}

conversions! {
    EventsError {
        ApplyError => Write,
    }
}

codes! {
    EventsError {
        Concurrency => ("TL0801", Retry::Now),
        Closed => "TL0802",
        Undecodable => "TL0803",
        Unwritable => "TL0804",
        NotKept => "TL0805",
        Archived => "TL0806",
        Base => "TL0810",
        Gap => ("TL0811", Retry::Now),
        Turn { waited } => ("TL0812", Retry::After(*waited)),
        Name(error) => error,
        Write(error) => error,
        Read(error) => error,
    }
}

/// The reason why a command was not executed.
pub enum ExecuteError<A, E> {
    /// The command returned an error. Nothing was written.
    Refused {
        /// The error of the command.
        error: E,
        /// The state on which the command decided: the newest one.
        state: Arc<A>,
        /// The version of that state.
        version: Option<StreamVersion>,
    },
    /// Another failure.
    Events(EventsError),
}

impl<A, E> ExecuteError<A, E> {
    /// Returns the error of the command, if it returned one.
    #[must_use]
    pub fn refusal(&self) -> Option<&E> {
        match self {
            Self::Refused { error, .. } => Some(error),
            Self::Events(_) => None,
        }
    }
}

impl<A, E, T: Into<EventsError>> From<T> for ExecuteError<A, E> {
    fn from(error: T) -> Self {
        Self::Events(error.into())
    }
}

impl<A, E: fmt::Debug> fmt::Debug for ExecuteError<A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { error, version, .. } => f
                .debug_struct("Refused")
                .field("error", error)
                .field("version", version)
                .finish_non_exhaustive(),
            Self::Events(error) => f.debug_tuple("Events").field(error).finish(),
        }
    }
}

impl<A, E: fmt::Display> fmt::Display for ExecuteError<A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { error, .. } => error.fmt(f),
            Self::Events(error) => error.fmt(f),
        }
    }
}

impl<A, E: fmt::Debug + fmt::Display> std::error::Error for ExecuteError<A, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { .. } => None,
            Self::Events(error) => Some(error),
        }
    }
}
