//! What follows a failed attempt: another one after a while, or a block.

use std::time::Duration;

/// How often and how fast failed work is tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first one included, before the work is blocked.
    pub max_attempts: u32,
    /// The longest wait after the first failure.
    pub base: Duration,
    /// How much longer it becomes with each further one: 2 doubles it. Less than 1 counts as 1.
    pub factor: f64,
    /// The longest wait ever.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    /// Five attempts, waiting up to 0.2, 0.4, 0.8 and 1.6 seconds between them.
    fn default() -> Self {
        Self { max_attempts: 5, base: Duration::from_millis(200), factor: 2.0, cap: Duration::from_secs(60) }
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Try again after this long.
    Again(Duration),
    /// The budget is spent: block.
    Block,
}

impl RetryPolicy {
    /// Whether a row that was claimed this often may still be worked on. The attempt that is under way counts.
    #[must_use]
    pub fn allows(&self, attempts: u32) -> bool {
        attempts <= self.max_attempts
    }

    /// The decision after attempt number `attempts` failed. `random` lies in `0..1` and spreads the wait over its
    /// whole length (full jitter), so that those who failed together do not come back together.
    #[must_use]
    pub fn after_failure(&self, attempts: u32, random: f64) -> AfterFailure {
        if attempts >= self.max_attempts {
            return AfterFailure::Block;
        }
        AfterFailure::Again(self.longest_wait(attempts).mul_f64(random.clamp(0.0, 1.0)))
    }

    /// The upper end of the wait after attempt number `attempts`.
    #[must_use]
    pub fn longest_wait(&self, attempts: u32) -> Duration {
        if self.base.is_zero() {
            return Duration::ZERO;
        }
        let times = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let wait = self.base.as_secs_f64() * self.factor.max(1.0).powi(times);
        // What is beyond any duration is beyond the cap.
        Duration::try_from_secs_f64(wait).map_or(self.cap, |wait| wait.min(self.cap))
    }
}
