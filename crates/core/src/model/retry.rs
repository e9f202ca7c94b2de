//! Retry policy with exponential backoff: the next attempt after a failure, or a block.

use std::time::Duration;

/// The number and the delays of retries of failed work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The number of attempts, the first one included, before the work is blocked.
    pub max_attempts: u32,
    /// The maximum delay after the first failure.
    pub base: Duration,
    /// The factor by which the delay grows with each further failure: 2 doubles it. Less than 1 counts as 1.
    pub factor: f64,
    /// The upper bound of the delay.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy of five attempts, with delays of up to 0.2, 0.4, 0.8 and 1.6 seconds between them.
    fn default() -> Self {
        Self { max_attempts: 5, base: Duration::from_millis(200), factor: 2.0, cap: Duration::from_secs(60) }
    }
}

/// The decision after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Retry after this delay.
    Again(Duration),
    /// Block, because the retry budget is exhausted.
    Block,
}

impl RetryPolicy {
    /// Returns whether a row with this number of claims may still be processed. The attempt in flight counts.
    #[must_use]
    pub fn allows(&self, attempts: u32) -> bool {
        attempts <= self.max_attempts
    }

    /// Decides after attempt number `attempts` has failed. `random` lies in `0..1` and spreads the delay over its whole
    /// length (full jitter), so that workers that failed together do not retry together.
    #[must_use]
    pub fn after_failure(&self, attempts: u32, random: f64) -> AfterFailure {
        if attempts >= self.max_attempts {
            return AfterFailure::Block;
        }
        AfterFailure::Again(self.longest_wait(attempts).mul_f64(random.clamp(0.0, 1.0)))
    }

    /// Returns the upper bound of the delay after attempt number `attempts`.
    #[must_use]
    pub fn longest_wait(&self, attempts: u32) -> Duration {
        if self.base.is_zero() {
            return Duration::ZERO;
        }
        let times = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let wait = self.base.as_secs_f64() * self.factor.max(1.0).powi(times);
        // A delay that overflows a duration exceeds the cap.
        Duration::try_from_secs_f64(wait).map_or(self.cap, |wait| wait.min(self.cap))
    }
}
