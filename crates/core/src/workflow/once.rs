//! Idempotent operations: applied once across all processes, with their effects in the store.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::WorkflowError;
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, DocumentFound, Expect, Refusal, SharedStore};

/// The kind of the documents that record completed operations.
const ONCE: &str = "tidelock.once";

/// Executes an operation once under a key, across all processes and without expiry. One commit applies the effects of the code
/// and records its result. A later caller, or a concurrent caller that loses the race, gets the result of the first one.
///
/// The code itself may run more than once; its effects are applied once. Effects outside the store belong in a step.
///
/// # Errors
/// [`WorkflowError`] when the code fails, or the store rejects the effects or fails. Nothing was applied then, unless the error
/// reports an unknown outcome; another call resolves that.
///
/// # Cancel safety
/// A dropped call was applied or not; another call resolves that.
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

/// Deletes the record of an operation, so that it can be executed again. Returns whether there was one.
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
