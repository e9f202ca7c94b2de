//! Idempotency keys: one request runs, and its duplicates wait or get the stored response.
//!
//! The claim of the row has one winner. The record is read before the claim, so that duplicates write nothing. It is read again
//! after the claim, because the previous holder may have finished in between. If a process dies, the lease on its row expires.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::error::IdempotencyError;
use super::fingerprint::Fingerprint;
use super::keys;
use super::record::{Record, StorePolicy};
use super::reservation::{Reservation, Reserving};
use super::response::StoredResponse;
use crate::clock::Timestamp;
use crate::key::Key;
use crate::lease::{LeaseError, in_background};
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{Claim, ClaimDenied, Get, LeaseRow, SharedStore};
use crate::worker::{LeasedWork, MAX_TTL, MIN_TTL, idle, local_notify};

/// The default time to live of a stored response: a day.
pub const DEFAULT_TTL: Duration = Duration::from_hours(24);
/// The maximum interval between two polls of a waiter, in case every hint is missed.
const POLL: Duration = Duration::from_millis(500);
/// The minimum and the maximum delay between two polls under constant hints.
const HUSH: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Idempotency keys on a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Idempotency {
    pub(super) store: SharedStore,
    ttl: Duration,
    lease_ttl: Duration,
}

/// The outcome of a reservation.
#[derive(Debug)]
pub enum ReserveOutcome {
    /// The request must run. Duplicates that arrive until it ends get `InFlight`.
    Run(Reservation),
    /// Another request with the key is in flight.
    InFlight(InFlight),
    /// The request ran before, with this response.
    Stored(StoredResponse),
    /// The request ran before, with this status. The rest of the response was not stored.
    StatusOnly {
        /// The status.
        status: u16,
    },
    /// The key belongs to a request with another payload.
    OtherPayload,
}

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The process that runs it.
    pub by: String,
    /// The start of the request, by the store's clock.
    pub since: Timestamp,
    /// The expiry of the lease, unless it is renewed. The key is free then if the process has died.
    pub until: Timestamp,
}

impl Idempotency {
    /// Creates a handle on this store, with responses that are kept for [`DEFAULT_TTL`].
    #[must_use]
    pub fn new(store: &SharedStore) -> Self {
        Self { store: Arc::clone(store), ttl: DEFAULT_TTL, lease_ttl: crate::worker::DEFAULT_TTL }
    }

    /// Sets the time to live of stored responses. A request that is repeated later runs again.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.min(MAX_TTL);
        self
    }

    /// Sets how long a key stays in flight after its process died. A live process renews it. The default is 30 seconds.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = ttl.clamp(MIN_TTL, MAX_TTL);
        self
    }

    /// Reserves a key, or returns the reason why not. Keys of different scopes, such as tenants, are independent.
    ///
    /// # Errors
    /// [`IdempotencyError::BadKey`] when the key is not valid, otherwise the error of the store.
    ///
    /// # Cancel safety
    /// A key that is reserved after the future was dropped is released.
    ///
    /// # Crash safety
    /// If the process dies, the key is free when the lease expires, at most the [lease time](Self::lease_ttl) later.
    pub async fn reserve(
        &self,
        scope: &str,
        key: &str,
        request: &Fingerprint,
    ) -> Result<ReserveOutcome, IdempotencyError> {
        let ask = self.ask(scope, key, request)?;
        match ask.known().await? {
            Some(known) => Ok(known),
            None => in_background(take(ask)).await?,
        }
    }

    /// Like [`reserve`](Self::reserve), but waits for a request in flight: for its response, or for the key when it fails.
    /// Returns [`ReserveOutcome::InFlight`] after the wait time.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    ///
    /// # Cancel safety
    /// As [`reserve`](Self::reserve).
    ///
    /// # Crash safety
    /// As [`reserve`](Self::reserve).
    pub async fn reserve_within(
        &self,
        scope: &str,
        key: &str,
        request: &Fingerprint,
        wait: Duration,
    ) -> Result<ReserveOutcome, IdempotencyError> {
        let deadline = process::now() + wait;
        let row = keys::record(scope, key)?;
        let (mut hints, signal) = (self.store.watch(), local_notify::listen(&row));
        let (mut hush, mut first) = (HUSH.0, true);
        loop {
            let mut told = pin!(signal.notified());
            // Registers for notifications before the read, so that no change is missed.
            told.as_mut().enable();
            let looked = process::now();
            let reserved = if std::mem::take(&mut first) {
                self.reserve(scope, key, request).await?
            } else {
                self.poll(scope, key, request).await?
            };
            if !matches!(reserved, ReserveOutcome::InFlight(_)) || process::now() >= deadline {
                return Ok(reserved);
            }
            tokio::select! {
                biased;
                () = told => {}
                () = idle::hinted(&mut hints, looked + hush) => hush = (hush * 2).min(HUSH.1),
                () = sleep_until(deadline.min(looked + POLL)) => {}
            }
        }
    }

    /// Polls with a read, which is cheaper than a claim. Claims the row when no unexpired lease is on it.
    async fn poll(
        &self,
        scope: &str,
        key: &str,
        request: &Fingerprint,
    ) -> Result<ReserveOutcome, IdempotencyError> {
        let row = keys::record(scope, key)?;
        let mut found = self.store.read(&[Get::Work(row)]).await?;
        if let Some(holder) = found.take_work(0).and_then(|row| row.lease)
            && !holder.until.has_come(found.now)
        {
            return Ok(held(&holder, request));
        }
        self.reserve(scope, key, request).await
    }

    fn ask(&self, scope: &str, key: &str, request: &Fingerprint) -> Result<ReserveRequest, IdempotencyError> {
        let row = keys::record(scope, key)?;
        let reserving =
            Reserving { scope: scope.to_owned(), key: key.to_owned(), request: *request, ttl: self.ttl };
        Ok(ReserveRequest { store: Arc::clone(&self.store), row, lease: self.lease_ttl, reserving })
    }
}

