//! A value that many tasks change: in memory, or in a store. One interface for both.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;

use super::cell::{Cell, Pending, Work};
use super::error::{MutateError, Stage, StateError};
use super::memory::Memory;
use super::mutator::{Answer, Asked, AtOnce, InTime, Mutator};
use super::ticket::Ticket;
use super::{Mutated, Outcome, State, Versioned, reentry};
use crate::lock::sleep_until;
use crate::store::{Batch, Delta, Expect};

/// A value that many tasks change. Clones share it.
///
/// Mutations run one after another, in the order in which they were asked for. In a store, those that wait together run on
/// one draft and share one write; foreign writers are met by the version of the record, and the mutators then run again on
/// the winner's value. So a mutator may run more than once: it changes its draft and nothing else.
pub struct Container<T: State> {
    backing: Backing<T>,
    limit: Option<Duration>,
}

enum Backing<T: State> {
    Memory(Arc<Memory<T>>),
    Store(Arc<Cell<T>>),
}

impl<T: State> Clone for Container<T> {
    fn clone(&self) -> Self {
        let backing = match &self.backing {
            Backing::Memory(memory) => Backing::Memory(Arc::clone(memory)),
            Backing::Store(cell) => Backing::Store(Arc::clone(cell)),
        };
        Self { backing, limit: self.limit }
    }
}

impl<T: State> Container<T> {
    /// A value in memory only, known by this name in errors. It never conflicts, and ends with the process.
    #[must_use]
    pub fn memory(name: &str, value: T) -> Self {
        let limit = super::Options::default().limit;
        Self { backing: Backing::Memory(Arc::new(Memory::new(name, value))), limit }
    }

    pub(super) fn stored(cell: Arc<Cell<T>>) -> Self {
        let limit = cell.options.limit;
        Self { backing: Backing::Store(cell), limit }
    }

    /// The same container, whose mutations take at most so long, waiting included; `None` for no limit.
    #[must_use]
    pub fn limit(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit;
        self
    }

    fn name(&self) -> String {
        match &self.backing {
            Backing::Memory(memory) => memory.name().to_owned(),
            Backing::Store(cell) => cell.name(),
        }
    }

    fn number(&self) -> u64 {
        match &self.backing {
            Backing::Memory(memory) => memory.number(),
            Backing::Store(cell) => cell.number,
        }
    }

    /// Changes the value. The result is that of the run that was committed.
    ///
    /// # Errors
    /// [`StateError`]; the old value stays, unless [`Stage::Unknown`] says that nobody knows.
    ///
    /// # Panics
    /// When the mutator does; the old value stays.
    ///
    /// # Cancel safety
    /// Dropped before its mutator ran, it never runs. Dropped later, its change may still be written.
    ///
    /// # Crash safety
    /// An acknowledged change is as durable as the store.
    pub async fn mutate<R, F>(&self, mut mutator: F) -> Result<Mutated<R>, StateError>
    where
        F: FnMut(&mut T) -> R + Send + 'static,
        R: Send + 'static,
    {
        let infallible = move |draft: &mut T| Ok::<R, Infallible>(mutator(draft));
        self.try_mutate(infallible).await.map_err(MutateError::state)
    }

