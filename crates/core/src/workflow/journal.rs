//! Journal reads, in pages.

use super::error::WorkflowError;
use super::journal_entry::Placed;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::store::{Event, SharedStore, StoreError, StreamQuery};

/// The number of entries that are read at a time.
const PAGE: usize = 1_000;

/// Reads the entries of a journal from a version on, or all of them.
pub(super) async fn read(
    store: &SharedStore,
    journal: &Key,
    from: Option<StreamVersion>,
) -> Result<Vec<Placed>, WorkflowError> {
    let events = events(store, journal, from).await?;
    Ok(events.iter().map(Placed::of).collect::<Result<_, _>>()?)
}

/// Reads the same entries as undecoded events.
pub(super) async fn events(
    store: &SharedStore,
    journal: &Key,
    mut from: Option<StreamVersion>,
) -> Result<Vec<Event>, StoreError> {
    let mut events = Vec::new();
    loop {
        let query = StreamQuery::forward(journal, PAGE);
        let query = match from {
            Some(version) => query.from(version),
            None => query,
        };
        let page = store.read_stream(query).await?;
        from = page.events.last().map(|event| event.version.next());
        events.extend(page.events);
        if page.end || from.is_none() {
            return Ok(events);
        }
    }
}
