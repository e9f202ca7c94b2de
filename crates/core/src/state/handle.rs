//! Shared value that many tasks change, in memory or in a store, behind one interface.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::combiner::{Combiner, Work};
use super::error::{MutateError, StateError};
use super::history::HistoryEntry;
use super::memory::Memory;
use super::mutator::{AtOnce, TypedMutator};
use super::submit::{Backing, Turns};
use super::watch::WatchStream;
use super::{Mutated, StateValue, Versioned, WriteOutcome};
use crate::error::InvalidInput;
use crate::id::StreamVersion;
use crate::store::{Batch, Delta, Expect};

/// A value that many tasks change. Clones share it.
///
/// Mutations run one after another, in the order of the requests. In a store, mutations that wait together run on one draft
/// and share one write. The version of the record detects foreign writers (optimistic concurrency). After a conflict the
/// mutators run again on the winner's value. A mutator may therefore run more than once, and must have no effect besides its
/// draft.
///
/// Mutators of a state in a store run on threads of the library. A caller needs no runtime, and its runtime may shut down
/// while others use the record. A mutator must not block its thread until another mutation ends, because the other one may
/// need that thread. Use [`mutate_async`](Self::mutate_async) and await it.
pub struct State<T: StateValue>(Turns<T>);

impl<T: StateValue> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: StateValue> State<T> {
    /// Creates a value in memory only, with a name for errors. It never conflicts, and is lost with the process.
    #[must_use]
    pub fn memory(name: &str, value: T) -> Self {
        let limit = super::StateOptions::default().limit;
        Self(Turns { backing: Backing::Memory(Arc::new(Memory::new(name, value))), limit })
    }

    /// Returns a state whose operations all fail, because its key is invalid.
    pub(super) fn invalid(error: InvalidInput) -> Self {
        Self(Turns { backing: Backing::Invalid(error.into()), limit: None })
    }

    pub(super) fn stored(cell: Arc<Combiner<T>>) -> Self {
        Self(Turns::stored(cell))
    }

    /// Sets the timeout of mutations, including the time in the queue. `None` means no timeout.
    #[must_use]
    pub fn limit(mut self, limit: Option<Duration>) -> Self {
        self.0.limit = limit;
        self
    }

    /// Changes the value. The result is that of the committed run.
    ///
    /// # Errors
    /// [`StateError`]. The old value stays, unless the stage is [`Stage::Unknown`](super::Stage::Unknown).
    ///
    /// # Panics
    /// When the mutator panics. The old value stays.
    ///
    /// # Cancel safety
    /// If the future is dropped before the mutator ran, the mutator never runs. If it is dropped later, the change may still
    /// be written.
    ///
    /// # Crash safety
    /// An acknowledged change is as durable as the store.
    #[track_caller]
    pub fn mutate<R, F>(&self, mut mutator: F) -> impl Future<Output = Result<Mutated<R>, StateError>> + Send
    where
        F: FnMut(&mut T) -> R + Send + 'static,
        R: Send + 'static,
    {
        let infallible = move |draft: &mut T| Ok::<R, Infallible>(mutator(draft));
        let mutated = self.try_mutate(infallible);
        async { mutated.await.map_err(MutateError::state) }
    }

