//! Errors of schedules.

use thiserror::Error;

use crate::clock::Timestamp;
use crate::error::{InvalidInput, codes, conversions};
use crate::model::cron::CronError;
use crate::store::{ApplyError, StoreError};

/// The reason why a scheduler did not start, or why an operation on a task failed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScheduleError {
    /// The times of a task cannot be parsed.
    #[error("task {task:?}: {error}")]
    Times {
        /// The task.
        task: String,
        /// The reason.
        error: CronError,
    },
    /// A task has no times or no action.
    #[error("task {task:?} has {missing}")]
    Incomplete {
        /// The task.
        task: String,
        /// The missing part, and how to set it.
        missing: &'static str,
    },
    /// Two tasks have the same name.
    #[error("task {task:?} was given twice; its record is kept under its name, so give one of them another")]
    Twice {
        /// The name.
        task: String,
    },
    /// The task does not exist.
    #[error("there is no task {task:?} on this store; there are: {}", if .known.is_empty() { "none".to_owned() } else { .known.join(", ") })]
    UnknownTask {
        /// The requested name.
        task: String,
        /// The names of the existing tasks.
        known: Vec<String>,
    },
    /// The task is archived.
    #[error(
        "task {task:?} is archived since {since}: its scheduler no longer registers it; register it again to \
         continue, or read its history"
    )]
    Archived {
        /// The task.
        task: String,
        /// The time of the archiving.
        since: Timestamp,
    },
    /// The record of the task cannot be decoded.
    #[error(
        "the record of task {task:?} cannot be read: {reason}; a scheduler that runs the task puts it into quarantine and \
         begins a new one"
    )]
    Broken {
        /// The task.
        task: String,
        /// The reason.
        reason: String,
    },
    /// The request exceeds a limit.
    #[error("task {task:?}: {what} are too many, at most {limit} can be asked for; nothing was done")]
    TooMany {
        /// The task.
        task: String,
        /// The requested amount.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// No Tokio runtime can run tasks.
    #[error("cannot start a scheduler: no Tokio runtime; call start() from a runtime that outlives it")]
    NoRuntime,
    /// A value or a name is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store rejected or failed a write.
    #[error(transparent)]
    Write(Box<ApplyError>),
}

conversions! {
    ScheduleError {
        ApplyError => Write,
    }
}

codes! {
    ScheduleError {
        Times { error } => error,
        Incomplete => "TL1103",
        Twice => "TL1104",
        UnknownTask => "TL1105",
        Archived => "TL1106",
        Broken => "TL1107",
        TooMany => "TL1108",
        NoRuntime => "TL1109",
        Invalid(error) => error,
        Store(error) => error,
        Write(error) => error,
    }
}
