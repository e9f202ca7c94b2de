//! Adaptive group-commit delay, like PostgreSQL's `commit_delay`: how long the writer waits before it begins a group.
//!
//! Callers that have just received a reply usually submit again at once. A short delay lets them join the group and
//! halves the number of flushes under load. A delay that brings no caller only holds up the queued ones. So the writer
//! waits only while callers keep arriving, and never much longer than a flush takes. After several fruitless delays it
//! stops delaying for a while. A single caller is never delayed, because no other is expected.

use std::time::{Duration, Instant};

/// Upper bound of the delay, regardless of how slow the device is.
const LONGEST: Duration = Duration::from_micros(500);
/// A pause between arrivals after which no more are expected.
const LULL: Duration = Duration::from_micros(100);
/// Number of fruitless delays after which the writer stops delaying …
const IN_VAIN: u32 = 8;
/// … for this number of groups.
const BREAK: u32 = 200;

/// Decides how long the writer delays a group, based on recent arrivals.
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

    /// Waits for the expected callers while they keep arriving. `flush` is the duration of the last flush.
    pub(crate) fn wait(&mut self, queued: impl Fn() -> usize, flush: Duration) {
        self.wait_by(Instant::now, queued, flush);
    }

    /// Does the same with any clock.
    fn wait_by(&mut self, now: impl Fn() -> Instant, queued: impl Fn() -> usize, flush: Duration) {
        let mut at_first = queued();
        if at_first == 0 {
            // With an empty queue, polling delays no caller, and parking and waking the thread takes longer than most
            // callers are away.
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

/// Waits until the expected number is queued, arrivals pause or the delay is used up. Returns the number queued.
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
