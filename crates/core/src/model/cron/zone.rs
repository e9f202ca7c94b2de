//! Time zones for timetables: stretches of time with one offset from UTC.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::CronError;

/// A time zone of the IANA database, by its name. The database of the machine takes precedence over the one that is compiled
/// in.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// A stretch of time with one offset, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The start, and the offset before it. `None` when the offset has always applied.
    pub(super) begin: Option<(i64, i64)>,
    /// The offset from UTC.
    pub(super) offset: i64,
    /// The end. `None` when the offset applies indefinitely.
    pub(super) end: Option<i64>,
}

impl Zone {
    /// UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// Looks up a zone by name.
    ///
    /// # Errors
    /// [`CronError::Zone`] when the zone does not exist.
    pub fn parse(name: &str) -> Result<Self, CronError> {
        if name.eq_ignore_ascii_case("utc") {
            return Ok(Self::utc());
        }
        let unknown = |_| CronError::Zone { zone: name.chars().take(80).collect() };
        Ok(Self { name: name.to_owned(), zone: TimeZone::get(name).map_err(unknown)? })
    }

    /// Returns the name of the zone.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Returns the stretch that contains a second.
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
