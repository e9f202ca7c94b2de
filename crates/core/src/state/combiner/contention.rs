//! Contention with other processes on one record: backoff after a conflict, and turns between writers.
//!
//! A writer that commits back to back never loses, and a slower one never wins: its read is stale by the time it writes. So
//! a writer that has lately met a foreign write leaves a gap of about one write after each write of its own. The other
//! writers read inside that gap. A loser waits first and reads afterwards, right before its attempt.

use std::time::{Duration, Instant};

use crate::runtime::jitter::spread;
use crate::runtime::timer::sleep_until;

/// How long a foreign write counts as contention.
const MEMORY: Duration = Duration::from_secs(1);
/// The bounds of the assumed duration of a write.
const SHORTEST: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(50);
/// The longest backoff, in writes.
const MAX_WRITES: u32 = 8;

/// The driver's memory of foreign writers.
#[derive(Debug)]
pub(super) struct Contention {
    last_foreign: Option<Instant>,
    /// The end of the gap after the last own write.
    gap_end: Option<Instant>,
    /// The duration of an undisturbed write: it falls at once and rises slowly.
    write: Duration,
}

impl Default for Contention {
    fn default() -> Self {
        Self { last_foreign: None, gap_end: None, write: SHORTEST }
    }
}

impl Contention {
    /// Records a write of another process.
    pub(super) fn foreign(&mut self) {
        self.last_foreign = Some(Instant::now());
    }

    /// Records an own write that took so long.
    pub(super) fn wrote(&mut self, took: Duration) {
        let took = took.clamp(SHORTEST, LONGEST);
        self.write = if took < self.write { took } else { self.write + (took - self.write) / 8 };
        self.gap_end = Some(Instant::now() + spread(self.write, 0.75..1.5));
    }

    /// Returns whether another process wrote lately.
    pub(super) fn is_contended(&self) -> bool {
        self.last_foreign.is_some_and(|last| last.elapsed() < MEMORY)
    }

    /// Waits for the end of the gap after the last own write, if other processes write.
    pub(super) async fn gap(&self) {
        if let Some(end) = self.gap_end.filter(|_| self.is_contended()) {
            sleep_until(end).await;
        }
    }

    /// Waits after this number of lost attempts.
    pub(super) async fn backoff(&self, lost: u32) {
        let writes =
            1_u32.checked_shl(lost.saturating_sub(1)).map_or(MAX_WRITES, |writes| writes.min(MAX_WRITES));
        sleep_until(Instant::now() + spread(self.write * writes, 0.0..1.0)).await;
    }
}
