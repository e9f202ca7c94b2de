//! Timestamps and durations as text: RFC 3339, and the friendly format of `jiff`, such as `1h 30m`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Timestamp;
use crate::error::InvalidInput;

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 in UTC, for example `2001-09-09T01:46:40.000000Z`. Beyond the years -9999 to 9999 it writes microseconds
    /// since the epoch, for example `9223372036854775807us`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.as_micros()) {
            Ok(at) => write!(f, "{at:.6}"),
            Err(_) => write!(f, "{}us", self.as_micros()),
        }
    }
}

impl FromStr for Timestamp {
    type Err = InvalidInput;

    /// Parses RFC 3339, such as `2026-03-29T01:00:00Z` or `2026-03-29T03:00:00+02:00`, and all that `Display` writes.
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        if let Some(micros) = text.strip_suffix("us").and_then(|micros| micros.parse().ok()) {
            return Ok(Self::from_micros(micros));
        }
        let expected = "expected RFC 3339 with Z or an offset, such as 2026-03-29T01:00:00Z";
        let at = text.parse::<jiff::Timestamp>();
        at.map(|at| Self::from_micros(at.as_microsecond()))
            .map_err(|_| InvalidInput::name("timestamp", text, expected))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&short(*self))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// Returns a timestamp without the fraction of a second when it is zero.
pub(crate) fn short(at: Timestamp) -> String {
    let text = at.to_string();
    match text.strip_suffix(".000000Z") {
        Some(seconds) => format!("{seconds}Z"),
        None => text,
    }
}

/// Parses a duration such as `90s`, `500ms`, `1h 30m` or `30d`. A day has 24 hours, and a week 7 days.
///
/// # Errors
/// [`InvalidInput::Name`] when the text is no duration, when it is negative, or when it has months or years.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidInput> {
    let span = text.parse::<Span>().ok();
    let length = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    length.and_then(|length| Duration::try_from(length).ok()).ok_or_else(|| {
        let expected = "expected numbers with units (w, d, h, m, s, ms), such as 30d, 1h 30m or 500ms";
        InvalidInput::name("duration", text, expected)
    })
}

/// Returns the text that [`parse_duration`] parses as this duration, for example `1m 30s`.
#[must_use]
pub fn format_duration(length: Duration) -> String {
    format!("{:#}", SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX))
}

/// Serde representation of a duration in milliseconds.
pub(crate) mod millis {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Duration;

    pub(crate) fn serialize<S: Serializer>(length: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_timestamp_comes_back(micros in any::<i64>()) {
            let at = Timestamp::from_micros(micros);
            prop_assert_eq!(at.to_string().parse(), Ok(at));
            let json = serde_json::to_string(&at).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), at);
        }

        #[test]
        fn every_duration_comes_back(millis in 0..200_000_u64 * 86_400_000) {
            let length = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(length)), Ok(length));
        }
    }

    #[test]
    fn the_ends_of_time_and_of_the_calendar_come_back() {
        let first = -377_705_023_201_000_000;
        let last = 253_402_207_200_999_999;
        for micros in [i64::MIN, first - 1, first, -1, 0, 1, last, last + 1, i64::MAX] {
            let at = Timestamp::from_micros(micros);
            assert_eq!(at.to_string().parse(), Ok(at), "{at}");
        }
    }

    #[test]
    fn an_invalid_timestamp_is_named_with_an_example() {
        for text in ["", "noon", "2001-09-09", "2001-13-09T01:46:40Z", "2001-09-09T25:46:40Z", "1.5us"] {
            let message = text.parse::<Timestamp>().unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")) && message.contains("2026-03-29T01"), "{message}");
        }
    }

    #[test]
    fn durations_have_units() {
        let cases = [
            ("0s", 0),
            ("500ms", 500),
            ("45s", 45_000),
            ("90min", 5_400_000),
            ("2m", 120_000),
            ("5 minutes", 300_000),
            ("1h 30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("30 d", 30 * 86_400_000),
            ("1d2h", 26 * 3_600_000),
            ("2w", 14 * 86_400_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "d", "-1d", "1 year", "2mo", "99999999999999999999s"] {
            let message = parse_duration(text).unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")) && message.contains("1h 30m"), "{message}");
        }
    }
}
