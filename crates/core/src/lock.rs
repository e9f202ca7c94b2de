//! Keyed in-process locks: fair, cancel-safe, and never a silent hang.
//!
//! A [`LockClass`] declares a lock class once, a [`LockKey`] is a lock key, and [`Locks`] is the table of held terms. There
//! is one primitive with a table of [`Modes`]: a mutex has one mode, a reader-writer lock has two, and a table of your
//! own has up to eight.
//!
//! - Waiters are served first come, first served. The head of the queue is granted the lock together with the
//!   compatible waiters right behind it. No request overtakes another, not even in the instant of a release. A release
//!   hands the lock over directly, whatever the length of the queue.
//! - A waiter that is dropped leaves no trace. A holder that panics releases the lock to the next waiter. A free term
//!   costs no memory.
//! - A task that requests a term that it holds gets [`LockError::Reentrant`] at once. A task that closes a cycle of
//!   waits gets [`LockError::Deadlock`]. A request that violates the order of [ranks](LockClass::rank) gets
//!   [`LockError::OutOfOrder`]. Detection also runs in release builds. The feature `lock-detection`, which is on by
//!   default, can be switched off.
//! - [`Locks::snapshot`] lists the holders with the age and source location of each hold, and the waiters with the
//!   tasks that block them.
//!
//! For exclusion between processes and machines, use leases on a store: a lock of this kind excludes only tasks of the
//! same process.
//!
//! ```
//! use tidelock_core::lock::{LockClass, Locks};
//!
//! static CART: LockClass = LockClass::new("cart");
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::new();
//! let cart = CART.key(["user-17"])?;
//! let guard = locks.lock(&cart).await?;
//! assert!(locks.try_lock(&cart).is_err_and(|error| error.is_reentrant()));
//! drop(guard);
//!
//! let total = locks.with(&cart, async { 2 + 2 }).await?;
//! assert_eq!(total, 4);
//! # Ok(())
//! # }
//! ```
//!
//! # Who asks
//! Owners are tasks. In a tokio task, the owner is that task. At the root of a runtime (`block_on`, `#[tokio::main]`),
//! it is the root. [`Locks::lock_blocking`] identifies its thread. Concurrent branches of one task count as one task,
//! unless each is wrapped in a [`scope`]. Tasks of other executors are unknown, even under a tokio runtime that was
//! only [entered](tokio::runtime::Handle::enter). Their locks work, but nothing is detected unless the tasks are
//! wrapped in a scope.
//!
//! A [`Guard`] belongs to the task that acquired it. An [`OwnedGuard`] belongs to no task until one
//! [adopts](OwnedGuard::adopt) it.

mod acquire;
mod class;
mod coarse_clock;
mod entry;
mod error;
mod guard;
mod lock_order;
mod modes;
mod pool;
mod queue;
mod single_flight;
mod snapshot;
mod stats;
mod sync;
mod table;
mod task;

mod wait_graph;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

pub use acquire::Lock;
pub use class::{LockClass, LockKey, LockRequest, declare};
pub use error::{Busy, CallSite, Cycle, CycleLink, LockError, LockKeyError};
pub use guard::{Guard, OwnedGuard};
pub use modes::{EXCLUSIVE, MOST_MODES, Mode, Modes, READ, WRITE};
pub use single_flight::{FlightError, SingleFlight};
pub use snapshot::{LockEntry, LockOwner, LockSnapshot, WaitEdge};
pub use stats::{Histogram, LockClassStats};
pub use task::{TaskId, TaskScope, scope};

use table::{Asker, Table};
use tracing::Instrument as _;

use crate::process::PerProcess;
use crate::telemetry;

/// Whether re-entrancy, order and deadlocks are detected in this build.
pub const DETECTION: bool = task::DETECTION;

/// A table of keyed locks. Clones share the table; two tables are independent of each other.
#[derive(Clone, Default)]
pub struct Locks {
    table: Arc<Table>,
}

/// Returns the lock table of the process, for programs that need only one.
#[must_use]
pub fn global() -> &'static Locks {
    static GLOBAL: PerProcess<pool::ProcessLocks> = PerProcess::new(pool::ProcessLocks::new);
    GLOBAL.with(pool::ProcessLocks::table)
}

/// Returns the holders and waiters of the [`global`] table.
#[must_use]
pub fn snapshot() -> LockSnapshot {
    global().snapshot()
}

