//! Only here: the server's clock, estimated between two responses. SQLite uses the machine's clock.
//!
//! Every response of the server carries its time, which was read between the request and the response. Adding the local
//! time since the response gives an instant that the server's clock has reached: the estimate is not ahead of it. A row
//! written as due now is therefore due for every later claim, on any machine.
//!
//! A response also bounds the estimate from above. When the request was sent, the server's clock had not passed the
//! time that it reports. An estimate beyond that bound belongs to a clock that was set back or runs slower, and is
//! replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidelock_core::clock::{Clock, Timestamp};

/// The estimate runs slower than this machine's clock by one part in this number. It never overtakes a server whose
/// clock runs slower by less, and every response brings it forward again.
const SLOWER: i64 = 1_000;

/// The time source of the store.
#[derive(Debug)]
pub(crate) enum Time {
    /// The server's clock.
    Server(Mutex<Option<ClockSample>>),
    /// A clock that the program supplies.
    Given(Arc<dyn Clock>),
}

/// An instant that the server's clock had reached, and the local instant of that sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockSample {
    said: i64,
    at: Instant,
}

impl ClockSample {
    /// Returns the estimate at an instant of this machine.
    fn guess(&self, now: Instant) -> i64 {
        let passed = micros(now.saturating_duration_since(self.at));
        self.said.saturating_add(passed - passed / SLOWER)
    }

    /// Returns the better estimate after a response that reports `said` to a request that was sent at `sent`.
    fn refined(self, said: i64, sent: Instant, received: Instant) -> Self {
        let guess = self.guess(received);
        let latest = said.saturating_add(micros(received.saturating_duration_since(sent)));
        let said = if (said..=latest).contains(&guess) { guess } else { said };
        Self { said, at: received }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Time {
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        clock.map_or_else(|| Self::Server(Mutex::new(None)), Self::Given)
    }

    /// Returns an instant that has been reached. `None` before the first sample of the server's clock.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Given(clock) => Some(clock.now()),
            Self::Server(heard) => {
                heard.lock().map(|heard| Timestamp::from_micros(heard.guess(Instant::now())))
            }
        }
    }

    /// Returns the instant that a statement uses. `None`: the server uses its own clock.
    pub(crate) fn fixed(&self) -> Option<Timestamp> {
        match self {
            Self::Given(clock) => Some(clock.now()),
            Self::Server(_) => None,
        }
    }

    /// Returns the instant that the server compares with its clock before it writes.
    pub(crate) fn to_check(&self, now: Timestamp) -> Option<i64> {
        match self {
            Self::Given(_) => None,
            Self::Server(_) => Some(now.as_micros()),
        }
    }

    /// Records the time that the server reports in response to a request sent at `sent`. Returns the instant to use.
    pub(crate) fn hear(&self, said: i64, sent: Instant) -> Timestamp {
        match self {
            Self::Given(clock) => clock.now(),
            Self::Server(heard) => {
                let (mut heard, received) = (heard.lock(), Instant::now());
                let first = ClockSample { said, at: received };
                *heard = Some(heard.map_or(first, |heard| heard.refined(said, sent, received)));
                Timestamp::from_micros(said)
            }
        }
    }

    /// Discards the sample because the estimate was wrong.
    pub(crate) fn forget(&self) {
        if let Self::Server(heard) = self {
            *heard.lock() = None;
        }
    }
}

#[cfg(test)]
mod tests;
