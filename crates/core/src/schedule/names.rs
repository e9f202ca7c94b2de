//! The names that tasks have in the store: keys and lanes.

use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::Lane;
use crate::key::{Arg, Key, KeyPrefix};

/// The kind of a task's document, work row and history: `tidelock.task("report")`.
const TASK: &str = "tidelock.task";
/// The kind of the work rows of fires that run beside others: `tidelock.fire("report", 1767225600000000)`.
const FIRE: &str = "tidelock.fire";
/// The kind of the documents that keep records that could not be read.
const QUARANTINE: &str = "tidelock.task-quarantine";
/// The longest name of a task or a scheduler, in bytes. It leaves room for what is added to it.
pub(super) const MAX_NAME_BYTES: usize = 128;
/// The scheduler of those that name none.
pub(super) const DEFAULT_SCHEDULER: &str = "default";

/// The document, the work row and the history of a task.
pub(super) fn task(name: &str) -> Result<Key, InvalidInput> {
    Key::new(TASK, [name])
}

/// All tasks.
pub(super) fn all_tasks() -> KeyPrefix {
    KeyPrefix::kind(TASK)
}

/// The work row of a fire that runs beside others.
pub(super) fn fire(task: &str, fire: Timestamp) -> Result<Key, InvalidInput> {
    Key::of(FIRE, &[Arg::Str(task.to_owned()), Arg::Int(fire.as_micros())])
}

/// Where the record of a task is kept when it could not be read.
pub(super) fn quarantine(name: &str) -> Result<Key, InvalidInput> {
    Key::new(QUARANTINE, [name])
}

/// The lane of the tasks of a scheduler.
pub(super) fn lane(scheduler: &str) -> Result<Lane, InvalidInput> {
    Lane::new(format!("schedule.{scheduler}"))
}

/// What a row is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A task: its times, and its runs unless they overlap.
    Task(String),
    /// One fire of a task that runs beside others.
    Fire(String, Timestamp),
}

impl Row {
    pub(super) fn read(key: &Key) -> Option<Self> {
        let mut args = key.args().into_iter();
        match (key.kind().as_str(), args.next(), args.next()) {
            (TASK, Some(Arg::Str(name)), None) => Some(Self::Task(name)),
            (FIRE, Some(Arg::Str(name)), Some(Arg::Int(micros))) => {
                Some(Self::Fire(name, Timestamp::from_micros(micros)))
            }
            _ => None,
        }
    }
}

/// Checks a name that a user gives.
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