    /// Changes the value, unless the mutator returns an error. The old value then stays, also for the other mutations of the
    /// same write.
    ///
    /// # Errors
    /// [`MutateError::Refused`] with the mutator's error, or [`MutateError::State`].
    ///
    /// # Panics
    /// When the mutator panics. The old value stays.
    ///
    /// # Cancel safety
    /// As [`mutate`](Self::mutate).
    #[track_caller]
    pub fn try_mutate<R, E, F>(
        &self,
        mutator: F,
    ) -> impl Future<Output = Result<Mutated<R>, MutateError<E>>> + Send
    where
        F: FnMut(&mut T) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        self.0.at_once(Location::caller(), mutator)
    }

    /// Changes the value by a future, which gets the draft and returns it with a result. Other mutations wait until it ends.
    ///
    /// In a store, the future runs on a Tokio runtime of the library, with timers and I/O, and not on the caller's. It may
    /// await anything, but must not block its thread. In memory, it runs inside the returned future.
    ///
    /// # Errors
    /// As [`try_mutate`](Self::try_mutate). A mutator that exceeds the timeout is dropped.
    ///
    /// # Panics
    /// When the mutator panics. The old value stays.
    ///
    /// # Cancel safety
    /// As [`mutate`](Self::mutate).
    #[track_caller]
    pub fn mutate_async<R, E, F, Fut>(
        &self,
        mutator: F,
    ) -> impl Future<Output = Result<Mutated<R>, MutateError<E>>> + Send
    where
        F: FnMut(T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(T, R), E>> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        self.0.in_time(Location::caller(), mutator)
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// As [`mutate`](Self::mutate).
    #[track_caller]
    pub fn set(&self, value: T) -> impl Future<Output = Result<WriteOutcome, StateError>> + Send {
        let set = self.mutate(move |draft| *draft = value.clone());
        async { Ok(set.await?.outcome) }
    }

    /// Sets the fields that the JSON object names, and keeps the others.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when the result does not fit the type. The old value stays. Otherwise as
    /// [`mutate`](Self::mutate).
    #[track_caller]
    pub fn patch(&self, patch: Value) -> impl Future<Output = Result<WriteOutcome, StateError>> + Send {
        let patched = self.try_mutate(move |draft: &mut T| super::patch::patched(draft, &patch));
        self.fitting(patched)
    }

    /// Awaits a mutation and maps a refusal to [`StateError::Invalid`].
    async fn fitting(
        &self,
        mutated: impl Future<Output = Result<Mutated<()>, MutateError<String>>> + Send,
    ) -> Result<WriteOutcome, StateError> {
        match mutated.await {
            Ok(Mutated { outcome, .. }) => Ok(outcome),
            Err(MutateError::Refused(reason)) => Err(StateError::Invalid { key: self.0.name(), reason }),
            Err(MutateError::State(error)) => Err(error),
        }
    }

    /// Adds to the number at a JSON pointer such as `/count`. In a store this is a delta, which never conflicts with other
    /// writers.
    ///
    /// # Errors
    /// [`StateError::NotFound`] when there is no record, and [`StateError::Write`] when the value there is not a number. In
    /// memory, the latter is [`StateError::Invalid`].
    #[track_caller]
    pub fn inc(
        &self,
        path: &str,
        by: i64,
    ) -> impl Future<Output = Result<WriteOutcome, StateError>> + Send + use<'_, T> {
        self.deltas(vec![Delta::inc(path, by)])
    }

    /// Adds an element to the list at a JSON pointer. In a store this is a delta.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    #[track_caller]
    pub fn push<V: Into<Value>>(
        &self,
        path: &str,
        value: V,
    ) -> impl Future<Output = Result<WriteOutcome, StateError>> + Send + use<'_, T, V> {
        self.deltas(vec![Delta::push(path, value)])
    }

    /// Sets one entry of the map at a JSON pointer. In a store this is a delta.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    #[track_caller]
    pub fn set_record<V: Into<Value>>(
        &self,
        path: &str,
        name: &str,
        value: V,
    ) -> impl Future<Output = Result<WriteOutcome, StateError>> + Send + use<'_, T, V> {
        self.deltas(vec![Delta::set(super::patch::below(path, name), value)])
    }

    /// Removes one entry of the map at a JSON pointer. Removing a missing entry changes nothing. In a store this is a delta.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    #[track_caller]
    pub fn delete_record(
        &self,
        path: &str,
        name: &str,
    ) -> impl Future<Output = Result<WriteOutcome, StateError>> + Send + use<'_, T> {
        self.deltas(vec![Delta::remove(super::patch::below(path, name))])
    }

    /// Sends deltas, all or none. In a store they are merged with the current value. No check validates the result, and only
    /// the next reader detects that it does not fit the type.
    ///
    /// # Errors
    /// As [`inc`](Self::inc).
    #[track_caller]
    pub fn deltas(
        &self,
        deltas: Vec<Delta>,
    ) -> impl Future<Output = Result<WriteOutcome, StateError>> + Send + use<'_, T> {
        let place = Location::caller();
        async move {
            if let Backing::Memory(_) = &self.0.backing {
                let merge = move |draft: &mut T| super::patch::with_deltas(draft, &deltas);
                return self.fitting(self.0.at_once(place, merge)).await;
            }
            let (asked, answered) = TypedMutator::done(|_: &mut T| Ok::<(), Infallible>(()), ());
            let work = Work::Deltas(deltas, Box::new(AtOnce(asked)));
            let answer = self.0.submit(place, work, answered).await;
            answer.map(|mutated| mutated.outcome).map_err(MutateError::state)
        }
    }

    /// Deletes the record, so that the value is the default again. In memory, the value becomes the default.
    ///
    /// # Errors
    /// [`StateError::Write`] when the store fails.
    pub async fn delete(&self) -> Result<(), StateError> {
        match &self.0.backing {
            Backing::Memory(_) => self.set(T::default()).await.map(|_| ()),
            Backing::Store(cell) => {
                let past = cell.history.as_ref().map(|history| history.delete(1)).transpose()?;
                let batch = Batch::new().delete(&cell.key, Expect::Any);
                let batch = past.into_iter().fold(batch, Batch::and);
                cell.store.apply(batch).await.map_err(|error| StateError::Write(Box::new(error)))?;
                Ok(())
            }
            Backing::Invalid(error) => Err(StateError::Read(error.clone())),
        }
    }

    /// Returns the current value, or the default when there is no record.
    ///
    /// # Errors
    /// [`StateError::Undecodable`] when the record does not decode as the type, [`StateError::Read`] when the store fails.
    pub async fn get(&self) -> Result<T, StateError> {
        Ok(self.read().await?.map_or_else(T::default, |versioned| versioned.value))
    }

    /// Returns the value with its version. `None` when there is no record.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn read(&self) -> Result<Option<Versioned<T>>, StateError> {
        let cell = match &self.0.backing {
            Backing::Memory(memory) => return Ok(Some(memory.read().await)),
            Backing::Store(cell) => cell,
            Backing::Invalid(error) => return Err(StateError::Read(error.clone())),
        };
        let Some(document) = cell.store.document(&cell.key).await? else { return Ok(None) };
        let value = cell.read(&document)?;
        Ok(Some(Versioned { version: document.version, value }))
    }

    /// Returns the versions of the value from now on, starting with the current one.
    pub fn watch(&self) -> WatchStream<T> {
        match &self.0.backing {
            Backing::Memory(memory) => WatchStream::in_memory(memory),
            Backing::Store(cell) => {
                let reader = Arc::clone(cell);
                WatchStream::stored(cell, move |document| reader.read(document))
            }
            Backing::Invalid(error) => WatchStream::invalid(error.clone()),
        }
    }

    /// Returns the last writes to the record, newest first, and only those before `before` when it is given. The list is empty
    /// when no history is kept; [`StateRegistry::with_history`](super::StateRegistry::with_history) enables one. A state in memory keeps
    /// none.
    ///
    /// # Errors
    /// As [`history`](super::history()).
    pub async fn history(
        &self,
        before: Option<StreamVersion>,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, StateError> {
        match &self.0.backing {
            Backing::Memory(_) => Ok(Vec::new()),
            Backing::Store(cell) => super::history::history(&*cell.store, &cell.key, before, limit).await,
            Backing::Invalid(error) => Err(StateError::Read(error.clone())),
        }
    }
}

impl<T: StateValue> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("name", &self.0.name())
            .field("limit", &self.0.limit)
            .finish_non_exhaustive()
    }
}
