//! Journal entries: the operations, results and messages of a run, in the order in which they count.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::failure::step_error::StepError;
use crate::id::{EventType, Fence, StreamVersion};
use crate::payload::Payload;
use crate::store::{Event, Lease, NewEvent};

/// The start of a run, or of a generation of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) run: String,
    pub(super) workflow: String,
    pub(super) queue: String,
    pub(super) priority: u8,
    pub(super) generation: u32,
    pub(super) input: Payload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<Parent>,
    /// Names and ids of the signals that earlier generations received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) heard: Vec<(String, String)>,
    /// The trace in which it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<String>,
    /// When its first generation was started.
    pub(super) started_at: Timestamp,
}

#[cfg(test)]
impl Ran {
    pub(super) const EPOCH: Self = Self { began: Timestamp::EPOCH, ended: Timestamp::EPOCH };
}

/// The times of an attempt of a step, by the store's clock as its worker estimated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ran {
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
}

/// The run that waits for a child run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parent {
    pub(super) run: String,
    /// The generation of the parent that started it: later ones do not wait for it.
    #[serde(default)]
    pub(super) generation: u32,
    /// The name under which the parent waits.
    pub(super) name: String,
}

/// The name of an operation that the workflow requested, and its position in the order of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpId {
    pub(super) name: String,
    pub(super) seq: u32,
    /// A fingerprint of the step's input, if it declares one. For a timer, its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<String>,
}

/// The end of a run or of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    Completed(Payload),
    Failed(Failure),
    Cancelled(Failure),
    Continued(Payload),
}

/// The time of a timer: a duration after its entry is recorded, or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TimerSpec {
    After(Duration),
    At(Timestamp),
}

impl TimerSpec {
    pub(super) fn since(self, recorded: Timestamp) -> Timestamp {
        match self {
            Self::After(wait) => recorded.after(wait),
            Self::At(at) => at,
        }
    }
}

