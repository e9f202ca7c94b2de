//! Time as a parameter: instants in microseconds, a clock that the system drives and one that a test drives.
//!
//! The store's clock alone decides when work is due and when a lease ends. One boundary rule holds everywhere: an
//! instant has come when `now >= instant`.

mod text;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use self::text::{format_duration, iso, parse_duration};
pub(crate) use self::text::{millis, short};

/// An instant: microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// The instant that many microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This instant moved into the future; stops at the end of time instead of wrapping.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long it is from `earlier` to this instant; zero when `earlier` lies in its future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Whether this instant has come, the same rule for leases, due times and expiry.
    #[must_use]
    pub fn has_come(self, now: Self) -> bool {
        now >= self
    }
}

/// When something becomes due, resolved against the store's clock at commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// At that instant.
    At(Timestamp),
    /// That long after the commit.
    After(Duration),
}

impl Due {
    /// The instant that is meant, seen at `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(at) => at,
            Self::After(by) => now.after(by),
        }
    }
}

/// Where a store takes its time from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant. It may repeat; it should not go back.
    fn now(&self) -> Timestamp;
}

/// The machine's clock. It never goes back within one value of this type, even when the machine's does: it then goes
/// on at its pace from where it was, so that leases still end and work still becomes due.
#[derive(Debug, Default)]
pub struct SystemClock {
    last: Mutex<Option<Reading>>,
}

/// What a clock showed last, and what it goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    shown: Timestamp,
    /// The machine's clock when it was last believed. Time is added to this one rather than to what was shown,
    /// because readings less than a microsecond apart would otherwise never add up.
    wall: Timestamp,
    /// When that was.
    since: Instant,
}

impl Reading {
    fn first(wall: Timestamp, at: Instant) -> Self {
        Self { shown: wall, wall, since: at }
    }

    /// The reading that follows, when the machine's clock shows `wall` at the moment `at`.
    fn next(self, wall: Timestamp, at: Instant) -> Self {
        if wall >= self.shown {
            return Self::first(wall, at);
        }
        let onward = self.wall.after(at.saturating_duration_since(self.since));
        Self { shown: onward.max(self.shown), ..self }
    }
}

impl SystemClock {
    /// A clock ready for a store's options.
    #[must_use]
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::default())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut last = self.last.lock();
        let wall = Timestamp::EPOCH.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let at = Instant::now();
        let reading = last.map_or_else(|| Reading::first(wall, at), |last| last.next(wall, at));
        *last = Some(reading);
        reading.shown
    }
}

/// A clock that stands still until it is told to move: for tests, and for replaying a seed.
#[derive(Debug)]
pub struct ManualClock {
    micros: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self { micros: AtomicI64::new(start.0) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.micros.fetch_add(by, Ordering::AcqRel);
    }

    /// Sets the clock, backwards too: that is how a test jumps.
    pub fn set(&self, to: Timestamp) {
        self.micros.store(to.0, Ordering::Release);
    }
}

impl Default for ManualClock {
    /// Starts at a round, recognisable instant in 2001 rather than at zero, so that a forgotten field shows.
    fn default() -> Self {
        Self::new(Timestamp(1_000_000_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.micros.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests;
