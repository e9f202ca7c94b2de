//! Contention with other processes on one record: backoff after a conflict, and turns between writers.
//!
//! A writer that commits back to back never loses, and a slower one never wins: its read is stale by the time it writes.
//! Three rules give every writer its share:
//! - A loser waits first and reads afterwards, right before its attempt.
//! - A writer that has lately met a foreign write leaves a gap of about one write after each of its own. The gap grows while it
//!   wins again and again, so that the writer with the larger share yields more.
//! - A writer that lost twice reads by a merge without deltas. It returns the newest value and advances the version, so that an
//!   attempt in flight elsewhere fails and the other writer learns of this one.

use std::time::{Duration, Instant};

use crate::runtime::jitter::spread;
use crate::runtime::timer::sleep_until;

/// How long a foreign write counts as contention.
const MEMORY: Duration = Duration::from_secs(1);
/// The bounds of the assumed duration of a write.
const SHORTEST: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(50);
/// The longest backoff and the longest gap, in writes.
const MAX_BACKOFF: u32 = 8;
const MAX_GAP: u32 = 4;
/// Lost attempts after which the next read advances the version.
const PATIENCE: u32 = 2;

/// The driver's memory of foreign writers.
#[derive(Debug)]
pub(super) struct Contention {
    last_foreign: Option<Instant>,
    /// The end of the gap after the last own write.
    gap_end: Option<Instant>,
    /// The duration of an undisturbed write: it falls at once and rises slowly.
    write: Duration,
    /// Own writes since the last foreign one.
    streak: u32,
    /// Attempts that were lost since the last own write.
    lost: u32,
}

impl Default for Contention {
    fn default() -> Self {
        Self { last_foreign: None, gap_end: None, write: SHORTEST, streak: 0, lost: 0 }
    }
}

impl Contention {
    /// Records that another process wrote.
    pub(super) fn foreign(&mut self) {
        self.last_foreign = Some(Instant::now());
        self.streak = 0;
    }

    /// Records an attempt that lost to another process.
    pub(super) fn lost(&mut self) {
        self.foreign();
        self.lost = self.lost.saturating_add(1);
    }

    /// Records an own write that took so long.
    pub(super) fn wrote(&mut self, took: Duration) {
        let took = took.clamp(SHORTEST, LONGEST);
        self.write = if took < self.write { took } else { self.write + (took - self.write) / 8 };
        self.streak = self.streak.saturating_add(1);
        self.lost = 0;
        let gap = self.write * self.streak.min(MAX_GAP);
        self.gap_end = Some(Instant::now() + spread(gap, 0.75..1.5));
    }

    /// Returns whether another process wrote lately.
    pub(super) fn is_contended(&self) -> bool {
        self.last_foreign.is_some_and(|last| last.elapsed() < MEMORY)
    }

    /// Returns whether the next read must advance the version, because plain reads were stale too often.
    pub(super) fn is_starving(&self) -> bool {
        self.lost >= PATIENCE
    }

    /// Waits for the end of the gap after the last own write, if other processes write.
    pub(super) async fn gap(&self) {
        if let Some(end) = self.gap_end.filter(|_| self.is_contended()) {
            sleep_until(end).await;
        }
    }

    /// Waits a random share of a few writes after a lost attempt: more after more of them.
    pub(super) async fn backoff(&self) {
        let writes = self.lost.clamp(1, MAX_BACKOFF);
        sleep_until(Instant::now() + spread(self.write * writes, 0.0..1.0)).await;
    }
}
