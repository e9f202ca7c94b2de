//! A document with a schema, changed by transactions.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{Codec, Content, Misread};
use super::combiner::Combiner;
use super::error::{MutateError, StateError};
use super::schema::Schema;
use super::submit::Turns;
use super::watch::Versions;
use super::{Mutated, Versioned};
use crate::payload::Payload;
use crate::store::{Batch, Expect};

/// What can be kept in a document: any serde type that is written as a JSON object.
pub trait Record: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Record for T {}

/// A document with a schema, changed by transactions that run one after another. Clones share it.
///
/// An old document is brought to the present schema when it is read, and written that way with the next write; one of a newer
/// schema is refused. Content that did not change is not written. The text is the same for the same content: fields are in
/// order.
///
/// ```
/// # use std::sync::Arc;
/// # use serde::{Deserialize, Serialize};
/// # use tidelock_core::{key::Key, state::{Document, Schema, States}, store::MemoryStore};
/// #[derive(Clone, Default, Serialize, Deserialize)]
/// struct Settings {
///     colour: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let states = States::new(Arc::new(MemoryStore::new()));
/// let settings: Document<Settings> = states.document(&Key::single("settings")?, Schema::new());
/// let colour = settings.transaction(|tx| {
///     let mut settings = tx.current();
///     settings.colour = "blue".to_owned();
///     tx.set(settings);
///     Ok::<_, String>("blue")
/// });
/// assert_eq!(colour.await?.result, "blue");
/// # Ok(())
/// # }
/// ```
pub struct Document<T: Record> {
    turns: Turns<Draft<T>>,
    cell: Arc<Combiner<Draft<T>>>,
}

impl<T: Record> Clone for Document<T> {
    fn clone(&self) -> Self {
        Self { turns: self.turns.clone(), cell: Arc::clone(&self.cell) }
    }
}

impl<T: Record> Document<T> {
    pub(super) fn stored(cell: Arc<Combiner<Draft<T>>>) -> Self {
        Self { turns: Turns::stored(Arc::clone(&cell)), cell }
    }

    /// The same document, whose transactions take at most so long, waiting included; `None` for no limit.
    #[must_use]
    pub fn limit(mut self, limit: Option<Duration>) -> Self {
        self.turns.limit = limit;
        self
    }

    /// Reads the document and sets it anew, as one step. Without [`Transaction::set`], nothing is written. The callback may run
    /// again when somebody else was faster; the result is that of the run that was committed.
    ///
    /// # Errors
    /// [`MutateError::Refused`] with the callback's error, or [`MutateError::State`]; nothing was written, unless
    /// [`Stage::Unknown`](super::Stage::Unknown) says that nobody knows. A transaction inside another of the same document is
    /// [`StateError::Reentrant`].
    ///
    /// # Panics
    /// When the callback does; nothing was written.
    ///
    /// # Cancel safety
    /// Dropped before its callback ran, it never runs. Dropped later, what it set may still be written.
    ///
    /// # Crash safety
    /// An acknowledged transaction is as durable as the store; one that was not acknowledged was written whole, or not at all.
    #[track_caller]
    pub fn transaction<R, E, F>(
        &self,
        mut callback: F,
    ) -> impl Future<Output = Result<Mutated<R>, MutateError<E>>> + Send
    where
        F: FnMut(&mut Transaction<T>) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let run = move |draft: &mut Draft<T>| {
            let mut transaction = Transaction::on(draft);
            let result = callback(&mut transaction)?;
            transaction.finish(draft);
            Ok(result)
        };
        self.turns.at_once(Location::caller(), run)
    }

    /// The same with a callback that takes a while: it gets the transaction and gives it back with a result. Others wait
    /// meanwhile. The callback's future runs on a Tokio runtime of the library, with timers and I/O; it must not block its
    /// thread.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction). A callback that takes longer than the limit is dropped.
    ///
    /// # Panics
    /// When the callback does; nothing was written.
    ///
    /// # Cancel safety
    /// As [`transaction`](Self::transaction).
    #[track_caller]
    pub fn transaction_async<R, E, F, Fut>(
        &self,
        mut callback: F,
    ) -> impl Future<Output = Result<Mutated<R>, MutateError<E>>> + Send
    where
        F: FnMut(Transaction<T>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(Transaction<T>, R), E>> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let run = move |mut draft: Draft<T>| {
            let running = callback(Transaction::on(&draft));
            async move {
                let (transaction, result) = running.await?;
                transaction.finish(&mut draft);
                Ok((draft, result))
            }
        };
        self.turns.in_time(Location::caller(), run)
    }

    /// The document as it is now, in the present schema; `None` when there is none.
    ///
    /// # Errors
    /// [`StateError::Undecodable`] or [`StateError::NewerSchema`] when it does not read, [`StateError::Read`] when the store
    /// fails.
    pub async fn read(&self) -> Result<Option<Versioned<Arc<T>>>, StateError> {
        let Some(document) = self.cell.store.document(&self.cell.key).await? else { return Ok(None) };
        let value = self.cell.read(&document)?.value;
        Ok(value.map(|value| Versioned { version: document.version, value }))
    }

    /// The versions of the document from now on.
    pub fn watch(&self) -> Versions<Arc<T>> {
        let cell = Arc::clone(&self.cell);
        Versions::stored(&self.cell, move |document| {
            // A document that reads has a value.
            cell.read(document)?.value.ok_or_else(|| StateError::NotFound { container: cell.name() })
        })
    }

    /// Makes sure, before the work begins, that the document can be read and that the store takes writes. Nothing is written.
    ///
    /// # Errors
    /// [`StateError::Read`] or [`StateError::Write`] with a [`StoreError`](crate::store::StoreError) whose kind says whether
    /// the store is missing, locked, read-only, damaged or out of reach; as [`read`](Self::read) when the document does not
    /// read.
    pub async fn ensure_accessible(&self) -> Result<(), StateError> {
        self.cell.store.info().await?;
        self.read().await?;
        let nothing = Batch::new().guard_document(&self.cell.key, Expect::Any);
        self.cell.store.apply(nothing).await.map_err(|error| StateError::Write(Box::new(error)))?;
        Ok(())
    }
}

