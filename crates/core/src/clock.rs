//! Clocks and timestamps: instants in microseconds, a clock that the system drives and one that a test drives.
//!
//! Only the store's clock decides when work is due and when a lease expires. One boundary rule applies everywhere: an
//! instant has come when `now >= instant`.

mod text;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use self::text::{format_duration, parse_duration};
pub(crate) use self::text::{millis, short};

/// An instant: microseconds since the Unix epoch, UTC. Its JSON representation is RFC 3339 text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// Returns the instant that many microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns this instant moved into the future. It saturates at the end of the range instead of wrapping.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this instant; zero when `earlier` lies in its future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns whether this instant has come. Leases, due times and expiry use this rule.
    #[must_use]
    pub fn has_come(self, now: Self) -> bool {
        now >= self
    }
}

/// A due time, resolved against the store's clock at the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Due {
    /// Immediately.
    #[default]
    Now,
    /// At that instant.
    At(Timestamp),
    /// This time after the commit.
    After(Duration),
}

impl Due {
    /// Returns the due instant as of `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(at) => at,
            Self::After(by) => now.after(by),
        }
    }
}

/// The time source of a store.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the present instant. It may repeat; it should not go back.
    fn now(&self) -> Timestamp;
}

/// The machine's clock. One value of this type never goes back, even when the machine's clock does. It then advances at
/// the monotonic rate from its last reading, so that leases still expire and work still becomes due.
#[derive(Debug, Default)]
pub struct SystemClock {
    last: Mutex<Option<Reading>>,
}

/// The last reading of a clock, and the basis of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    shown: Timestamp,
    /// The machine's clock when it was last trusted. Elapsed time is added to this value instead of `shown`, because
    /// readings less than a microsecond apart would otherwise never add up.
    wall: Timestamp,
    /// The monotonic instant of that reading.
    since: Instant,
}

impl Reading {
    fn first(wall: Timestamp, at: Instant) -> Self {
        Self { shown: wall, wall, since: at }
    }

    /// Returns the next reading, when the machine's clock shows `wall` at the instant `at`.
    fn next(self, wall: Timestamp, at: Instant) -> Self {
        if wall >= self.shown {
            return Self::first(wall, at);
        }
        let onward = self.wall.after(at.saturating_duration_since(self.since));
        Self { shown: onward.max(self.shown), ..self }
    }
}

impl SystemClock {
    /// Creates a clock for a store's options.
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

/// A clock that advances only on request, for tests and for replaying a seed.
#[derive(Debug)]
pub struct ManualClock {
    micros: AtomicI64,
}

impl ManualClock {
    /// Creates a clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self { micros: AtomicI64::new(start.0) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.micros.fetch_add(by, Ordering::AcqRel);
    }

    /// Sets the clock, forwards or backwards, so that a test can jump.
    pub fn set(&self, to: Timestamp) {
        self.micros.store(to.0, Ordering::Release);
    }
}

impl Default for ManualClock {
    /// Starts at a round, recognisable instant in 2001 rather than at zero, so that an uninitialised field is visible.
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
