//! Decisions about streams: expected versions, appends, closing, truncating, and recognising a repeated append.

use super::batch::{Batch, Effect, Expect, NewEvent};
use super::commit::Step;
use super::limits::TRUNCATE_EVENTS;
use super::receipt::{Appended, Receipt};
use super::refusal::{Refusal, StreamFound};
use super::rows::{Event, StreamRow};
use super::working_set::WorkingSet;
use crate::clock::Timestamp;
use crate::id::{EventId, StreamVersion};
use crate::key::Key;

/// Checks the expectation on a stream.
pub(super) fn check(step: &Step<'_>, stream: &Key, expect: Expect<StreamVersion>) -> Result<(), Refusal> {
    let head = step.facts.stream(stream).and_then(|row| row.head);
    let holds = match expect {
        Expect::Any => true,
        Expect::Absent => head.is_none(),
        Expect::Exists => head.is_some(),
        Expect::Exact(version) => head == Some(version),
    };
    if holds {
        return Ok(());
    }
    let found = head.map_or(StreamFound::Absent, StreamFound::At);
    Err(Refusal::Stream { index: step.index, stream: stream.clone(), expected: expect, found })
}

pub(super) fn append(
    step: Step<'_>,
    stream: &Key,
    expect: Expect<StreamVersion>,
    events: &[NewEvent],
) -> Result<(), Refusal> {
    check(&step, stream, expect)?;
    let row = step.facts.stream(stream).cloned();
    let head = row.as_ref().and_then(|r| r.head);
    if row.as_ref().is_some_and(|r| r.closed_at.is_some()) {
        return Err(Refusal::StreamClosed { index: step.index, stream: stream.clone(), head });
    }
    if events.is_empty() {
        return Ok(());
    }
    let first_version = head.map_or(StreamVersion(0), StreamVersion::next);
    let first_position = step.facts.counters.position.next();
    let mut version = first_version;
    let mut position = first_position;
    for (i, event) in events.iter().enumerate() {
        if i > 0 {
            version = version.next();
            position = position.next();
        }
        step.facts.add_event(recorded(event, stream, version, position, step.now));
    }
    step.facts.counters.position = position;
    let first = row.map_or(StreamVersion(0), |r| r.first);
    step.facts.set_stream(stream, StreamRow { head: Some(version), first, closed_at: None });
    step.receipt.appended.push(Appended {
        stream: stream.clone(),
        first_version,
        last_version: version,
        first_position,
        last_position: position,
    });
    Ok(())
}

fn recorded(
    event: &NewEvent,
    stream: &Key,
    version: StreamVersion,
    position: crate::id::Position,
    at: Timestamp,
) -> Event {
    Event {
        position,
        stream: stream.clone(),
        version,
        id: event.id,
        event_type: event.event_type.clone(),
        at,
        payload: event.payload.clone(),
        meta: event.meta.clone(),
        correlation: event.correlation.clone(),
    }
}

pub(super) fn close(step: Step<'_>, stream: &Key, expect: Expect<StreamVersion>) -> Result<(), Refusal> {
    check(&step, stream, expect)?;
    let row = step.facts.stream(stream);
    if row.is_some_and(|r| r.closed_at.is_some()) {
        return Ok(());
    }
    let (head, first) = row.map_or((None, StreamVersion(0)), |r| (r.head, r.first));
    step.facts.set_stream(stream, StreamRow { head, first, closed_at: Some(step.now) });
    Ok(())
}

pub(super) fn truncate(step: Step<'_>, stream: &Key, before: StreamVersion) -> Result<(), Refusal> {
    let row = step.facts.stream(stream).cloned();
    let Some((row, head)) = row.and_then(|row| row.head.map(|head| (row, head))) else {
        step.receipt.truncated.push(0);
        return Ok(());
    };
    let index = step.index;
    if before > head.next() {
        return Err(Refusal::TruncateBeyond { index, stream: stream.clone(), before, head });
    }
    let (first, removed) = (row.first, before.0.saturating_sub(row.first.0));
    let found = step.receipt.truncated.iter().fold(removed, |sum, n| sum.saturating_add(*n));
    if removed > 0 && found > TRUNCATE_EVENTS {
        // The version up to which a separate batch may truncate.
        let step_to = StreamVersion(before.0.min(first.0.saturating_add(TRUNCATE_EVENTS)));
        return Err(Refusal::TruncateTooMuch { index, stream: stream.clone(), before, found, step_to });
    }
    if removed > 0 {
        step.facts.truncate(stream, row, before);
    }
    step.receipt.truncated.push(removed);
    Ok(())
}

