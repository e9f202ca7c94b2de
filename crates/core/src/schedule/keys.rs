//! Keys and queues of tasks in the store.

use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::QueueName;
use crate::key::{Arg, Key, KeyPrefix};

/// The kind of a task's document, work row and history: `tidelock.task("report")`.
const TASK: &str = "tidelock.task";
/// The kind of the work rows of concurrent fires: `tidelock.fire("report", 1767225600000000)`.
const FIRE: &str = "tidelock.fire";
/// The kind of the documents that hold quarantined records.
const QUARANTINE: &str = "tidelock.task-quarantine";
/// The maximum length of the name of a task or a scheduler, in bytes. It leaves room for prefixes.
pub(super) const MAX_NAME_BYTES: usize = 128;
/// The default name of a scheduler.
pub(super) const DEFAULT_SCHEDULER: &str = "default";

/// Returns the key of the document, the work row and the history of a task.
pub(super) fn task(name: &str) -> Result<Key, InvalidInput> {
    Key::new(TASK, [name])
}

/// Returns the prefix of all tasks.
pub(super) fn all_tasks() -> KeyPrefix {
    KeyPrefix::kind(TASK)
}

/// Returns the key of the work row of a concurrent fire.
pub(super) fn fire(task: &str, fire: Timestamp) -> Result<Key, InvalidInput> {
    Key::of(FIRE, &[Arg::Str(task.to_owned()), Arg::Int(fire.as_micros())])
}

/// Returns the key of the quarantined record of a task.
pub(super) fn quarantine(name: &str) -> Result<Key, InvalidInput> {
    Key::new(QUARANTINE, [name])
}

/// Returns the queue of the tasks of a scheduler.
pub(super) fn queue(scheduler: &str) -> Result<QueueName, InvalidInput> {
    QueueName::new(format!("schedule.{scheduler}"))
}

/// The purpose of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A task: its times, and its runs unless they overlap.
    Schedule(String),
    /// One concurrent fire of a task.
    Tick(String, Timestamp),
}

impl Row {
    pub(super) fn read(key: &Key) -> Option<Self> {
        let mut args = key.args().into_iter();
        match (key.kind().as_str(), args.next(), args.next()) {
            (TASK, Some(Arg::Str(name)), None) => Some(Self::Schedule(name)),
            (FIRE, Some(Arg::Str(name)), Some(Arg::Int(micros))) => {
                Some(Self::Tick(name, Timestamp::from_micros(micros)))
            }
            _ => None,
        }
    }
}

/// Validates a name.
pub(super) fn check(what: &'static str, text: &str) -> Result<(), InvalidInput> {
    if text.is_empty() {
        return Err(InvalidInput::name(what, text, "it is empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        let reason = format!("it has {} bytes, at most {MAX_NAME_BYTES} are allowed", text.len());
        return Err(InvalidInput::name(what, text, reason));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidInput::name(what, text, "it contains control characters"));
    }
    Ok(())
}