impl Locks {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Acquires the lock, waiting in the queue if it is not free. Pass `&term` for the functor's first mode, or
    /// [`term.mode(…)`](LockKey::mode) for another one.
    ///
    /// # Errors
    /// [`LockError::Reentrant`], [`LockError::Deadlock`] and [`LockError::OutOfOrder`] instead of a hang, and
    /// [`LockError::Mode`] for a mode that the functor does not have.
    ///
    /// # Cancel safety
    /// A future that is dropped while it waits leaves the queue, and the other waiters keep their order. A future that
    /// is dropped after the grant, but before it is polled again, releases the lock to the next waiter.
    #[track_caller]
    pub fn lock<'l, 't>(&'l self, ask: impl Into<LockRequest<'t>>) -> Lock<'l, 't> {
        Lock::new(&self.table, ask.into(), Location::caller(), None)
    }

    /// Acquires the lock like [`lock`](Self::lock), on behalf of the code at `place`. For wrappers that are async functions,
    /// which do not know their caller.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn lock_at<'l, 't>(
        &'l self,
        ask: impl Into<LockRequest<'t>>,
        place: &'static Location<'static>,
    ) -> Lock<'l, 't> {
        Lock::new(&self.table, ask.into(), place, None)
    }

    /// Acquires the lock, waiting until the deadline at most. A free lock is acquired even after the deadline.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the deadline passes; the lock is never granted later. Otherwise as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_before<'l, 't>(&'l self, ask: impl Into<LockRequest<'t>>, deadline: Instant) -> Lock<'l, 't> {
        Lock::new(&self.table, ask.into(), Location::caller(), Some(deadline))
    }

    /// Acquires the lock if it is free and has no waiters.
    ///
    /// # Errors
    /// [`LockError::Busy`] when it is not free. Otherwise as [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock<'t>(&self, ask: impl Into<LockRequest<'t>>) -> Result<Guard<'_>, LockError> {
        let LockRequest { term, mode } = ask.into();
        let task = TaskId::current();
        let asker = Asker { term, mode, task, holder: task, place: Location::caller() };
        let hold = self.table.try_lock(&asker)?;
        Ok(Guard::new(&self.table, hold, mode))
    }

    /// Acquires the lock and returns a guard that borrows nothing and belongs to no task. The guard can be stored or
    /// sent to another task. The wait belongs to the calling task, and a cycle is reported as for [`lock`](Self::lock).
    ///
    /// A task that requests the term again waits for the guard, even if it keeps that guard itself. The task that keeps
    /// the guard can opt in to detection with [`adopt`](OwnedGuard::adopt).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_owned<'t>(
        &self,
        ask: impl Into<LockRequest<'t>>,
    ) -> impl Future<Output = Result<OwnedGuard, LockError>> {
        let lock = self.lock(ask).detached();
        async move { Ok(lock.await?.owned()) }
    }

    /// Runs a future under the lock.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); the future is then never polled.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the future is never polled. If it is dropped later, the future is dropped at
    /// its current await point and the lock is released.
    #[track_caller]
    pub fn with<'l, 't, F: Future>(
        &'l self,
        ask: impl Into<LockRequest<'t>>,
        future: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> {
        let (ask, place) = (ask.into(), Location::caller());
        let lock = self.lock(ask);
        async move {
            let _guard = lock.await?;
            let term = ask.term;
            let span = tracing::debug_span!(target: telemetry::LOCK, telemetry::LOCK_HOLD, %term, %place);
            Ok(future.instrument(span).await)
        }
    }

    /// Acquires the lock on a thread that may block. Do not call it from async code: it would block the executor. The
    /// hold belongs to the current task, or to the thread if there is none. A hold that [`try_lock`](Self::try_lock)
    /// acquires on a thread without a runtime belongs to no task.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_blocking<'l, 't>(&'l self, ask: impl Into<LockRequest<'t>>) -> Result<Guard<'l>, LockError> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let mut lock = pin!(self.lock(ask).by(TaskId::blocking()));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match lock.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// Returns the present holders and waiters.
    #[must_use]
    pub fn snapshot(&self) -> LockSnapshot {
        self.table.snapshot()
    }

    /// Returns the cycles of waiting tasks that were found most recently, newest first, with their ages. One task of
    /// each cycle got [`LockError::Deadlock`], so a cycle ends unless that task ignores the error.
    #[must_use]
    pub fn cycles(&self) -> Vec<(std::time::Duration, Cycle)> {
        self.table.cycles()
    }

    /// Returns acquisition counts, wait times and hold times of each functor since the table was created.
    #[must_use]
    pub fn stats(&self) -> Vec<LockClassStats> {
        self.table.stats()
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.table.shards().map(|shard| shard.entries().count()).sum::<usize>();
        let waits = self.table.waits.lock().len();
        f.debug_struct("Locks").field("held", &held).field("waits", &waits).finish()
    }
}
