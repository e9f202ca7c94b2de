//! Failures of steps and workflows: how user code reports and receives them.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::error::codes;
use crate::model::limits::ERROR_BYTES;

/// The recorded reason why a step or a workflow failed. The `?` operator converts any error; the message includes those of
/// its sources.
///
/// ```
/// use tidelock_core::workflow::Failure;
///
/// fn port(text: &str) -> Result<u16, Failure> {
///     let port = text.parse()?; // tried again, as the step's policy says
///     if port == 0 {
///         return Err(Failure::permanent("port 0 cannot be called")); // never tried again
///     }
///     Ok(port)
/// }
/// assert!(port("http").is_err_and(|failure| !failure.is_permanent()));
/// assert!(port("0").is_err_and(|failure| failure.is_permanent()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) permanent: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cancelled: bool,
    /// The name of the step or child that caused the failure, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
}

/// The longest message that is recorded, in bytes. Longer messages are truncated.
const MESSAGE_BYTES: usize = ERROR_BYTES;

impl Failure {
    /// Creates a transient failure: the step is retried according to its policy.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), permanent: false, cancelled: false, cause: None }
    }

    /// Creates a permanent failure: the step is not retried.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { permanent: true, ..Self::new(message) }
    }

    /// Truncates the message, so that a failure can be recorded whatever its length.
    pub(super) fn cut(mut self) -> Self {
        self.message.truncate(self.message.floor_char_boundary(MESSAGE_BYTES));
        self
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether the failure is permanent, so that a retry is of no use.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Returns whether the failure comes from a cancelled run.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &(dyn Error + 'static) = &error;
        let step = any.downcast_ref::<StepError>();
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            // Many errors repeat the message of their source.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = inner.source();
        }
        Self {
            message,
            permanent: step.is_some(),
            cancelled: matches!(step, Some(StepError::Cancelled { .. })),
            cause: step.and_then(StepError::cause).map(str::to_owned),
        }
    }
}

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
    /// The run was cancelled. Clean-up code uses [`Ctx::clean_up`](super::Ctx::clean_up).
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
    /// Returns the reason of the error, without the name of the operation.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Failed { error, .. } | Self::Child { error, .. } => error,
            Self::Cancelled { reason, .. } | Self::Value { reason, .. } => reason,
        }
    }

    /// Returns the name of the step or child that failed.
    fn cause(&self) -> Option<&str> {
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
