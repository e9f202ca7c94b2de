//! Resolution of symbolic commands to batches: the meaning of "as it is" and "the third grant" at each side.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use tidelock_core::clock::{Clock as _, Due, Timestamp};
use tidelock_core::id::{DocVersion, EventId, Fence, OpId, Position, Priority, StreamVersion};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Effect, EventFilter, Expect, Lease, Missing, NewEvent, NewWork, Pattern, Selection, WorkFilter,
};
use uuid::Uuid;

use super::command::{
    Act, Command, DueTime, End, Filter, Grant, Job, Move, Name, Reach, RowFilter, Rows, Want,
};
use super::side::Side;
use crate::builders::{event_type, payload, queue_name};
use crate::dump::Dump;

/// The common state of both sides before a command: versions, instants, and whether the turns of their claims agree.
pub(super) struct SharedFacts {
    streams: HashMap<Key, StreamVersion>,
    documents: HashMap<Key, DocVersion>,
    instants: Vec<Timestamp>,
    now: Timestamp,
    /// Small claims take every fourth row by age, counted by fences. A backend that leaves gaps in its fences takes its
    /// turns at other claims. Then only claims of all rows can be compared.
    pub(super) same_turn: bool,
}

impl SharedFacts {
    pub(super) async fn of(reference: &Side, turn: u64) -> Self {
        let Dump { documents, streams, work, .. } = Dump::of(reference.conn()).await;
        let now = reference.clock.now();
        let ends = documents.iter().filter_map(|d| d.expires_at);
        let dues = work.iter().flat_map(|row| [row.due, row.woken, row.lease.as_ref().map(|l| l.until)]);
        let mut instants: Vec<Timestamp> = ends.chain(dues.flatten()).filter(|at| *at > now).collect();
        instants.sort_unstable();
        instants.dedup();
        Self {
            streams: streams.into_iter().filter_map(|s| Some((s.key, s.head?))).collect(),
            documents: documents.into_iter().map(|d| (d.key, d.version)).collect(),
            instants,
            now,
            same_turn: reference.turn() == turn,
        }
    }

    /// Returns the instant to which the clock moves.
    pub(super) fn target(&self, movement: Move) -> Timestamp {
        let boundary = |nth: usize| self.instants.get(nth).or(self.instants.last()).copied();
        match movement {
            Move::By(by) => self.now.after(by),
            Move::ToBoundary(nth) => boundary(nth).unwrap_or(self.now),
            Move::ToJustBefore(nth) => {
                boundary(nth).map_or(self.now, |at| Timestamp::from_micros(at.as_micros() - 1))
            }
        }
    }

    fn stream(&self, key: &Key, want: Want) -> Expect<StreamVersion> {
        let head = self.streams.get(key).map(|v| v.0);
        expect(want, head, StreamVersion)
    }

    fn below(&self, key: &Key, upto: Reach) -> StreamVersion {
        let all = self.streams.get(key).map_or(0, |head| head.0 + 1);
        StreamVersion(match upto {
            Reach::Below(version) => version,
            Reach::AllBut(left) => all.saturating_sub(left),
            Reach::Beyond(more) => all + more,
        })
    }

    fn document(&self, key: &Key, want: Want) -> Expect<DocVersion> {
        expect(want, self.documents.get(key).map(|v| v.0), DocVersion)
    }
}

fn expect<V>(want: Want, now: Option<u64>, version: impl Fn(u64) -> V) -> Expect<V> {
    match (want, now) {
        (Want::Any, _) => Expect::Any,
        (Want::Absent, _) | (Want::AsItIs, None) => Expect::Absent,
        (Want::Exists, _) => Expect::Exists,
        (Want::AsItIs, Some(now)) => Expect::Exact(version(now)),
        (Want::OneBehind, now) => Expect::Exact(version(now.unwrap_or(1).saturating_sub(1))),
        (Want::OneAhead, now) => Expect::Exact(version(now.unwrap_or(0) + 1)),
    }
}

pub(super) fn key(kind: &str, name: Name) -> Key {
    crate::builders::key(&format!("{kind}-{name}"))
}

pub(super) fn op(number: u32) -> OpId {
    OpId(Uuid::from_u128(0xface_0000_0000 + u128::from(number)))
}

fn number(n: i64) -> Payload {
    payload(json!({ "n": n, "list": [n], "deep": {} }))
}

fn due(when: DueTime) -> Due {
    match when {
        DueTime::Now => Due::Now,
        DueTime::After(by) => Due::After(by),
        DueTime::At(since) => Due::At(instant(since)),
    }
}

/// Returns an instant, counted from the first one of the history.
pub(super) fn instant(since: Duration) -> Timestamp {
    tidelock_core::clock::ManualClock::default().now().after(since)
}

pub(super) fn row_filter(filter: &RowFilter) -> WorkFilter {
    WorkFilter {
        queue: filter.queue.map(lane_of),
        pattern: filter.pattern.map(|p| Pattern::new(p).unwrap()),
        blocked: filter.blocked,
        leased: filter.leased,
    }
}

