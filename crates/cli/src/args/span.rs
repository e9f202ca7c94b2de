//! Spans of time as people type them: `30d`, `12h`, `90s`.

use std::time::Duration;

/// The longest span that makes sense, in seconds: a hundred years.
const LONGEST: u64 = 36_500 * 86_400;

/// Reads a whole number with its unit.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and a unit: 30d, 12h, 90min, 45s, or 2w for weeks".to_owned();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit.trim_start() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds <= LONGEST);
    seconds.map(Duration::from_secs).ok_or_else(|| "that is more than a hundred years".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_a_number_with_a_unit() {
        for (text, seconds) in [
            ("0s", 0),
            ("45s", 45),
            ("90min", 5_400),
            ("2m", 120),
            ("12h", 43_200),
            ("30 d", 2_592_000),
            ("2w", 1_209_600),
        ] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "d", "-1d", "1.5h", "1 year", "99999999999999999999s", "40000d", "1d2h"] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
