//! Rejection of unsupported operations, and their error.

use tidelock_core::key::Key;
use tidelock_core::store::{Batch, Effect, Selection, StoreError, StoreErrorKind};

/// Returns the error for an operation on something other than a document.
pub(crate) fn unsupported(what: impl Into<String>) -> StoreError {
    let detail =
        "the files store keeps documents only: it puts, deletes, merges, guards, reads and lists them";
    StoreError::new(StoreErrorKind::Unsupported, what, detail)
}

/// Finds the first effect on something other than documents.
pub(crate) fn check(batch: &Batch) -> Result<(), StoreError> {
    batch.effects().iter().find_map(asked).map_or(Ok(()), |what| Err(unsupported(what)))
}

fn asked(effect: &Effect) -> Option<String> {
    let on = |what: &str, key: &Key| Some(format!("{what} {key}"));
    match effect {
        Effect::Put { .. } | Effect::Delete { .. } | Effect::Merge { .. } | Effect::GuardDocument { .. } => {
            None
        }
        Effect::Append { stream, .. } => on("appending events to", stream),
        Effect::Close { stream, .. } => on("closing the stream", stream),
        Effect::Truncate { stream, .. } => on("truncating the stream", stream),
        Effect::GuardStream { stream, .. } => on("guarding the stream", stream),
        Effect::Enqueue(work) => on("enqueuing the work", &work.key),
        Effect::Ack { lease } => on("acknowledging the work", &lease.key),
        Effect::Advance { lease, .. } => on("advancing the work", &lease.key),
        Effect::Defer { lease, .. } => on("deferring the work", &lease.key),
        Effect::Fail { lease, .. } => on("failing the work", &lease.key),
        Effect::Block { lease, .. } => on("blocking the work", &lease.key),
        Effect::Renew { lease, .. } => on("renewing the lease of", &lease.key),
        Effect::Release { lease } => on("releasing the lease of", &lease.key),
        Effect::GuardLease { lease } => on("guarding the lease of", &lease.key),
        Effect::GuardWork { key, .. } => on("guarding the work", key),
        Effect::Operate { selection: Selection::Keys(keys), .. } => {
            Some(format!("an operator's verb on {} work rows", keys.len()))
        }
        Effect::Operate { selection: Selection::Filter(_), .. } => {
            Some("an operator's verb on the work rows of a filter".to_owned())
        }
    }
}
