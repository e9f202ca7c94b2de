//! Document with a schema, changed by transactions.

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
use super::watch::WatchStream;
use super::{Mutated, Versioned};
use crate::payload::Payload;
use crate::store::{Batch, Expect};

/// A type that can be stored in a document: any serde type that serialises as a JSON object.
pub trait Record: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Record for T {}

/// A document with a schema, changed by transactions that run one after another. Clones share it.
///
/// An old document is migrated to the current schema when it is read, and stored that way with the next write. A document of a
/// newer schema is rejected. Unchanged content is not written. The same content always has the same text, because fields are
/// sorted.
///
/// ```
/// # use std::sync::Arc;
/// # use serde::{Deserialize, Serialize};
/// # use tidelock_core::{key::Key, state::{Document, Schema, StateRegistry}, store::MemoryStore};
/// #[derive(Clone, Default, Serialize, Deserialize)]
/// struct Settings {
///     colour: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let states = StateRegistry::new(Arc::new(MemoryStore::new()));
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

    /// Sets the timeout of transactions, including the time in the queue. `None` means no timeout.
    #[must_use]
    pub fn limit(mut self, limit: Option<Duration>) -> Self {
        self.turns.limit = limit;
        self
    }

    /// Reads the document and replaces it atomically. Without [`Transaction::set`] or [`Transaction::delete`], nothing is
    /// written. The callback may run again when another writer was faster. The result is that of the committed run.
    ///
    /// # Errors
    /// [`MutateError::Refused`] with the callback's error, or [`MutateError::State`]. Nothing was written, unless the stage is
    /// [`Stage::Unknown`](super::Stage::Unknown). A transaction inside another of the same document is
    /// [`StateError::Reentrant`].
    ///
    /// # Panics
    /// When the callback panics. Nothing was written.
    ///
    /// # Cancel safety
    /// If the future is dropped before the callback ran, the callback never runs. If it is dropped later, the new value may
    /// still be written.
    ///
    /// # Crash safety
    /// An acknowledged transaction is as durable as the store. An unacknowledged one was written completely or not at all.
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

    /// Like [`transaction`](Self::transaction), with an async callback that gets the transaction and returns it with a result.
    /// Other transactions wait until it ends. The callback's future runs on a Tokio runtime of the library, with timers and
    /// I/O. It must not block its thread.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction). A callback that exceeds the timeout is dropped.
    ///
    /// # Panics
    /// When the callback panics. Nothing was written.
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

    /// Returns the document in the current schema. `None` when there is none.
    ///
    /// # Errors
    /// [`StateError::Undecodable`] or [`StateError::NewerSchema`] when it does not decode, [`StateError::Read`] when the store
    /// fails.
    pub async fn read(&self) -> Result<Option<Versioned<Arc<T>>>, StateError> {
        let Some(document) = self.cell.store.document(&self.cell.key).await? else { return Ok(None) };
        let value = self.cell.read(&document)?.value;
        Ok(value.map(|value| Versioned { version: document.version, value }))
    }

    /// Returns the versions of the document from now on.
    pub fn watch(&self) -> WatchStream<Arc<T>> {
        let cell = Arc::clone(&self.cell);
        WatchStream::stored(&self.cell, move |document| {
            // A document that decodes has a value.
            cell.read(document)?.value.ok_or_else(|| StateError::NotFound { key: cell.name() })
        })
    }

    /// Checks in advance that the document can be read and that the store accepts writes. Nothing is written.
    ///
    /// # Errors
    /// [`StateError::Read`] or [`StateError::Write`] with a [`StoreError`](crate::store::StoreError). Its kind says whether the
    /// store is missing, locked, read-only, damaged or unreachable. As [`read`](Self::read) when the document does not decode.
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

/// A transaction on a document.
#[derive(Debug)]
pub struct Transaction<T> {
    existing: Option<Arc<T>>,
    migrated: bool,
    /// The new value. The inner `None` deletes the document.
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

    /// Returns the document as it was when the transaction began, in the current schema. `None` when there was none.
    #[must_use]
    pub fn existing(&self) -> Option<&T> {
        self.existing.as_deref()
    }

    /// Returns whether the document is stored in an older schema. The next write migrates it.
    #[must_use]
    pub fn is_migrated(&self) -> bool {
        self.migrated
    }

    /// Returns the value that was set, if any.
    #[must_use]
    pub fn new_value(&self) -> Option<&T> {
        self.new.as_ref()?.as_ref()
    }

    /// Returns the value that was set, else the existing document, else the default. After [`delete`](Self::delete) it is the
    /// default.
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

    /// Sets the document. It is written when the transaction ends, and the last call counts.
    pub fn set(&mut self, value: T) {
        self.new = Some(Some(value));
    }

    /// Deletes the document when the transaction ends. A later [`set`](Self::set) replaces the deletion.
    pub fn delete(&mut self) {
        self.new = Some(None);
    }
}

/// A document under edit.
#[derive(Debug)]
pub(super) struct Draft<T> {
    value: Option<Arc<T>>,
    /// Whether a transaction has set it.
    set: bool,
    /// Whether it was found in an older schema.
    migrated: bool,
}

impl<T> Clone for Draft<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), set: self.set, migrated: self.migrated }
    }
}

/// A codec for documents with a schema.
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

    /// Encodes by way of a JSON value, whose fields are sorted regardless of the type's maps.
    fn write(&self, draft: &Draft<T>) -> Result<Content, String> {
        let value = match &draft.value {
            _ if !draft.set => return Ok(Content::AsFound),
            None => return Ok(Content::Gone),
            Some(value) => value,
        };
        let document = serde_json::to_value(value.as_ref()).map_err(|error| error.to_string())?;
        Payload::of(&self.schema.mark(document)?).map(Content::Is).map_err(|error| error.to_string())
    }

    fn mark_written(&self, draft: &mut Draft<T>) {
        draft.set = false;
    }
}
