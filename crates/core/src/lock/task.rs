//! Task identity for locks. A tokio task has an id, and the root of a runtime is identified by its thread. A task of
//! another executor is unknown unless it is wrapped in a scope, even if a tokio runtime was entered on its thread.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::hash::{Hash as _, Hasher};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::task::coop;

/// Whether tasks are identified at all. Without it nothing is reported as re-entrant, out of order or deadlocked.
pub(super) const DETECTION: bool = cfg!(feature = "lock-detection");

/// The identity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(NonZeroU64);

/// The two highest bits encode the kind of identity.
const KIND_SHIFT: u32 = 62;
const TOKIO: u64 = 0;
const THREAD: u64 = 1;
const SCOPE: u64 = 2;

#[cfg(any(tidelock_loom, tidelock_shuttle))]
super::sync::task_local! {
    static SCOPED: Cell<u64> = Cell::new(0);
}

thread_local! {
    /// The scope that is polled on this thread; 0 when there is none.
    #[cfg(not(any(tidelock_loom, tidelock_shuttle)))]
    static SCOPED: Cell<u64> = const { Cell::new(0) };
    /// The number of this thread.
    static THREAD_NUMBER: u64 = next_number();
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl TaskId {
    fn of(kind: u64, number: u64) -> Option<Self> {
        NonZeroU64::new((kind << KIND_SHIFT) | (number & ((1 << KIND_SHIFT) - 1))).map(Self)
    }

    /// Returns the task that runs this code. It is known in a [`scope`], in a tokio task, and at the root of a tokio
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

    /// Returns the task that runs this code, or identifies the thread. The thread must not run anything else until the
    /// call returns.
    pub(super) fn blocking() -> Option<Self> {
        if DETECTION { Self::current().or_else(Self::thread) } else { None }
    }

    fn thread() -> Option<Self> {
        Self::of(THREAD, THREAD_NUMBER.with(|number| *number))
    }

    /// Returns a tokio task with this number, for tests of messages.
    #[cfg(test)]
    pub(crate) fn numbered(number: u64) -> Self {
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }
}

/// Returns whether this code runs at the root of a tokio runtime, outside its tasks.
///
/// The runtime context is not sufficient: entering a runtime sets it for every future that the thread polls. But a
/// runtime gives a budget to each poll that it drives, and code outside of one can spend without limit. So this
/// function spends the budget and restores the rest at the end. A root that opted out with `unconstrained` is unknown.
#[cold]
fn is_root() -> bool {
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    if !coop::has_budget_remaining() {
        return true;
    }
    // Dropped without progress, it restores the budget to its value here.
    let Poll::Ready(_restored) = coop::poll_proceed(&mut context) else { return true };
    // The budget is counted in a byte.
    (0..=u8::MAX).any(|_| {
        let is_spent = !coop::has_budget_remaining();
        if !is_spent && let Poll::Ready(spent) = coop::poll_proceed(&mut context) {
            spent.made_progress();
        }
        is_spent
    })
}

/// Returns the number inside tokio's id, which only a hasher can read.
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

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.get() & ((1 << KIND_SHIFT) - 1);
        match self.0.get() >> KIND_SHIFT {
            TOKIO => write!(f, "task {number}"),
            THREAD => write!(f, "the root task of thread {number}"),
            _ => write!(f, "scope {number}"),
        }
    }
}

/// A future that counts as a separate task. See [`scope`].
#[must_use = "futures do nothing unless polled"]
pub struct TaskScope<F> {
    future: Pin<Box<F>>,
    number: u64,
}

impl<F> fmt::Debug for TaskScope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Makes a future count as a separate task. Concurrent branches of one task (`join!`, `select!`, `FuturesUnordered`)
/// then hold locks independently of each other. Without a scope, they count as one task that makes two requests. A task
/// of an executor other than tokio is known only inside a scope.
///
/// A guard that leaves the scope still belongs to it: call [`adopt`](super::Guard::adopt) where it is used next.
pub fn scope<F: Future>(future: F) -> TaskScope<F> {
    TaskScope { future: Box::pin(future), number: next_number() }
}

/// Restores the outer scope when the poll ends or panics.
struct Outer(u64);

impl Drop for Outer {
    fn drop(&mut self) {
        SCOPED.with(|scoped| scoped.set(self.0));
    }
}

impl<F: Future> Future for TaskScope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _outer = Outer(SCOPED.with(|scoped| scoped.replace(self.number)));
        self.future.as_mut().poll(context)
    }
}