    /// Changes the value, unless the mutator says no: then the old value stays, for its neighbours, too.
    ///
    /// # Errors
    /// [`MutateError::Refused`] with the mutator's error, or [`MutateError::State`].
    ///
    /// # Panics
    /// When the mutator does; the old value stays.
    ///
    /// # Cancel safety
    /// As [`mutate`](Self::mutate).
    pub async fn try_mutate<R, E, F>(&self, mutator: F) -> Result<Mutated<R>, MutateError<E>>
    where
        F: FnMut(&mut T) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let (asked, answered) = Asked::new(mutator);
        self.carry_out(Box::new(AtOnce(asked)), answered).await
    }

    /// Changes the value by a future: it gets the draft and gives it back with a result. Others wait meanwhile.
    ///
    /// # Errors
    /// As [`try_mutate`](Self::try_mutate). A mutator that takes longer than the limit is dropped.
    ///
    /// # Panics
    /// When the mutator does; the old value stays.
    ///
    /// # Cancel safety
    /// As [`mutate`](Self::mutate).
    pub async fn mutate_async<R, E, F, Fut>(&self, mutator: F) -> Result<Mutated<R>, MutateError<E>>
    where
        F: FnMut(T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(T, R), E>> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let (asked, answered) = Asked::new(mutator);
        self.carry_out(Box::new(InTime(asked)), answered).await
    }

    async fn carry_out<R, E>(
        &self,
        mutator: Box<dyn Mutator<T>>,
        answered: oneshot::Receiver<Answer<R, E>>,
    ) -> Result<Mutated<R>, MutateError<E>> {
        if reentry::runs(self.number()) {
            return Err(StateError::Reentrant { container: self.name() }.into());
        }
        let caller = Caller { ticket: Arc::default(), answered: false };
        match &self.backing {
            Backing::Memory(memory) => {
                let carried = memory.carry_out(mutator, Arc::clone(&caller.ticket));
                let answer = async {
                    carried.await;
                    answered.await
                };
                self.answer(caller, answer).await
            }
            Backing::Store(cell) => {
                let ticket = Arc::clone(&caller.ticket);
                cell.push(Pending { work: Work::Mutate(mutator), ticket, since: Instant::now() })?;
                self.answer(caller, answered).await
            }
        }
    }

    /// Waits for the answer, as long as the limit allows.
    async fn answer<R, E>(
        &self,
        mut caller: Caller,
        answered: impl Future<Output = Result<Answer<R, E>, oneshot::error::RecvError>>,
    ) -> Result<Mutated<R>, MutateError<E>> {
        // A limit beyond all times is none. The clock is our own: a container in memory needs no runtime.
        let until = self.limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
        let answer = match until {
            None => Ok(answered.await),
            Some((limit, at)) => tokio::select! {
                biased;
                answer = answered => Ok(answer),
                () = sleep_until(at) => Err(limit),
            },
        };
        match answer {
            Ok(Ok(Ok(answer))) => {
                caller.answered = true;
                answer
            }
            Ok(Ok(Err(panic))) => std::panic::resume_unwind(panic),
            Ok(Err(_)) => Err(StateError::NoRuntime { container: self.name() }.into()),
            Err(limit) => Err(self.timed_out(&caller.ticket, limit).into()),
        }
    }

    fn timed_out(&self, ticket: &Ticket, limit: Duration) -> StateError {
        let given_up = ticket.give_up();
        let container = self.name();
        match given_up.stage {
            Stage::NotApplied if given_up.conflicts > 0 => StateError::ConcurrentModification {
                container,
                attempts: given_up.conflicts,
                current: given_up.current,
            },
            stage => StateError::TimedOut { container, limit, stage },
        }
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// As [`mutate`](Self::mutate).
    pub async fn set(&self, value: T) -> Result<Outcome, StateError> {
        Ok(self.mutate(move |draft| *draft = value.clone()).await?.outcome)
    }

    /// Sets the fields that the JSON object names, and leaves the others.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when the result does not fit the type; the old value stays. Otherwise as
    /// [`mutate`](Self::mutate).
    pub async fn patch(&self, patch: Value) -> Result<Outcome, StateError> {
        let name = self.name();
        let patched = self.try_mutate(move |draft: &mut T| super::patch::patched(draft, &patch)).await;
        match patched {
            Ok(Mutated { outcome, .. }) => Ok(outcome),
            Err(MutateError::Refused(reason)) => Err(StateError::Invalid { container: name, reason }),
            Err(MutateError::State(error)) => Err(error),
        }
    }

    /// Adds to the number at a JSON pointer such as `/count`. In a store this is a delta: it never conflicts, whoever else
    /// writes.
    ///
    /// # Errors
    /// [`StateError::NotFound`] when there is no record; [`StateError::Write`] when there is no number there.
    pub async fn inc(&self, path: &str, by: i64) -> Result<Outcome, StateError> {
        self.deltas(vec![Delta::inc(path, by)]).await
    }

    /// Adds an element to the list at a JSON pointer. In a store this is a delta.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    pub async fn push(&self, path: &str, value: impl Into<Value>) -> Result<Outcome, StateError> {
        self.deltas(vec![Delta::push(path, value)]).await
    }

    /// Sets one entry of the map at a JSON pointer. In a store this is a delta.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    pub async fn set_record(
        &self,
        path: &str,
        name: &str,
        value: impl Into<Value>,
    ) -> Result<Outcome, StateError> {
        self.deltas(vec![Delta::set(super::patch::below(path, name), value)]).await
    }

    /// Removes one entry of the map at a JSON pointer; one that is not there is as good as removed. In a store this is a
    /// delta.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    pub async fn delete_record(&self, path: &str, name: &str) -> Result<Outcome, StateError> {
        self.deltas(vec![Delta::remove(super::patch::below(path, name))]).await
    }

    /// Sends deltas, all or none.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    pub async fn deltas(&self, deltas: Vec<Delta>) -> Result<Outcome, StateError> {
        let Backing::Store(cell) = &self.backing else {
            let name = self.name();
            let applied =
                self.try_mutate(move |draft: &mut T| super::patch::with_deltas(draft, &deltas)).await;
            return match applied {
                Ok(Mutated { outcome, .. }) => Ok(outcome),
                Err(MutateError::Refused(reason)) => Err(StateError::Invalid { container: name, reason }),
                Err(MutateError::State(error)) => Err(error),
            };
        };
        if reentry::runs(cell.number) {
            return Err(StateError::Reentrant { container: self.name() });
        }
        let caller = Caller { ticket: Arc::default(), answered: false };
        let (asked, answered) = Asked::done(|_: &mut T| Ok::<(), Infallible>(()), ());
        let work = Work::Deltas(deltas, Box::new(AtOnce(asked)));
        cell.push(Pending { work, ticket: Arc::clone(&caller.ticket), since: Instant::now() })?;
        let answer = self.answer(caller, answered).await;
        answer.map(|mutated| mutated.outcome).map_err(MutateError::state)
    }

    /// Deletes the record; the value is the default again. In memory, the value becomes the default.
    ///
    /// # Errors
    /// [`StateError::Write`] when the store fails.
    pub async fn delete(&self) -> Result<(), StateError> {
        match &self.backing {
            Backing::Memory(_) => self.set(T::default()).await.map(|_| ()),
            Backing::Store(cell) => {
                let batch = Batch::new().delete(&cell.key, Expect::Any);
                cell.store.apply(batch).await.map_err(|error| StateError::Write(Box::new(error)))?;
                Ok(())
            }
        }
    }

    /// The value as it is now; the default when there is none.
    ///
    /// # Errors
    /// [`StateError::Undecodable`] when the record does not read as the type, [`StateError::Read`] when the store fails.
    pub async fn get(&self) -> Result<T, StateError> {
        Ok(self.read().await?.map_or_else(T::default, |versioned| versioned.value))
    }

    /// The value with its version; `None` when there is no record.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn read(&self) -> Result<Option<Versioned<T>>, StateError> {
        let cell = match &self.backing {
            Backing::Memory(memory) => return Ok(Some(memory.read().await)),
            Backing::Store(cell) => cell,
        };
        let Some(document) = cell.store.document(&cell.key).await? else { return Ok(None) };
        let value = document.value.parse().map_err(|error| StateError::Undecodable {
            container: cell.name(),
            version: document.version,
            reason: error.to_string(),
        })?;
        Ok(Some(Versioned { version: document.version, value }))
    }
}

impl<T: State> fmt::Debug for Container<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container")
            .field("name", &self.name())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// A caller: when it goes away before the answer, what has not begun does not begin.
struct Caller {
    ticket: Arc<Ticket>,
    answered: bool,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.answered {
            self.ticket.give_up();
        }
    }
}
