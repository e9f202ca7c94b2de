//! Rates, latencies and medians.

use std::time::Duration;

use serde::Serialize;

/// Latencies of single calls, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    /// Adds a call.
    pub fn add(&mut self, took: Duration) {
        self.0.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Adds all calls of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the latency at a percentile between 0 and 1, or 0 without calls.
    pub fn percentile(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        self.0.get(index).copied().map_or(0.0, f64::from)
    }
}

/// The rate and the latencies of commits.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Commits {
    /// Commits per second.
    pub per_s: f64,
    /// The median latency.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

impl Commits {
    /// Returns the median of each number.
    #[must_use]
    pub fn median(of: &[Self]) -> Self {
        Self {
            per_s: median(of, |c| c.per_s),
            p50_us: median(of, |c| c.p50_us),
            p99_us: median(of, |c| c.p99_us),
        }
    }
}

/// Returns the median of the numbers that `pick` takes from the items, or 0 without items.
pub fn median<T>(items: &[T], pick: impl Fn(&T) -> f64) -> f64 {
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

/// Returns `a / b`, or 0 when `b` is 0.
#[must_use]
pub fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Returns a count per second.
#[must_use]
pub fn per_second(count: usize, took: Duration) -> f64 {
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