pub(super) fn event_filter(filter: &Filter) -> EventFilter {
    EventFilter {
        types: filter.kind.map(|kind| event_type(&format!("Kind{kind}"))).into_iter().collect(),
        since: filter.since.map(instant),
        streams: filter.stream.map(|s| KeyPrefix::starting("tck", &[], &format!("stream-{s}"))),
        ..EventFilter::default()
    }
}

pub(super) fn lane_of(name: Name) -> tidelock_core::id::QueueName {
    queue_name(&format!("lane-{name}"))
}

fn on_stream(act: &Act, stream: Key, expect: Expect<StreamVersion>) -> Effect {
    match act {
        Act::Append { events, .. } => {
            let events = events.iter().map(|fact| {
                let id = EventId(Uuid::from_u128(u128::from(fact.id) + 1));
                NewEvent::new(event_type(&format!("Kind{}", fact.kind)), number(fact.value)).with_id(id)
            });
            Effect::Append { stream, expect, events: events.collect() }
        }
        Act::Close { .. } => Effect::Close { stream, expect },
        _ => Effect::GuardStream { stream, expect },
    }
}

fn on_document(act: &Act, key: Key, expect: Expect<DocVersion>) -> Effect {
    match act {
        Act::Put { value, lasts, .. } => {
            Effect::Put { key, expect, value: number(*value), expires: lasts.map(due) }
        }
        Act::Delete { .. } => Effect::Delete { key, expect },
        _ => Effect::GuardDocument { key, expect },
    }
}

impl Side {
    /// Resolves a command to the batch of this side.
    pub(super) fn batch(&self, command: &Command, facts: &SharedFacts) -> Batch {
        let Command::Apply { op: id, acts } = command else { return Batch::new() };
        let batch = acts.iter().fold(Batch::new(), |batch, act| batch.with(self.effect(act, facts)));
        match id {
            Some(id) => batch.op_id(op(*id)),
            None => batch,
        }
    }

    fn effect(&self, act: &Act, facts: &SharedFacts) -> Effect {
        match act {
            Act::Enqueue(job) => Effect::Enqueue(Box::new(self.job(job))),
            Act::Finish { grant, end } => self.finish(self.lease(*grant), end),
            Act::Operate { rows, operation } => {
                let selection = match rows {
                    Rows::Named(names) => {
                        Selection::Keys(names.iter().map(|name| key("row", *name)).collect())
                    }
                    Rows::Matching(filter) => Selection::Filter(row_filter(filter)),
                };
                Effect::Operate { selection, operation: *operation }
            }
            Act::Truncate { stream, upto } => {
                let stream = key("stream", *stream);
                let before = facts.below(&stream, *upto);
                Effect::Truncate { stream, before }
            }
            Act::Append { stream, want, .. }
            | Act::Close { stream, want }
            | Act::GuardStream { stream, want } => {
                let stream = key("stream", *stream);
                let expect = facts.stream(&stream, *want);
                on_stream(act, stream, expect)
            }
            Act::Put { doc, want, .. } | Act::Delete { doc, want } | Act::GuardDocument { doc, want } => {
                let key = key("doc", *doc);
                let expect = facts.document(&key, *want);
                on_document(act, key, expect)
            }
            Act::Merge { doc, deltas, create } => {
                let missing = create.map_or(Missing::Refuse, |value| Missing::Create(number(value)));
                Effect::Merge { key: key("doc", *doc), deltas: deltas.clone(), missing }
            }
        }
    }

    fn job(&self, job: &Job) -> NewWork {
        NewWork {
            key: key("row", job.row),
            queue: lane_of(job.queue),
            due: due(job.due),
            priority: Priority::new(job.priority).unwrap(),
            lifetime: job.lifetime,
            payload: job.payload.map(number),
            position: job.position.map(|rank| self.position(rank)),
            follow: job.follow.map(|name| key("stream", name)),
            expect: expect(job.want, None, |_| ()),
            replace: job.payload.is_some_and(|n| n % 5 == 0),
        }
    }

    fn finish(&self, lease: Lease, end: &End) -> Effect {
        match end {
            End::Ack => Effect::Ack { lease },
            End::Advance(rank) => Effect::Advance { lease, position: self.position(*rank) },
            End::Defer(when) => Effect::Defer { lease, due: due(*when) },
            End::Fail(when) => Effect::Fail { lease, error: "failed".to_owned(), due: due(*when) },
            End::Block => Effect::Block { lease, reason: "blocked".to_owned() },
            End::Renew(ttl) => Effect::Renew { lease, ttl: *ttl },
            End::Release => Effect::Release { lease },
            End::Guard => Effect::GuardLease { lease },
        }
    }

    fn lease(&self, grant: Grant) -> Lease {
        let at = self.grants.len().checked_sub(grant.back + 1);
        let never = || Lease { key: key("row", 0), fence: Fence(u64::from(u32::MAX)), owner: None };
        let lease = at.and_then(|at| self.grants.get(at)).cloned().unwrap_or_else(never);
        match grant.other_row {
            Some(row) => Lease { key: key("row", row), ..lease },
            None => lease,
        }
    }

    /// Returns the position of the event with this rank, or of the last event if there are fewer.
    pub(super) fn position(&self, rank: usize) -> Position {
        self.positions.get(rank).or(self.positions.last()).copied().unwrap_or(Position(0))
    }
}
