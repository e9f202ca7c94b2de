//! The vocabulary of the one write: preconditions and effects on streams, documents and work, all or nothing.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::delta::Delta;
use super::pattern::Pattern;
use super::rows::{Lease, Lifetime};
use crate::clock::Due;
use crate::id::{DocVersion, Epoch, EventId, EventType, Lane, OpId, Position, Priority, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// What must be true of a stream or a document for the batch to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect<V> {
    /// Anything goes.
    Any,
    /// It must not exist. A deleted or expired document does not exist; neither does a stream without events.
    Absent,
    /// It must exist.
    Exists,
    /// Its version must be exactly this one.
    Exact(V),
}

/// An event that is to be appended.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Its id; appending the same id again is recognised.
    pub id: EventId,
    /// What it is called.
    pub event_type: EventType,
    /// What it says.
    pub payload: Payload,
    /// What is noted beside it.
    pub meta: Payload,
    /// The id of the conversation that it belongs to.
    pub correlation: Option<String>,
}

impl NewEvent {
    /// An event with a new id, without notes.
    #[must_use]
    pub fn new(event_type: EventType, payload: Payload) -> Self {
        Self { id: EventId::new(), event_type, payload, meta: Payload::null(), correlation: None }
    }

    /// The same event under an id that the caller chose.
    #[must_use]
    pub fn with_id(mut self, id: EventId) -> Self {
        self.id = id;
        self
    }
}

/// Work that is to be done.
///
/// Enqueuing a key that exists wakes it: its due time becomes the earlier of the two, its lane, priority and (when
/// given) payload and followed stream become the new ones; position, attempts, lease and block stay. A row that is
/// backing off after a failure keeps its due time. A row that somebody holds runs again after its holder is done.
#[derive(Clone, Debug, PartialEq)]
pub struct NewWork {
    /// Its name.
    pub key: Key,
    /// The queue that it is claimed from.
    pub lane: Lane,
    /// When it is due.
    pub due: Due,
    /// How urgent it is.
    pub priority: Priority,
    /// Whether it outlives its acknowledgement. Counts when the row is created.
    pub lifetime: Lifetime,
    /// What a worker needs to know; `None` keeps what an existing row has.
    pub payload: Option<Payload>,
    /// Where it starts in the log. Counts when the row is created.
    pub position: Option<Position>,
    /// The stream whose events after the position come with a grant; `None` keeps what an existing row has.
    pub follow: Option<Key>,
    /// [`Expect::Absent`] refuses to wake an existing row, [`Expect::Exists`] refuses to create one.
    pub expect: Expect<()>,
    /// Whether an existing row gives way to a new one instead of being woken: its attempts, lease and block end with it.
    pub replace: bool,
}

impl NewWork {
    /// A job that is due now and gone once acknowledged.
    #[must_use]
    pub fn once(key: Key, lane: Lane) -> Self {
        Self {
            key,
            lane,
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

    /// A row that is due now and rests once acknowledged.
    #[must_use]
    pub fn standing(key: Key, lane: Lane) -> Self {
        Self { lifetime: Lifetime::Standing, ..Self::once(key, lane) }
    }

    /// The same work, due at another time.
    #[must_use]
    pub fn due(mut self, due: Due) -> Self {
        self.due = due;
        self
    }

    /// The same work with another urgency.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The same work with something to know.
    #[must_use]
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = Some(payload);
        self
    }

    /// The same work in a new row, in the place of one of that name: its holder, if any, is fenced off.
    #[must_use]
    pub fn replacing(mut self) -> Self {
        self.replace = true;
        self
    }

    /// The same work, refused when a row of that name exists.
    #[must_use]
    pub fn only_new(mut self) -> Self {
        self.expect = Expect::Absent;
        self
    }
}

/// What a merge does when the document does not exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    /// The batch is refused.
    Refuse,
    /// The document is created with this value first.
    Create(Payload),
}

/// Which work rows an operator means.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// These; names that do not exist are passed over.
    Keys(Vec<Key>),
    /// All that match. A filter without any condition means every blocked row.
    Filter(WorkFilter),
}

