//! The clock of a database file, which never goes back, whichever process writes.
//!
//! Leases expire at instants, and two processes on either side of a clock step disagree about them. So the file keeps
//! the latest commit time. A process whose clock is behind continues from there, at the pace of its own clock.
//!
//! A file that is ahead by more than [`MAX_LEAD`] was written with a wrong clock. Following it would keep the mistake
//! until real time arrives there, so such a time is ignored.
//!
//! PostgreSQL has one clock, that of the server.

use std::sync::Arc;

use parking_lot::Mutex;
use tidelock_core::clock::{Clock, Timestamp};

/// How far a file may be ahead of a process before its time counts as a mistake: longer than leases usually are.
const MAX_LEAD: i64 = 10 * 60 * 1_000_000;

/// A clock that is never behind the file.
#[derive(Debug)]
pub(crate) struct FileClock {
    own: Arc<dyn Clock>,
    shown: Mutex<Shown>,
}

#[derive(Debug)]
struct Shown {
    /// How far the file is ahead of the process's own clock, in microseconds.
    ahead: i64,
    /// The latest time that was shown or found in the file.
    latest: Timestamp,
}

impl FileClock {
    pub(crate) fn new(own: Arc<dyn Clock>) -> Self {
        Self { own, shown: Mutex::new(Shown { ahead: 0, latest: Timestamp::EPOCH }) }
    }

    /// Records a time at which another process has committed.
    pub(crate) fn advance_to(&self, found: Timestamp) {
        let mut shown = self.shown.lock();
        shown.latest = shown.latest.max(found);
    }
}

impl Clock for FileClock {
    fn now(&self) -> Timestamp {
        let mut shown = self.shown.lock();
        let own = self.own.now();
        if shown.latest.as_micros().saturating_sub(own.as_micros()) > MAX_LEAD {
            *shown = Shown { ahead: 0, latest: own };
        }
        let now = own.as_micros().saturating_add(shown.ahead);
        let behind = shown.latest.as_micros().saturating_sub(now);
        if behind > 0 {
            shown.ahead = shown.ahead.saturating_add(behind);
        } else {
            shown.latest = Timestamp::from_micros(now);
        }
        shown.latest
    }
}

/// The time of a file during a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileTime {
    /// The latest commit time in the file.
    pub(crate) stored: Timestamp,
    /// The time of this group.
    pub(crate) now: Timestamp,
}

impl Default for FileTime {
    fn default() -> Self {
        Self { stored: Timestamp::EPOCH, now: Timestamp::EPOCH }
    }
}
