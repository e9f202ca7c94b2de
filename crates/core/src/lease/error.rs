//! Errors of leases.

use std::time::Duration;

use thiserror::Error;

use super::view::LeaseWaiter;
use crate::clock::Timestamp;
use crate::error::{Explain, InvalidInput, Retry, codes, conversions};
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::store::{ApplyError, LeaseRow, StoreError};
use crate::worker::{LostReason, NoThread};

/// The error of a lease that was not granted, or is lost.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LeaseError {
    /// Another holder has the lease.
    #[error(
        "lease {key}: {owner} holds it with fence {fence} since {since} until {until}, and may renew; try later, or queue for it with acquire()"
    )]
    Held {
        /// The leased key.
        key: Key,
        /// The owner of the lease.
        owner: Owner,
        /// The time of the grant.
        since: Timestamp,
        /// The expiry, unless the lease is renewed.
        until: Timestamp,
        /// The holder's fencing token.
        fence: Fence,
    },
    /// The lease has waiters, and a request does not overtake them.
    #[error("lease {key}: {}; try later, or queue for it with acquire()", standing(.waiters))]
    Waited {
        /// The leased key.
        key: Key,
        /// The waiters, in order.
        waiters: Vec<LeaseWaiter>,
    },
    /// The deadline passed before the lease was granted. It will not be granted later.
    #[error(
        "lease {key}: not granted within {waited:?}; nothing is held, look at who holds it with lease::view"
    )]
    TimedOut {
        /// The leased key.
        key: Key,
        /// The time spent waiting.
        waited: Duration,
    },
    /// The holder has lost the lease.
    #[error("lease {key}: fence {fence} is lost, {reason}; stop: another process may hold it")]
    Lost {
        /// The leased key.
        key: Key,
        /// The fencing token of the lost lease.
        fence: Fence,
        /// The reason of the loss.
        reason: LostReason,
    },
    /// The requesting task holds the lease, so it would wait for itself forever.
    #[error(
        "lease {key}: the task that asks at {asked_at} holds it since {held_at}; pass the guard on, or release it first"
    )]
    Reentrant {
        /// The leased key.
        key: Key,
        /// Where in the source the task acquired it.
        held_at: String,
        /// Where the task requests it again.
        asked_at: String,
    },
    /// The holder blocked the row of the lease.
    #[error("lease {key}: it is blocked: {reason}; unblock its row when the cause is gone")]
    Blocked {
        /// The leased key.
        key: Key,
        /// The reason that the holder gave.
        reason: String,
    },
    /// The thread that renews leases could not be started, or failed.
    #[error("the thread that keeps leases does not work: {reason}; nothing is held, try again")]
    NoKeeper {
        /// The cause.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not accept a write of the lease itself: its release, its note, or the removal of a queue entry.
    /// Committed writes are unchanged, and a lease or queue entry that was not removed expires.
    #[error(transparent)]
    Write(Box<ApplyError>),
}

fn standing(waiters: &[LeaseWaiter]) -> String {
    let first = waiters.first().map_or_else(|| "another task".to_owned(), |waiter| waiter.owner.to_string());
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
    /// Returns the failure of the store, if it may be transient. A write with unknown outcome counts, because the
    /// writes of leases can be repeated.
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