/// Conditions on work rows; each one that is given must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkFilter {
    /// Only this lane.
    pub lane: Option<Lane>,
    /// Only keys whose canonical text matches.
    pub pattern: Option<Pattern>,
    /// Only blocked rows, or only rows that are not.
    pub blocked: Option<bool>,
    /// Only rows that somebody holds, or only rows that nobody does.
    pub leased: Option<bool>,
}

/// What an operator does to work rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Blocked rows go on where they stopped, with a fresh budget, at once. Others are passed over.
    Unblock,
    /// Rows start again from the beginning of the log, unblocked, at once. Their holder, if any, is fenced off.
    Reset,
    /// Rows that wait become due at once.
    RetryNow,
    /// Rows get another urgency.
    Prioritize(Priority),
    /// Rows are removed. Their holder, if any, is fenced off.
    Remove,
}

/// One precondition or effect.
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

/// Preconditions and effects, evaluated in order in one transaction: all of them, or none.
///
/// A later effect sees what an earlier one did. The batch fails as a whole at the first precondition that does not
/// hold, and the error names it.
///
/// Clones share the effects: a copy that is kept for a retry costs no more than a reference count. A shared batch that
/// gets another effect copies them once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub(crate) effects: Arc<Vec<Effect>>,
    pub(crate) op_id: Option<OpId>,
    pub(crate) observed_in: Option<Epoch>,
}

impl Batch {
    /// A batch that does nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The effects so far, in order.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// The id under which the batch is applied at most once.
    #[must_use]
    pub fn id(&self) -> Option<OpId> {
        self.op_id
    }

    /// Names the batch: applied again under the same id, it changes nothing and returns the first receipt.
    /// [`Store::resolve`](crate::store::Store::resolve) returns the outcome when the reply was lost.
    #[must_use]
    pub fn op_id(mut self, id: OpId) -> Self {
        self.op_id = Some(id);
        self
    }

    /// Requires that the store is still in the epoch in which the batch was decided, besides everything else.
    ///
    /// Set it on a batch that rests on something remembered: a version in the lost part of a history is not the same
    /// version afterwards. Take the epoch with [`Store::epoch`](crate::store::Store::epoch) before you read. Of two
    /// epochs the older one counts.
    #[must_use]
    pub fn observed_in(mut self, epoch: Epoch) -> Self {
        self.observed_in = Some(self.observed_in.map_or(epoch, |other| other.min(epoch)));
        self
    }

