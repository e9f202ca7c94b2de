//! Only here: the server's clock, as this process guesses it between two answers. SQLite runs on the machine's clock.
//!
//! Every reply of the server carries its time, which was read between the request and the reply. Adding the time that has
//! passed here since the reply gives an instant that the server's clock has reached: the guess is not ahead of it. So
//! what is written as due now is due for every claim that comes later, whichever machine it comes from.
//!
//! A reply also bounds the guess from above: when the request was sent, the server's clock had not passed the time that
//! it reports. A guess beyond that bound belongs to a clock that was set back or runs slower, and is replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidelock_core::clock::{Clock, Timestamp};

/// The guess runs slower than this machine's clock by one part in so many. It never overtakes a server whose clock runs
/// slower by less, and every reply brings it forward again.
const SLOWER: i64 = 1_000;

/// Where the store takes its time from.
#[derive(Debug)]
pub(crate) enum Time {
    /// The server's clock.
    Server(Mutex<Option<Heard>>),
    /// A clock that the program brought.
    Given(Arc<dyn Clock>),
}

/// An instant that the server's clock had reached, and when that was known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    said: i64,
    at: Instant,
}

impl Heard {
    /// The guess at an instant of this machine.
    fn guess(&self, now: Instant) -> i64 {
        let passed = micros(now.saturating_duration_since(self.at));
        self.said.saturating_add(passed - passed / SLOWER)
    }

    /// The better guess after a reply that reports `said` to a request that was sent at `sent`.
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

    /// An instant that has come. `None` when the server was never heard.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Given(clock) => Some(clock.now()),
            Self::Server(heard) => {
                heard.lock().map(|heard| Timestamp::from_micros(heard.guess(Instant::now())))
            }
        }
    }

    /// The instant that a statement is to go by; `None` lets the server take its own.
    pub(crate) fn given(&self) -> Option<Timestamp> {
        match self {
            Self::Given(clock) => Some(clock.now()),
            Self::Server(_) => None,
        }
    }

    /// What the server is to compare its clock with before it writes.
    pub(crate) fn to_check(&self, now: Timestamp) -> Option<i64> {
        match self {
            Self::Given(_) => None,
            Self::Server(_) => Some(now.as_micros()),
        }
    }

    /// Takes note of what the server reports in reply to a request that was sent at `sent`, and gives the instant to go
    /// by.
    pub(crate) fn hear(&self, said: i64, sent: Instant) -> Timestamp {
        match self {
            Self::Given(clock) => clock.now(),
            Self::Server(heard) => {
                let (mut heard, received) = (heard.lock(), Instant::now());
                let first = Heard { said, at: received };
                *heard = Some(heard.map_or(first, |heard| heard.refined(said, sent, received)));
                Timestamp::from_micros(said)
            }
        }
    }

    /// Forgets what was heard: it was misjudged.
    pub(crate) fn forget(&self) {
        if let Self::Server(heard) = self {
            *heard.lock() = None;
        }
    }
}

#[cfg(test)]
mod tests;
