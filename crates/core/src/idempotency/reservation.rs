//! Reservation of an idempotency key, from the start of its request to its response or release.
//!
//! The batch that ends it contains the lease as its first condition, the effects of the request, the record, and the removal of
//! the row. The effects are therefore never visible without the record.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::error::IdempotencyError;
use super::fingerprint::Fingerprint;
use super::record::{Record, StorePolicy};
use super::response::StoredResponse;
use crate::clock::Due;
use crate::error::{Explain as _, Outcome, Retry};
use crate::id::Fence;
use crate::key::Key;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{ApplyError, Batch, Expect, Operation, Receipt, Refusal, Selection, SharedStore};
use crate::worker::{LeasedWork, LostReason, local_notify};

/// The delay before a batch with an unknown outcome is sent again.
const UNSURE: Duration = Duration::from_millis(50);

/// The request that a key is reserved for.
#[derive(Clone, Debug)]
pub(super) struct Reserving {
    pub(super) scope: String,
    pub(super) key: String,
    pub(super) request: Fingerprint,
    /// The time to live of the response.
    pub(super) ttl: Duration,
}

/// A key that is reserved for a running request. The lease is renewed in the background, so the duration of the request is not
/// limited.
///
/// End it with [`commit`](Self::commit), [`complete`](Self::complete) or [`release`](Self::release). Clones share the
/// reservation. When the last one is dropped, the key is released.
///
/// # Crash safety
/// If the process dies, the key is free when the lease expires. A committed request stays committed, with its record.
#[derive(Clone, Debug)]
pub struct Reservation(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: SharedStore,
    holding: LeasedWork,
    reserving: Reserving,
    state: Mutex<State>,
    /// Serialises commits.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
enum State {
    Open,
    Committed(StorePolicy),
    Released,
}

impl Reservation {
    pub(super) fn new(store: &SharedStore, holding: LeasedWork, reserving: Reserving) -> Self {
        let (store, state) = (Arc::clone(store), Mutex::new(State::Open));
        Self(Arc::new(Inner { store, holding, reserving, state, turn: tokio::sync::Mutex::default() }))
    }

    /// Returns the scope of the key.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.0.reserving.scope
    }

    /// Returns the key, a stable name for the request. Pass it to external systems that deduplicate.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.reserving.key
    }

    /// Returns the fence of the reservation, which is higher than that of every grant before.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.holding.lease().fence
    }

    /// Returns a token that fires when the reservation ends, before another request can acquire the key.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.0.holding.token().clone()
    }

    /// Adds the reservation as the first condition of a batch, for effects before the final commit. The store refuses the whole
    /// batch if another request has acquired the key. A refusal counts the condition as effect 0.
    ///
    /// Effects that are applied separately stay when the request fails later, and a repetition applies them again. Use
    /// [`commit`](Self::commit) for effects that must happen once.
    ///
    /// # Errors
    /// [`IdempotencyError::Lost`] when the reservation is known to be lost, [`IdempotencyError::Over`] when it has ended.
    pub fn guard(&self, batch: Batch) -> Result<Batch, IdempotencyError> {
        self.is_open()?;
        if let Some(reason) = self.0.holding.lost() {
            return Err(self.lost(reason));
        }
        let id = batch.id();
        let guarded = Batch::new().guard_lease(self.0.holding.lease()).and(batch);
        Ok(id.into_iter().fold(guarded, Batch::op_id))
    }

    /// Applies the effects of the request and stores its response, in one batch, all or nothing and at most once. From then on,
    /// every repetition gets the response.
    ///
    /// The receipt is `None` when the reply of the store was lost and the record showed that the batch was applied. Set an
    /// [`op_id`](Batch::op_id) on the batch to get the receipt even then. A refusal counts the reservation as effect 0.
    ///
    /// # Errors
    /// [`IdempotencyError::Write`] when the batch is refused. The reservation stays, so decide again and commit again.
    /// [`IdempotencyError::Lost`] when another request may have the key, [`IdempotencyError::AnswerTooLarge`] and [`IdempotencyError::Over`].
    /// Nothing was applied, unless [`outcome`](crate::error::Explain::outcome) is unknown.
    ///
    /// # Cancel safety
    /// If the future is dropped, effects and response were either both committed or not. Reserving the key again returns which.
    pub async fn commit(
        &self,
        batch: Batch,
        answer: StoredResponse,
    ) -> Result<Option<Receipt>, IdempotencyError> {
        answer.check(self.key())?;
        self.write(batch, StorePolicy::Whole(answer)).await
    }

    /// Stores the response of a request whose effects are elsewhere.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    /// As [`commit`](Self::commit).
    pub async fn complete(&self, answer: StoredResponse) -> Result<(), IdempotencyError> {
        self.commit(Batch::new(), answer).await.map(drop)
    }

    /// Records that the request ran, with a status and without the rest of its response. It is meant for responses that are too
    /// large or of unknown length. Repetitions do not run, and get [`ReserveOutcome::StatusOnly`](super::ReserveOutcome::StatusOnly).
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    /// As [`commit`](Self::commit).
    pub async fn complete_with_status(&self, status: u16) -> Result<(), IdempotencyError> {
        self.write(Batch::new(), StorePolicy::StatusOnly { status }).await.map(drop)
    }

    /// Releases the key after a failure before any effect, so that it can be used again at once. A reservation that was
    /// released or committed before is unchanged.
    ///
    /// # Cancel safety
    /// The release is executed even if the future is dropped.
    pub async fn release(&self) {
        if let Some(ended) = self.0.release() {
            drop(ended.await);
        }
    }

    /// Returns the committed response, if any.
    #[must_use]
    pub fn committed(&self) -> Option<StorePolicy> {
        match &*self.0.state.lock() {
            State::Committed(kept) => Some(kept.clone()),
            State::Open | State::Released => None,
        }
    }

    async fn write(&self, batch: Batch, kept: StorePolicy) -> Result<Option<Receipt>, IdempotencyError> {
        let _turn = self.0.turn.lock().await;
        self.is_open()?;
        let whole = self.whole(batch, &kept)?;
        // The first failure with an unknown outcome.
        let mut unsure: Option<ApplyError> = None;
        loop {
            if let Some(reason) = self.0.holding.lost() {
                return self.resolved(unsure, kept, reason).await;
            }
            let error = match self.0.store.apply(whole.clone()).await {
                Ok(receipt) => {
                    self.done(kept);
                    return Ok(Some(receipt));
                }
                Err(ApplyError::Refused(refusal)) => match *refusal {
                    Refusal::Fenced { ref key, .. } if key == self.row() => {
                        return self.resolved(unsure, kept, LostReason::Revoked).await;
                    }
                    _ => return Err(ApplyError::Refused(refusal).into()),
                },
                Err(error) => error,
            };
            let wait = match (error.outcome(), error.retry()) {
                (Outcome::NotApplied, Retry::After(wait)) => wait,
                (Outcome::NotApplied, _) => return Err(error.into()),
                _ => {
                    unsure.get_or_insert(error);
                    UNSURE
                }
            };
            tracing::debug!(target: crate::telemetry::IDEMPOTENCY, key = self.key(), "a commit is tried again");
            tokio::select! {
                biased;
                () = self.0.holding.token().cancelled() => {}
                () = sleep_until(process::now() + wait) => {}
            }
        }
    }

    /// Returns the batch with the effects of the request, its record, and the end of the reservation.
    fn whole(&self, batch: Batch, kept: &StorePolicy) -> Result<Batch, IdempotencyError> {
        let record = Record::new(&self.0.reserving.request, self.fence(), kept).payload()?;
        let (id, row) = (batch.id(), self.row());
        let whole = Batch::new()
            .guard_lease(self.0.holding.lease())
            .and(batch)
            .put_until(row, Expect::Any, record, Due::After(self.0.reserving.ttl))
            .operate(Selection::Keys(vec![row.clone()]), Operation::Remove);
        Ok(id.into_iter().fold(whole, Batch::op_id))
    }

    /// Resolves an unknown outcome after the reservation was lost: the record shows whether an earlier attempt was applied.
    async fn resolved(
        &self,
        unsure: Option<ApplyError>,
        kept: StorePolicy,
        reason: LostReason,
    ) -> Result<Option<Receipt>, IdempotencyError> {
        let Some(unsure) = unsure else { return Err(self.lost(reason)) };
        let Ok(found) = self.0.store.document(self.row()).await else { return Err(unsure.into()) };
        let fence = found.as_ref().and_then(|found| Record::read(found).ok()).map(|record| record.fence);
        if fence == Some(self.fence()) {
            self.done(kept);
            return Ok(None);
        }
        Err(unsure.into())
    }

    fn done(&self, kept: StorePolicy) {
        *self.0.state.lock() = State::Committed(kept);
        self.0.holding.let_go();
        local_notify::notify(self.row());
    }

    fn row(&self) -> &Key {
        &self.0.holding.lease().key
    }

    fn is_open(&self) -> Result<(), IdempotencyError> {
        let how = match &*self.0.state.lock() {
            State::Open => return Ok(()),
            State::Committed(_) => "committed",
            State::Released => "released",
        };
        Err(IdempotencyError::Over { key: self.key().to_owned(), how })
    }

    fn lost(&self, reason: LostReason) -> IdempotencyError {
        IdempotencyError::Lost { key: self.key().to_owned(), reason }
    }
}

impl Inner {
    /// Releases the key in the background. Returns `None` when there is nothing to release.
    fn release(&self) -> Option<tokio::task::JoinHandle<()>> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Open) {
            return None;
        }
        *state = State::Released;
        let lease = self.holding.lease();
        let gone = Batch::new()
            .guard_lease(lease)
            .operate(Selection::Keys(vec![lease.key.clone()]), Operation::Remove);
        self.holding.end(gone)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.release());
    }
}