    /// The epoch that the batch requires.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.observed_in
    }

    /// Requires the epoch in which the batch is submitted, when it expects an exact version and requires no epoch yet.
    /// For backends: such a batch is never decided again in another epoch.
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

    /// Adds all effects of another batch after those of this one. The id stays this one's; required epochs of both count.
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

    /// Appends events to a stream, which begins with its first event.
    ///
    /// Appending events that are there already (same ids, same stream, same order, same content) in a batch of
    /// appends only is recognised and answered with the first receipt. Events that were removed are not there.
    #[must_use]
    pub fn append(
        self,
        stream: &Key,
        expect: Expect<StreamVersion>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Self {
        self.with(Effect::Append { stream: stream.clone(), expect, events: events.into_iter().collect() })
    }

    /// Closes a stream for ever: later appends are refused. Closing a closed stream changes nothing.
    #[must_use]
    pub fn close(self, stream: &Key, expect: Expect<StreamVersion>) -> Self {
        self.with(Effect::Close { stream: stream.clone(), expect })
    }

    /// Removes the events of a stream below a version: those that are left keep their versions and positions, and the
    /// next append goes on after the last version, also when nothing is left. Works on a closed stream, too. What was
    /// removed before, and a stream without events, change nothing. The receipt counts the events that were removed.
    ///
    /// Ids of removed events are forgotten: appended again in a later batch, they are new events. Guard the stream in
    /// the same batch when the removal depends on what it holds.
    #[must_use]
    pub fn truncate(self, stream: &Key, before: StreamVersion) -> Self {
        self.with(Effect::Truncate { stream: stream.clone(), before })
    }

    /// Writes a document.
    #[must_use]
    pub fn put(self, key: &Key, expect: Expect<DocVersion>, value: Payload) -> Self {
        self.with(Effect::Put { key: key.clone(), expect, value, expires: None })
    }

    /// Writes a document that ceases to be at a given time.
    #[must_use]
    pub fn put_until(self, key: &Key, expect: Expect<DocVersion>, value: Payload, expires: Due) -> Self {
        self.with(Effect::Put { key: key.clone(), expect, value, expires: Some(expires) })
    }

    /// Deletes a document. Its version stays and goes on: whoever looked before conflicts. Deleting what does not
    /// exist changes nothing.
    #[must_use]
    pub fn delete(self, key: &Key, expect: Expect<DocVersion>) -> Self {
        self.with(Effect::Delete { key: key.clone(), expect })
    }

    /// Changes parts of a document against whatever value it has at commit: never a conflict, never a retry.
    #[must_use]
    pub fn merge(self, key: &Key, deltas: impl IntoIterator<Item = Delta>) -> Self {
        let deltas = deltas.into_iter().collect();
        self.with(Effect::Merge { key: key.clone(), deltas, missing: Missing::Refuse })
    }

    /// Like [`merge`](Self::merge), but a document that does not exist is created from `initial` first.
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

    /// Adds work, or wakes work of the same name.
    #[must_use]
    pub fn enqueue(self, work: NewWork) -> Self {
        self.with(Effect::Enqueue(Box::new(work)))
    }

    /// The work is done: the row goes (or rests, when it is standing), unless it was enqueued again meanwhile.
    #[must_use]
    pub fn ack(self, lease: &Lease) -> Self {
        self.with(Effect::Ack { lease: lease.clone() })
    }

    /// The work has come that far in the log: what was handled never comes again. The lease stays.
    #[must_use]
    pub fn advance(self, lease: &Lease, position: Position) -> Self {
        self.with(Effect::Advance { lease: lease.clone(), position })
    }

    /// Not now: the row is due again later, and the attempt does not count.
    #[must_use]
    pub fn defer(self, lease: &Lease, due: Due) -> Self {
        self.with(Effect::Defer { lease: lease.clone(), due })
    }

    /// The attempt failed: the row is due again later, and the attempt counts.
    #[must_use]
    pub fn fail(self, lease: &Lease, error: impl Into<String>, due: Due) -> Self {
        self.with(Effect::Fail { lease: lease.clone(), error: error.into(), due })
    }

    /// The work cannot go on: nobody gets the row until an operator unblocks it.
    #[must_use]
    pub fn block(self, lease: &Lease, reason: impl Into<String>) -> Self {
        self.with(Effect::Block { lease: lease.clone(), reason: reason.into() })
    }

    /// Keeps the lease for another `ttl` from now on, under the same fence.
    #[must_use]
    pub fn renew(self, lease: &Lease, ttl: Duration) -> Self {
        self.with(Effect::Renew { lease: lease.clone(), ttl })
    }

    /// Hands the row back untouched: due as it was, and the attempt does not count.
    #[must_use]
    pub fn release(self, lease: &Lease) -> Self {
        self.with(Effect::Release { lease: lease.clone() })
    }

    /// An operator's verb on rows by name or by filter; the receipt counts the rows that changed.
    #[must_use]
    pub fn operate(self, selection: Selection, operation: Operation) -> Self {
        self.with(Effect::Operate { selection, operation })
    }

    /// Requires a stream to be as expected, without touching it.
    #[must_use]
    pub fn guard_stream(self, stream: &Key, expect: Expect<StreamVersion>) -> Self {
        self.with(Effect::GuardStream { stream: stream.clone(), expect })
    }

    /// Requires a document to be as expected, without touching it.
    #[must_use]
    pub fn guard_document(self, key: &Key, expect: Expect<DocVersion>) -> Self {
        self.with(Effect::GuardDocument { key: key.clone(), expect })
    }

    /// Requires that a lease is still its holder's: a stale process writes nothing.
    #[must_use]
    pub fn guard_lease(self, lease: &Lease) -> Self {
        self.with(Effect::GuardLease { lease: lease.clone() })
    }

    /// Requires that a row of work is still the one that was created under this number, and that nobody holds it: for
    /// operators, who act on what they have seen.
    #[must_use]
    pub fn guard_work(self, key: &Key, seq: u64) -> Self {
        self.with(Effect::GuardWork { key: key.clone(), seq })
    }
}
