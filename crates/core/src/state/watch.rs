//! A record's versions, as they come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Versioned;
use super::codec::Value;
use super::combiner::Combiner;
use super::error::StateError;
use super::memory::Memory;
use crate::id::{DocVersion, Epoch};
use crate::key::Key;
use crate::runtime::timer::sleep_until;
use crate::store::{Document, SharedStore, Watch};

/// How long a change may go unnoticed when the store's hint of it was missed.
const LOOK_AFTER: Duration = Duration::from_secs(1);

type Reads<T> = Box<dyn Fn(&Document) -> Result<T, StateError> + Send + Sync>;

/// The versions of a record: first the one that is there, then each newer one that is found. Versions that follow each other
/// faster than they are taken are passed over; the newest never is.
#[must_use = "it does nothing unless it is asked for the next version"]
pub struct Versions<T> {
    source: Source<T>,
    /// `None` before the first; then the version, if there was a record, and the epoch that it belongs to.
    seen: Option<(Epoch, Option<DocVersion>)>,
}

enum Source<T> {
    Memory { memory: Arc<Memory<T>>, changed: tokio::sync::watch::Receiver<DocVersion> },
    Store { store: SharedStore, key: Key, hints: Watch, read: Reads<T> },
}

/// The versions of a record whatever its type, from now on, beginning with the present one.
pub fn versions(store: &SharedStore, record: &Key) -> Versions<Document> {
    Versions::of(Arc::clone(store), record.clone(), Box::new(|document| Ok(document.clone())))
}

impl<T: Clone + Send + Sync + 'static> Versions<T> {
    pub(super) fn in_memory(memory: &Arc<Memory<T>>) -> Self {
        let source = Source::Memory { memory: Arc::clone(memory), changed: memory.changes() };
        Self { source, seen: None }
    }

    pub(super) fn stored<D: Value>(
        cell: &Combiner<D>,
        read: impl Fn(&Document) -> Result<T, StateError> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Arc::clone(&cell.store), cell.key.clone(), Box::new(read))
    }

    fn of(store: SharedStore, key: Key, read: Reads<T>) -> Self {
        let hints = store.watch();
        Self { source: Source::Store { store, key, hints, read }, seen: None }
    }

    /// The next version; `None` when there is no record, or no longer.
    ///
    /// # Errors
    /// [`StateError`] when the record cannot be read. The next call looks again, and a version that does not read is told
    /// once.
    ///
    /// # Cancel safety
    /// Cancel-safe: what was not returned comes with the next call.
    pub async fn next(&mut self) -> Result<Option<Versioned<T>>, StateError> {
        loop {
            match &mut self.source {
                Source::Memory { memory, changed } => {
                    let now = memory.read().await;
                    let seen = Some((Epoch(0), Some(now.version)));
                    if self.seen != seen {
                        self.seen = seen;
                        return Ok(Some(now));
                    }
                    // The sender lives as long as the memory that is held here.
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
                        _ = hints.changed() => {}
                        () = sleep_until(Instant::now() + LOOK_AFTER) => {}
                    }
                }
            }
        }
    }
}

impl<T> std::fmt::Debug for Versions<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").field("seen", &self.seen).finish_non_exhaustive()
    }
}