impl<T: Record> fmt::Debug for Document<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("key", &self.cell.key)
            .field("limit", &self.turns.limit)
            .finish_non_exhaustive()
    }
}

/// A document that is being read and set anew.
#[derive(Debug)]
pub struct Transaction<T> {
    existing: Option<Arc<T>>,
    migrated: bool,
    /// What was set: a value, or that there is none.
    new: Option<Option<T>>,
}

impl<T> Transaction<T> {
    fn on(draft: &Draft<T>) -> Self {
        Self { existing: draft.value.clone(), migrated: draft.migrated, new: None }
    }

    fn finish(self, draft: &mut Draft<T>) {
        if let Some(new) = self.new {
            *draft = Draft { value: new.map(Arc::new), set: true, migrated: false };
        }
    }

    /// The document as it was when the transaction began, in the present schema; `None` when there was none.
    #[must_use]
    pub fn existing(&self) -> Option<&T> {
        self.existing.as_deref()
    }

    /// Whether the document is kept in an older schema: the next write brings it up to date.
    #[must_use]
    pub fn is_migrated(&self) -> bool {
        self.migrated
    }

    /// What was set, if anything was.
    #[must_use]
    pub fn new_value(&self) -> Option<&T> {
        self.new.as_ref()?.as_ref()
    }

    /// What was set; else the document as it was; else a fresh one, also after [`delete`](Self::delete).
    #[must_use]
    pub fn current(&self) -> T
    where
        T: Clone + Default,
    {
        match &self.new {
            Some(new) => new.clone(),
            None => self.existing().cloned(),
        }
        .unwrap_or_default()
    }

    /// Sets the document, to be written when the transaction ends. The last call counts.
    pub fn set(&mut self, value: T) {
        self.new = Some(Some(value));
    }

    /// Deletes the document when the transaction ends. A later [`set`](Self::set) takes its place.
    pub fn delete(&mut self) {
        self.new = Some(None);
    }
}

/// A document in the making.
#[derive(Debug)]
pub(super) struct Draft<T> {
    value: Option<Arc<T>>,
    /// Whether somebody set it.
    set: bool,
    /// Whether it was found in an older schema.
    migrated: bool,
}

impl<T> Clone for Draft<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), set: self.set, migrated: self.migrated }
    }
}

/// A document with its schema.
pub(super) struct WithSchema<T> {
    schema: Schema,
    kept: PhantomData<fn() -> T>,
}

impl<T> WithSchema<T> {
    pub(super) fn new(schema: Schema) -> Self {
        Self { schema, kept: PhantomData }
    }
}

impl<T: Record> Codec<Draft<T>> for WithSchema<T> {
    fn absent(&self) -> Draft<T> {
        Draft { value: None, set: false, migrated: false }
    }

    fn read(&self, value: &Payload) -> Result<Draft<T>, Misread> {
        let misfit = |error: &dyn fmt::Display| Misread::Misfit(error.to_string());
        let found: serde_json::Value = value.parse().map_err(|error| misfit(&error))?;
        let (version, upgraded) = self.schema.upgrade(found)?;
        let value = T::deserialize(upgraded).map_err(|error| misfit(&error))?;
        let migrated = version != self.schema.version();
        Ok(Draft { value: Some(Arc::new(value)), set: false, migrated })
    }

    /// By way of a JSON value, whose fields are in order whatever the type's maps do.
    fn write(&self, draft: &Draft<T>) -> Result<Content, String> {
        let value = match &draft.value {
            _ if !draft.set => return Ok(Content::AsFound),
            None => return Ok(Content::Gone),
            Some(value) => value,
        };
        let document = serde_json::to_value(value.as_ref()).map_err(|error| error.to_string())?;
        Payload::of(&self.schema.mark(document)?).map(Content::Is).map_err(|error| error.to_string())
    }

    fn settle(&self, draft: &mut Draft<T>) {
        draft.set = false;
    }
}
