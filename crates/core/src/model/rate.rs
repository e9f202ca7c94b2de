//! Rate limiting with an even spread and bursts (GCRA).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// A rate limit. Starts are spread evenly, one each `per / runs`, with at most `burst` at once after an idle period.
///
/// In any stretch of `per`, at most `runs + burst` start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// The number of starts in a period.
    pub runs: u32,
    /// The period.
    pub per: Duration,
    /// The number of starts allowed at once after an idle period. The default is 1.
    pub burst: u32,
}

/// The decision of the rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The number of starts that are granted.
    pub granted: u32,
    /// The state to store: the time of the next start if all were spread evenly.
    pub even: Timestamp,
    /// The earliest time of the next start.
    pub next_at: Timestamp,
}

impl Rate {
    /// Returns the time between two starts.
    #[must_use]
    pub fn apart(&self) -> Duration {
        // Whole microseconds, the resolution of clocks, rounded up so that starts are never too close.
        let micros = self.per.as_micros().div_ceil(u128::from(self.runs.max(1))).max(1);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Returns how many of `wanted` may start at `now`, given the stored `even`.
    ///
    /// A clock that was set back does not stop all starts: the debt never exceeds a whole burst.
    #[must_use]
    pub fn take(&self, even: Option<Timestamp>, now: Timestamp, wanted: u32) -> Taken {
        let apart = self.apart();
        let slack = apart.saturating_mul(self.burst.max(1).saturating_sub(1));
        let latest = now.after(slack.saturating_add(apart));
        let mut even = even.map_or(now, |even| even.max(now).min(latest));
        let mut granted = 0;
        while granted < wanted && even <= now.after(slack) {
            even = even.after(apart);
            granted += 1;
        }
        let next_at = now.after(even.since(now).saturating_sub(slack));
        Taken { granted, even, next_at }
    }

    /// Returns the state to store when `unused` of the granted starts did not happen and nothing was taken since.
    #[must_use]
    pub fn given_back(&self, taken: &Taken, unused: u32) -> Timestamp {
        let back = self.apart().saturating_mul(unused.min(taken.granted));
        let back = i64::try_from(back.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(taken.even.as_micros().saturating_sub(back))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Rate, Taken};
    use crate::clock::Timestamp;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(0).after(Duration::from_millis(ms))
    }

    #[test]
    fn unused_starts_are_returned() {
        let rate = Rate { runs: 10, per: Duration::from_secs(1), burst: 4 };
        let taken = rate.take(None, at(5_000), 4);
        let even = rate.given_back(&taken, 3);
        assert_eq!(even, rate.take(None, at(5_000), 1).even);
        assert_eq!(rate.take(Some(even), at(5_000), 4).granted, 3);
        assert_eq!(rate.given_back(&taken, 9), at(5_000), "no more than was granted");
    }

    #[test]
    fn one_at_a_time_and_evenly() {
        let rate = Rate { runs: 10, per: Duration::from_secs(1), burst: 1 };
        let first = rate.take(None, at(5_000), 3);
        assert_eq!(first, Taken { granted: 1, even: at(5_100), next_at: at(5_100) });
        assert_eq!(rate.take(Some(first.even), at(5_099), 3).granted, 0);
        assert_eq!(rate.take(Some(first.even), at(5_100), 3).granted, 1);
        assert_eq!(rate.take(Some(first.even), at(9_000), 3).granted, 1, "what was not used is not saved up");
    }

    #[test]
    fn a_burst_after_a_lull() {
        let rate = Rate { runs: 10, per: Duration::from_secs(1), burst: 4 };
        let first = rate.take(None, at(0), 9);
        assert_eq!((first.granted, first.next_at), (4, at(100)));
        assert_eq!(rate.take(Some(first.even), at(50), 9).granted, 0);
        assert_eq!(rate.take(Some(first.even), at(200), 9).granted, 2);
    }

    #[test]
    fn a_clock_set_back_does_not_stop_it() {
        let rate = Rate { runs: 1, per: Duration::from_secs(1), burst: 1 };
        let before = rate.take(None, at(1_000_000), 1);
        let after = rate.take(Some(before.even), at(0), 1);
        assert!(after.next_at <= at(1_000), "{after:?}");
    }

    proptest! {
        /// In no stretch as long as the period do more start than the rate plus one burst.
        #[test]
        fn never_more_than_allowed(
            runs in 1_u32..20,
            burst in 1_u32..10,
            asks in prop::collection::vec((0_u64..300, 0_u32..8), 1..200),
        ) {
            let rate = Rate { runs, per: Duration::from_secs(1), burst };
            let (mut now, mut even, mut begun) = (0, None, Vec::new());
            for (wait, wanted) in asks {
                now += wait;
                let taken = rate.take(even, at(now), wanted);
                even = Some(taken.even);
                begun.extend((0..taken.granted).map(|_| now));
                if taken.granted < wanted {
                    prop_assert!(taken.next_at > at(now));
                    prop_assert_eq!(rate.take(even, taken.next_at, 1).granted, 1);
                }
            }
            for start in &begun {
                let within = begun.iter().filter(|at| (*start..*start + 1_000).contains(*at)).count();
                prop_assert!(within <= (runs + burst) as usize, "{within} from {start} on");
            }
        }
    }
}
