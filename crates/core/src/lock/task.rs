//! Identity of tasks. A task of tokio has an id, and the root of a runtime is known by its thread. A task of another executor
//! is unknown, unless it is wrapped in a scope, even if a tokio runtime was entered on its thread.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::hash::{Hash as _, Hasher};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::task::coop;

/// Whether tasks are told apart at all. Without it nothing is reported as re-entrant, out of order or deadlocked.
pub(super) const DETECTION: bool = cfg!(feature = "lock-detection");

/// A task, as locks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task(NonZeroU64);

/// The two highest bits say how the task is known.
const KIND_SHIFT: u32 = 62;
const TOKIO: u64 = 0;
const THREAD: u64 = 1;
const SCOPE: u64 = 2;

#[cfg(any(tidelock_loom, tidelock_shuttle))]
super::sync::task_local! {
    static SCOPED: Cell<u64> = Cell::new(0);
}

thread_local! {
    /// The scope that is polled on this thread; 0 when none is.
    #[cfg(not(any(tidelock_loom, tidelock_shuttle)))]
    static SCOPED: Cell<u64> = const { Cell::new(0) };
    /// The number of this thread.
    static THREAD_NUMBER: u64 = next_number();
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Task {
    fn of(kind: u64, number: u64) -> Option<Self> {
        NonZeroU64::new((kind << KIND_SHIFT) | (number & ((1 << KIND_SHIFT) - 1))).map(Self)
    }

    /// The task that runs this code, where that can be told: in a [`scope`], in a task of tokio, or at the root of a tokio
    /// runtime.
    #[must_use]
    #[inline]
    pub fn current() -> Option<Self> {
        if !DETECTION {
            return None;
        }
        let scoped = SCOPED.with(Cell::get);
        if scoped != 0 {
            return Self::of(SCOPE, scoped);
        }
        if let Some(id) = tokio::task::try_id() {
            return Self::of(TOKIO, number_of(id));
        }
        if is_root() { Self::thread() } else { None }
    }

    /// The task that runs this code, on a thread that runs nothing else meanwhile.
    pub(super) fn blocking() -> Option<Self> {
        if DETECTION { Self::current().or_else(Self::thread) } else { None }
    }

    fn thread() -> Option<Self> {
        Self::of(THREAD, THREAD_NUMBER.with(|number| *number))
    }

    /// A task of tokio, for tests of messages.
    #[cfg(test)]
    pub(crate) fn numbered(number: u64) -> Self {
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }
}

/// Whether this code runs at the root of a tokio runtime, outside of its tasks.
///
/// The context of a runtime does not tell: entering a runtime sets it for whatever else the thread polls. But a runtime gives
/// a budget to each poll that it drives, and code outside of one can spend without limit. So this spends, and restores what
/// was left at the end. A root that opted out with `unconstrained` is unknown.
#[cold]
fn is_root() -> bool {
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    if !coop::has_budget_remaining() {
        return true;
    }
    // Dropped without progress, it restores the budget as it is here.
    let Poll::Ready(_restored) = coop::poll_proceed(&mut context) else { return true };
    // A budget is counted in a byte.
    (0..=u8::MAX).any(|_| {
        let is_spent = !coop::has_budget_remaining();
        if !is_spent && let Poll::Ready(spent) = coop::poll_proceed(&mut context) {
            spent.made_progress();
        }
        is_spent
    })
}

/// The number inside of tokio's id, which shows it only to a hasher.
fn number_of(id: tokio::task::Id) -> u64 {
    struct Number(u64);
    impl Hasher for Number {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            self.0 = bytes.iter().fold(self.0, |sum, byte| (sum << 8) | u64::from(*byte));
        }
        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }
    }
    let mut number = Number(0);
    id.hash(&mut number);
    number.finish()
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.get() & ((1 << KIND_SHIFT) - 1);
        match self.0.get() >> KIND_SHIFT {
            TOKIO => write!(f, "task {number}"),
            THREAD => write!(f, "the root task of thread {number}"),
            _ => write!(f, "scope {number}"),
        }
    }
}

/// A future that counts as a task of its own: see [`scope`].
#[must_use = "futures do nothing unless polled"]
pub struct Scope<F> {
    future: Pin<Box<F>>,
    number: u64,
}

impl<F> fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Makes a future count as a task of its own. Branches of one task that run side by side (`join!`, `select!`,
/// `FuturesUnordered`) hold locks independently of each other; without a scope, they count as one task that asks twice.
/// On executors other than tokio, a scope around a task makes it known at all.
///
/// A guard that leaves the scope still belongs to it: call [`adopt`](super::Guard::adopt) where it is used next.
pub fn scope<F: Future>(future: F) -> Scope<F> {
    Scope { future: Box::pin(future), number: next_number() }
}

/// Puts back what was there, when the poll ends or panics.
struct Outer(u64);

impl Drop for Outer {
    fn drop(&mut self) {
        SCOPED.with(|scoped| scoped.set(self.0));
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _outer = Outer(SCOPED.with(|scoped| scoped.replace(self.number)));
        self.future.as_mut().poll(context)
    }
}
