//! Instants as people read them: RFC 3339 in UTC with microseconds, there and back without loss.

use serde::{Deserialize as _, Deserializer, de};
use tidelock_core::clock::Timestamp;

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    match parse(&text) {
        Some(at) => Ok(Some(at)),
        None => Err(de::Error::custom(format!("{text:?} is no instant like 2001-09-09T01:46:40.000000Z"))),
    }
}

/// Reads what `Timestamp` displays. The fraction may be missing or shorter.
fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.rsplitn(3, '-');
    let (day, month) = (number(parts.next()?, 31)?, number(parts.next()?, 12)?);
    let year: i64 = parts.next()?.parse().ok()?;
    let mut parts = time.split(':');
    let (hour, minute) = (number(parts.next()?, 23)?, number(parts.next()?, 59)?);
    let seconds = parts.next()?;
    let (second, fraction) = match seconds.split_once('.') {
        Some((second, fraction)) => (number(second, 59)?, micros(fraction)?),
        None => (number(seconds, 59)?, 0),
    };
    if parts.next().is_some() || day == 0 || month == 0 || year.abs() > 400_000 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let micros = i128::from(seconds) * 1_000_000 + i128::from(fraction);
    i64::try_from(micros).ok().map(Timestamp::from_micros)
}

fn number(text: &str, most: i64) -> Option<i64> {
    text.parse().ok().filter(|n| (0..=most).contains(n))
}

fn micros(fraction: &str) -> Option<i64> {
    let digits = fraction.len() <= 6 && fraction.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| format!("{fraction:0<6}").parse().ok()).flatten()
}

/// Days since the epoch in the Gregorian calendar, with years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidelock_core::clock::Timestamp;

    use super::parse;

    proptest! {
        #[test]
        fn every_instant_comes_back(micros in any::<i64>()) {
            let at = Timestamp::from_micros(micros);
            prop_assert_eq!(parse(&at.to_string()), Some(at));
        }
    }

    #[test]
    fn the_ends_of_time_come_back() {
        for micros in [i64::MIN, -1, 0, 1, i64::MAX] {
            let at = Timestamp::from_micros(micros);
            assert_eq!(parse(&at.to_string()), Some(at), "{at}");
        }
    }

    #[test]
    fn what_is_no_instant_is_none() {
        for text in
            ["", "2001-09-09", "2001-13-09T01:46:40.0Z", "2001-09-09T01:46Z", "2001-09-09T25:46:40.0Z"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