impl std::fmt::Display for TimerSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::After(wait) => write!(f, "{wait:?}"),
            Self::At(at) => write!(f, "{at}"),
        }
    }
}

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum JournalEntry {
    Started(Box<Started>),
    /// A step succeeded.
    Done(Done),
    /// A step failed and is not retried.
    GaveUp(GaveUp),
    /// An attempt of a step failed, and the step is retried.
    Tried(Tried),
    TimerSet(TimerSet),
    TimerFired(NamedEntry),
    ChildStarted(ChildStarted),
    ChildEnded(ChildEnded),
    /// A child could not be started.
    ChildRefused(GaveUp),
    /// The workflow waits for a signal.
    Awaited(Awaited),
    Version(Version),
    Heard(SignalReceived),
    Cancel(Reason),
    /// An operator resumed the run: failed steps are retried.
    Resumed(Reason),
    Ended(Ending),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) op: OpId,
    pub(super) value: Payload,
    pub(super) ran: Ran,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GaveUp {
    pub(super) op: OpId,
    pub(super) error: StepError,
    /// When the last attempt ran. `None` for a child that could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ran: Option<Ran>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tried {
    pub(super) op: OpId,
    pub(super) attempt: u32,
    pub(super) error: String,
    /// The backoff before the next attempt.
    pub(super) wait: Duration,
    pub(super) ran: Ran,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TimerSet {
    pub(super) op: OpId,
    pub(super) when: TimerSpec,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct NamedEntry {
    pub(super) name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChildStarted {
    pub(super) op: OpId,
    pub(super) run: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChildEnded {
    pub(super) name: String,
    pub(super) run: String,
    pub(super) ending: Ending,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Awaited {
    pub(super) op: OpId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Version {
    pub(super) name: String,
    pub(super) value: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SignalReceived {
    pub(super) signal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) value: Payload,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reason {
    pub(super) reason: String,
}

/// The metadata of an entry.
#[derive(Serialize)]
struct By {
    fence: Fence,
}

/// The kind of an operation, for the comparison of a replay with the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Step,
    Timer,
    Child,
    Wait,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Child => "child",
            Self::Wait => "wait",
        }
    }
}

impl JournalEntry {
    /// Returns the entry as an event of the run's driver, with the fence of its lease as metadata. The fence lets readers
    /// distinguish the entries that an activation wrote from those that it only replayed.
    pub(super) fn event_by(&self, lease: &Lease) -> Result<NewEvent, InvalidInput> {
        let mut event = self.event()?;
        event.meta = Payload::of(&By { fence: lease.fence })?;
        Ok(event)
    }

    /// Returns the entry as an event.
    pub(super) fn event(&self) -> Result<NewEvent, InvalidInput> {
        let (name, payload) = match self {
            Self::Started(it) => ("started", Payload::of(it)),
            Self::Done(it) => ("done", Payload::of(it)),
            Self::GaveUp(it) => ("gave-up", Payload::of(it)),
            Self::Tried(it) => ("tried", Payload::of(it)),
            Self::TimerSet(it) => ("timer-set", Payload::of(it)),
            Self::TimerFired(it) => ("timer-fired", Payload::of(it)),
            Self::ChildStarted(it) => ("child-started", Payload::of(it)),
            Self::ChildEnded(it) => ("child-ended", Payload::of(it)),
            Self::ChildRefused(it) => ("child-refused", Payload::of(it)),
            Self::Awaited(it) => ("signal-wait", Payload::of(it)),
            Self::Version(it) => ("version", Payload::of(it)),
            Self::Heard(it) => ("heard", Payload::of(it)),
            Self::Cancel(it) => ("cancel", Payload::of(it)),
            Self::Resumed(it) => ("resumed", Payload::of(it)),
            Self::Ended(it) => ("ended", Payload::of(it)),
        };
        Ok(NewEvent::new(EventType::new(format!("{PREFIX}{name}"))?, payload?))
    }

    /// Decodes an event of a journal.
    pub(super) fn of(event: &Event) -> Result<Self, InvalidInput> {
        let event_type = event.event_type.as_str();
        Ok(match event_type.strip_prefix(PREFIX).unwrap_or(event_type) {
            "started" => Self::Started(Box::new(read(event)?)),
            "done" => Self::Done(read(event)?),
            "gave-up" => Self::GaveUp(read(event)?),
            "tried" => Self::Tried(read(event)?),
            "timer-set" => Self::TimerSet(read(event)?),
            "timer-fired" => Self::TimerFired(read(event)?),
            "child-started" => Self::ChildStarted(read(event)?),
            "child-ended" => Self::ChildEnded(read(event)?),
            "child-refused" => Self::ChildRefused(read(event)?),
            "signal-wait" => Self::Awaited(read(event)?),
            "version" => Self::Version(read(event)?),
            "heard" => Self::Heard(read(event)?),
            "cancel" => Self::Cancel(read(event)?),
            "resumed" => Self::Resumed(read(event)?),
            "ended" => Self::Ended(read(event)?),
            other => {
                let reason =
                    format!("{other:?} is no entry of a journal; a newer version may have written it");
                return Err(InvalidInput::Payload { reason });
            }
        })
    }

    /// Returns the operation that the workflow requested and its kind, if the entry records one.
    pub(super) fn op(&self) -> Option<(&OpId, Kind)> {
        match self {
            Self::Done(Done { op, .. }) | Self::GaveUp(GaveUp { op, .. }) | Self::Tried(Tried { op, .. }) => {
                Some((op, Kind::Step))
            }
            Self::TimerSet(TimerSet { op, .. }) => Some((op, Kind::Timer)),
            Self::ChildStarted(ChildStarted { op, .. }) | Self::ChildRefused(GaveUp { op, .. }) => {
                Some((op, Kind::Child))
            }
            Self::Awaited(Awaited { op }) => Some((op, Kind::Wait)),
            _ => None,
        }
    }

    /// Returns whether the entry comes from outside the run's driver, such as a signal.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(self, Self::Heard(_) | Self::Cancel(_) | Self::ChildEnded(_) | Self::Resumed(_))
    }
}

const PREFIX: &str = "tidelock.run.";

fn read<T: DeserializeOwned>(event: &Event) -> Result<T, InvalidInput> {
    event.payload.parse()
}

/// An entry with its version and time in the journal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) version: StreamVersion,
    pub(super) at: Timestamp,
    pub(super) entry: JournalEntry,
}

impl Placed {
    pub(super) fn of(event: &Event) -> Result<Self, InvalidInput> {
        Ok(Self { version: event.version, at: event.at, entry: JournalEntry::of(event)? })
    }
}

/// The registration of a workflow by a worker, for clients that start runs by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegisteredWorkflow {
    pub(super) queue: String,
    #[serde(default)]
    pub(super) signals: Vec<String>,
}

/// User-defined attributes by which runs are found.
pub type Attributes = BTreeMap<String, String>;
