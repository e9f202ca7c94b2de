//! Durations as command-line arguments.

use std::time::Duration;

/// Parses seconds with a fraction, from 0.01 to one day.
///
/// # Errors
/// A message for the user.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "write seconds as a number, such as 5 or 0.2".to_owned())?;
    if !(0.01..=86_400.0).contains(&number) {
        return Err("between 0.01 and 86400 seconds make sense".to_owned());
    }
    Duration::try_from_secs_f64(number).map_err(|e| e.to_string())
}
