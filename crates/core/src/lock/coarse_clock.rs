//! A coarse clock for lock ages: a counter of milliseconds that a thread advances every tick.
//!
//! Reading the machine's clock costs as much as acquiring a lock, so ages are known to a tick. The thread exits after a
//! second in which no lock was used, and the next use starts it again.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::process;

/// The resolution of the clock.
const TICK: Duration = Duration::from_millis(10);
/// Number of ticks without a reading after which the thread exits.
const IDLE_TICKS: u32 = 100;

static MILLIS: AtomicU64 = AtomicU64::new(0);
static TICKING: AtomicBool = AtomicBool::new(false);
static READ: AtomicBool = AtomicBool::new(false);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Whether the thread runs. It decides to exit while it holds the mutex.
static RUNNING: Mutex<bool> = Mutex::new(false);

/// An instant, rounded to a tick: milliseconds since the first lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

impl Tick {
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the present tick.
#[inline]
pub(super) fn now() -> Tick {
    if process::is_simulated() {
        return simulated();
    }
    if !TICKING.load(Ordering::Relaxed) {
        start();
    }
    if !READ.load(Ordering::Relaxed) {
        READ.store(true, Ordering::Relaxed);
    }
    Tick(MILLIS.load(Ordering::Relaxed))
}

/// Returns the present instant from the machine's clock, for observers.
pub(super) fn exact() -> Tick {
    if process::is_simulated() {
        return simulated();
    }
    advance();
    Tick(MILLIS.load(Ordering::Relaxed))
}

/// Returns the tick of a simulated process, which has no thread.
fn simulated() -> Tick {
    Tick(u64::try_from(process::elapsed(*START).as_millis()).unwrap_or(u64::MAX))
}

fn advance() {
    let millis = u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX);
    MILLIS.fetch_max(millis, Ordering::Relaxed);
}

#[cold]
fn start() {
    advance();
    if cfg!(any(tidelock_loom, tidelock_shuttle)) {
        return;
    }
    let mut running = RUNNING.lock();
    if *running {
        return;
    }
    match std::thread::Builder::new().name("tidelock-clock".to_owned()).spawn(run) {
        Ok(_) => {
            *running = true;
            TICKING.store(true, Ordering::Relaxed);
        }
        // Without the thread, every reading advances the clock.
        Err(error) => {
            tracing::error!(target: crate::telemetry::LOCK, %error, "lock clock not started");
        }
    }
}

fn run() {
    let mut idle = 0;
    loop {
        std::thread::sleep(TICK);
        advance();
        idle = if READ.swap(false, Ordering::Relaxed) { 0 } else { idle + 1 };
        if idle < IDLE_TICKS {
            continue;
        }
        let mut running = RUNNING.lock();
        TICKING.store(false, Ordering::Relaxed);
        *running = false;
        return;
    }
}
