//! Turn-taking between processes that write one record or one stream. Both are called a record here.
//!
//! A writer that commits back to back never loses, and a slower one never wins: its read is stale by the time it writes.
//! Writers therefore take turns, by time and not by writes, and every writer follows the same rules:
//! - A turn is a run of writes at full speed, from the version that the last one wrote. It lasts at least eight writes of the
//!   slowest writer known, so that the hand-over is a small part of it. A writer that is much slower than its rivals takes a
//!   shorter one, because the hand-over to it costs its rivals time as well.
//! - After its turn, a writer leaves a gap and polls the record. The gap ends with the first foreign write.
//! - A loser waits while the others write. It reads until the record has been quiet for longer than a write takes, and attempts
//!   its own write from that read. The longer it has waited, the less quiet it asks for.
//! - A gap that no other writer used doubles the next turn. A writer without rivals spends a few per cent of its time on gaps.
//!
//! The version of a record counts its writes, and that of a stream its events. So two reads also show how fast the
//! others write.

use std::time::{Duration, Instant};

use crate::process;

use super::jitter::spread;

/// The bounds of the assumed duration of a write.
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(50);
/// The shortest turn, and the number of writes that it has room for.
const SHORTEST_TURN: Duration = Duration::from_millis(4);
const TURN_WRITES: u32 = 8;
/// The number of own writes in the turn of a writer that takes twice as long as its rivals, or longer.
const SLOW_TURN_WRITES: u32 = 6;
/// Unused gaps after which no rival is assumed. Each doubles the turn.
const MAX_UNUSED: u32 = 6;
/// The same shortly after a foreign write: a rival that was too late for one gap is in time for the next.
const MAX_UNUSED_BESIDE_RIVALS: u32 = 2;
/// The slack of a gap for late timers: at least this, and several times the average delay of the own ones.
const GAP_SLACK: Duration = Duration::from_micros(500);
const GAP_DELAYS: u32 = 4;
/// A long gap, for a rival whose mutators take longer than the own writes: after three unused ones, and every eighth after it.
const LONG_GAP: Duration = Duration::from_millis(32);
const FIRST_LONG_GAP: u32 = 3;
const LONG_GAP_EVERY: u32 = 8;
/// The quiet time before an attempt, in halves of a write.
const QUIET_HALVES: u32 = 3;
/// Turns after which a waiter attempts a write on every read, quiet or not.
const PATIENCE: u32 = 16;
/// How long a foreign write, and the lack of own ones, counts.
const MEMORY: Duration = Duration::from_secs(1);

/// The driver's memory of other writers.
#[derive(Debug)]
pub(crate) struct Contention {
    phase: Phase,
    /// The average duration of its own attempts to write.
    write: Option<Duration>,
    /// The same of the other writers, if there are any.
    foreign_write: Option<Duration>,
    /// The average delay of its timers: on a busy machine, rivals are as late.
    delay: Duration,
    last_write: Option<Instant>,
    last_foreign: Option<Instant>,
    /// Gaps in a row that no other writer used.
    unused: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The own turn.
    Own { since: Instant },
    /// The turn of another writer.
    Foreign { since: Instant, version: Option<u64>, changed: Instant },
    /// An attempt to start a turn, from a fresh read.
    Attempt { since: Instant },
}

/// The action of a driver before its next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteTurn {
    /// Writes.
    Write,
    /// Reads before it writes: another writer may have used the pause.
    Read,
    /// Leaves a gap of this length, or until another writer wrote.
    Gap(Duration),
    /// Waits for the end of a foreign turn.
    Wait,
}

impl Default for Contention {
    fn default() -> Self {
        let since = process::now();
        Self {
            phase: Phase::Own { since },
            write: None,
            foreign_write: None,
            delay: Duration::ZERO,
            last_write: None,
            last_foreign: None,
            unused: 0,
        }
    }
}

impl Contention {
    /// Decides about the next write.
    pub(crate) fn next(&mut self, now: Instant) -> WriteTurn {
        let since = match self.phase {
            Phase::Foreign { .. } => return WriteTurn::Wait,
            Phase::Attempt { .. } => return WriteTurn::Write,
            Phase::Own { since } => since,
        };
        let idle = self.last_write.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        if self.last_write.is_none() || idle >= self.gap() {
            // The pause was a gap.
            self.phase = Phase::Own { since: now };
            if idle >= MEMORY {
                (self.unused, self.foreign_write) = (0, None);
            }
            return if self.foreign_write.is_some() { WriteTurn::Read } else { WriteTurn::Write };
        }
        let turn = self.own_turn() * (1 << self.unused.min(self.max_unused(now)));
        if now.saturating_duration_since(since) < turn {
            WriteTurn::Write
        } else {
            WriteTurn::Gap(self.gap())
        }
    }

    /// Records that a gap passed unused: a new turn starts.
    pub(crate) fn gap_unused(&mut self, now: Instant) {
        self.phase = Phase::Own { since: now };
        self.unused = self.unused.saturating_add(1);
        if self.unused >= self.max_unused(now) && !self.is_contended(now) {
            self.foreign_write = None;
        }
    }

    /// Records that another writer used the gap. The duration of its writes is estimated from the time since the last
    /// own write.
    pub(crate) fn gap_used(&mut self, version: Option<u64>, now: Instant) {
        let passed = self.last_write.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let took = passed.saturating_sub(self.own_write() * QUIET_HALVES / 2);
        self.foreign_write = Some(averaged(self.foreign_write.unwrap_or(took.min(LONGEST)), took));
        self.foreign(version, now);
    }

