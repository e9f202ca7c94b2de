//! Timers on one thread of the process, independent of any executor.
//!
//! A lock or a memory state may be awaited where no Tokio runtime runs, so these timers need none. The thread starts with
//! the first timer and sleeps until the earliest one is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::task::{Poll, Waker};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::process;

static TIMERS: LazyLock<Timers> = LazyLock::new(Timers::default);

/// Waits until an instant, on any executor.
pub(crate) async fn sleep_until(at: Instant) {
    let mut timer: Option<Timer> = None;
    std::future::poll_fn(|context| {
        if process::now() >= at {
            return Poll::Ready(());
        }
        match &timer {
            Some(timer) if !timer.set_waker(context.waker()) => return Poll::Ready(()),
            Some(_) => {}
            None => timer = Some(Timer::start(at, context.waker().clone())),
        }
        Poll::Pending
    })
    .await;
}

/// A timer that wakes a task at an instant. Dropping it cancels the wake-up.
#[derive(Debug)]
pub(crate) struct Timer {
    kind: Kind,
    at: Instant,
}

#[derive(Debug)]
enum Kind {
    /// A timer of the thread, by its number.
    Thread(u64),
    /// A timer of a simulated process, which has no thread and waits for the clock of its runtime.
    #[cfg(feature = "sim")]
    Simulated(Mutex<std::pin::Pin<Box<tokio::time::Sleep>>>),
}

impl Timer {
    /// Starts a timer.
    pub(crate) fn start(at: Instant, waker: Waker) -> Self {
        #[cfg(feature = "sim")]
        if process::is_simulated() {
            let timer =
                Self { kind: Kind::Simulated(Mutex::new(Box::pin(tokio::time::sleep_until(at.into())))), at };
            timer.set_waker(&waker);
            return timer;
        }
        let mut state = TIMERS.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        state.wakers.insert(id, waker);
        state.due.push(Reverse((at, id)));
        let running = std::mem::replace(&mut state.running, true);
        drop(state);
        TIMERS.wake_thread(running);
        Self { kind: Kind::Thread(id), at }
    }

    /// Returns whether the instant has come.
    pub(crate) fn is_due(&self) -> bool {
        process::now() >= self.at
    }

    /// Replaces the waker. Returns `false` when the timer has fired already.
    pub(crate) fn set_waker(&self, waker: &Waker) -> bool {
        let id = match &self.kind {
            Kind::Thread(id) => id,
            #[cfg(feature = "sim")]
            Kind::Simulated(sleep) => {
                return sleep.lock().as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending();
            }
        };
        let unchanged = TIMERS.state.lock().wakers.get(id).map(|known| known.will_wake(waker));
        if unchanged == Some(false) {
            // Cloned before and dropped after the mutex: wakers run foreign code.
            let mut waker = waker.clone();
            let mut state = TIMERS.state.lock();
            let Some(known) = state.wakers.get_mut(id) else { return false };
            std::mem::swap(known, &mut waker);
            drop(state);
        }
        unchanged.is_some()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        #[cfg_attr(
            not(feature = "sim"),
            expect(irrefutable_let_patterns, reason = "the other kind exists in simulations")
        )]
        let Kind::Thread(id) = &self.kind else { return };
        let mut state = TIMERS.state.lock();
        let removed = state.wakers.remove(id);
        // Cancelled timers are removed from the heap once they are most of it.
        if state.due.len() > 64 && state.due.len() > 2 * state.wakers.len() {
            let State { due, wakers, .. } = &mut *state;
            due.retain(|Reverse((_, id))| wakers.contains_key(id));
        }
        drop(state);
        drop(removed);
    }
}

#[derive(Debug, Default)]
struct Timers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    wakers: foldhash::HashMap<u64, Waker>,
    last_id: u64,
    /// Whether the thread was started.
    running: bool,
}

impl Timers {
    /// Notifies the thread of a new timer, or starts the thread.
    fn wake_thread(&self, running: bool) {
        if running {
            self.changed.notify_one();
            return;
        }
        let thread = std::thread::Builder::new().name("tidelock-timer".to_owned());
        if let Err(error) = thread.spawn(|| TIMERS.run()) {
            // Without the thread, a deadline is noticed when its task is next polled.
            tracing::error!(%error, "timer thread not started");
            self.state.lock().running = false;
        }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let due = state.take_due(Instant::now());
            if !due.is_empty() {
                MutexGuard::unlocked(&mut state, || due.into_iter().for_each(wake));
            }
            match state.due.peek().map(|Reverse((at, _))| *at) {
                Some(at) => {
                    self.changed.wait_until(&mut state, at);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

/// Wakes a task. A waker that panics must not stop the thread.
fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("waker panicked");
    }
}

impl State {
    fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, id))) = self.due.pop() else { break };
            wakers.extend(self.wakers.remove(&id));
        }
        wakers
    }
}
