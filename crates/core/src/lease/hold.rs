//! How a lease is asked for.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::LeaseError;
use super::guard::Held;
use super::take::{self, Ask};
use super::{background, line, names};
use crate::id::Owner;
use crate::key::Key;
use crate::lock::Task;
use crate::store::SharedStore;
use crate::worker::{DEFAULT_TTL, MAX_TTL, MIN_TTL, unique_owner};

/// Asks for the lease on a key. Nothing happens before one of [`now`](Hold::now), [`wait`](Hold::wait),
/// [`wait_until`](Hold::wait_until) and [`steal`](Hold::steal) is awaited.
#[track_caller]
pub fn hold(store: &SharedStore, key: &Key) -> Hold {
    Hold {
        store: Arc::clone(store),
        key: key.clone(),
        owner: None,
        ttl: DEFAULT_TTL,
        at_least: Duration::ZERO,
        note: None,
        place: Location::caller(),
    }
}

/// A lease that is being asked for.
#[must_use = "nothing is asked before now(), wait() or steal() is awaited"]
#[derive(Clone, Debug)]
pub struct Hold {
    store: SharedStore,
    key: Key,
    owner: Option<Owner>,
    ttl: Duration,
    at_least: Duration,
    note: Option<String>,
    place: &'static Location<'static>,
}

impl Hold {
    /// Who asks, as others are to see it; by default the machine and the process. What makes each hold unique is
    /// added to it.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// How long the lease lasts without renewal, from [`MIN_TTL`] to [`MAX_TTL`]: how long others wait for a holder
    /// that died. It is renewed every third of it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.clamp(MIN_TTL, MAX_TTL);
        self
    }

    /// Keeps the lease for at least so long, even when it is released before: nobody else gets it sooner. For work
    /// that is done in a moment and must not be done again by a machine whose clock is late. The next holder counts
    /// as a take-over.
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = at_least.min(MAX_TTL);
        self
    }

    /// Something for people who look at the lease.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Takes the lease at once, or not at all.
    ///
    /// # Errors
    /// [`LeaseError::Held`] when somebody holds it, [`LeaseError::Waited`] when somebody waits for it already,
    /// [`LeaseError::Reentrant`] when this task holds it.
    ///
    /// # Cancel safety
    /// A lease that is granted after the future was dropped is released.
    ///
    /// # Crash safety
    /// A process that dies leaves the lease to end by itself.
    pub async fn now(self) -> Result<Held, LeaseError> {
        let ask = self.ask()?;
        background::run(take::now(ask)).await?
    }

    /// Waits until the lease can be had, in the order of arrival over all processes. A store that is busy, full or cannot be
    /// reached is retried for as long as the wait lasts.
    ///
    /// # Errors
    /// [`LeaseError::Reentrant`] when this task holds it, [`LeaseError::Blocked`] when its row is blocked,
    /// [`LeaseError::Store`] when the store fails for good.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line. A lease that is granted after that is released.
    ///
    /// # Crash safety
    /// A process that dies leaves a place in the line that ends by itself and is then passed over.
    pub async fn wait(self) -> Result<Held, LeaseError> {
        self.stand(None).await
    }

    /// Waits until the lease can be had or the deadline has passed.
    ///
    /// # Errors
    /// [`LeaseError::TimedOut`] at the deadline: the lease is then never granted later. Otherwise as
    /// [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    ///
    /// # Crash safety
    /// As [`wait`](Self::wait).
    pub async fn wait_until(self, deadline: Instant) -> Result<Held, LeaseError> {
        self.stand(Some(deadline)).await
    }

    /// Takes the lease from whoever holds it, ahead of everybody who waits. The old holder's fence is stale from then
    /// on; it learns of it with its next write or renewal. The reason is logged and stays in the row of the lease.
    ///
    /// This is for people and for last resorts: work that the old holder does outside of the store goes on.
    ///
    /// # Errors
    /// [`LeaseError::Held`] when others were faster again and again, [`LeaseError::Reentrant`] when this task holds it.
    ///
    /// # Cancel safety
    /// A lease that is granted after the future was dropped is released. The old holder has lost it all the same.
    ///
    /// # Crash safety
    /// If the process dies in the middle, the lease may be free, with the record of who ended it and why.
    pub async fn steal(self, reason: impl Into<String>) -> Result<Held, LeaseError> {
        let reason = reason.into();
        let ask = self.ask()?;
        background::run(take::steal(ask, reason)).await?
    }

    async fn stand(self, deadline: Option<Instant>) -> Result<Held, LeaseError> {
        let ask = self.ask()?;
        let gone = CancellationToken::new();
        let _leaving = gone.clone().drop_guard();
        background::run(line::wait(ask, deadline, gone)).await?
    }

    fn ask(self) -> Result<Arc<Ask>, LeaseError> {
        let Self { store, key, owner, ttl, at_least, note, place } = self;
        let (row, owner) = (names::row_of(&key)?, unique_owner(owner.as_ref())?);
        let task = Task::current();
        Ok(Arc::new(Ask { store, key, row, owner, ttl, at_least, note, place, task }))
    }
}
