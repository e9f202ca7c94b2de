//! What can go wrong while the books are closed.

use std::error::Error;
use std::sync::Arc;

use thiserror::Error;

use super::progress::Way;
use crate::error::{Code, Explain, InvalidInput, Outcome, Retry};
use crate::events::EventsError;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::lease::LeaseError;
use crate::reactions::{Pending, ReactionsError};
use crate::store::{ApplyError, StoreError};

/// Why the books of a stream were not closed, or not yet to the end. Whatever it is, the next call goes on where this one
/// stopped.
#[derive(Clone, Debug, Error)]
pub enum BooksError {
    /// Reactions have something to do about the stream.
    #[error("{stream}: reactions are not done with it: {}; let them run, or see to what is blocked or parked, and close it again", told(.pending))]
    Pending {
        /// Which stream.
        stream: Key,
        /// What they have to do.
        pending: Vec<Pending>,
    },
    /// The archive did not take a page.
    #[error(
        "{stream}: the archive did not take the events {first} to {last}: {error}; close it again, and it begins with that page"
    )]
    Archive {
        /// Which stream.
        stream: Key,
        /// The version of the first event of the page.
        first: StreamVersion,
        /// The version of the last event of the page.
        last: StreamVersion,
        /// What the archive said.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// The stream is being closed in another way.
    #[error(
        "{stream}: it is being closed {was}, and was now to be closed {asked}; close it {was} first, which goes on where it stopped"
    )]
    UnderWay {
        /// Which stream.
        stream: Key,
        /// How it is being closed.
        was: Way,
        /// How it was to be closed.
        asked: Way,
    },
    /// The state could not be read or written.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// Nobody knows what reactions have to do.
    #[error(transparent)]
    Reactions(Box<ReactionsError>),
    /// Somebody else closes the stream, or the lease was lost on the way.
    #[error(transparent)]
    Lease(Box<LeaseError>),
}

fn told(pending: &[Pending]) -> String {
    const SHOWN: usize = 3;
    let mut text = pending.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some(more) = pending.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

impl From<ReactionsError> for BooksError {
    fn from(error: ReactionsError) -> Self {
        Self::Reactions(Box::new(error))
    }
}

impl From<LeaseError> for BooksError {
    fn from(error: LeaseError) -> Self {
        Self::Lease(Box::new(error))
    }
}

impl From<ApplyError> for BooksError {
    fn from(error: ApplyError) -> Self {
        Self::Events(error.into())
    }
}

impl From<StoreError> for BooksError {
    fn from(error: StoreError) -> Self {
        Self::Events(error.into())
    }
}

impl From<InvalidInput> for BooksError {
    fn from(error: InvalidInput) -> Self {
        Self::Events(error.into())
    }
}

impl Explain for BooksError {
    fn code(&self) -> Code {
        match self {
            Self::Pending { .. } => Code("TL0807"),
            Self::Archive { .. } => Code("TL0808"),
            Self::UnderWay { .. } => Code("TL0809"),
            Self::Events(error) => error.code(),
            Self::Reactions(error) => error.code(),
            Self::Lease(error) => error.code(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Pending { .. } | Self::Archive { .. } => Retry::After(std::time::Duration::from_secs(1)),
            Self::UnderWay { .. } => Retry::Never,
            Self::Events(error) => error.retry(),
            Self::Reactions(error) => error.retry(),
            Self::Lease(error) => error.retry(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Events(error) => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}
