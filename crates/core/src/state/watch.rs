//! Change stream of a record's versions.

use std::sync::Arc;
use std::time::Duration;

use super::Versioned;
use super::codec::Value;
use super::combiner::Combiner;
use super::error::StateError;
use super::memory::Memory;
use crate::id::{DocVersion, Epoch};
use crate::key::Key;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{SharedStore, StoreError, StoredDocument, Watch};

/// The maximum time until a change is noticed when the store's hint was missed.
const LOOK_AFTER: Duration = Duration::from_secs(1);

type Reads<T> = Box<dyn Fn(&StoredDocument) -> Result<T, StateError> + Send + Sync>;

/// A stream of the versions of a record: the current one, then each newer one that is found. Versions that follow each other
/// faster than the reader takes them are skipped, but never the newest.
#[must_use = "it does nothing unless it is asked for the next version"]
pub struct WatchStream<T> {
    source: Source<T>,
    /// `None` before the first version. Then the version, if there was a record, and its epoch.
    seen: Option<(Epoch, Option<DocVersion>)>,
}

enum Source<T> {
    Memory { memory: Arc<Memory<T>>, changed: tokio::sync::watch::Receiver<DocVersion> },
    Store { store: SharedStore, key: Key, hints: Watch, read: Reads<T> },
    Invalid(StoreError),
}

/// Returns the versions of a record regardless of its type, from now on, starting with the current one.
pub fn versions(store: &SharedStore, record: &Key) -> WatchStream<StoredDocument> {
    WatchStream::of(Arc::clone(store), record.clone(), Box::new(|document| Ok(document.clone())))
}

impl<T: Clone + Send + Sync + 'static> WatchStream<T> {
    pub(super) fn in_memory(memory: &Arc<Memory<T>>) -> Self {
        let source = Source::Memory { memory: Arc::clone(memory), changed: memory.changes() };
        Self { source, seen: None }
    }

    pub(super) fn stored<D: Value>(
        cell: &Combiner<D>,
        read: impl Fn(&StoredDocument) -> Result<T, StateError> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Arc::clone(&cell.store), cell.key.clone(), Box::new(read))
    }

    pub(super) fn invalid(error: StoreError) -> Self {
        Self { source: Source::Invalid(error), seen: None }
    }

    fn of(store: SharedStore, key: Key, read: Reads<T>) -> Self {
        let hints = store.watch();
        Self { source: Source::Store { store, key, hints, read }, seen: None }
    }

    /// Returns the next version. `None` when the record does not exist or was deleted.
    ///
    /// # Errors
    /// [`StateError`] when the record cannot be read. The next call reads again. A version that does not decode is reported
    /// once.
    ///
    /// # Cancel safety
    /// Cancel safe: a version that was not returned comes with the next call.
    pub async fn next(&mut self) -> Result<Option<Versioned<T>>, StateError> {
        loop {
            match &mut self.source {
                Source::Invalid(error) => return Err(StateError::Read(error.clone())),
                Source::Memory { memory, changed } => {
                    let now = memory.read().await;
                    let seen = Some((Epoch(0), Some(now.version)));
                    if self.seen != seen {
                        self.seen = seen;
                        return Ok(Some(now));
                    }
                    // The sender lives as long as the memory value that `memory` holds.
                    let _ = changed.changed().await;
                }
                Source::Store { store, key, hints, read } => {
                    let epoch = store.epoch();
                    let document = store.document(key).await?;
                    let version = document.as_ref().map(|document| document.version);
                    let seen = Some((epoch, version));
                    if self.seen != seen {
                        self.seen = seen;
                        let Some(document) = document else { return Ok(None) };
                        let value = read(&document)?;
                        return Ok(Some(Versioned { version: document.version, value }));
                    }
                    tokio::select! {
                        biased;
                        _ = hints.changed() => {}
                        () = sleep_until(process::now() + LOOK_AFTER) => {}
                    }
                }
            }
        }
    }
}

impl<T> std::fmt::Debug for WatchStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").field("seen", &self.seen).finish_non_exhaustive()
    }
}
