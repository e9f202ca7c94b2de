//! How the user's code says that something went wrong, and how it hears of it.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::error::codes;
use crate::model::limits::ERROR_BYTES;

/// Why a step or a workflow failed, as it is recorded. `?` makes one of any error; what it says is kept together with what
/// caused it.
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
    /// The step or child whose failure this is, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
}

/// The longest message that is recorded, in bytes. Longer ones are cut.
const MESSAGE_BYTES: usize = ERROR_BYTES;

impl Failure {
    /// A failure that may pass: the step is tried again, as its policy says.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), permanent: false, cancelled: false, cause: None }
    }

    /// A failure that will not pass: the step is not tried again.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { permanent: true, ..Self::new(message) }
    }

    /// The same, as it is recorded: whoever fails must be able to say so, however much there is to say.
    pub(super) fn cut(mut self) -> Self {
        self.message.truncate(self.message.floor_char_boundary(MESSAGE_BYTES));
        self
    }

    /// What it says.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether trying again is of no use.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Whether it comes from a cancelled run.
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
            // Many errors repeat what caused them.
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

/// What a workflow hears when something that it waited for did not come to a good end. The same on the first run and on every
/// replay.
#[derive(Clone, Debug, PartialEq, Eq, ThisError, Serialize, Deserialize)]
pub enum StepError {
    /// A step failed for good.
    #[error("step {step:?} failed after {attempts} {}: {error}", if *.attempts == 1 { "attempt" } else { "attempts" })]
    Failed {
        /// Its name.
        step: String,
        /// Why, the last time.
        error: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The run was cancelled. What cleans up goes through [`Ctx::clean_up`](super::Ctx::clean_up).
    #[error("{what:?} was given up because the run was cancelled: {reason}")]
    Cancelled {
        /// What was waited for.
        what: String,
        /// Why the run was cancelled.
        reason: String,
    },
    /// A child run failed or was cancelled.
    #[error("child run {run:?} {how}: {error}")]
    Child {
        /// The name under which it was started.
        name: String,
        /// Its id.
        run: String,
        /// How it ended.
        how: String,
        /// Why.
        error: String,
    },
    /// A value does not have the type that was asked for.
    #[error("{what:?} brought a value that does not fit: {reason}")]
    Value {
        /// What brought it.
        what: String,
        /// Why it does not fit.
        reason: String,
    },
}

impl StepError {
    /// Why it failed, without its name.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Failed { error, .. } | Self::Child { error, .. } => error,
            Self::Cancelled { reason, .. } | Self::Value { reason, .. } => reason,
        }
    }

    /// What failed, by the name that it has in the run.
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