/// Returns the ids of the batch's events that were not looked up, if there are any.
pub(super) fn unknown_ids(facts: &WorkingSet, batch: &Batch) -> Option<Vec<EventId>> {
    let ids: Vec<EventId> = batch.event_ids().filter(|id| facts.event_id(*id).is_none()).collect();
    (!ids.is_empty()).then_some(ids)
}

impl Batch {
    /// Returns the ids of all events that the batch appends.
    pub fn event_ids(&self) -> impl Iterator<Item = EventId> + '_ {
        let appended = self.effects.iter().flat_map(|effect| match effect {
            Effect::Append { events, .. } => events.as_slice(),
            _ => &[],
        });
        appended.map(|event| event.id)
    }
}

/// Decides a batch whose events are known to be in the log. Returns the first receipt when it is the same append, and a
/// refusal when the ids belong to other events. Returns `None` when no id is known to be taken.
pub(super) fn repetition(
    facts: &WorkingSet,
    batch: &Batch,
    now: Timestamp,
) -> Result<Option<Receipt>, Refusal> {
    let taken = |id| facts.event_id(id).flatten();
    if !batch.event_ids().any(|id| taken(id).is_some()) {
        return Ok(None);
    }
    let mut receipt = Receipt { repeated: true, ..Receipt::new(now) };
    for (index, effect) in batch.effects.iter().enumerate() {
        let recorded = match effect {
            // An empty append left nothing in the log or in the first receipt.
            Effect::Append { events, .. } if events.is_empty() => continue,
            Effect::Append { stream, events, .. } => same_append(facts, index, stream, events)?,
            _ => {
                return Err(first_reused(
                    facts,
                    batch,
                    "the batch has other effects, so repeating it needs an op_id",
                ));
            }
        };
        receipt.at = recorded.at;
        receipt.appended.push(recorded.appended);
    }
    Ok(Some(receipt))
}

struct Recorded {
    appended: Appended,
    at: Timestamp,
}

/// Returns the first receipt of an append, when all its events are in the log at the same place and with the same
/// content.
fn same_append(
    facts: &WorkingSet,
    index: usize,
    stream: &Key,
    events: &[NewEvent],
) -> Result<Recorded, Refusal> {
    let mut found: Option<(&Event, &Event)> = None;
    for event in events {
        let Some(there) = facts.event_id(event.id).flatten() else {
            let any = events.iter().find_map(|e| facts.event_id(e.id).flatten()).or(found.map(|f| f.0));
            return Err(reused(index, any, event.id, stream, "only some of the events are there"));
        };
        let refuse = |reason| reused(index, Some(there), event.id, stream, reason);
        if there.stream != *stream {
            return Err(refuse("it belongs to another stream"));
        }
        if !same_content(there, event) {
            return Err(refuse("it has another type, payload or note"));
        }
        if found.is_some_and(|(_, last)| there.version != last.version.next()) {
            return Err(refuse("the events have another order"));
        }
        found = Some((found.map_or(there, |(first, _)| first), there));
    }
    let Some((first, last)) = found else {
        return Err(reused(index, None, EventId(uuid::Uuid::nil()), stream, "the append is empty"));
    };
    Ok(Recorded {
        at: first.at,
        appended: Appended {
            stream: stream.clone(),
            first_version: first.version,
            last_version: last.version,
            first_position: first.position,
            last_position: last.position,
        },
    })
}

fn same_content(there: &Event, event: &NewEvent) -> bool {
    there.event_type == event.event_type
        && there.payload == event.payload
        && there.meta == event.meta
        && there.correlation == event.correlation
}

fn first_reused(facts: &WorkingSet, batch: &Batch, reason: &'static str) -> Refusal {
    for (index, effect) in batch.effects.iter().enumerate() {
        if let Effect::Append { stream, events, .. } = effect {
            for event in events {
                if let Some(there) = facts.event_id(event.id).flatten() {
                    return reused(index, Some(there), event.id, stream, reason);
                }
            }
        }
    }
    reused(0, None, EventId(uuid::Uuid::nil()), &Key::trusted(""), reason)
}

fn reused(index: usize, there: Option<&Event>, id: EventId, stream: &Key, reason: &'static str) -> Refusal {
    Refusal::EventIdReused {
        index,
        id: there.map_or(id, |e| e.id),
        stream: there.map_or_else(|| stream.clone(), |e| e.stream.clone()),
        version: there.map_or(StreamVersion(0), |e| e.version),
        reason,
    }
}
