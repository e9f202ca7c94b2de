//! Rate limit of a queue across all processes: one document records when the next run would begin at an even rate.

use serde::{Deserialize, Serialize};

use super::error::WorkflowError;
use super::keys;
use crate::clock::Timestamp;
use crate::id::DocVersion;
use crate::model::rate::{Rate, Taken};
use crate::payload::Payload;
use crate::runtime::jitter::spread;
use crate::store::{ApplyError, Batch, Expect, Refusal, SharedStore};

/// The number of attempts to write the document before this process leaves the rate to others.
const ATTEMPTS: u32 = 8;

/// The value of the document.
#[derive(Debug, Serialize, Deserialize)]
struct Even {
    even: Timestamp,
}

/// The rate of a queue, as last read.
#[derive(Debug)]
pub(super) struct RateState {
    even: Option<Timestamp>,
    expect: Expect<DocVersion>,
}

impl RateState {
    /// Reads the state from the store.
    pub(super) async fn read(store: &SharedStore, queue: &str) -> Result<Self, WorkflowError> {
        Ok(match store.document(&keys::rate(queue)?).await? {
            Some(document) => {
                let even = Some(document.value.parse::<Even>()?.even);
                Self { even, expect: Expect::Exact(document.version) }
            }
            None => Self { even: None, expect: Expect::Absent },
        })
    }

    /// Returns until when no run may begin, or `None` when one may begin now.
    pub(super) fn closed_until(&self, rate: Rate, now: Timestamp) -> Option<Timestamp> {
        let taken = rate.take(self.even, now, 1);
        (taken.granted == 0).then_some(taken.next_at)
    }

    /// Takes permission for up to `wanted` runs. When another process was faster, the state is read again.
    pub(super) async fn take(
        mut self,
        store: &SharedStore,
        queue: &str,
        rate: Rate,
        (wanted, now): (u32, Timestamp),
    ) -> Result<Share, WorkflowError> {
        let key = keys::rate(queue)?;
        for _ in 0..ATTEMPTS {
            let taken = rate.take(self.even, now, wanted);
            if taken.granted == 0 {
                return Ok(Share { taken, version: None });
            }
            let value = Payload::of(&Even { even: taken.even })?;
            match store.apply(Batch::new().put(&key, self.expect, value)).await {
                Ok(receipt) => {
                    let version = receipt.documents.first().map(|written| written.version);
                    return Ok(Share { taken, version });
                }
                Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => {
                    self = Self::read(store, queue).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let next_at = now.after(spread(rate.apart(), 0.5..1.0));
        Ok(Share { taken: Taken { granted: 0, even: now, next_at }, version: None })
    }
}

/// Permission that was taken from a rate.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) taken: Taken,
    /// The version of the document that recorded it, if anything was taken.
    version: Option<DocVersion>,
}

impl Share {
    /// Gives back unused permission, unless another process has taken permission since. It is lost then, as it is when this
    /// process dies before: a queue is rather too slow than too fast.
    pub(super) async fn give_back(
        &self,
        store: &SharedStore,
        queue: &str,
        rate: Rate,
        unused: u32,
    ) -> Result<(), WorkflowError> {
        let Some(version) = self.version.filter(|_| unused > 0) else { return Ok(()) };
        let value = Payload::of(&Even { even: rate.given_back(&self.taken, unused) })?;
        match store.apply(Batch::new().put(&keys::rate(queue)?, Expect::Exact(version), value)).await {
            Ok(_) => Ok(()),
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
