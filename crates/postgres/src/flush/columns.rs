//! Only here: rows as columns of arrays, grouped by the kind of write. SQLite binds one row at a time.

use std::borrow::Cow;

use tidelock_core::clock::Timestamp;
use tidelock_core::key::Key;
use tidelock_core::model::lease;
use tidelock_core::model::rows::{Event, Lifetime, StreamRow, WorkRow};
use tidelock_core::model::working_set::Truncated;
use tidelock_core::payload::Payload;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::db::Call;
use crate::row_cache::Noun;
use crate::rows::{Stamp, int, storable};
use crate::session::{NEW_SEQS, Session, place_of, place_of_seq};

type Texts<'a> = Vec<&'a str>;
type MaybeTexts<'a> = Vec<Option<&'a str>>;
/// Texts that may hold any character.
type FreeTexts<'a> = Vec<Option<Cow<'a, str>>>;
type Numbers = Vec<i64>;
type MaybeNumbers = Vec<Option<i64>>;

fn micros(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_micros)
}

/// Keys that are believed to be absent and stay absent.
#[derive(Default)]
struct Absent<'a> {
    key: Texts<'a>,
    pin: Texts<'a>,
}

impl<'a> Absent<'a> {
    fn push(&mut self, session: &Session, noun: Noun, key: &'a Key) {
        self.key.push(key.canonical());
        if session.pinned.contains(&(noun, key.clone())) {
            self.pin.push(key.canonical());
        }
    }

    fn add_to(self, call: Call<'a>) -> Call<'a> {
        call.with(self.key, Type::TEXT_ARRAY).with(self.pin, Type::TEXT_ARRAY)
    }
}

/// Returns the keys of a map in order, each with the believed row and whether the row changed.
fn in_order<'a, T>(
    beliefs: &'a foldhash::HashMap<Key, Option<T>>,
    changed: &'a [Key],
) -> Vec<(&'a Key, Option<&'a T>, bool)> {
    let mut all: Vec<_> = beliefs
        .iter()
        .map(|(key, belief)| (key, belief.as_ref(), changed.binary_search(key).is_ok()))
        .collect();
    all.sort_unstable_by_key(|(key, _, _)| *key);
    all
}

