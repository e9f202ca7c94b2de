//! Exponential backoff with full jitter.
//!
//! The first retry is immediate. Each later one waits a random share of a ceiling that doubles up to a limit, so that
//! callers which failed together do not retry together.

use std::time::{Duration, Instant};

use crate::process;

use super::jitter::spread;
use super::timer::sleep_until;

/// The delays after an optimistic write lost to a concurrent one.
pub(crate) const CONFLICT: Backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(128));

/// The delays between the attempts of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
}

impl Backoff {
    /// Creates a backoff whose ceiling starts at `first` and doubles up to `limit`.
    #[must_use]
    pub const fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit }
    }

    /// Returns a random delay after this number of failed attempts. It is zero after the first.
    #[must_use]
    pub fn delay(&self, failed: u32) -> Duration {
        spread(self.ceiling(failed), 0.0..1.0)
    }

    /// Waits after this number of failed attempts, and no longer than until the deadline.
    pub async fn wait(&self, failed: u32, deadline: Option<Instant>) {
        let delay = self.delay(failed);
        if delay.is_zero() {
            return;
        }
        let end = process::now() + delay;
        sleep_until(deadline.map_or(end, |deadline| end.min(deadline))).await;
    }

    fn ceiling(&self, failed: u32) -> Duration {
        let Some(doublings) = failed.checked_sub(2) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;

    #[test]
    fn delays_double_up_to_the_limit() {
        let backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(100));
        for (failed, ceiling) in
            [(0, 0), (1, 0), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 100), (8, 100)]
        {
            assert_eq!(backoff.ceiling(failed), Duration::from_millis(ceiling));
            assert!(backoff.delay(failed) <= Duration::from_millis(ceiling));
        }
        assert_eq!(backoff.ceiling(u32::MAX), Duration::from_millis(100));
    }
}
