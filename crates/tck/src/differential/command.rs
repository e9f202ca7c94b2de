//! Commands of a generated history. They are symbolic: a lease is "grant number 3", a version "one behind", an instant
//! "the next boundary". Each side resolves a symbol when it reaches the command.

use std::time::Duration;

use tidelock_core::store::{Delta, Lifetime, Operation};

/// One of a few streams, documents, rows, queues or owners: so few that histories collide.
pub(super) type Name = u8;

/// A command, and the connection of the backend that runs it.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) second: bool,
    pub(super) command: Command,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "on connection {}: {:?}", if self.second { 2 } else { 1 }, self.command)
    }
}

/// One command of a history.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Apply { op: Option<u32>, acts: Vec<Act> },
    ClaimLanes { queues: Vec<Name>, limit: usize, owner: Name, ttl: Duration, events: usize },
    ClaimNamed { row: Name, create: Option<Name>, owner: Name, ttl: Duration },
    NextReady { queues: Vec<Name> },
    Clock(Move),
    Sweep { tombstones: Option<Duration>, operations: Option<Duration> },
    Operation(u32),
    ReadStream { stream: Name, from: Option<u64>, backward: bool, limit: usize },
    ReadLog { after: Option<usize>, backward: bool, limit: usize, filter: Filter },
    Documents { limit: usize },
    Streams { limit: usize },
    Works { limit: usize, filter: RowFilter },
    Rows { doc: Name, stream: Name, row: Name, op: u32 },
}

/// One precondition or effect of a batch.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Append { stream: Name, want: Want, events: Vec<NewFact> },
    Close { stream: Name, want: Want },
    Truncate { stream: Name, upto: Reach },
    Put { doc: Name, want: Want, value: i64, lasts: Option<DueTime> },
    Delete { doc: Name, want: Want },
    Merge { doc: Name, deltas: Vec<Delta>, create: Option<i64> },
    Enqueue(Job),
    Finish { grant: Grant, end: End },
    Operate { rows: Rows, operation: Operation },
    GuardStream { stream: Name, want: Want },
    GuardDocument { doc: Name, want: Want },
}

/// An event whose id is a number.
#[derive(Clone, Debug)]
pub(super) struct NewFact {
    pub(super) id: u32,
    pub(super) kind: Name,
    pub(super) value: i64,
}

/// The expected version, relative to the current one when the batch is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    Any,
    Absent,
    Exists,
    AsItIs,
    OneBehind,
    OneAhead,
}

/// The range of a stream to remove, relative to its length when the batch is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    /// All events below a version.
    Below(u64),
    /// All events except this number of the last ones.
    AllBut(u64),
    /// More events than the stream has, by this number.
    Beyond(u64),
}

/// The instant at which something is due or expires.
#[derive(Clone, Copy, Debug)]
pub(super) enum DueTime {
    Now,
    After(Duration),
    /// This long after the first instant of the history.
    At(Duration),
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) row: Name,
    pub(super) queue: Name,
    pub(super) due: DueTime,
    pub(super) priority: u8,
    pub(super) lifetime: Lifetime,
    pub(super) payload: Option<i64>,
    /// The position of the event with this rank.
    pub(super) position: Option<usize>,
    pub(super) follow: Option<Name>,
    pub(super) want: Want,
}

/// A lease: that of the grant this number before the last one, or one that was never granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) back: usize,
    /// Presented for this row instead of the row of the grant.
    pub(super) other_row: Option<Name>,
}

#[derive(Clone, Debug)]
pub(super) enum End {
    Ack,
    Advance(usize),
    Defer(DueTime),
    Fail(DueTime),
    Block,
    Renew(Duration),
    Release,
    Guard,
}

#[derive(Clone, Debug)]
pub(super) enum Rows {
    Named(Vec<Name>),
    Matching(RowFilter),
}

#[derive(Clone, Debug, Default)]
pub(super) struct RowFilter {
    pub(super) queue: Option<Name>,
    pub(super) pattern: Option<&'static str>,
    pub(super) blocked: Option<bool>,
    pub(super) leased: Option<bool>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) kind: Option<Name>,
    pub(super) since: Option<Duration>,
    pub(super) stream: Option<Name>,
}

impl Filter {
    pub(super) fn is_empty(&self) -> bool {
        self.kind.is_none() && self.since.is_none() && self.stream.is_none()
    }
}

/// A movement of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    By(Duration),
    /// To one of the next instants at which something is due or expires.
    ToBoundary(usize),
    /// One tick before such an instant.
    ToJustBefore(usize),
}
