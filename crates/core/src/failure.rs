//! Failures of handlers: the one error type that steps, reactions, schedules, deliveries, projections and leaders return.
//!
//! The `?` operator converts any error and any text, so most handlers never name the type. A handler that knows more says when
//! its work may be retried:
//!
//! | | step | reaction | schedule | outbox | projection | leader |
//! |---|---|---|---|---|---|---|
//! | [`new`](Failure::new), [`retry`](Failure::retry), `?` | retried by its policy | retried by its policy | retried by its policy | retried by its policy | blocks the key | leads again after a backoff |
//! | [`retry_after`](Failure::retry_after) | not before | not before | not before | not before | retried, not before | not before |
//! | [`permanent`](Failure::permanent) | fails at once | blocks the key, or parks the event | waits for the next firing | blocks the message | blocks the key | leads again after the longest backoff |
//! | [`defer`](Failure::defer) | as `retry_after` | handled then, not counted | as `retry_after` | as `retry_after` | handled then, not counted | as `retry_after` |
//!
//! A delay never shortens the backoff of the policy, and it never adds attempts.

pub(crate) mod step_error;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Due, Timestamp};

use step_error::StepError;

/// The reason why a handler failed, and when its work may be retried. `?` converts any error, `&str`, `String` and
/// `anyhow::Error`; the message includes those of the error's sources once.
///
/// A failure is transient unless it is [`permanent`](Self::permanent). It does not implement `std::error::Error`, because that
/// would conflict with the conversion from every error.
///
/// ```
/// use std::time::Duration;
/// use tidelock_core::failure::Failure;
///
/// fn port(text: &str) -> Result<u16, Failure> {
///     let port = text.parse()?; // transient: retried as the policy of the handler says
///     match port {
///         0 => Err(Failure::permanent("port 0 cannot be called")), // never retried
///         1..1024 => Err(Failure::retry_after(Duration::from_secs(60), "the port is in use")), // not before a minute has passed
///         _ => Ok(port),
///     }
/// }
/// assert!(port("http").is_err_and(|failure| !failure.is_permanent()));
/// assert!(port("0").is_err_and(|failure| failure.is_permanent()));
/// assert!(port("80").is_err_and(|failure| failure.minimum_wait() == Some(Duration::from_secs(60))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    message: String,
    #[serde(default, skip_serializing_if = "Again::is_by_policy")]
    again: Again,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    /// The name of the step or child that caused the failure, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

/// When failed work is handled again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Again {
    #[default]
    ByPolicy,
    After(Duration),
    Deferred(Due),
    Never,
}

impl Again {
    fn is_by_policy(&self) -> bool {
        *self == Self::ByPolicy
    }
}

impl Failure {
    /// Creates a transient failure: the work is retried as the policy of the handler says.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Again::ByPolicy, cancelled: false, cause: None }
    }

    /// Creates a transient failure from an error or a text. `?` does the same, except for errors of failed steps, which it
    /// converts to permanent failures.
    #[must_use]
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(&*error.into(), Again::ByPolicy)
    }

    /// Creates a transient failure whose work is not retried before the wait has passed, as a rate-limited service asks with
    /// `Retry-After`. The wait starts when the handler returns. The attempt counts.
    #[must_use]
    pub fn retry_after(wait: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(&*error.into(), Again::After(wait))
    }

    /// Creates a permanent failure from an error or a text: a retry would fail again. `.map_err(Failure::permanent)?` converts
    /// the error of a call.
    #[must_use]
    pub fn permanent(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(&*error.into(), Again::Never)
    }

    /// Defers the work: it is handled again at that time. Reactions and projections do not count the attempt. Steps, schedules,
    /// deliveries and leaders count it, as after [`retry_after`](Self::retry_after).
    #[must_use]
    pub fn defer(due: Due) -> Self {
        let message = match due {
            Due::Now => "deferred".to_owned(),
            Due::At(at) => format!("deferred until {at}"),
            Due::After(wait) => format!("deferred by {wait:?}"),
        };
        Self { again: Again::Deferred(due), ..Self::new(message) }
    }

    fn of(error: &(dyn Error + 'static), again: Again) -> Self {
        let step = StepError::find(error);
        Self {
            message: with_sources(error),
            again,
            cancelled: matches!(step, Some(StepError::Cancelled { .. })),
            cause: step.and_then(StepError::cause).map(str::to_owned),
        }
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether the failure is permanent, so that a retry is of no use.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.again == Again::Never
    }

    /// Returns the shortest wait before a retry, if the failure was made with [`retry_after`](Self::retry_after).
    #[must_use]
    pub fn minimum_wait(&self) -> Option<Duration> {
        match self.again {
            Again::After(wait) => Some(wait),
            Again::ByPolicy | Again::Deferred(_) | Again::Never => None,
        }
    }

    /// Returns the time of the next handling, if the failure was made with [`defer`](Self::defer).
    #[must_use]
    pub fn deferral(&self) -> Option<Due> {
        match self.again {
            Again::Deferred(due) => Some(due),
            Again::ByPolicy | Again::After(_) | Again::Never => None,
        }
    }

    /// Returns whether the failure comes from a cancelled run.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Returns the name of the step or child that caused the failure, if one did.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Returns the wait before the next attempt: that of the policy, or longer if the failure asks for it. A deferral counts as
    /// the wait until its time.
    #[must_use]
    pub fn wait(&self, policy: Duration, now: Timestamp) -> Duration {
        match self.again {
            Again::ByPolicy | Again::Never => policy,
            Again::After(wait) => policy.max(wait),
            Again::Deferred(due) => policy.max(due.resolve(now).since(now)),
        }
    }

    /// Appends a text to the message.
    pub(crate) fn and(mut self, more: impl fmt::Display) -> Self {
        self.message = format!("{}; and {more}", self.message);
        self
    }

    /// Truncates the message, so that a failure can be recorded whatever its length.
    pub(crate) fn truncated(mut self, bytes: usize) -> Self {
        self.message.truncate(self.message.floor_char_boundary(bytes));
        self
    }

    #[cfg(test)]
    pub(crate) fn caused_by(self, cause: Option<String>) -> Self {
        Self { cause, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    /// Converts an error or a text to a transient failure. An error with a [`StepError`] among its sources becomes permanent,
    /// because the step was retried already.
    fn from(error: E) -> Self {
        let error = error.into();
        let again = if StepError::find(&*error).is_some() { Again::Never } else { Again::ByPolicy };
        Self::of(&*error, again)
    }
}

/// Formats an error with those of its sources that its own text does not contain. Many errors repeat the text of their source.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
