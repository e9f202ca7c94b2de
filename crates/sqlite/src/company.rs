//! How long the writer waits for company before it begins a group.
//!
//! Callers that were just answered mostly come back at once. Waiting a moment for them halves the number of flushes
//! under load; waiting for somebody who does not come delays those who did. So the writer waits only while they keep
//! coming, never much longer than a flush takes, and gives it up for a while when nobody came. A lone caller never
//! waits: it is all the company that was expected.

use std::time::{Duration, Instant};

/// No wait is longer, however slow the device is.
const LONGEST: Duration = Duration::from_micros(500);
/// When nobody came for so long, nobody is coming.
const LULL: Duration = Duration::from_micros(100);
/// After so many waits in vain the writer stops waiting …
const IN_VAIN: u32 = 8;
/// … for so many groups.
const BREAK: u32 = 200;

/// What the writer has learned about its callers.
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

    /// Waits for those who are expected, as long as they keep coming. `flush` is how long the last one took.
    pub(crate) fn wait(&mut self, queued: impl Fn() -> usize, flush: Duration) {
        self.wait_by(Instant::now, queued, flush);
    }

    /// The same by any clock.
    fn wait_by(&mut self, now: impl Fn() -> Instant, queued: impl Fn() -> usize, flush: Duration) {
        let mut at_first = queued();
        if at_first == 0 {
            // Nobody is delayed by a look around, and going to sleep and being woken takes longer than most are away.
            at_first = gather(&now, &queued, 1, LULL);
        }
        if at_first == 0 || at_first >= self.expected {
            return;
        }
        if self.on_break > 0 {
            self.on_break -= 1;
            return;
        }
        let came = gather(&now, &queued, self.expected, (flush * 2).min(LONGEST));
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

/// Waits until there are as many as expected, a lull, or the end of the time; answers how many there are.
fn gather(
    now: &impl Fn() -> Instant,
    queued: &impl Fn() -> usize,
    expected: usize,
    longest: Duration,
) -> usize {
    let begun = now();
    let (mut seen, mut last_arrival) = (queued(), begun);
    loop {
        std::thread::yield_now();
        let (now, present) = (now(), queued());
        if present > seen {
            (seen, last_arrival) = (present, now);
        }
        if present >= expected || now - last_arrival >= LULL || now - begun >= longest {
            return present;
        }
    }
}

#[cfg(test)]
mod tests;
