//! Why a time that was written down cannot be one.

use thiserror::Error;

use crate::error::codes;

/// Why an expression or a zone cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CronError {
    /// The expression cannot be read.
    #[error(
        "{text:?} says no times: {reason}; write five fields (minute, hour, day of month, month, day of week) such as \
         \"30 2 * * MON-FRI\", a name such as @daily, @every 10m, or @at 2026-03-29T01:00:00Z"
    )]
    Expression {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such zone.
    #[error(
        "there is no time zone {zone:?}; take a name of the IANA database such as Europe/Berlin, or leave it out for UTC"
    )]
    Zone {
        /// What was given.
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
