//! An aggregate by its id.

use std::fmt;
use std::marker::PhantomData;

use tidelock_core::events::{Aggregate, Events, EventsError, ExecuteError, Executed, Loaded};
use tidelock_core::id::StreamVersion;
use tidelock_core::store::{Appended, Batch};

use crate::handle::Id;

/// One aggregate, from [`Tidelock::aggregate`](crate::Tidelock::aggregate).
#[derive(Clone)]
pub struct AggregateHandle<A> {
    events: Events,
    id: Id,
    aggregate: PhantomData<fn() -> A>,
}

impl<A: Aggregate> AggregateHandle<A> {
    pub(crate) fn new(events: Events, id: Id) -> Self {
        Self { events, id, aggregate: PhantomData }
    }

    /// Executes a command, see [`Events::execute`].
    ///
    /// # Errors
    /// [`ExecuteError`], also when the id is invalid.
    pub async fn execute<E, I, F>(&self, decide: F) -> Result<Executed<A>, ExecuteError<A, E>>
    where
        F: FnMut(&A) -> Result<I, E>,
        I: IntoIterator<Item = A::Event>,
    {
        self.events.execute(self.id.clone()?, decide).await
    }

    /// Executes a command at this version only, see [`Events::execute_at`].
    ///
    /// # Errors
    /// [`ExecuteError`], also when the id is invalid.
    pub async fn execute_at<E, I, F>(
        &self,
        version: Option<StreamVersion>,
        decide: F,
    ) -> Result<Executed<A>, ExecuteError<A, E>>
    where
        F: FnMut(&A) -> Result<I, E>,
        I: IntoIterator<Item = A::Event>,
    {
        self.events.execute_at(self.id.clone()?, version, decide).await
    }

    /// Returns the batch of a command, to commit it with other changes, see [`Events::decide`].
    ///
    /// # Errors
    /// [`ExecuteError`], also when the id is invalid.
    pub async fn decide<E, I, F>(&self, decide: F) -> Result<Batch, ExecuteError<A, E>>
    where
        F: FnOnce(&A) -> Result<I, E>,
        I: IntoIterator<Item = A::Event>,
    {
        self.events.decide(self.id.clone()?, decide).await
    }

    /// Appends events that need no decision, see [`Events::append`].
    ///
    /// # Errors
    /// [`EventsError`], also when the id is invalid.
    pub async fn append(
        &self,
        events: impl IntoIterator<Item = A::Event>,
    ) -> Result<Option<Appended>, EventsError> {
        self.events.append::<A>(self.id.clone()?, events).await
    }

    /// Loads the current state, see [`Events::load`].
    ///
    /// # Errors
    /// [`EventsError`], also when the id is invalid.
    pub async fn load(&self) -> Result<Loaded<A>, EventsError> {
        self.events.load(self.id.clone()?).await
    }
}

impl<A: Aggregate> fmt::Debug for AggregateHandle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregateHandle").field("kind", &A::KIND).field("id", &self.id).finish()
    }
}
