//! How long a committer waits for company before it takes a group.
//!
//! Callers that were just answered mostly come back at once. Waiting a moment for them makes larger groups under load;
//! waiting for somebody who does not come delays those who did. So a committer waits only while they keep coming, never
//! longer than a fraction of what a group takes, and gives it up for a while when nobody came. A lone caller never waits:
//! it is all the company that was expected.

use std::time::{Duration, Instant};

/// No wait is longer, however slow the server is.
const LONGEST: Duration = Duration::from_micros(500);
/// When nobody came for so long, nobody is coming.
const LULL: Duration = Duration::from_micros(100);
/// After so many waits in vain the committer stops waiting …
const IN_VAIN: u32 = 8;
/// … for so many groups.
const BREAK: u32 = 200;

/// What a committer has learned about its callers.
#[derive(Debug, Default)]
pub(crate) struct Company {
    expected: usize,
    in_vain: u32,
    on_break: u32,
}

impl Company {
    /// Takes note that `answered` callers were just told, and `queued` others wait already.
    pub(crate) fn anticipate(&mut self, answered: usize, queued: usize) {
        // Nine in ten will do: one who does other things must not hold up the rest.
        self.expected = (answered + queued).saturating_mul(9).div_ceil(10);
    }

    /// Waits for those who are expected, as long as they keep coming. `group` is how long the last one took.
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

/// Lets other tasks run until there are as many as expected, a lull, or the end of the time; answers how many there are.
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
