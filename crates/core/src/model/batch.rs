//! Batches: preconditions and effects on streams, documents and work, applied all or nothing in one write.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::delta::Delta;
use super::pattern::Pattern;
use super::rows::{Lease, Lifetime};
use crate::clock::Due;
use crate::id::{DocVersion, Epoch, EventId, EventType, OpId, Position, Priority, QueueName, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// The precondition on a stream or a document under which the batch is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect<V> {
    /// No precondition.
    Any,
    /// The row must not exist. A deleted or expired document does not exist, and neither does a stream without events.
    Absent,
    /// The row must exist.
    Exists,
    /// The version must be exactly this one.
    Exact(V),
}

/// A new event to append.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The event id. The store recognises an id that it has already appended.
    pub id: EventId,
    /// The type of the event.
    pub event_type: EventType,
    /// The payload of the event.
    pub payload: Payload,
    /// The metadata of the event.
    pub meta: Payload,
    /// The correlation id of the conversation that the event belongs to.
    pub correlation: Option<String>,
}

impl NewEvent {
    /// Creates an event with a new id and without metadata.
    #[must_use]
    pub fn new(event_type: EventType, payload: Payload) -> Self {
        Self { id: EventId::new(), event_type, payload, meta: Payload::null(), correlation: None }
    }

    /// Sets the id of the event.
    #[must_use]
    pub fn with_id(mut self, id: EventId) -> Self {
        self.id = id;
        self
    }
}

/// A work item to enqueue.
///
/// Enqueuing a key that exists wakes the row. Its due time becomes the earlier of the two. Its queue and priority become
/// the new ones, and so do payload and followed stream when given. Position, attempts, lease and block stay. A row that
/// is backing off after a failure keeps its due time. A leased row runs again after its holder has finished.
#[derive(Clone, Debug, PartialEq)]
pub struct NewWork {
    /// The key of the row.
    pub key: Key,
    /// The queue that workers claim it from.
    pub queue: QueueName,
    /// The due time.
    pub due: Due,
    /// The priority.
    pub priority: Priority,
    /// Whether the row outlives its acknowledgement. Applies only when the row is created.
    pub lifetime: Lifetime,
    /// The input for the worker. `None` keeps the payload of an existing row.
    pub payload: Option<Payload>,
    /// The start position in the log. Applies only when the row is created.
    pub position: Option<Position>,
    /// The stream whose events after the position come with a grant. `None` keeps the followed stream of an existing row.
    pub follow: Option<Key>,
    /// [`Expect::Absent`] refuses to wake an existing row, [`Expect::Exists`] refuses to create one.
    pub expect: Expect<()>,
    /// Whether the new row replaces an existing one instead of waking it. Replacing discards attempts, lease and block.
    pub replace: bool,
}

impl NewWork {
    /// Creates a job that is due now and is removed once acknowledged.
    #[must_use]
    pub fn once(key: Key, queue: QueueName) -> Self {
        Self {
            key,
            queue,
            due: Due::Now,
            priority: Priority::NORMAL,
            lifetime: Lifetime::Once,
            payload: None,
            position: None,
            follow: None,
            expect: Expect::Any,
            replace: false,
        }
    }

    /// Creates a row that is due now and rests once acknowledged.
    #[must_use]
    pub fn standing(key: Key, queue: QueueName) -> Self {
        Self { lifetime: Lifetime::Standing, ..Self::once(key, queue) }
    }

    /// Sets the due time.
    #[must_use]
    pub fn due(mut self, due: Due) -> Self {
        self.due = due;
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = Some(payload);
        self
    }

    /// Replaces an existing row of that key with a new one. The fence of its holder, if any, becomes stale.
    #[must_use]
    pub fn replacing(mut self) -> Self {
        self.replace = true;
        self
    }

    /// Refuses the batch when a row of that key exists.
    #[must_use]
    pub fn only_new(mut self) -> Self {
        self.expect = Expect::Absent;
        self
    }
}

/// The policy of a merge when the document does not exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    /// The batch is refused.
    Refuse,
    /// The document is created with this value first.
    Create(Payload),
}

