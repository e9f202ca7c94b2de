//! Something that happens once over all processes, with its effects in the store.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::WorkflowError;
use super::failure::Failure;
use crate::error::InvalidInput;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, DocumentFound, Expect, Refusal, SharedStore};

/// The kind of the documents that say what was done.
const ONCE: &str = "tidelock.once";

/// Does something once under a key, over all processes and for ever: the effects that the code brings are applied together with
/// the note that they were. Whoever comes later, or at the same time and loses, is told what the first one brought.
///
/// The code itself may run more than once; its effects are applied once. Effects outside of the store belong into a step.
///
/// # Errors
/// [`WorkflowError`] when the code fails, or the store refuses the effects or fails. Nothing was done then, unless the error says
/// that it is unknown; asking again resolves that.
///
/// # Cancel safety
/// Dropped, it was done or not; asking again tells.
pub async fn once<T, F>(store: &SharedStore, key: &str, code: F) -> Result<T, WorkflowError>
where
    T: Serialize + DeserializeOwned,
    F: AsyncFnOnce() -> Result<(Batch, T), Failure>,
{
    let note = Key::new(ONCE, [key])?;
    if let Some(done) = store.document(&note).await? {
        return Ok(done.value.parse()?);
    }
    let failed = |failure| WorkflowError::Failed { run: key.to_owned(), failure };
    let (effects, value) = code().await.map_err(failed)?;
    let value = Payload::of(&value)?;
    let batch = Batch::new().put(&note, Expect::Absent, value.clone()).and(effects);
    match store.apply(batch).await {
        Ok(_) => Ok(value.parse()?),
        Err(error) => {
            if let Some(Refusal::Document { key, found, .. }) = error.refusal()
                && *key == note
                && let DocumentFound::Present(done) = &**found
            {
                return Ok(done.value.parse::<T>()?);
            }
            Err(error.into())
        }
    }
}

/// Forgets that something was done, so that it can be done again. Answers whether it was.
///
/// # Errors
/// [`WorkflowError`] when the store fails.
pub async fn forget_once(store: &SharedStore, key: &str) -> Result<bool, WorkflowError> {
    let note: Result<Key, InvalidInput> = Key::new(ONCE, [key]);
    let note = note?;
    let known = store.document(&note).await?.is_some();
    store.apply(Batch::new().delete(&note, Expect::Any)).await?;
    Ok(known)
}
