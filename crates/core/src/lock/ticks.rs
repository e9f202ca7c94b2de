//! The time, coarsely and cheaply, and deadlines. One thread keeps both, and only while somebody needs them.
//!
//! Reading the machine's clock would cost as much as taking a lock; so how long a lock is held is known to a tick.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::entry::wake_all;

/// How coarse it is.
const TICK: Duration = Duration::from_millis(10);
/// After so many ticks in which nobody asked for the time, the thread rests.
const IDLE_TICKS: u32 = 100;

/// An instant, to a tick: milliseconds since the first lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

impl Tick {
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

static NOW: AtomicU64 = AtomicU64::new(0);
static TICKING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
static CLOCKWORK: LazyLock<Clockwork> = LazyLock::new(Clockwork::default);

/// The present tick.
#[inline]
pub(super) fn now() -> Tick {
    if !TICKING.load(Ordering::Relaxed) {
        CLOCKWORK.start();
    }
    if !ASKED.load(Ordering::Relaxed) {
        ASKED.store(true, Ordering::Relaxed);
    }
    Tick(NOW.load(Ordering::Relaxed))
}

/// The present tick for somebody who looks on: as exact as it can be.
pub(super) fn look() -> Tick {
    CLOCKWORK.show();
    Tick(NOW.load(Ordering::Relaxed))
}

/// Wakes somebody at an instant. Dropped earlier, it does not.
#[derive(Debug)]
pub(super) struct Alarm {
    number: u64,
    at: Instant,
}

impl Alarm {
    pub(super) fn set(at: Instant, waker: Waker) -> Self {
        let mut state = CLOCKWORK.state.lock();
        state.last += 1;
        let number = state.last;
        state.wakers.insert(number, waker);
        state.alarms.push(Reverse((at, number)));
        let running = std::mem::replace(&mut state.running, true);
        drop(state);
        CLOCKWORK.wake(running);
        Self { number, at }
    }

    /// Whether the instant has come.
    pub(super) fn has_rung(&self) -> bool {
        Instant::now() >= self.at
    }

    /// Wakes somebody else instead. `false` when it has rung already.
    pub(super) fn change(&self, waker: &Waker) -> bool {
        let known = CLOCKWORK.state.lock().wakers.get(&self.number).map(|known| known.will_wake(waker));
        if known == Some(false) {
            // Cloned before and dropped after the mutex: wakers are other people's code.
            let mut waker = waker.clone();
            let mut state = CLOCKWORK.state.lock();
            let Some(known) = state.wakers.get_mut(&self.number) else { return false };
            std::mem::swap(known, &mut waker);
            drop(state);
        }
        known.is_some()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let mut state = CLOCKWORK.state.lock();
        let removed = state.wakers.remove(&self.number);
        // Those that were dropped are swept out when they are most of the heap.
        if state.alarms.len() > 64 && state.alarms.len() > 2 * state.wakers.len() {
            let State { alarms, wakers, .. } = &mut *state;
            alarms.retain(|Reverse((_, number))| wakers.contains_key(number));
        }
        drop(state);
        drop(removed);
    }
}

/// Waits until an instant, on any executor.
pub(crate) async fn sleep_until(at: Instant) {
    let mut alarm: Option<Alarm> = None;
    std::future::poll_fn(|context| {
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        match &alarm {
            Some(alarm) if !alarm.change(context.waker()) => return Poll::Ready(()),
            Some(_) => {}
            None => alarm = Some(Alarm::set(at, context.waker().clone())),
        }
        Poll::Pending
    })
    .await;
}

#[derive(Debug)]
struct Clockwork {
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    alarms: BinaryHeap<Reverse<(Instant, u64)>>,
    wakers: foldhash::HashMap<u64, Waker>,
    last: u64,
    /// Whether the thread is there.
    running: bool,
    idle: u32,
}

impl Default for Clockwork {
    fn default() -> Self {
        Self { began: Instant::now(), state: Mutex::default(), changed: Condvar::new() }
    }
}

impl Clockwork {
    fn show(&self) {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        NOW.fetch_max(millis, Ordering::Relaxed);
    }

    /// Begins to tick again.
    #[cold]
    fn start(&self) {
        self.show();
        if cfg!(any(tidelock_loom, tidelock_shuttle)) {
            return;
        }
        let mut state = self.state.lock();
        state.idle = 0;
        let running = std::mem::replace(&mut state.running, true);
        TICKING.store(true, Ordering::Relaxed);
        drop(state);
        self.wake(running);
    }

    /// Tells the thread of a change, or starts it.
    fn wake(&self, running: bool) {
        if running {
            self.changed.notify_one();
            return;
        }
        let thread = std::thread::Builder::new().name("tidelock-ticks".to_owned());
        if let Err(error) = thread.spawn(|| CLOCKWORK.run()) {
            // Without the thread, deadlines are noticed when the waiter is next polled, and ages stand still.
            tracing::error!(%error, "the clock of the locks cannot be started");
            self.state.lock().running = false;
        }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            self.show();
            let rung = state.rung(Instant::now());
            if !rung.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut state, || ring(rung));
            }
            state.idle = if ASKED.swap(false, Ordering::Relaxed) { 0 } else { state.idle.saturating_add(1) };
            let ticking = state.idle < IDLE_TICKS;
            TICKING.store(ticking, Ordering::Relaxed);
            let tick = ticking.then(|| Instant::now() + TICK);
            let alarm = state.alarms.peek().map(|Reverse((at, _))| *at);
            match tick.into_iter().chain(alarm).min() {
                Some(at) => {
                    self.changed.wait_until(&mut state, at);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

/// Wakes those whose time has come. A waker that panics must not stop the clock.
fn ring(rung: Vec<Waker>) {
    let wake = AssertUnwindSafe(|| wake_all(rung.into_iter()));
    if std::panic::catch_unwind(wake).is_err() {
        tracing::error!(target: crate::telemetry::LOCK, "a waker panicked");
    }
}

impl State {
    /// Takes those whose time has come.
    fn rung(&mut self, now: Instant) -> Vec<Waker> {
        let mut rung = Vec::new();
        while self.alarms.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, number))) = self.alarms.pop() else { break };
            rung.extend(self.wakers.remove(&number));
        }
        rung
    }
}
