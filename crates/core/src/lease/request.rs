//! Builder for lease requests.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::acquire::{self, AcquireRequest};
use super::error::LeaseError;
use super::guard::LeaseGuard;
use super::{background, keys, wait_queue};
use crate::error::InvalidInput;
use crate::id::Owner;
use crate::key::{IntoKey, Key};
use crate::lock::TaskId;
use crate::store::SharedStore;
use crate::worker::{DEFAULT_TTL, MAX_TTL, MIN_TTL, unique_owner};

/// Starts a request for the lease on a key. Nothing happens before one of [`try_acquire`](LeaseRequest::try_acquire), [`acquire`](LeaseRequest::acquire),
/// [`acquire_before`](LeaseRequest::acquire_before) and [`steal`](LeaseRequest::steal) is awaited.
#[track_caller]
pub fn request(store: &SharedStore, key: impl IntoKey) -> LeaseRequest {
    LeaseRequest {
        store: Arc::clone(store),
        key: key.into_key(),
        owner: None,
        ttl: DEFAULT_TTL,
        at_least: Duration::ZERO,
        note: None,
        place: Location::caller(),
    }
}

/// A lease request.
#[must_use = "nothing is requested before acquire(), try_acquire() or steal() is awaited"]
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    store: SharedStore,
    key: Result<Key, InvalidInput>,
    owner: Option<Owner>,
    ttl: Duration,
    at_least: Duration,
    note: Option<String>,
    place: &'static Location<'static>,
}

impl LeaseRequest {
    /// Sets the owner's name that other processes see. The default is the machine and the process. A suffix that makes
    /// each hold unique is added to it.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Sets how long the lease lasts without renewal, from [`MIN_TTL`] to [`MAX_TTL`]. Waiters wait that long for a
    /// holder that died. The lease is renewed every third of this time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.clamp(MIN_TTL, MAX_TTL);
        self
    }

    /// Keeps the lease for at least this time, even if it is released earlier. No other holder gets it sooner. Use it
    /// for short work that must not be repeated by a machine whose clock is late. The next grant counts as a takeover.
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = at_least.min(MAX_TTL);
        self
    }

    /// Sets a note for operators who inspect the lease.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Tries to acquire the lease once, without waiting.
    ///
    /// # Errors
    /// [`LeaseError::Held`] when another holder has it, [`LeaseError::Waited`] when it already has waiters,
    /// [`LeaseError::Reentrant`] when this task holds it.
    ///
    /// # Cancel safety
    /// A lease that is granted after the future was dropped is released.
    ///
    /// # Crash safety
    /// The lease of a process that dies expires.
    pub async fn try_acquire(self) -> Result<LeaseGuard, LeaseError> {
        let ask = self.ask()?;
        background::run(acquire::now(ask)).await?
    }

    /// Waits until the lease is granted, in the order of arrival over all processes. While the wait lasts, it retries a
    /// store that is busy, full or unreachable.
    ///
    /// # Errors
    /// [`LeaseError::Reentrant`] when this task holds it, [`LeaseError::Blocked`] when its row is blocked,
    /// [`LeaseError::Store`] when the store fails permanently.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the wait queue. A lease that is granted after that is released.
    ///
    /// # Crash safety
    /// The queue entry of a process that dies expires, and the waiters behind it pass over it.
    pub async fn acquire(self) -> Result<LeaseGuard, LeaseError> {
        self.stand(None).await
    }

    /// Waits until the lease is granted or the deadline has passed.
    ///
    /// # Errors
    /// [`LeaseError::TimedOut`] at the deadline; the lease is never granted later. Otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Crash safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_before(self, deadline: Instant) -> Result<LeaseGuard, LeaseError> {
        self.stand(Some(deadline)).await
    }

    /// Takes the lease from its present holder, ahead of all waiters. The fencing token of the old holder is stale from
    /// then on, and its next write or renewal fails. The reason is logged and stays in the row of the lease.
    ///
    /// This is a last resort, for operators: it does not stop the work that the old holder does outside the store.
    ///
    /// # Errors
    /// [`LeaseError::Held`] when other processes acquired it first in every attempt, [`LeaseError::Reentrant`] when
    /// this task holds it.
    ///
    /// # Cancel safety
    /// A lease that is granted after the future was dropped is released. The old holder has lost it even then.
    ///
    /// # Crash safety
    /// If the process dies in the middle, the lease may be free. Its row then records who ended it and why.
    pub async fn steal(self, reason: impl Into<String>) -> Result<LeaseGuard, LeaseError> {
        let reason = reason.into();
        let ask = self.ask()?;
        background::run(acquire::steal(ask, reason)).await?
    }

    async fn stand(self, deadline: Option<Instant>) -> Result<LeaseGuard, LeaseError> {
        let ask = self.ask()?;
        let gone = CancellationToken::new();
        let _leaving = gone.clone().drop_guard();
        background::run(wait_queue::wait(ask, deadline, gone)).await?
    }

    fn ask(self) -> Result<Arc<AcquireRequest>, LeaseError> {
        let Self { store, key, owner, ttl, at_least, note, place } = self;
        let key = key?;
        let (row, owner) = (keys::row_of(&key)?, unique_owner(owner.as_ref())?);
        let task = TaskId::current();
        Ok(Arc::new(AcquireRequest { store, key, row, owner, ttl, at_least, note, place, task }))
    }
}
