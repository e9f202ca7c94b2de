//! Cron expressions on a calendar without zones. [`recurrence`](super::recurrence) applies the zones.

use std::fmt;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;

use super::CronError;

/// A cron expression: minute, hour, day of month, month, day of week, or a name such as `@daily`.
///
/// When both days are restricted, either is enough. `L`, `W` and `#` have the meaning that the crate `croner` gives them.
#[derive(Clone, PartialEq, Eq)]
pub struct Expression {
    text: String,
    cron: Box<Cron>,
    fixed: bool,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`CronError::Expression`] when the text cannot be parsed, or no such day exists, as with the 30th of February.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&text).map_err(|error| CronError::expression(&text, error.to_string()))?;
        let hourly = text.eq_ignore_ascii_case("@hourly");
        let fixed = !hourly && !text.split(' ').take(2).any(|field| field.starts_with('*'));
        let expression = Self { text, cron: Box::new(cron), fixed };
        // An expression without a match in the eighty years after a leap year never matches.
        match expression.at_or_after(951_782_400) {
            Some(first) if first < 951_782_400 + 80 * 366 * 86_400 => Ok(expression),
            _ => Err(CronError::expression(&expression.text, "there is no such day")),
        }
    }

    /// Returns the expression as it was written, with single spaces.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the expression names hours and minutes, instead of all of them or a step. As in Vixie's cron, this
    /// is so when neither of the two fields begins with an asterisk.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Returns the first match at or after a second of a calendar without zones, counted as if it were UTC.
    pub(super) fn at_or_after(&self, second: i64) -> Option<i64> {
        let from = jiff::Timestamp::from_second(second).ok()?.to_zoned(TimeZone::UTC);
        let found = self.cron.find_next_occurrence(&from, true).ok()?;
        Some(found.timestamp().as_second())
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}
