//! How many runs of a queue with a rate may begin now: all processes share one document.

use serde::{Deserialize, Serialize};

use super::error::WorkflowError;
use super::names;
use crate::clock::Timestamp;
use crate::model::rate::{Rate, Taken};
use crate::payload::Payload;
use crate::random::spread;
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

/// How many of `wanted` runs may begin, and when the next one may. What is granted and not used is lost: rather too slow than too fast.
pub(super) async fn take(
    store: &SharedStore,
    queue: &str,
    rate: Rate,
    wanted: u32,
) -> Result<Taken, WorkflowError> {
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
            return Ok(taken);
        }
        let value = Payload::of(&Even { even: taken.even })?;
        attempt += 1;
        match store.apply(Batch::new().put(&key, expect, value)).await {
            Ok(_) => return Ok(taken),
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => {
                if attempt >= ATTEMPTS {
                    // Others are faster: what they took is what there was.
                    return Ok(Taken {
                        granted: 0,
                        next_at: now.after(spread(rate.apart(), 0.5..1.0)),
                        ..taken
                    });
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
