//! Time specifications of tasks: cron, interval, or instant.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{CronError, Expression};
use crate::clock::{Timestamp, format_duration, parse_duration, short};

/// The minimum interval.
const SHORTEST: Duration = Duration::from_millis(100);

/// The times of a task. As text it is one field: `30 2 * * *`, `@daily`, `@every 10m` or `@at 2026-03-29T01:00:00Z`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At the times of a cron expression, by the wall clock of a zone.
    Cron(Expression),
    /// At an interval, counted from the first registration of the task with these times.
    Every(Duration),
    /// Once, at that instant.
    At(Timestamp),
}

impl Trigger {
    /// Creates a specification that fires at an interval.
    ///
    /// # Errors
    /// [`CronError::Expression`] when the interval is less than 100 milliseconds, not a whole number of milliseconds,
    /// or more than a hundred years.
    pub fn every(interval: Duration) -> Result<Self, CronError> {
        let text = format!("@every {}ms", interval.as_millis());
        if interval < SHORTEST || !interval.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(CronError::expression(&text, "an interval is at least 100 whole milliseconds"));
        }
        if interval > Duration::from_hours(24 * 366 * 100) {
            return Err(CronError::expression(&text, "an interval is at most a hundred years"));
        }
        Ok(Self::Every(interval))
    }
}

impl FromStr for Trigger {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        match text.trim().split_once(' ') {
            Some(("@every", interval)) => {
                let interval = parse_duration(interval.trim());
                Self::every(interval.map_err(|error| CronError::expression(text, error.to_string()))?)
            }
            Some(("@at", at)) => {
                let at = at.trim().parse::<Timestamp>();
                Ok(Self::At(at.map_err(|error| CronError::expression(text, error.to_string()))?))
            }
            _ => Ok(Self::Cron(Expression::parse(text)?)),
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(expression) => f.write_str(expression.as_str()),
            Self::Every(interval) => write!(f, "@every {}", format_duration(*interval)),
            Self::At(at) => write!(f, "@at {}", short(*at)),
        }
    }
}