/// The work rows that an operation selects.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// These rows. Keys that do not exist are skipped.
    Keys(Vec<Key>),
    /// All rows that match. A filter without any condition selects every blocked row.
    Filter(WorkFilter),
}

/// Conditions on work rows. A row must meet every condition that is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkFilter {
    /// Only this queue.
    pub queue: Option<QueueName>,
    /// Only keys whose canonical text matches.
    pub pattern: Option<Pattern>,
    /// Only blocked rows, or only rows that are not.
    pub blocked: Option<bool>,
    /// Only leased rows, or only rows without a lease.
    pub leased: Option<bool>,
}

/// An operator's action on work rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes blocked rows continue from their position at once, with a fresh retry budget. Other rows are skipped.
    Unblock,
    /// Restarts rows from the beginning of the log, unblocked, at once. The fence of their holder, if any, becomes stale.
    Reset,
    /// Makes waiting rows due at once.
    RetryNow,
    /// Sets the priority of the rows.
    Prioritize(Priority),
    /// Removes the rows. The fence of their holder, if any, becomes stale.
    Remove,
}

/// A precondition or an effect.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "each variant's fields are those of the Batch method that is named in its comment"
)]
pub enum Effect {
    /// [`Batch::append`]
    Append { stream: Key, expect: Expect<StreamVersion>, events: Vec<NewEvent> },
    /// [`Batch::close`]
    Close { stream: Key, expect: Expect<StreamVersion> },
    /// [`Batch::truncate`]
    Truncate { stream: Key, before: StreamVersion },
    /// [`Batch::put`] and [`Batch::put_until`]
    Put { key: Key, expect: Expect<DocVersion>, value: Payload, expires: Option<Due> },
    /// [`Batch::delete`]
    Delete { key: Key, expect: Expect<DocVersion> },
    /// [`Batch::merge`] and [`Batch::merge_or_create`]
    Merge { key: Key, deltas: Vec<Delta>, missing: Missing },
    /// [`Batch::enqueue`]
    Enqueue(Box<NewWork>),
    /// [`Batch::ack`]
    Ack { lease: Lease },
    /// [`Batch::advance`]
    Advance { lease: Lease, position: Position },
    /// [`Batch::defer`]
    Defer { lease: Lease, due: Due },
    /// [`Batch::fail`]
    Fail { lease: Lease, error: String, due: Due },
    /// [`Batch::block`]
    Block { lease: Lease, reason: String },
    /// [`Batch::renew`]
    Renew { lease: Lease, ttl: Duration },
    /// [`Batch::release`]
    Release { lease: Lease },
    /// [`Batch::operate`]
    Operate { selection: Selection, operation: Operation },
    /// [`Batch::guard_stream`]
    GuardStream { stream: Key, expect: Expect<StreamVersion> },
    /// [`Batch::guard_document`]
    GuardDocument { key: Key, expect: Expect<DocVersion> },
    /// [`Batch::guard_lease`]
    GuardLease { lease: Lease },
    /// [`Batch::guard_work`]
    GuardWork { key: Key, seq: u64 },
}

/// A sequence of preconditions and effects, evaluated in order in one transaction, all or nothing.
///
/// A later effect sees the result of an earlier one. The batch fails as a whole at the first precondition that does not
/// hold, and the error names that precondition.
///
/// Clones share the effects, so a copy kept for a retry costs one reference count. Adding an effect to a shared batch
/// copies the effects once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub(crate) effects: Arc<Vec<Effect>>,
    pub(crate) op_id: Option<OpId>,
    pub(crate) observed_in: Option<Epoch>,
}

