//! Rate limit for log lines: one line per second for each reason, with the number of suppressed lines.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The minimum time between two lines with the same reason.
const PAUSE: Duration = Duration::from_secs(1);

/// The time of the last line of a reason, and the number of suppressed lines since then.
#[derive(Debug)]
struct Last {
    told: Instant,
    left_out: u64,
}

/// The last log lines by the error code of their reason. The number of error codes bounds the map.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    last: Mutex<BTreeMap<&'static str, Last>>,
}

impl LogThrottle {
    /// Returns the number of lines suppressed since the last line with this reason; `None` if this line is suppressed as well.
    pub(crate) fn admit(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut all = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = all.get_mut(reason) else {
            all.insert(reason, Last { told: now, left_out: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(last.told) < PAUSE {
            last.left_out = last.left_out.saturating_add(1);
            return None;
        }
        last.told = now;
        Some(std::mem::take(&mut last.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_once_per_second_with_the_suppressed_count() {
        let (hushed, start) = (LogThrottle::default(), Instant::now());
        assert_eq!(hushed.admit("a", start), Some(0));
        for _ in 0..1_000 {
            assert_eq!(hushed.admit("a", start + Duration::from_millis(999)), None);
        }
        assert_eq!(hushed.admit("b", start), Some(0), "another reason has its own line");
        assert_eq!(hushed.admit("a", start + PAUSE), Some(1_000));
        assert_eq!(hushed.admit("a", start + PAUSE), None);
        assert_eq!(hushed.admit("a", start + 2 * PAUSE), Some(1));
    }
}
