//! What can go wrong with an aggregate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::error::{InvalidInput, Retry, codes, conversions};
use crate::id::{EventType, StreamVersion};
use crate::key::Key;
use crate::store::{ApplyError, Expect, StoreError, StreamFound};

/// Why an aggregate was not loaded, or a command not carried out.
#[derive(Clone, Debug, Error)]
pub enum EventsError {
    /// Others appended to the stream, again and again or once too often for a pinned version.
    #[error("{stream}: decided on {}, but {actual} after {attempts} attempts; load it and decide again", expectation(.expected))]
    Concurrency {
        /// Which stream.
        stream: Key,
        /// The version that the command was decided on.
        expected: Expect<StreamVersion>,
        /// What was found.
        actual: StreamFound,
        /// How often it decided.
        attempts: u32,
    },
    /// The stream is closed.
    #[error("{stream}: the stream is closed at version {}; begin another one", .head.map_or_else(|| "none".to_owned(), |head| head.to_string()))]
    Closed {
        /// Which stream.
        stream: Key,
        /// Its last version.
        head: Option<StreamVersion>,
    },
    /// An event does not read.
    #[error(
        "{stream}: event {version} ({event_type}) does not read: {reason}; give the aggregate's schema a step for its shape"
    )]
    Undecodable {
        /// Which stream.
        stream: Key,
        /// The event's version.
        version: StreamVersion,
        /// Its type.
        event_type: EventType,
        /// What the decoder said.
        reason: String,
    },
    /// An event cannot be written.
    #[error("{stream}: an event cannot be written: {reason}")]
    Unwritable {
        /// Which stream.
        stream: Key,
        /// Why.
        reason: InvalidInput,
    },
    /// The state of an aggregate was to be kept, or is kept, and nobody said how.
    #[error(
        "{stream}: its state stands for events that are gone, and the aggregate {kind:?} is not kept; name it in Events::snapshots"
    )]
    NotKept {
        /// Which stream.
        stream: Key,
        /// The kind of the aggregate.
        kind: &'static str,
    },
    /// A moment was asked for whose events were removed.
    #[error(
        "{stream}: the state of that moment is not known any more, its events were removed; the oldest that is left is version {first}, look for older ones in the archive"
    )]
    Archived {
        /// Which stream.
        stream: Key,
        /// The oldest event that is left.
        first: StreamVersion,
    },
    /// Events were removed, and the document that stands for them is missing or does not fit. The events that are left are not
    /// folded alone.
    #[error(
        "cannot load {stream}: its events below version {first} were removed, and {base}, which stands for them, {reason}; put that document back from a backup"
    )]
    Base {
        /// Which stream.
        stream: Key,
        /// The document that should stand for the removed events.
        base: Key,
        /// The oldest event that is left, or the version of the next one.
        first: StreamVersion,
        /// What is wrong with the document.
        reason: &'static str,
    },
    /// Events of a stream were archived before a subscription had read them. The subscription goes on behind them.
    #[error(
        "cannot read the events {from} to {to} of {stream}: they were archived; take them from the archive, and call again for those that are left"
    )]
    Gap {
        /// Which stream.
        stream: Key,
        /// The first event that is gone.
        from: StreamVersion,
        /// The last event that is gone.
        to: StreamVersion,
    },
    /// Other commands on the stream in this process took all the time of this one.
    #[error("cannot decide on {stream}: the commands before this one took {waited:?}; try again later")]
    Turn {
        /// Which stream.
        stream: Key,
        /// How long the command waited.
        waited: Duration,
    },
    /// A name cannot be a key.
    #[error(transparent)]
    Name(#[from] InvalidInput),
    /// The store refused or failed.
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

/// Why a command was not carried out.
pub enum ExecuteError<A, E> {
    /// A rule said no. Nothing was written.
    Refused {
        /// What the rule said.
        error: E,
        /// The state that it saw: the newest one.
        state: Arc<A>,
        /// The version of that state.
        version: Option<StreamVersion>,
    },
    /// Something else went wrong.
    Events(EventsError),
}

impl<A, E> ExecuteError<A, E> {
    /// What the rule said, if one did.
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
