//! Errors of cron expressions and time zones.

use thiserror::Error;

use crate::error::codes;

/// The reason why an expression or a zone is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CronError {
    /// The expression cannot be parsed.
    #[error(
        "cannot schedule at {text:?}: {reason}; write five fields (minute, hour, day of month, month, day of week) such as \
         \"30 2 * * MON-FRI\", a name such as @daily, @every 10m, or @at 2026-03-29T01:00:00Z"
    )]
    Expression {
        /// The given text.
        text: String,
        /// The reason why the text is invalid.
        reason: String,
    },
    /// The time zone does not exist.
    #[error(
        "there is no time zone {zone:?}; take a name of the IANA database such as Europe/Berlin, or leave it out for UTC"
    )]
    Zone {
        /// The given name.
        zone: String,
    },
}

impl CronError {
    pub(super) fn expression(text: &str, reason: impl Into<String>) -> Self {
        Self::Expression { text: text.chars().take(80).collect(), reason: reason.into() }
    }
}

codes! {
    CronError {
        Expression => "TL1101",
        Zone => "TL1102",
    }
}
