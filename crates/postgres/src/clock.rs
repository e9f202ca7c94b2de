//! Only here: the server's clock, as this process guesses it between two answers. SQLite runs on the machine's clock.
//!
//! Every answer of the server carries its time, which was read before the answer arrived. Adding the time that has
//! passed here since then gives an instant that the server's clock has reached: a guess is never ahead of it. So what
//! is written as due now is due for every claim that comes later, whichever machine it comes from.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tidelock_core::clock::{Clock, Timestamp};

/// A guess that is this far from a later answer, in microseconds, is given up: somebody moved the server's clock.
const JUMP: i64 = 500_000;

/// Where the store takes its time from.
#[derive(Debug)]
pub(crate) enum Time {
    /// The server's clock.
    Server(Mutex<Option<Heard>>),
    /// A clock that the program brought.
    Given(Arc<dyn Clock>),
}

/// What the server said last, and when that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    said: i64,
    at: Instant,
}

impl Heard {
    fn now(&self) -> i64 {
        let passed = i64::try_from(self.at.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.said.saturating_add(passed)
    }
}

impl Time {
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        clock.map_or_else(|| Self::Server(Mutex::new(None)), Self::Given)
    }

    /// An instant that has come. `None` when the server was never heard.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Given(clock) => Some(clock.now()),
            Self::Server(heard) => heard.lock().as_ref().map(|heard| Timestamp::from_micros(heard.now())),
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

    /// Takes note of what the server said just now, and gives the instant to go by.
    pub(crate) fn hear(&self, said: i64) -> Timestamp {
        match self {
            Self::Given(clock) => clock.now(),
            Self::Server(heard) => {
                let mut heard = heard.lock();
                let guess = heard.as_ref().map(Heard::now);
                let now = match guess {
                    // The better guess is the later one, as long as both are of the same clock.
                    Some(guess) if (guess - said).abs() < JUMP => guess.max(said),
                    _ => said,
                };
                *heard = Some(Heard { said: now, at: Instant::now() });
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
