//! Reading journals.

use super::entry::Placed;
use super::error::WorkflowError;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::store::{SharedStore, StreamQuery};

/// How many entries are read at a time.
const PAGE: usize = 1_000;

/// The entries of a journal from a version on, or all of them.
pub(super) async fn read(
    store: &SharedStore,
    journal: &Key,
    from: Option<StreamVersion>,
) -> Result<Vec<Placed>, WorkflowError> {
    let (mut entries, mut from) = (Vec::new(), from);
    loop {
        let query = StreamQuery::forward(journal, PAGE);
        let query = match from {
            Some(version) => query.from(version),
            None => query,
        };
        let page = store.read_stream(query).await?;
        from = page.events.last().map(|event| event.version.next());
        for event in &page.events {
            entries.push(Placed::of(event)?);
        }
        if page.end || from.is_none() {
            return Ok(entries);
        }
    }
}