impl Batch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the effects so far, in order.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Returns the id under which the batch is applied at most once.
    #[must_use]
    pub fn id(&self) -> Option<OpId> {
        self.op_id
    }

    /// Sets the idempotency key of the batch. Applied again under the same id, the batch changes nothing and returns the
    /// first receipt. [`Store::resolve`](crate::store::Store::resolve) returns the outcome when the reply was lost.
    #[must_use]
    pub fn op_id(mut self, id: OpId) -> Self {
        self.op_id = Some(id);
        self
    }

    /// Requires that the store is still in the epoch in which the batch was decided.
    ///
    /// Set it on a batch that depends on remembered state, because a version in the lost part of a history may be
    /// assigned again. Call [`Store::epoch`](crate::store::Store::epoch) before you read. When it is set twice, the older
    /// epoch counts.
    #[must_use]
    pub fn observed_in(mut self, epoch: Epoch) -> Self {
        self.observed_in = Some(self.observed_in.map_or(epoch, |other| other.min(epoch)));
        self
    }

    /// Returns the epoch that the batch requires.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.observed_in
    }

    /// Requires the epoch in which the batch is submitted, when the batch expects an exact version and requires no epoch
    /// yet. Backends use it so that such a batch is never decided again in another epoch.
    #[must_use]
    pub fn submitted_in(self, epoch: Epoch) -> Self {
        let exact = |effect: &Effect| match effect {
            Effect::Append { expect, .. }
            | Effect::Close { expect, .. }
            | Effect::GuardStream { expect, .. } => matches!(expect, Expect::Exact(_)),
            Effect::Put { expect, .. }
            | Effect::Delete { expect, .. }
            | Effect::GuardDocument { expect, .. } => matches!(expect, Expect::Exact(_)),
            _ => false,
        };
        match self.observed_in {
            None if self.effects.iter().any(exact) => self.observed_in(epoch),
            _ => self,
        }
    }

    /// Adds an effect as data.
    #[must_use]
    pub fn with(mut self, effect: Effect) -> Self {
        Arc::make_mut(&mut self.effects).push(effect);
        self
    }

    /// Adds all effects of another batch after those of this one. The id of this batch stays. The required epochs of both
    /// count.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        if self.effects.is_empty() {
            self.effects = other.effects;
        } else if !other.effects.is_empty() {
            Arc::make_mut(&mut self.effects).extend(Arc::unwrap_or_clone(other.effects));
        }
        match other.observed_in {
            Some(epoch) => self.observed_in(epoch),
            None => self,
        }
    }

    /// Appends events to a stream. The first event creates the stream.
    ///
    /// The store recognises a repeated append (same ids, same stream, same order, same content) when the batch consists
    /// of appends only. It then returns the first receipt. Removed events do not count as appended.
    #[must_use]
    pub fn append(
        self,
        stream: &Key,
        expect: Expect<StreamVersion>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Self {
        self.with(Effect::Append { stream: stream.clone(), expect, events: events.into_iter().collect() })
    }

    /// Closes a stream permanently: the store refuses later appends. Closing a closed stream changes nothing.
    #[must_use]
    pub fn close(self, stream: &Key, expect: Expect<StreamVersion>) -> Self {
        self.with(Effect::Close { stream: stream.clone(), expect })
    }

    /// Removes the events of a stream below a version. The remaining events keep their versions and positions. The next
    /// append continues after the last version, even when no event is left. Truncating works on a closed stream.
    /// Truncating below an earlier truncation, or a stream without events, changes nothing. The receipt contains the
    /// number of removed events.
    ///
    /// The store forgets the ids of removed events: appended again in a later batch, they are new events. Guard the
    /// stream in the same batch when the removal depends on its content.
    #[must_use]
    pub fn truncate(self, stream: &Key, before: StreamVersion) -> Self {
        self.with(Effect::Truncate { stream: stream.clone(), before })
    }

    /// Writes a document.
    #[must_use]
    pub fn put(self, key: &Key, expect: Expect<DocVersion>, value: Payload) -> Self {
        self.with(Effect::Put { key: key.clone(), expect, value, expires: None })
    }

    /// Writes a document that expires at the given time.
    #[must_use]
    pub fn put_until(self, key: &Key, expect: Expect<DocVersion>, value: Payload, expires: Due) -> Self {
        self.with(Effect::Put { key: key.clone(), expect, value, expires: Some(expires) })
    }

    /// Deletes a document. Its version is kept and increases, so a writer that expects the old version gets a conflict.
    /// Deleting a document that does not exist changes nothing.
    #[must_use]
    pub fn delete(self, key: &Key, expect: Expect<DocVersion>) -> Self {
        self.with(Effect::Delete { key: key.clone(), expect })
    }

    /// Applies deltas to the value that the document has at commit. A merge never causes a conflict or a retry.
    #[must_use]
    pub fn merge(self, key: &Key, deltas: impl IntoIterator<Item = Delta>) -> Self {
        let deltas = deltas.into_iter().collect();
        self.with(Effect::Merge { key: key.clone(), deltas, missing: Missing::Refuse })
    }

    /// Like [`merge`](Self::merge), but creates a missing document from `initial` first.
    #[must_use]
    pub fn merge_or_create(
        self,
        key: &Key,
        initial: Payload,
        deltas: impl IntoIterator<Item = Delta>,
    ) -> Self {
        let deltas = deltas.into_iter().collect();
        self.with(Effect::Merge { key: key.clone(), deltas, missing: Missing::Create(initial) })
    }

    /// Enqueues work, or wakes the row of the same key.
    #[must_use]
    pub fn enqueue(self, work: NewWork) -> Self {
        self.with(Effect::Enqueue(Box::new(work)))
    }

    /// Acknowledges the work. The row is removed, or rests when it is standing, unless it was enqueued again during the
    /// lease.
    #[must_use]
    pub fn ack(self, lease: &Lease) -> Self {
        self.with(Effect::Ack { lease: lease.clone() })
    }

    /// Advances the position of the work in the log, so that handled events are not delivered again. The lease stays.
    #[must_use]
    pub fn advance(self, lease: &Lease, position: Position) -> Self {
        self.with(Effect::Advance { lease: lease.clone(), position })
    }

    /// Defers the row until a later due time. The attempt does not count.
    #[must_use]
    pub fn defer(self, lease: &Lease, due: Due) -> Self {
        self.with(Effect::Defer { lease: lease.clone(), due })
    }

    /// Records a failed attempt. The row is due again later, and the attempt counts.
    #[must_use]
    pub fn fail(self, lease: &Lease, error: impl Into<String>, due: Due) -> Self {
        self.with(Effect::Fail { lease: lease.clone(), error: error.into(), due })
    }

    /// Blocks the row. No worker can claim it until an operator unblocks it.
    #[must_use]
    pub fn block(self, lease: &Lease, reason: impl Into<String>) -> Self {
        self.with(Effect::Block { lease: lease.clone(), reason: reason.into() })
    }

    /// Renews the lease for another `ttl` from now on, under the same fence.
    #[must_use]
    pub fn renew(self, lease: &Lease, ttl: Duration) -> Self {
        self.with(Effect::Renew { lease: lease.clone(), ttl })
    }

    /// Releases the row unchanged. It keeps its due time, and the attempt does not count.
    #[must_use]
    pub fn release(self, lease: &Lease) -> Self {
        self.with(Effect::Release { lease: lease.clone() })
    }

    /// Applies an operator's action to rows by key or by filter. The receipt contains the number of rows that changed.
    #[must_use]
    pub fn operate(self, selection: Selection, operation: Operation) -> Self {
        self.with(Effect::Operate { selection, operation })
    }

    /// Requires a stream to be as expected, without changing it.
    #[must_use]
    pub fn guard_stream(self, stream: &Key, expect: Expect<StreamVersion>) -> Self {
        self.with(Effect::GuardStream { stream: stream.clone(), expect })
    }

    /// Requires a document to be as expected, without changing it.
    #[must_use]
    pub fn guard_document(self, key: &Key, expect: Expect<DocVersion>) -> Self {
        self.with(Effect::GuardDocument { key: key.clone(), expect })
    }

    /// Requires that the lease is still valid, so that a stale process writes nothing.
    #[must_use]
    pub fn guard_lease(self, lease: &Lease) -> Self {
        self.with(Effect::GuardLease { lease: lease.clone() })
    }

    /// Requires that a work row still has this creation number and that no unexpired lease is on it. It is meant for
    /// operators, who act on rows that they have seen.
    #[must_use]
    pub fn guard_work(self, key: &Key, seq: u64) -> Self {
        self.with(Effect::GuardWork { key: key.clone(), seq })
    }
}
