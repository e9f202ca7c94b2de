//! A key that is reserved: its request runs, and ends with an answer or without one.
//!
//! The batch that ends it holds the lease as its first condition, the effects of the request, the record, and the removal of the
//! row. So there is no moment in which the effects are there and the record is not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::error::EdgeError;
use super::fingerprint::Fingerprint;
use super::record::{Kept, Record};
use crate::clock::Due;
use crate::error::{Explain as _, Outcome, Retry};
use crate::id::Fence;
use crate::key::Key;
use crate::runtime::timer::sleep_until;
use crate::store::{ApplyError, Batch, Expect, Operation, Receipt, Refusal, Selection, SharedStore};
use crate::worker::{LeasedWork, LostReason, local_notify};

/// How long to wait before a batch is sent again of which nobody knows whether it was applied.
const UNSURE: Duration = Duration::from_millis(50);

/// What is reserved for whom.
#[derive(Clone, Debug)]
pub(super) struct Reserving {
    pub(super) scope: String,
    pub(super) key: String,
    pub(super) request: Fingerprint,
    /// How long the answer is kept.
    pub(super) ttl: Duration,
}

/// A key that is reserved for a request that runs. It is renewed in the background, so the request may take as long as it takes.
///
/// End it with [`commit`](Self::commit), [`complete`](Self::complete) or [`release`](Self::release). Clones are the same
/// reservation; when the last one is dropped, the key is released.
///
/// # Crash safety
/// A process that dies leaves the key to be free by itself. What was committed stays, with its record.
#[derive(Clone, Debug)]
pub struct Reservation(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: SharedStore,
    holding: LeasedWork,
    reserving: Reserving,
    state: Mutex<State>,
    /// One commit at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
enum State {
    Open,
    Committed(Kept),
    Released,
}

impl Reservation {
    pub(super) fn new(store: &SharedStore, holding: LeasedWork, reserving: Reserving) -> Self {
        let (store, state) = (Arc::clone(store), Mutex::new(State::Open));
        Self(Arc::new(Inner { store, holding, reserving, state, turn: tokio::sync::Mutex::default() }))
    }

    /// Whose key it is.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.0.reserving.scope
    }

    /// The key: a stable name for the request, for effects that dedupe by themselves.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.reserving.key
    }

    /// The fence of the reservation: higher than that of every grant before.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.holding.lease().fence
    }

    /// A token that fires when the reservation ends, in time before another request can have the key.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.0.holding.token().clone()
    }

    /// The batch with the reservation as its first condition, for effects before the last: refused as a whole if another request
    /// has the key by then. A refusal counts the condition as effect 0.
    ///
    /// Effects that are applied on their own stay when the request fails later, and are then done again: [`commit`](Self::commit)
    /// is for those that must not be.
    ///
    /// # Errors
    /// [`EdgeError::Lost`] when the reservation is known to be lost, [`EdgeError::Over`] when it has ended.
    pub fn guard(&self, batch: Batch) -> Result<Batch, EdgeError> {
        self.is_open()?;
        if let Some(reason) = self.0.holding.lost() {
            return Err(self.lost(reason));
        }
        let id = batch.id();
        let guarded = Batch::new().guard_lease(self.0.holding.lease()).and(batch);
        Ok(id.into_iter().fold(guarded, Batch::op_id))
    }

    /// Applies the effects of the request and keeps its answer, in one batch: both or neither, once. From then on, the answer is
    /// what every repetition hears.
    ///
    /// The receipt is `None` when the store's own answer was lost and the record showed that the batch was applied; name the batch
    /// with an [`op_id`](Batch::op_id) to get the receipt even then. A refusal counts the reservation as effect 0.
    ///
    /// # Errors
    /// [`EdgeError::Write`] when the batch is refused: the reservation goes on, so decide again and commit again.
    /// [`EdgeError::Lost`] when another request may have the key, [`EdgeError::AnswerTooLarge`] and [`EdgeError::Over`]. Nothing
    /// was applied, unless [`outcome`](crate::error::Explain::outcome) says that it is unknown.
    ///
    /// # Cancel safety
    /// Dropped, it was committed or not, effects and answer alike; asking for the key tells.
    pub async fn commit(&self, batch: Batch, answer: Answer) -> Result<Option<Receipt>, EdgeError> {
        answer.check(self.key())?;
        self.write(batch, Kept::Whole(answer)).await
    }

    /// Keeps the answer of a request whose effects are elsewhere.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    /// As [`commit`](Self::commit).
    pub async fn complete(&self, answer: Answer) -> Result<(), EdgeError> {
        self.commit(Batch::new(), answer).await.map(drop)
    }

    /// Keeps that the request ran, with a status, and nothing else of its answer: for answers that are too large or have no known
    /// end. Repetitions do not run, and are told so.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    /// As [`commit`](Self::commit).
    pub async fn complete_with_status(&self, status: u16) -> Result<(), EdgeError> {
        self.write(Batch::new(), Kept::StatusOnly { status }).await.map(drop)
    }

    /// The request failed before any effect: the key can be used again at once. Released or committed before, it stays so.
    ///
    /// # Cancel safety
    /// The release is carried out even if the future is dropped.
    pub async fn release(&self) {
        if let Some(ended) = self.0.release() {
            drop(ended.await);
        }
    }

    /// What was committed, if anything was.
    #[must_use]
    pub fn committed(&self) -> Option<Kept> {
        match &*self.0.state.lock() {
            State::Committed(kept) => Some(kept.clone()),
            State::Open | State::Released => None,
        }
    }

    async fn write(&self, batch: Batch, kept: Kept) -> Result<Option<Receipt>, EdgeError> {
        let _turn = self.0.turn.lock().await;
        self.is_open()?;
        let whole = self.whole(batch, &kept)?;
        // The first failure after which nobody knew whether the batch was applied.
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
            tracing::debug!(target: crate::telemetry::EDGE, key = self.key(), "a commit is tried again");
            tokio::select! {
                () = self.0.holding.token().cancelled() => {}
                () = sleep_until(Instant::now() + wait) => {}
            }
        }
    }

    /// The effects of the request, its record, and the end of the reservation.
    fn whole(&self, batch: Batch, kept: &Kept) -> Result<Batch, EdgeError> {
        let record = Record::new(&self.0.reserving.request, self.fence(), kept).payload()?;
        let (id, row) = (batch.id(), self.row());
        let whole = Batch::new()
            .guard_lease(self.0.holding.lease())
            .and(batch)
            .put_until(row, Expect::Any, record, Due::After(self.0.reserving.ttl))
            .operate(Selection::Keys(vec![row.clone()]), Operation::Remove);
        Ok(id.into_iter().fold(whole, Batch::op_id))
    }

    /// The reservation is over, and an earlier attempt may have been applied: the record knows.
    async fn resolved(
        &self,
        unsure: Option<ApplyError>,
        kept: Kept,
        reason: LostReason,
    ) -> Result<Option<Receipt>, EdgeError> {
        let Some(unsure) = unsure else { return Err(self.lost(reason)) };
        let Ok(found) = self.0.store.document(self.row()).await else { return Err(unsure.into()) };
        let fence = found.as_ref().and_then(|found| Record::read(found).ok()).map(|record| record.fence);
        if fence == Some(self.fence()) {
            self.done(kept);
            return Ok(None);
        }
        Err(unsure.into())
    }

    fn done(&self, kept: Kept) {
        *self.0.state.lock() = State::Committed(kept);
        self.0.holding.let_go();
        local_notify::notify(self.row());
    }

    fn row(&self) -> &Key {
        &self.0.holding.lease().key
    }

    fn is_open(&self) -> Result<(), EdgeError> {
        let how = match &*self.0.state.lock() {
            State::Open => return Ok(()),
            State::Committed(_) => "committed",
            State::Released => "released",
        };
        Err(EdgeError::Over { key: self.key().to_owned(), how })
    }

    fn lost(&self, reason: LostReason) -> EdgeError {
        EdgeError::Lost { key: self.key().to_owned(), reason }
    }
}

impl Inner {
    /// Frees the key, in the background. `None` when there is nothing to free.
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
