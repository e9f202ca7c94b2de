//! Errors of closing the books.

use std::error::Error;
use std::sync::Arc;

use thiserror::Error;

use super::checkpoint::{ArchiveMode, Removal};
use crate::error::{InvalidInput, Retry, codes, conversions};
use crate::events::EventsError;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::lease::LeaseError;
use crate::reactions::{Pending, ReactionsError};
use crate::store::{ApplyError, StoreError};

/// The reason why the books of a stream were not closed, or not completely. In every case the next call resumes where this
/// one stopped.
#[derive(Clone, Debug, Error)]
pub enum ArchiveError {
    /// Reactions still have to handle events of the stream.
    #[error("{stream}: reactions are not done with it: {}; let them run, or see to what is blocked or parked, and close it again", list(.pending))]
    Pending {
        /// The stream.
        stream: Key,
        /// The pending work of the reactions.
        pending: Vec<Pending>,
    },
    /// The archive did not accept a page.
    #[error(
        "{stream}: the archive did not take the events {first} to {last}: {error}; close it again, and it begins with that page"
    )]
    Archive {
        /// The stream.
        stream: Key,
        /// The version of the first event of the page.
        first: StreamVersion,
        /// The version of the last event of the page.
        last: StreamVersion,
        /// The error of the archive.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// The stream is being closed in another way.
    #[error(
        "cannot close {stream} {asked}: a closing {was} is in progress; close it {was} first, which resumes that closing"
    )]
    UnderWay {
        /// The stream.
        stream: Key,
        /// The way in which the earlier call is closing it.
        was: ArchiveMode,
        /// The way that this call asked for.
        asked: ArchiveMode,
    },
    /// The closing that another call started removes events in another way.
    #[error(
        "cannot close {stream}: a closing that {begun} its events is in progress, and this one {}; repeat the earlier call, which resumes that closing", .begun.other()
    )]
    Removal {
        /// The stream.
        stream: Key,
        /// How that closing removes events.
        begun: Removal,
    },
    /// The state could not be loaded or stored.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// The pending work of reactions could not be determined.
    #[error(transparent)]
    Reactions(Box<ReactionsError>),
    /// Another holder has the lease of the closing, or this call lost the lease.
    #[error(transparent)]
    Lease(Box<LeaseError>),
}

fn list(pending: &[Pending]) -> String {
    const SHOWN: usize = 3;
    let mut text = pending.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some(more) = pending.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

conversions! {
    ArchiveError {
        ReactionsError => Reactions,
        LeaseError => Lease,
        ApplyError => Events,
        StoreError => Events,
        InvalidInput => Events,
    }
}

codes! {
    ArchiveError {
        Pending => ("TL0807", Retry::after_secs(1)),
        Archive => ("TL0808", Retry::after_secs(1)),
        UnderWay => "TL0809",
        Removal => "TL0813",
        Events(error) => error,
        Reactions(error) => error,
        Lease(error) => error,
    }
}
