//! Instants and lengths of time as text.

use std::str::FromStr;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::InvalidInput;

impl FromStr for Timestamp {
    type Err = InvalidInput;

    /// Reads an instant as RFC 3339 writes it, such as `2026-03-29T01:00:00Z` or `2026-03-29T03:00:00+02:00`.
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let read = text.parse::<jiff::Timestamp>();
        let read = read.map_err(|_| {
            InvalidInput::name("an instant", text, "write it like 2026-03-29T01:00:00Z, with Z or an offset")
        })?;
        Ok(Self::from_micros(read.as_microsecond()))
    }
}

/// An instant for people: seconds, and parts of one only when there are any.
pub(crate) fn short(at: Timestamp) -> String {
    let text = at.to_string();
    match text.strip_suffix(".000000Z") {
        Some(seconds) => format!("{seconds}Z"),
        None => text,
    }
}

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A length of time in the largest unit that needs no fraction.
pub(super) fn length(length: Duration) -> String {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let unit = UNITS.iter().find(|(_, unit)| millis.is_multiple_of(*unit) && millis >= *unit);
    unit.map_or_else(|| format!("{millis}ms"), |(name, unit)| format!("{}{name}", millis / unit))
}

/// Reads a length of time such as `90s`, `10m` or `1h`.
pub(super) fn read_length(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(*unit)?))
}

/// Instants in documents, as people read them.
pub(crate) mod iso {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    use super::{Timestamp, short};

    pub(crate) fn serialize<S: Serializer>(at: &Option<Timestamp>, out: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => out.serialize_str(&short(*at)),
            None => out.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}

/// Lengths of time in documents, in milliseconds.
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
