//! How long something took, by the wall and by the processor: a busy machine disturbs the latter less.

use std::time::{Duration, Instant};

/// Whether the processor's time can be told here. Where it cannot, the wall's stands in for it.
pub const CPU_TIME_IS_KNOWN: bool = cfg!(unix);

/// Runs from when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    wall: Instant,
    cpu: Option<Duration>,
}

/// What so many turns took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// How many turns there were.
    pub turns: u64,
    /// The time of all processors in this process.
    pub cpu: Duration,
    /// The time that went by.
    pub wall: Duration,
}

impl Meter {
    /// Begins now.
    #[must_use]
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu_time() }
    }

    /// The time that went by so far.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.wall.elapsed()
    }

    /// Ends it.
    #[must_use]
    pub fn stop(self, turns: u64) -> Spent {
        let wall = self.wall.elapsed();
        let cpu = self.cpu.zip(cpu_time()).map_or(wall, |(before, after)| after.saturating_sub(before));
        Spent { turns, cpu, wall }
    }
}

impl Spent {
    /// The processor's nanoseconds for one turn; 0 when there was none.
    #[must_use]
    pub fn cpu_ns(&self) -> f64 {
        if self.turns == 0 { 0.0 } else { self.cpu.as_secs_f64() * 1e9 / self.turns as f64 }
    }

    /// Turns per second of the wall's time.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        if self.wall.is_zero() { 0.0 } else { self.turns as f64 / self.wall.as_secs_f64() }
    }
}

/// The time that all threads of this process have run.
#[cfg(unix)]
fn cpu_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
}

#[cfg(not(unix))]
fn cpu_time() -> Option<Duration> {
    None
}
