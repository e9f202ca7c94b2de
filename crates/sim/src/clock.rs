//! The clock of the simulated store: simulated time plus jumps.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidelock_core::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// The instant at which every simulation starts.
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A clock that follows the simulated time. A jump back holds it until the time has caught up, as databases do.
#[derive(Debug)]
pub(crate) struct SimClock {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    offset_micros: i64,
    shown: Timestamp,
}

impl SimClock {
    pub(crate) fn start() -> Arc<Self> {
        let state = State { offset_micros: 0, shown: START };
        Arc::new(Self { started: Instant::now(), state: Mutex::new(state) })
    }

    /// Moves the clock by a number of milliseconds, which may be negative.
    pub(crate) fn jump(&self, millis: i64) {
        self.state.lock().offset_micros += millis * 1_000;
    }

    /// Returns the simulated time since the start, without jumps.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let mut state = self.state.lock();
        let elapsed = i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX);
        let wall = START.as_micros().saturating_add(elapsed).saturating_add(state.offset_micros);
        state.shown = state.shown.max(Timestamp::from_micros(wall));
        state.shown
    }
}
