//! Adaptive group-commit delay: how long a committer waits before it takes a group.
//!
//! Callers that have just received a reply usually submit again at once. A short delay lets them join the group and
//! makes groups larger under load. A delay that brings no caller only holds up the queued ones. So a committer waits
//! only while callers keep arriving, and never longer than a quarter of the time that the last group took. After
//! several fruitless delays it stops delaying for a while. A single caller is never delayed, because no other is
//! expected.

use std::time::{Duration, Instant};

/// Upper bound of the delay, regardless of how slow the server is.
const LONGEST: Duration = Duration::from_micros(500);
/// A pause between arrivals after which no more are expected.
const LULL: Duration = Duration::from_micros(100);
/// Number of fruitless delays after which the committer stops delaying …
const IN_VAIN: u32 = 8;
/// … for this number of groups.
const BREAK: u32 = 200;

/// Decides how long a committer delays a group, based on recent arrivals.
#[derive(Debug, Default)]
pub(crate) struct CommitDelay {
    expected: usize,
    in_vain: u32,
    on_break: u32,
}

impl CommitDelay {
    /// Records that `answered` callers have just received a reply, and that `queued` others already wait.
    pub(crate) fn anticipate(&mut self, answered: usize, queued: usize) {
        // Nine in ten are enough: one caller with other work must not hold up the rest.
        self.expected = (answered + queued).saturating_mul(9).div_ceil(10);
    }

    /// Waits for the expected callers while they keep arriving. `group` is the duration of the last group.
    pub(crate) async fn wait(&mut self, queued: impl Fn() -> usize, group: Duration) {
        let at_first = queued();
        if self.expected <= 1 || at_first >= self.expected {
            return;
        }
        if self.on_break > 0 {
            self.on_break -= 1;
            return;
        }
        let came = gather(&queued, self.expected, (group / 4).min(LONGEST)).await;
        if came > at_first {
            self.in_vain = 0;
            return;
        }
        self.in_vain += 1;
        if self.in_vain >= IN_VAIN {
            (self.in_vain, self.on_break) = (0, BREAK);
        }
    }
}

/// Yields to other tasks until the expected number is queued, arrivals pause or the delay is used up. Returns the
/// number queued.
async fn gather(queued: &impl Fn() -> usize, expected: usize, longest: Duration) -> usize {
    let begun = Instant::now();
    let (mut seen, mut last_arrival) = (queued(), begun);
    loop {
        tokio::task::yield_now().await;
        let (now, present) = (Instant::now(), queued());
        if present > seen {
            (seen, last_arrival) = (present, now);
        }
        if present >= expected || now - last_arrival >= LULL || now - begun >= longest {
            return present;
        }
    }
}
