//! A limit on everything, the same on every backend, checked before a batch is queued.

use foldhash::{HashSet, HashSetExt as _};

use super::batch::{Batch, Effect, Missing, NewEvent};
use super::refusal::Refusal;
use crate::error::InvalidInput;
use crate::id::StreamVersion;

/// The largest payload, in bytes.
pub const PAYLOAD_BYTES: usize = 4 * 1024 * 1024;
/// The most effects in one batch.
pub const BATCH_EFFECTS: usize = 10_000;
/// The most events in one batch.
pub const BATCH_EVENTS: usize = 10_000;
/// The largest batch: the sum of its payloads, in bytes.
pub const BATCH_BYTES: usize = 64 * 1024 * 1024;
/// The most rows that one page of a read returns.
pub const PAGE_ROWS: usize = 10_000;
/// The most rows that one claim returns.
pub const CLAIM_ROWS: usize = 1_000;
/// The most rows that a filter may select for an operator's verb.
pub const OPERATE_ROWS: usize = 100_000;
/// The longest error or reason that is kept with a work row, in bytes. Longer ones are cut.
pub const ERROR_BYTES: usize = 8 * 1024;

impl Batch {
    /// The size of the batch as limits count it: the sum of its payloads, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.effects.iter().map(effect_bytes).sum()
    }

    /// Checks the batch against every limit.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] naming the first limit that is exceeded, [`Refusal::EventIdReused`] when two events of
    /// the batch have the same id.
    pub fn validate(&self) -> Result<(), Refusal> {
        let whole = "the batch";
        within("the number of effects", whole, self.effects.len(), BATCH_EFFECTS)?;
        let mut ids = HashSet::new();
        let mut bytes = 0;
        for (index, effect) in self.effects.iter().enumerate() {
            bytes += effect_bytes(effect);
            match effect {
                Effect::Append { stream, events, .. } => {
                    for event in events {
                        payload(&stream, &event.payload)?;
                        payload(&stream, &event.meta)?;
                        if !ids.insert(event.id) {
                            return Err(twice(index, event, stream));
                        }
                    }
                }
                Effect::Put { key, value, .. } => payload(key, value)?,
                Effect::Merge { key, missing: Missing::Create(initial), .. } => payload(key, initial)?,
                Effect::Enqueue(work) => {
                    if let Some(value) = &work.payload {
                        payload(&work.key, value)?;
                    }
                }
                _ => {}
            }
        }
        within("the number of events", whole, ids.len(), BATCH_EVENTS)?;
        within("the size in bytes", whole, bytes, BATCH_BYTES)?;
        Ok(())
    }
}

fn twice(index: usize, event: &NewEvent, stream: &crate::key::Key) -> Refusal {
    let (id, stream) = (event.id, stream.clone());
    let reason = "two events of this batch have it";
    Refusal::EventIdReused { index, id, stream, version: StreamVersion(0), reason }
}

fn effect_bytes(effect: &Effect) -> usize {
    match effect {
        Effect::Append { events, .. } => events.iter().map(|e| e.payload.len() + e.meta.len()).sum(),
        Effect::Put { value, .. } => value.len(),
        Effect::Enqueue(work) => work.payload.as_ref().map_or(0, crate::payload::Payload::len),
        Effect::Merge { missing: Missing::Create(initial), .. } => initial.len(),
        _ => 0,
    }
}

fn payload(subject: &impl std::fmt::Display, value: &crate::payload::Payload) -> Result<(), InvalidInput> {
    within("the payload length in bytes", subject, value.len(), PAYLOAD_BYTES)
}

/// Refuses an amount above its limit.
///
/// # Errors
/// [`InvalidInput::Limit`] naming what was measured, what was found and the limit.
pub fn within(
    what: &'static str,
    subject: &(impl std::fmt::Display + ?Sized),
    found: usize,
    limit: usize,
) -> Result<(), InvalidInput> {
    if found <= limit {
        return Ok(());
    }
    Err(InvalidInput::Limit { what, subject: subject.to_string(), found, limit })
}
