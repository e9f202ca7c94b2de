//! Rates, latencies and medians.

use std::time::Duration;

use serde::Serialize;

/// How long single calls took, in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<u32>);

impl Latencies {
    /// Adds one call.
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Adds all calls of another.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many calls there were.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The time within which that share of all calls was done; 0 when there were none.
    pub(crate) fn percentile(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        self.0.get(index).copied().map_or(0.0, f64::from)
    }
}

/// Commits per second, and how long one took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Commits {
    /// Commits per second.
    pub(crate) per_s: f64,
    /// Half of them were done within this time.
    pub(crate) p50_us: f64,
    /// All but one in a hundred were.
    pub(crate) p99_us: f64,
}

impl Commits {
    /// The median of each number.
    pub(crate) fn median(of: &[Self]) -> Self {
        Self {
            per_s: median(of, |c| c.per_s),
            p50_us: median(of, |c| c.p50_us),
            p99_us: median(of, |c| c.p99_us),
        }
    }
}

/// The middle one of the numbers that `pick` takes from the items; 0 when there are none.
pub(crate) fn median<T>(items: &[T], pick: impl Fn(&T) -> f64) -> f64 {
    let mut numbers: Vec<f64> = items.iter().map(pick).collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = numbers.get(middle).copied().unwrap_or(0.0);
    if numbers.len().is_multiple_of(2) {
        let lower = middle.checked_sub(1).and_then(|i| numbers.get(i)).copied().unwrap_or(0.0);
        return f64::midpoint(lower, upper);
    }
    upper
}

/// `a / b`, or 0 when there is nothing to compare with.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Events per second.
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    ratio(count as f64, took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0], |x| *x) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0], |x| *x) - 2.5).abs() < 1e-9);
        assert!(median::<f64>(&[], |x| *x).abs() < 1e-9);
    }

    #[test]
    fn percentiles_come_from_the_calls() {
        let mut calls = Latencies::default();
        for micros in 0..=100 {
            calls.add(Duration::from_micros(micros));
        }
        assert!((calls.percentile(0.5) - 50.0).abs() < 1e-9);
        assert!((calls.percentile(0.99) - 99.0).abs() < 1e-9);
        assert!(Latencies::default().percentile(0.5).abs() < 1e-9);
    }
}
