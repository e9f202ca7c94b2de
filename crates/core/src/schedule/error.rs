//! What can go wrong with schedules as a whole, and with one run.

use std::error::Error as StdError;
use std::fmt;

use thiserror::Error;

use crate::clock::Timestamp;
use crate::error::{InvalidInput, codes, conversions};
use crate::model::cron::CronError;
use crate::store::{ApplyError, StoreError};

/// Why a scheduler was not started, or what was asked of a task was not done.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScheduleError {
    /// The times of a task cannot be read.
    #[error("task {task:?}: {error}")]
    Times {
        /// The task.
        task: String,
        /// What is wrong with them.
        error: CronError,
    },
    /// A task has no times, or nothing to do.
    #[error("task {task:?} has {missing}")]
    Incomplete {
        /// The task.
        task: String,
        /// What it has not, and how it is given.
        missing: &'static str,
    },
    /// Two tasks have the same name.
    #[error("task {task:?} was given twice; its record is kept under its name, so give one of them another")]
    Twice {
        /// The name.
        task: String,
    },
    /// There is no such task.
    #[error("there is no task {task:?} on this store; there are: {}", if .known.is_empty() { "none".to_owned() } else { .known.join(", ") })]
    UnknownTask {
        /// The name that was asked for.
        task: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The task was taken away.
    #[error(
        "task {task:?} is archived since {since}: its scheduler does not register it any more; its history can be read, and \
         registered again it goes on"
    )]
    Archived {
        /// The task.
        task: String,
        /// Since when.
        since: Timestamp,
    },
    /// The record of the task cannot be read.
    #[error(
        "the record of task {task:?} cannot be read: {reason}; a scheduler that runs the task puts it into quarantine and \
         begins a new one"
    )]
    Broken {
        /// The task.
        task: String,
        /// Why not.
        reason: String,
    },
    /// Too much was asked for.
    #[error("task {task:?}: {what} are too many, at most {limit} can be asked for; nothing was done")]
    TooMany {
        /// The task.
        task: String,
        /// What was asked for.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// There is no runtime that could run tasks.
    #[error("a scheduler was started outside of a tokio runtime; start it inside of one that goes on")]
    NoRuntime,
    /// A value or a name can never be accepted.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not take a write.
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

/// Why a run of a task failed.
///
/// Any error becomes a [`Retry`](Self::Retry) with `?`. This type is no `std::error::Error` itself, because then it could
/// not be made from all others.
#[derive(Debug)]
pub enum TaskError {
    /// It may succeed when it is tried again after the task's retry delay.
    Retry(Box<dyn StdError + Send + Sync>),
    /// It will fail again: the task waits for its next fire.
    NonRetryable(Box<dyn StdError + Send + Sync>),
}

impl TaskError {
    /// A failure that may be tried again, from an error or a text.
    #[must_use]
    pub fn retry(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Retry(error.into())
    }

    /// A failure that is not to be tried again, from an error or a text.
    #[must_use]
    pub fn non_retryable(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::NonRetryable(error.into())
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::Retry(Box::new(error))
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(error) | Self::NonRetryable(error) => {
                f.write_str(&crate::reactions::effects::told(&**error))
            }
        }
    }
}
