//! Rate limit for each access token, as a token bucket.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of requests per second, and the size of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

/// The bucket of one access token.
#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The buckets of all access tokens, by the index of the token.
#[derive(Debug)]
pub(crate) struct RateLimits {
    /// `None` for no limit.
    rate: Option<Rate>,
    buckets: Mutex<Vec<Bucket>>,
}

impl RateLimits {
    pub(crate) fn new(rate: Option<Rate>, tokens: usize) -> Self {
        let (left, at) = (rate.map_or(0.0, |rate| f64::from(rate.burst)), Instant::now());
        Self { rate, buckets: Mutex::new((0..tokens).map(|_| Bucket { left, at }).collect()) }
    }

    /// Takes one request from the bucket of a token. Fails with the time until the next request is allowed.
    pub(crate) fn draw(&self, token: usize, now: Instant) -> Result<(), Duration> {
        let Some(Rate { per_second, burst }) = self.rate else { return Ok(()) };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = buckets.get_mut(token) else { return Ok(()) };
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * f64::from(per_second)).min(f64::from(burst));
        bucket.at = bucket.at.max(now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.left) / f64::from(per_second.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_by_time_and_never_beyond_its_edge() {
        let rates = RateLimits::new(Some(Rate { per_second: 10, burst: 3 }), 2);
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(rates.draw(0, start), Ok(()));
        }
        let wait = rates.draw(0, start).unwrap_err();
        assert!(wait > Duration::from_millis(90) && wait <= Duration::from_millis(100), "{wait:?}");
        assert_eq!(rates.draw(1, start), Ok(()), "another token has its own");
        assert_eq!(rates.draw(0, start + Duration::from_millis(101)), Ok(()));
        assert!(rates.draw(0, start + Duration::from_millis(102)).is_err());
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| rates.draw(0, later).is_ok()).count(), 3, "an hour is no stock");
        assert!(rates.draw(0, start).is_err(), "a clock that goes back gives nothing");
    }

    #[test]
    fn without_a_rate_all_pass() {
        let rates = RateLimits::new(None, 1);
        assert!((0..10_000).all(|_| rates.draw(0, Instant::now()).is_ok()));
    }
}
