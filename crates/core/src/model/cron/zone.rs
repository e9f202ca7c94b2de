//! Time zones, as far as timetables need them: stretches of time with one offset from UTC.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::CronError;

/// A time zone of the IANA database, by its name. The machine's own database comes first, and one that is compiled in second.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// A stretch of time with one offset, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// When it began, and the offset before; `None` when it always was so.
    pub(super) begin: Option<(i64, i64)>,
    /// What is added to UTC.
    pub(super) offset: i64,
    /// When it ends; `None` when it always will be so.
    pub(super) end: Option<i64>,
}

impl Zone {
    /// UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// The zone of that name.
    ///
    /// # Errors
    /// [`CronError::Zone`] when there is none.
    pub fn parse(name: &str) -> Result<Self, CronError> {
        if name.eq_ignore_ascii_case("utc") {
            return Ok(Self::utc());
        }
        let unknown = |_| CronError::Zone { zone: name.chars().take(80).collect() };
        Ok(Self { name: name.to_owned(), zone: TimeZone::get(name).map_err(unknown)? })
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The stretch that a second lies in.
    pub(super) fn stretch(&self, second: i64) -> Option<Stretch> {
        let at = Timestamp::from_second(second).ok()?;
        let next = Timestamp::from_second(second.saturating_add(1)).ok()?;
        let offset = i64::from(self.zone.to_offset(at).seconds());
        let begin = self.zone.preceding(next).next().and_then(|begin| {
            let second = begin.timestamp().as_second();
            let before = self.zone.to_offset(Timestamp::from_second(second - 1).ok()?);
            Some((second, i64::from(before.seconds())))
        });
        let end = self.zone.following(at).next().map(|end| end.timestamp().as_second());
        Some(Stretch { begin, offset, end })
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name).finish()
    }
}
