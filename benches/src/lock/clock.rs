//! Wall-clock and CPU time of a measurement. A busy machine disturbs CPU time less.

use std::time::{Duration, Instant};

/// Whether CPU time is available on this platform. Where it is not, wall-clock time is used instead.
pub const CPU_TIME_IS_KNOWN: bool = cfg!(unix);

/// A stopwatch that starts on creation.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: Instant,
    cpu: Option<Duration>,
}

/// The time spent on a number of turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// The number of turns.
    pub turns: u64,
    /// The CPU time of all threads in this process.
    pub cpu: Duration,
    /// The elapsed wall-clock time.
    pub wall: Duration,
}

impl Stopwatch {
    /// Starts the measurement.
    #[must_use]
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu_time() }
    }

    /// Returns the elapsed wall-clock time.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.wall.elapsed()
    }

    /// Ends the measurement.
    #[must_use]
    pub fn stop(self, turns: u64) -> Spent {
        let wall = self.wall.elapsed();
        let cpu = self.cpu.zip(cpu_time()).map_or(wall, |(before, after)| after.saturating_sub(before));
        Spent { turns, cpu, wall }
    }
}

impl Spent {
    /// Returns the CPU time per turn in nanoseconds; 0 when there was no turn.
    #[must_use]
    pub fn cpu_ns(&self) -> f64 {
        if self.turns == 0 { 0.0 } else { self.cpu.as_secs_f64() * 1e9 / self.turns as f64 }
    }

    /// Returns the turns per second of wall-clock time.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        if self.wall.is_zero() { 0.0 } else { self.turns as f64 / self.wall.as_secs_f64() }
    }
}

/// Returns the CPU time of all threads of this process.
#[cfg(unix)]
fn cpu_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
}

#[cfg(not(unix))]
fn cpu_time() -> Option<Duration> {
    None
}