/// Streams that are only checked, changed, created or absent.
#[derive(Default)]
pub(super) struct Streams<'a> {
    guard: (Texts<'a>, MaybeNumbers, MaybeNumbers),
    update: (Texts<'a>, MaybeNumbers, MaybeNumbers, MaybeNumbers),
    create: (Texts<'a>, MaybeNumbers, MaybeNumbers),
    absent: Absent<'a>,
}

impl<'a> Streams<'a> {
    pub(super) fn of(session: &'a Session, changed: &'a [Key]) -> Self {
        let mut columns = Self::default();
        for (key, belief, changed) in in_order(&session.beliefs.streams, changed) {
            let row = session.facts.stream(key);
            let head = row.and_then(|row| row.head).map(|version| int(version.0));
            let closed = micros(row.and_then(|row| row.closed_at));
            match belief {
                // A stream that only lost events is checked like an unchanged one: see `truncations`.
                Some(was) if changed && !row.is_some_and(|row| only_truncated(was, row)) => {
                    columns.update.0.push(key.canonical());
                    columns.update.1.push(was.head.map(|version| int(version.0)));
                    columns.update.2.push(head);
                    columns.update.3.push(closed);
                }
                Some(_) => {
                    columns.guard.0.push(key.canonical());
                    columns.guard.1.push(head);
                    columns.guard.2.push(closed);
                }
                None if changed => {
                    columns.create.0.push(key.canonical());
                    columns.create.1.push(head);
                    columns.create.2.push(closed);
                }
                None => columns.absent.push(session, Noun::Stream, key),
            }
        }
        columns
    }

    pub(super) fn add_to(self, call: Call<'a>) -> Call<'a> {
        let call = call
            .with(self.guard.0, Type::TEXT_ARRAY)
            .with(self.guard.1, Type::INT8_ARRAY)
            .with(self.guard.2, Type::INT8_ARRAY)
            .with(self.update.0, Type::TEXT_ARRAY)
            .with(self.update.1, Type::INT8_ARRAY)
            .with(self.update.2, Type::INT8_ARRAY)
            .with(self.update.3, Type::INT8_ARRAY)
            .with(self.create.0, Type::TEXT_ARRAY)
            .with(self.create.1, Type::INT8_ARRAY)
            .with(self.create.2, Type::INT8_ARRAY);
        self.absent.add_to(call)
    }
}

/// Returns whether a stream differs only in its first version.
fn only_truncated(was: &StreamRow, row: &StreamRow) -> bool {
    (was.head, was.closed_at) == (row.head, row.closed_at)
}

/// Adds the streams that lose their first events, with the versions that are removed.
pub(super) fn truncations<'a>(call: Call<'a>, truncated: &'a [Truncated]) -> Call<'a> {
    let keys: Texts<'a> = truncated.iter().map(|removal| removal.stream.canonical()).collect();
    let first: Numbers = truncated.iter().map(|removal| int(removal.from.0)).collect();
    let before: Numbers = truncated.iter().map(|removal| int(removal.before.0)).collect();
    call.with(keys, Type::TEXT_ARRAY).with(first, Type::INT8_ARRAY).with(before, Type::INT8_ARRAY)
}

/// Events in the order of their positions.
#[derive(Default)]
pub(super) struct Events<'a> {
    stream: Texts<'a>,
    version: Numbers,
    id: Vec<Uuid>,
    kind: Texts<'a>,
    at: Numbers,
    payload: Texts<'a>,
    meta: MaybeTexts<'a>,
    correlation: FreeTexts<'a>,
}

impl<'a> Events<'a> {
    pub(super) fn of(events: &'a [Event]) -> Self {
        let mut columns = Self::default();
        for event in events {
            columns.stream.push(event.stream.canonical());
            columns.version.push(int(event.version.0));
            columns.id.push(event.id.0);
            columns.kind.push(event.event_type.as_str());
            columns.at.push(event.at.as_micros());
            columns.payload.push(event.payload.as_str());
            columns.meta.push(Some(event.meta.as_str()).filter(|meta| *meta != "null"));
            columns.correlation.push(event.correlation.as_deref().map(storable));
        }
        columns
    }

    pub(super) fn add_to(self, call: Call<'a>) -> Call<'a> {
        call.with(self.stream, Type::TEXT_ARRAY)
            .with(self.version, Type::INT8_ARRAY)
            .with(self.id, Type::UUID_ARRAY)
            .with(self.kind, Type::TEXT_ARRAY)
            .with(self.at, Type::INT8_ARRAY)
            .with(self.payload, Type::TEXT_ARRAY)
            .with(self.meta, Type::TEXT_ARRAY)
            .with(self.correlation, Type::TEXT_ARRAY)
    }
}

/// The columns of a document's row in addition to its key.
#[derive(Default)]
struct Values<'a> {
    key: Texts<'a>,
    version: Numbers,
    value: MaybeTexts<'a>,
    updated: Numbers,
    expires: MaybeNumbers,
    deleted: MaybeNumbers,
}

impl<'a> Values<'a> {
    fn push(&mut self, key: &'a Key, row: &'a tidelock_core::model::rows::DocumentRow) {
        let updated = row.updated_at.as_micros();
        self.key.push(key.canonical());
        self.version.push(int(row.version.0));
        self.value.push(row.value.as_ref().map(Payload::as_str));
        self.updated.push(updated);
        self.expires.push(micros(row.expires_at));
        self.deleted.push(row.value.is_none().then_some(updated));
    }

    fn add_to(self, call: Call<'a>, was: Option<Numbers>) -> Call<'a> {
        let mut call = call.with(self.key, Type::TEXT_ARRAY);
        if let Some(was) = was {
            call = call.with(was, Type::INT8_ARRAY);
        }
        call.with(self.version, Type::INT8_ARRAY)
            .with(self.value, Type::TEXT_ARRAY)
            .with(self.updated, Type::INT8_ARRAY)
            .with(self.expires, Type::INT8_ARRAY)
            .with(self.deleted, Type::INT8_ARRAY)
    }
}

/// Documents that are only checked, changed, created or absent.
#[derive(Default)]
pub(super) struct Documents<'a> {
    guard: (Texts<'a>, Numbers),
    was: Numbers,
    update: Values<'a>,
    create: Values<'a>,
    absent: Absent<'a>,
}

impl<'a> Documents<'a> {
    pub(super) fn of(session: &'a Session, changed: &'a [Key]) -> Self {
        let mut columns = Self::default();
        for (key, belief, changed) in in_order(&session.beliefs.documents, changed) {
            match (belief, session.facts.document(key).filter(|_| changed)) {
                (Some(was), Some(row)) => {
                    columns.was.push(*was);
                    columns.update.push(key, row);
                }
                (None, Some(row)) => columns.create.push(key, row),
                (Some(was), None) => {
                    columns.guard.0.push(key.canonical());
                    columns.guard.1.push(*was);
                }
                (None, None) => columns.absent.push(session, Noun::Document, key),
            }
        }
        columns
    }

    pub(super) fn add_to(self, call: Call<'a>) -> Call<'a> {
        let call = call.with(self.guard.0, Type::TEXT_ARRAY).with(self.guard.1, Type::INT8_ARRAY);
        let call = self.update.add_to(call, Some(self.was));
        self.absent.add_to(self.create.add_to(call, None))
    }
}

/// Keys of work rows with the stamps that identify their states.
#[derive(Default)]
struct Stamps<'a>(Texts<'a>, Numbers, Numbers);

impl<'a> Stamps<'a> {
    fn push(&mut self, key: &'a Key, stamp: Stamp) {
        self.0.push(key.canonical());
        self.1.push(stamp.seq);
        self.2.push(stamp.revision);
    }

    fn add_to(self, call: Call<'a>) -> Call<'a> {
        call.with(self.0, Type::TEXT_ARRAY).with(self.1, Type::INT8_ARRAY).with(self.2, Type::INT8_ARRAY)
    }
}

/// Work rows that are only checked, removed, written or absent.
#[derive(Default)]
pub(super) struct Work<'a> {
    seqs: i64,
    fences: i64,
    guard: Stamps<'a>,
    delete: Stamps<'a>,
    write: Written<'a>,
    absent: Absent<'a>,
}

/// The columns of work rows that are written.
#[derive(Default)]
struct Written<'a> {
    key: Texts<'a>,
    was_seq: MaybeNumbers,
    was_revision: MaybeNumbers,
    new_seq: MaybeNumbers,
    queue: Texts<'a>,
    priority: Vec<i16>,
    standing: Vec<bool>,
    ready_at: MaybeNumbers,
    due: MaybeNumbers,
    woken: MaybeNumbers,
    position: MaybeNumbers,
    follow: MaybeTexts<'a>,
    payload: MaybeTexts<'a>,
    attempts: Numbers,
    takeovers: Numbers,
    last_error: FreeTexts<'a>,
    blocked_reason: FreeTexts<'a>,
    blocked_since: MaybeNumbers,
    lease_owner: MaybeTexts<'a>,
    lease_fence: MaybeNumbers,
    new_fence: MaybeNumbers,
    lease_since: MaybeNumbers,
    lease_until: MaybeNumbers,
    enqueued_at: Numbers,
}

impl<'a> Work<'a> {
    pub(super) fn of(session: &'a Session, changed: &'a [Key]) -> Self {
        let counters = session.facts.counters;
        let seqs = int(counters.work_seq.saturating_sub(NEW_SEQS));
        let fences = int(counters.fence.0.saturating_sub(session.turn.0));
        let mut columns = Self { seqs, fences, ..Self::default() };
        for (key, belief, changed) in in_order(&session.beliefs.work, changed) {
            match (belief, session.facts.work(key)) {
                (Some(stamp), Some(_)) if !changed => columns.guard.push(key, *stamp),
                (Some(stamp), None) => columns.delete.push(key, *stamp),
                (belief, Some(row)) => columns.write.push(key, belief.copied(), row, session),
                (None, None) => columns.absent.push(session, Noun::Work, key),
            }
        }
        columns
    }

    pub(super) fn add_to(self, call: Call<'a>) -> Call<'a> {
        let call = call.with(self.seqs, Type::INT8).with(self.fences, Type::INT8);
        let call = self.delete.add_to(self.guard.add_to(call));
        self.absent.add_to(self.write.add_to(call))
    }
}

impl<'a> Written<'a> {
    fn push(&mut self, key: &'a Key, was: Option<Stamp>, row: &'a WorkRow, session: &Session) {
        self.key.push(key.canonical());
        self.was_seq.push(was.map(|stamp| stamp.seq));
        self.was_revision.push(was.map(|stamp| stamp.revision));
        self.new_seq.push(place_of_seq(row.seq));
        self.queue.push(row.queue.as_str());
        self.priority.push(row.priority.level().into());
        self.standing.push(row.lifetime == Lifetime::Standing);
        self.ready_at.push(micros(lease::ready_at(row)));
        self.due.push(micros(row.due));
        self.woken.push(micros(row.woken));
        self.position.push(row.position.map(|position| int(position.0)));
        self.follow.push(row.follow.as_ref().map(Key::canonical));
        self.payload.push(Some(row.payload.as_str()));
        self.attempts.push(row.attempts.into());
        self.takeovers.push(row.takeovers.into());
        self.last_error.push(row.last_error.as_deref().map(storable));
        self.blocked_reason.push(row.blocked.as_ref().map(|blocked| storable(&blocked.reason)));
        self.blocked_since.push(row.blocked.as_ref().map(|blocked| blocked.since.as_micros()));
        self.push_lease(row, session);
        self.enqueued_at.push(row.enqueued_at.as_micros());
    }

    fn push_lease(&mut self, row: &'a WorkRow, session: &Session) {
        let lease = row.lease.as_ref();
        let new_fence = lease.and_then(|lease| place_of(lease.fence, session.turn));
        self.lease_owner.push(lease.map(|lease| lease.owner.as_str()));
        self.lease_fence.push(lease.filter(|_| new_fence.is_none()).map(|lease| int(lease.fence.0)));
        self.new_fence.push(new_fence);
        self.lease_since.push(lease.map(|lease| lease.since.as_micros()));
        self.lease_until.push(lease.map(|lease| lease.until.as_micros()));
    }

    fn add_to(self, call: Call<'a>) -> Call<'a> {
        call.with(self.key, Type::TEXT_ARRAY)
            .with(self.was_seq, Type::INT8_ARRAY)
            .with(self.was_revision, Type::INT8_ARRAY)
            .with(self.new_seq, Type::INT8_ARRAY)
            .with(self.queue, Type::TEXT_ARRAY)
            .with(self.priority, Type::INT2_ARRAY)
            .with(self.standing, Type::BOOL_ARRAY)
            .with(self.ready_at, Type::INT8_ARRAY)
            .with(self.due, Type::INT8_ARRAY)
            .with(self.woken, Type::INT8_ARRAY)
            .with(self.position, Type::INT8_ARRAY)
            .with(self.follow, Type::TEXT_ARRAY)
            .with(self.payload, Type::TEXT_ARRAY)
            .with(self.attempts, Type::INT8_ARRAY)
            .with(self.takeovers, Type::INT8_ARRAY)
            .with(self.last_error, Type::TEXT_ARRAY)
            .with(self.blocked_reason, Type::TEXT_ARRAY)
            .with(self.blocked_since, Type::INT8_ARRAY)
            .with(self.lease_owner, Type::TEXT_ARRAY)
            .with(self.lease_fence, Type::INT8_ARRAY)
            .with(self.new_fence, Type::INT8_ARRAY)
            .with(self.lease_since, Type::INT8_ARRAY)
            .with(self.lease_until, Type::INT8_ARRAY)
            .with(self.enqueued_at, Type::INT8_ARRAY)
    }
}
