//! The error of a workflow's operations. The module `workflow` exports it. It is defined here because
//! [`Failure`](super::Failure) recognises it in a chain of errors, and a module uses only those below it.

use std::error::Error;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::error::codes;

/// The error of an awaited operation that did not succeed. It is the same in the first execution and in every replay.
#[derive(Clone, Debug, PartialEq, Eq, ThisError, Serialize, Deserialize)]
pub enum StepError {
    /// A step failed and is not retried.
    #[error("step {step:?} failed after {attempts} {}: {error}", if *.attempts == 1 { "attempt" } else { "attempts" })]
    Failed {
        /// The name of the step.
        step: String,
        /// The error of the last attempt.
        error: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// The run was cancelled. Clean-up code uses `Ctx::shielded`.
    #[error("{what:?} was given up because the run was cancelled: {reason}")]
    Cancelled {
        /// The name of the operation that was given up.
        what: String,
        /// Why the run was cancelled.
        reason: String,
    },
    /// A child run failed or was cancelled.
    #[error("child run {run:?} {how}: {error}")]
    Child {
        /// The name under which the child was started.
        name: String,
        /// The id of the child.
        run: String,
        /// How it ended.
        how: String,
        /// The error of the child.
        error: String,
    },
    /// A value does not have the expected type.
    #[error("{what:?} brought a value that does not fit: {reason}")]
    Value {
        /// The name of the signal or child that the value comes from.
        what: String,
        /// Why it does not fit.
        reason: String,
    },
}

impl StepError {
    /// Returns the first error of this type in a chain of errors.
    pub(super) fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut error = error;
        loop {
            match error.downcast_ref() {
                Some(found) => return Some(found),
                None => error = error.source()?,
            }
        }
    }

    /// Returns the reason of the error, without the name of the operation.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Failed { error, .. } | Self::Child { error, .. } => error,
            Self::Cancelled { reason, .. } | Self::Value { reason, .. } => reason,
        }
    }

    /// Returns the name of the step or child that failed.
    pub(super) fn cause(&self) -> Option<&str> {
        match self {
            Self::Failed { step: name, .. } | Self::Child { name, .. } => Some(name),
            Self::Cancelled { .. } | Self::Value { .. } => None,
        }
    }
}

codes! {
    StepError {
        Failed => "TL1009",
        Cancelled => "TL1010",
        Child => "TL1011",
        Value => "TL1014",
    }
}
