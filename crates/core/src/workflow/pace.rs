//! How many runs of a queue with a rate may begin now: all processes share one document.

use serde::{Deserialize, Serialize};

use super::error::WorkflowError;
use super::names;
use crate::clock::Timestamp;
use crate::id::DocVersion;
use crate::model::rate::{Rate, Taken};
use crate::payload::Payload;
use crate::runtime::jitter::spread;
use crate::store::{ApplyError, Batch, Expect, Refusal, SharedStore};

/// How often it is tried to be the one who writes it.
const ATTEMPTS: u32 = 8;

/// What is remembered.
#[derive(Debug, Serialize, Deserialize)]
struct Even {
    even: Timestamp,
}

/// Until when no run may begin; `None` when one may now. Nothing is written.
pub(super) async fn closed_until(
    store: &SharedStore,
    queue: &str,
    rate: Rate,
) -> Result<Option<Timestamp>, WorkflowError> {
    let (found, now) = (store.document(&names::rate(queue)?).await?, store.now().await?);
    let so_far = found.map(|document| document.value.parse::<Even>()).transpose()?;
    let taken = rate.take(so_far.map(|so_far| so_far.even), now, 1);
    Ok((taken.granted == 0).then_some(taken.next_at))
}

/// What was taken of a rate.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) taken: Taken,
    /// The document as it was then; nothing when nothing was taken.
    version: Option<DocVersion>,
}

/// Gives back what was granted and not used, unless others have taken of the rate since: then it is lost, as it is when the process ends
/// before this. Rather too slow than too fast.
pub(super) async fn give_back(
    store: &SharedStore,
    queue: &str,
    rate: Rate,
    share: &Share,
    unused: u32,
) -> Result<(), WorkflowError> {
    let Some(version) = share.version.filter(|_| unused > 0) else { return Ok(()) };
    let value = Payload::of(&Even { even: rate.given_back(&share.taken, unused) })?;
    match store.apply(Batch::new().put(&names::rate(queue)?, Expect::Exact(version), value)).await {
        Ok(_) => Ok(()),
        Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How many of `wanted` runs may begin, and when the next one may.
pub(super) async fn take(
    store: &SharedStore,
    queue: &str,
    rate: Rate,
    wanted: u32,
) -> Result<Share, WorkflowError> {
    let key = names::rate(queue)?;
    let mut attempt = 0;
    loop {
        let (found, now) = (store.document(&key).await?, store.now().await?);
        let (so_far, expect) = match &found {
            Some(document) => (Some(document.value.parse::<Even>()?.even), Expect::Exact(document.version)),
            None => (None, Expect::Absent),
        };
        let taken = rate.take(so_far, now, wanted);
        if taken.granted == 0 {
            return Ok(Share { taken, version: None });
        }
        let value = Payload::of(&Even { even: taken.even })?;
        attempt += 1;
        match store.apply(Batch::new().put(&key, expect, value)).await {
            Ok(receipt) => {
                let version = receipt.documents.first().map(|written| written.version);
                return Ok(Share { taken, version });
            }
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => {
                if attempt >= ATTEMPTS {
                    // Others are faster: what they took is what there was.
                    let next_at = now.after(spread(rate.apart(), 0.5..1.0));
                    return Ok(Share { taken: Taken { granted: 0, next_at, ..taken }, version: None });
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