/// A reservation request.
struct ReserveRequest {
    store: SharedStore,
    row: Key,
    lease: Duration,
    reserving: Reserving,
}

impl ReserveRequest {
    /// Returns the outcome that is recorded for the key, when its request has ended.
    async fn known(&self) -> Result<Option<ReserveOutcome>, IdempotencyError> {
        let Some(document) = self.store.document(&self.row).await? else { return Ok(None) };
        let record = Record::read(&document)?;
        if record.request != self.reserving.request.hex() {
            return Ok(Some(ReserveOutcome::OtherPayload));
        }
        Ok(Some(match record.kept(&document)? {
            StorePolicy::Whole(answer) => ReserveOutcome::Stored(answer),
            StorePolicy::StatusOnly { status } => ReserveOutcome::StatusOnly { status },
        }))
    }
}

/// Claims the row.
async fn take(ask: ReserveRequest) -> Result<ReserveOutcome, IdempotencyError> {
    let owner = keys::owner(&ask.reserving.request)?;
    let sent = process::now();
    let claimed = ask.store.claim(Claim::named(&owner, &ask.row, &keys::queue()?, ask.lease)).await?;
    let Some(grant) = claimed.grants.into_iter().next() else {
        return match claimed.denied {
            Some(ClaimDenied::Held(holder)) => Ok(held(&holder, &ask.reserving.request)),
            Some(ClaimDenied::Blocked(reason)) => Err(LeaseError::Blocked { key: ask.row, reason }.into()),
            Some(ClaimDenied::NotFound) | None => {
                let reason = "the store neither grants nor denies".to_owned();
                Err(LeaseError::NoKeeper { reason }.into())
            }
        };
    };
    let holding = LeasedWork::start(&ask.store, &grant, ask.lease, sent).map_err(LeaseError::from)?;
    let reservation = Reservation::new(&ask.store, holding, ask.reserving.clone());
    // The previous holder may have finished after the first read. A failure here drops the reservation, which releases the key.
    match ask.known().await? {
        Some(known) => {
            reservation.release().await;
            Ok(known)
        }
        None => Ok(ReserveOutcome::Run(reservation)),
    }
}

/// Returns the outcome for a leased row: the same request is in flight, or the key belongs to another one.
fn held(holder: &LeaseRow, request: &Fingerprint) -> ReserveOutcome {
    match keys::parts(&holder.owner) {
        (_, Some(other)) if other != request.hex() => ReserveOutcome::OtherPayload,
        (by, _) => {
            ReserveOutcome::InFlight(InFlight { by: by.to_owned(), since: holder.since, until: holder.until })
        }
    }
}
