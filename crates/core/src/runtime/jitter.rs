//! Jitter: random shares of a delay, so that waits do not coincide. Not for secrets, nor for values that a replay repeats.

use std::time::Duration;

use crate::process;

/// Returns a number in `0..1` that differs between calls, threads and processes.
#[must_use]
pub fn fraction() -> f64 {
    let bits = process::random() >> 32;
    f64::from(u32::try_from(bits).unwrap_or(0)) / (f64::from(u32::MAX) + 1.0)
}

/// Returns a random share of a duration: `spread(delay, 0.5..1.0)` is at least half the delay.
#[must_use]
pub fn spread(whole: Duration, shares: std::ops::Range<f64>) -> Duration {
    whole.mul_f64((shares.start + (shares.end - shares.start) * fraction()).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::{fraction, spread};
    use std::time::Duration;

    #[test]
    fn numbers_differ_and_stay_within() {
        let drawn: Vec<f64> = (0..1_000).map(|_| fraction()).collect();
        assert!(drawn.iter().all(|number| (0.0..1.0).contains(number)));
        let below_half = drawn.iter().filter(|number| **number < 0.5).count();
        assert!((350..650).contains(&below_half), "{below_half} of 1,000 are below a half");
        let whole = Duration::from_secs(10);
        for _ in 0..100 {
            let pause = spread(whole, 0.9..1.1);
            assert!(pause >= Duration::from_secs(9) && pause <= Duration::from_secs(11), "{pause:?}");
        }
    }
}
