//! What can go wrong with a lease.

use std::time::Duration;

use thiserror::Error;

use super::view::Waiter;
use crate::clock::Timestamp;
use crate::error::{Explain, InvalidInput, Retry, codes, conversions};
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::store::{ApplyError, LeaseRow, StoreError};
use crate::worker::{LostReason, NoThread};

/// Why a lease was not granted, or does not count any more.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LeaseError {
    /// Somebody else holds it.
    #[error(
        "lease {key}: {owner} holds it with fence {fence} since {since} until {until}, and may renew; try later, or wait in line with wait()"
    )]
    Held {
        /// Which lease.
        key: Key,
        /// Who holds it.
        owner: Owner,
        /// Since when.
        since: Timestamp,
        /// From when on others may take it, unless it is renewed.
        until: Timestamp,
        /// The holder's fence.
        fence: Fence,
    },
    /// Others wait for it already, and nobody overtakes them.
    #[error("lease {key}: {}; try later, or stand in line with wait()", standing(.waiters))]
    Waited {
        /// Which lease.
        key: Key,
        /// Who waits, in order.
        waiters: Vec<Waiter>,
    },
    /// The deadline passed before the lease was granted. It will not be granted later.
    #[error(
        "lease {key}: not granted within {waited:?}; nothing is held, look at who holds it with lease::view"
    )]
    TimedOut {
        /// Which lease.
        key: Key,
        /// How long the wait was.
        waited: Duration,
    },
    /// The lease is not the holder's any more.
    #[error("lease {key}: fence {fence} is lost, {reason}; stop, somebody else may own it")]
    Lost {
        /// Which lease.
        key: Key,
        /// The fence that was held.
        fence: Fence,
        /// Why.
        reason: LostReason,
    },
    /// The task that asks holds the lease itself and would wait for itself for ever.
    #[error(
        "lease {key}: the task that asks at {asked_at} holds it since {held_at}; pass the guard on, or release it first"
    )]
    Reentrant {
        /// Which lease.
        key: Key,
        /// Where in the source the task took it.
        held_at: String,
        /// Where it asks again.
        asked_at: String,
    },
    /// The row was blocked by its holder.
    #[error("lease {key}: it is blocked: {reason}; unblock its row when the cause is gone")]
    Blocked {
        /// Which lease.
        key: Key,
        /// The reason that was given.
        reason: String,
    },
    /// The thread that keeps leases could not be started, or failed.
    #[error("the thread that keeps leases does not work: {reason}; nothing is held, try again")]
    NoKeeper {
        /// What was found.
        reason: String,
    },
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not take a write of the lease itself: its release, its note, or the end of a place in line. Nothing
    /// that was committed changes, and what was not ended ends by itself.
    #[error(transparent)]
    Write(Box<ApplyError>),
}

fn standing(waiters: &[Waiter]) -> String {
    let first = waiters.first().map_or_else(|| "somebody".to_owned(), |waiter| waiter.owner.to_string());
    match waiters.len() {
        0 | 1 => format!("{first} waits for it"),
        more => format!("{first} and {} more wait for it", more - 1),
    }
}

impl From<NoThread> for LeaseError {
    fn from(error: NoThread) -> Self {
        Self::NoKeeper { reason: error.to_string() }
    }
}

impl LeaseError {
    /// The failure of the store, if it may be gone the next time. A write whose outcome is unknown counts: the writes of
    /// leases can be repeated.
    pub(super) fn transient(&self) -> Option<&StoreError> {
        let error = match self {
            Self::Store(error) => Some(error),
            Self::Write(error) => match &**error {
                ApplyError::Store { error, .. } => Some(error),
                ApplyError::Refused(_) => None,
            },
            _ => None,
        };
        error.filter(|error| error.retry() != Retry::Never)
    }

    pub(super) fn held(key: &Key, holder: LeaseRow) -> Self {
        let LeaseRow { owner, fence, since, until } = holder;
        Self::Held { key: key.clone(), owner, since, until, fence }
    }
}

conversions! {
    LeaseError {
        InvalidInput => Store,
    }
}

codes! {
    LeaseError {
        Held => ("TL0511", Retry::after_secs(1)),
        TimedOut => ("TL0512", Retry::Now),
        Lost => "TL0513",
        Reentrant => "TL0514",
        Waited => ("TL0515", Retry::after_secs(1)),
        Blocked => "TL0516",
        NoKeeper => ("TL0517", Retry::after_secs(1)),
        Store(error) => error,
        Write(error) => error,
    }
}
