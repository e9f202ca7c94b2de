//! How often the log says the same thing: once in a second for each reason, with the number of those that were left out.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a reason is not told again.
const PAUSE: Duration = Duration::from_secs(1);

/// When a reason was told, and how often it was not since.
#[derive(Debug)]
struct Last {
    told: Instant,
    left_out: u64,
}

/// What was told lately, by the code of the reason. Bounded by the number of codes.
#[derive(Debug, Default)]
pub(crate) struct Hushed {
    last: Mutex<BTreeMap<&'static str, Last>>,
}

impl Hushed {
    /// How many of this reason were left out since the last line; `None` when this one is left out as well.
    pub(crate) fn tell(&self, reason: &'static str, now: Instant) -> Option<u64> {
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
    fn a_reason_is_told_once_in_a_second_with_what_was_left_out() {
        let (hushed, start) = (Hushed::default(), Instant::now());
        assert_eq!(hushed.tell("a", start), Some(0));
        for _ in 0..1_000 {
            assert_eq!(hushed.tell("a", start + Duration::from_millis(999)), None);
        }
        assert_eq!(hushed.tell("b", start), Some(0), "another reason has its own line");
        assert_eq!(hushed.tell("a", start + PAUSE), Some(1_000));
        assert_eq!(hushed.tell("a", start + PAUSE), None);
        assert_eq!(hushed.tell("a", start + 2 * PAUSE), Some(1));
    }
}
