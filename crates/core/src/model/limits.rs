//! Limits on all inputs, the same on every backend, checked before a batch is queued.

use foldhash::{HashSet, HashSetExt as _};

use super::batch::{Batch, Effect, Missing, NewEvent, Selection};
use super::delta::Delta;
use super::json_size::Measure;
use super::refusal::Refusal;
use crate::error::InvalidInput;
use crate::id::{Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// The maximum size of a payload, in bytes.
pub const PAYLOAD_BYTES: usize = 4 * 1024 * 1024;
/// The maximum nesting depth of arrays and objects in a payload. Parsers work by recursion, including those of databases.
pub const PAYLOAD_DEPTH: usize = 500;
/// The maximum number of effects in one batch.
pub const BATCH_EFFECTS: usize = 10_000;
/// The maximum number of events in one batch.
pub const BATCH_EVENTS: usize = 10_000;
/// The maximum size of a batch: the sum of its payloads and deltas, in bytes.
pub const BATCH_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of rows in one page of a read.
pub const PAGE_ROWS: usize = 10_000;
/// The approximate maximum of payload bytes in one page of a read. A page ends with the row that reaches it.
pub const PAGE_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of rows in one read of single rows.
pub const READ_ROWS: usize = 100;
/// The maximum number of rows that one claim returns.
pub const CLAIM_ROWS: usize = 1_000;
/// The maximum number of events in all grants of one claim together: its rows times its events per grant.
pub const CLAIM_EVENTS: usize = 10_000;
/// The approximate maximum of event bytes in all grants of one claim together, shared evenly between them. A grant ends with
/// the event that reaches its share, and carries at least one event if there is one. The next grant carries the rest.
pub const CLAIM_BYTES: usize = PAGE_BYTES;
/// The maximum length of an event's correlation id, in bytes.
pub const CORRELATION_BYTES: usize = 1_024;
/// The maximum number of steps in the path of a delta.
pub const PATH_STEPS: usize = 64;
/// The maximum nesting depth of a delta's value and of a document after a merge. Some parsers fail a little beyond that.
pub const MERGE_DEPTH: usize = 100;
/// The maximum number of events that the truncates of one batch may remove together.
pub const TRUNCATE_EVENTS: u64 = 10_000;
/// The maximum number of rows that an operator's action may select, by key or by filter.
pub const OPERATE_ROWS: usize = 100_000;
/// The maximum length of an error or a reason that is stored with a work row, in bytes. Longer texts are truncated.
pub const ERROR_BYTES: usize = 8 * 1024;

impl Batch {
    /// Returns the size of the batch as limits count it: the sum of its payloads and, roughly, of its deltas, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.effects.iter().map(effect_bytes).fold(0, usize::saturating_add)
    }

    /// Returns an upper bound of the events that the batch can remove, from its effects alone. A store uses it to group batches
    /// into one transaction.
    #[must_use]
    pub fn removes_at_most(&self) -> u64 {
        let removed = self.effects.iter().map(|effect| match effect {
            Effect::Truncate { before, .. } => before.0,
            _ => 0,
        });
        removed.fold(0, u64::saturating_add).min(TRUNCATE_EVENTS)
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
        for (index, effect) in self.effects.iter().enumerate() {
            check_effect(effect)?;
            if let Effect::Append { stream, events, .. } = effect {
                for event in events {
                    if !ids.insert(event.id) {
                        return Err(twice(index, event, stream));
                    }
                }
            }
        }
        within("the number of events", whole, ids.len(), BATCH_EVENTS)?;
        within("the size in bytes", whole, self.bytes(), BATCH_BYTES)?;
        Ok(())
    }
}

/// Checks one effect independently of the others.
fn check_effect(effect: &Effect) -> Result<(), InvalidInput> {
    match effect {
        Effect::Append { stream, events, .. } => {
            events.iter().try_for_each(|event| check_event(stream, event))
        }
        Effect::Put { key, value, .. } => payload(key, value),
        Effect::Merge { key, deltas, missing } => check_merge(key, deltas, missing),
        Effect::Enqueue(work) => {
            work.payload.as_ref().map_or(Ok(()), |value| payload(&work.key, value))?;
            work.position.map_or(Ok(()), check_position)
        }
        Effect::Advance { position, .. } => check_position(*position),
        Effect::Operate { selection: Selection::Keys(keys), .. } => {
            within("the number of keys", "a selection", keys.len(), OPERATE_ROWS)
        }
        _ => Ok(()),
    }
}

fn check_event(stream: &Key, event: &NewEvent) -> Result<(), InvalidInput> {
    payload(stream, &event.payload)?;
    payload(stream, &event.meta)?;
    let length = event.correlation.as_ref().map_or(0, String::len);
    within("the length in bytes of a correlation", stream, length, CORRELATION_BYTES)
}

/// Checks a merge. Depths are checked before any recursion over the values.
fn check_merge(key: &Key, deltas: &[Delta], missing: &Missing) -> Result<(), InvalidInput> {
    if let Missing::Create(initial) = missing {
        payload(key, initial)?;
    }
    within("the number of deltas", key, deltas.len(), BATCH_EFFECTS)?;
    for delta in deltas {
        within("the number of steps in a delta's path", key, delta.steps(), PATH_STEPS)?;
        let depth = delta.value().map_or(0, |value| Measure::of(value).depth);
        within("the nesting depth of a delta", key, depth, MERGE_DEPTH)?;
    }
    Ok(())
}

/// Checks that a position fits the signed 64-bit integers of databases.
fn check_position(position: Position) -> Result<(), InvalidInput> {
    if i64::try_from(position.0).is_ok() {
        return Ok(());
    }
    let reason = format!("it is above {}", i64::MAX);
    Err(InvalidInput::name("Position", &position.to_string(), reason))
}

fn twice(index: usize, event: &NewEvent, stream: &Key) -> Refusal {
    let (id, stream) = (event.id, stream.clone());
    let reason = "two events of this batch have it";
    Refusal::EventIdReused { index, id, stream, version: StreamVersion(0), reason }
}

fn effect_bytes(effect: &Effect) -> usize {
    match effect {
        Effect::Append { events, .. } => events.iter().map(|e| e.payload.len() + e.meta.len()).sum(),
        Effect::Put { value, .. } => value.len(),
        Effect::Enqueue(work) => work.payload.as_ref().map_or(0, Payload::len),
        Effect::Merge { deltas, missing, .. } => {
            let initial = match missing {
                Missing::Create(initial) => initial.len(),
                Missing::Refuse => 0,
            };
            deltas.iter().map(delta_bytes).fold(initial, usize::saturating_add)
        }
        _ => 0,
    }
}

/// Returns the size of a delta. A delta without a value counts as the longest number, so that many of them are not free.
fn delta_bytes(delta: &Delta) -> usize {
    let value = delta.value().map_or(20, |value| Measure::of(value).bytes);
    delta.path().len().saturating_add(value)
}

fn payload(subject: &impl std::fmt::Display, value: &Payload) -> Result<(), InvalidInput> {
    within("the payload length in bytes", subject, value.len(), PAYLOAD_BYTES)?;
    // A short text cannot be deeply nested.
    if value.len() <= 2 * PAYLOAD_DEPTH {
        return Ok(());
    }
    within("the nesting depth of a payload", subject, depth(value.as_str()), PAYLOAD_DEPTH)
}

/// Returns the nesting depth of arrays and objects in a JSON text, without recursion.
pub(crate) fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut text, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'[' | b'{' if !text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Rejects an amount above its limit.
///
/// # Errors
/// [`InvalidInput::Limit`] with the measured quantity, the amount and the limit.
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
