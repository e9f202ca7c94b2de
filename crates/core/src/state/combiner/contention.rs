//! Contention with other processes on one record: backoff after a conflict, and turns between writers.
//!
//! A writer that commits back to back never loses, and a slower one never wins: its read is stale by the time it writes.
//! Three rules give every writer its share:
//! - A loser waits first and reads afterwards, right before its attempt.
//! - A writer that has lately met a foreign write leaves a gap of about one write after each of its own. The gap grows while it
//!   wins again and again, so that the writer with the larger share yields more.
//! - A writer that knows of no other one leaves a gap of two writes after every 64th, so that another one can win for once.

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
/// Own writes after which a writer without known rivals leaves a gap, and the length of that gap in writes: a cost of about 3 %.
const LONGEST_STREAK: u32 = 64;
const PROBE_GAP: u32 = 2;

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
        let gap = self.write * if self.is_contended() { self.streak.min(MAX_GAP) } else { PROBE_GAP };
        self.gap_end = Some(Instant::now() + spread(gap, 0.75..1.5));
    }

    /// Returns whether another process wrote lately.
    pub(super) fn is_contended(&self) -> bool {
        self.last_foreign.is_some_and(|last| last.elapsed() < MEMORY)
    }

    /// Waits for the end of the gap after the last own write, if there is to be one.
    pub(super) async fn gap(&self) {
        let due = self.is_contended() || self.streak.is_multiple_of(LONGEST_STREAK);
        if let Some(end) = self.gap_end.filter(|_| due) {
            sleep_until(end).await;
        }
    }

    /// Waits a random share of a few writes after a lost attempt: more after more of them.
    pub(super) async fn backoff(&self) {
        let writes = self.lost.clamp(1, MAX_BACKOFF);
        sleep_until(Instant::now() + spread(self.write * writes, 0.0..1.0)).await;
    }
}
