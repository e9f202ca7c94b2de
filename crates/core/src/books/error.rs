//! What can go wrong while the books are closed.

use std::error::Error;
use std::sync::Arc;

use thiserror::Error;

use super::progress::{Removal, Way};
use crate::error::{InvalidInput, Retry, codes, conversions};
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
    /// The closing that another call has begun treats the events in another way.
    #[error(
        "cannot close {stream}: a closing that {begun} its events has begun, and this one {}; close it as it was begun, which goes on where it stopped", .begun.other()
    )]
    Removal {
        /// Which stream.
        stream: Key,
        /// What becomes of its events.
        begun: Removal,
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

conversions! {
    BooksError {
        ReactionsError => Reactions,
        LeaseError => Lease,
        ApplyError => Events,
        StoreError => Events,
        InvalidInput => Events,
    }
}

codes! {
    BooksError {
        Pending => ("TL0807", Retry::after_secs(1)),
        Archive => ("TL0808", Retry::after_secs(1)),
        UnderWay => "TL0809",
        Removal => "TL0813",
        Events(error) => error,
        Reactions(error) => error,
        Lease(error) => error,
    }
}