    /// Records an attempt that took `took`, with its mutators, and lost to a foreign write.
    pub(crate) fn lost(&mut self, version: Option<u64>, took: Duration, now: Instant) {
        self.measured(took);
        self.foreign(version, now);
    }

    fn foreign(&mut self, version: Option<u64>, now: Instant) {
        let since = match self.phase {
            Phase::Own { .. } => now,
            Phase::Foreign { since, .. } | Phase::Attempt { since } => since,
        };
        self.phase = Phase::Foreign { since, version, changed: now };
        let own = self.own_write();
        self.foreign_write.get_or_insert(own);
        self.last_foreign = Some(now);
        self.unused = 0;
    }

    /// Records the version that a waiter read. Returns whether it now attempts a write from this read.
    pub(crate) fn read(&mut self, found: Option<u64>, now: Instant) -> bool {
        let Phase::Foreign { since, version, changed } = self.phase else { return true };
        let waited = now.saturating_duration_since(since);
        let passed = now.saturating_duration_since(changed);
        let attempt = if found == version {
            passed >= self.quiet(waited)
        } else {
            self.phase = Phase::Foreign { since, version: found, changed: now };
            let writes = version.zip(found).map_or(1, |(old, new)| new.saturating_sub(old).max(1));
            let each = passed / u32::try_from(writes).unwrap_or(u32::MAX);
            self.foreign_write = Some(averaged(self.foreign_write.unwrap_or(self.own_write()), each));
            waited >= self.turn() * PATIENCE
        };
        if attempt {
            self.phase = Phase::Attempt { since };
        }
        attempt
    }

    /// Returns the pause of a waiter before its next read.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        let waited = match self.phase {
            Phase::Foreign { since, .. } => now.saturating_duration_since(since),
            Phase::Own { .. } | Phase::Attempt { .. } => Duration::ZERO,
        };
        spread(self.quiet(waited), 0.4..0.6)
    }

    /// Records a pause that ended later than it should have.
    pub(crate) fn delayed(&mut self, by: Duration) {
        self.delay = (self.delay * 7 + by.min(LONGEST)) / 8;
    }

    /// Returns the pause between two reads in a gap.
    pub(crate) fn poll(&self) -> Duration {
        self.own_write() / 2
    }

    /// Records an own write that took `took`, with its mutators.
    pub(crate) fn wrote(&mut self, took: Duration, now: Instant) {
        self.measured(took);
        self.last_write = Some(now);
        if !matches!(self.phase, Phase::Own { .. }) {
            self.phase = Phase::Own { since: now };
        }
    }

    fn measured(&mut self, took: Duration) {
        let known = self.write.unwrap_or_else(|| took.clamp(SHORTEST, LONGEST));
        self.write = Some(averaged(known, took));
    }

    /// Returns whether another process wrote lately.
    fn is_contended(&self, now: Instant) -> bool {
        self.last_foreign.is_some_and(|last| now.saturating_duration_since(last) < MEMORY)
    }

    fn max_unused(&self, now: Instant) -> u32 {
        if self.is_contended(now) { MAX_UNUSED_BESIDE_RIVALS } else { MAX_UNUSED }
    }

    fn own_write(&self) -> Duration {
        self.write.unwrap_or(SHORTEST)
    }

    /// The duration of a write of the slowest writer known.
    fn slowest_write(&self) -> Duration {
        self.foreign_write.map_or(self.own_write(), |foreign| foreign.max(self.own_write()))
    }

    /// The length of a turn beside rivals.
    fn turn(&self) -> Duration {
        (self.slowest_write() * TURN_WRITES).max(self.delay * GAP_DELAYS).max(SHORTEST_TURN)
    }

    /// The length of the own turn.
    fn own_turn(&self) -> Duration {
        let is_slow = self.foreign_write.is_some_and(|foreign| self.own_write() >= foreign * 2);
        if is_slow { self.turn() * SLOW_TURN_WRITES / TURN_WRITES } else { self.turn() }
    }

    /// The length of a gap: a rival needs up to two quiet times to notice it, and then the time of its write.
    fn gap(&self) -> Duration {
        let gap = self.own_write() * QUIET_HALVES
            + self.slowest_write() * QUIET_HALVES / 2
            + GAP_SLACK.max(self.delay * GAP_DELAYS);
        let long = self.unused % LONG_GAP_EVERY == FIRST_LONG_GAP;
        if long { gap.max(LONG_GAP) } else { gap }
    }

    /// The time without a foreign write after which a waiter attempts its own. Within a foreign turn it leaves the other
    /// writer the time for its next write. Later it only makes sure that the record is not just being written.
    fn quiet(&self, waited: Duration) -> Duration {
        let in_turn = waited < self.turn() * 2 + self.turn() / 4;
        let foreign = self.foreign_write.unwrap_or(self.own_write());
        let write = if in_turn { foreign } else { foreign.min(self.own_write()) };
        write * QUIET_HALVES / 2
    }
}

/// Follows the average of the measured durations. A single long one counts for little.
fn averaged(known: Duration, measured: Duration) -> Duration {
    (known * 7 + measured.min(known * 4).clamp(SHORTEST, LONGEST)) / 8
}

#[cfg(test)]
mod tests;
