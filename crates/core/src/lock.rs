//! Keyed locks inside one process: fair, cancel-safe, and never a silent hang.
//!
//! A [`Functor`] names a kind of thing once, a [`Term`] one thing, and [`Locks`] holds them. There is one primitive with a
//! table of [`Modes`]: a mutex has one mode, a reader-writer lock two, yours as many as eight.
//!
//! - First come, first served. The head of the queue comes in together with the compatible ones right behind it; nobody
//!   overtakes, not even in the instant of a release. A release hands the lock on, whatever the number of those who wait.
//! - A waiter that is dropped leaves no trace, a holder that panics lets the next one in, and a term that nobody holds
//!   costs no memory.
//! - A task that asks for what it holds gets [`LockError::Reentrant`] at once; a cycle of waiting tasks gets
//!   [`LockError::Deadlock`]; a functor with a [rank](Functor::rank) gets [`LockError::OutOfOrder`]. In release builds,
//!   too. The feature `lock-detection`, which is on by default, can be switched off.
//! - [`Locks::snapshot`] says who holds what since when and from where, and who waits for whom.
//!
//! For exclusion between processes and machines, see leases on a store: a lock of this kind ends at the process.
//!
//! ```
//! use tidelock_core::lock::{Functor, Locks};
//!
//! static CART: Functor = Functor::new("cart");
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::new();
//! let cart = CART.term(["user-17"])?;
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
//! Owners are tasks. In a task of tokio that is the task; at the root of a runtime (`block_on`, `#[tokio::main]`) it is the
//! root; [`Locks::lock_blocking`] knows its thread. Branches of one task that run side by side count as one task, unless
//! each is wrapped in a [`scope`]. Tasks of other executors are unknown, also under a tokio runtime that was only
//! [entered](tokio::runtime::Handle::enter). Their locks work, and nothing is detected, unless they are wrapped in a scope.
//!
//! A [`Guard`] belongs to the task that asked. An [`OwnedGuard`] belongs to no task until one [adopts](OwnedGuard::adopt) it.

mod acquire;
mod coarse_clock;
mod entry;
mod error;
mod flight;
mod functor;
mod guard;
mod modes;
mod order;
mod queue;
mod snapshot;
mod stats;
mod sync;
mod table;
mod task;

mod waits;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

pub use acquire::Lock;
pub use error::{Busy, Cycle, Link, LockError, Place, TermError};
pub use flight::{FlightError, SingleFlight};
pub use functor::{Ask, Functor, Term, declare};
pub use guard::{Guard, OwnedGuard};
pub use modes::{EXCLUSIVE, MOST_MODES, Mode, Modes, READ, WRITE};
pub use snapshot::{Edge, HeldTerm, Party, Snapshot};
pub use stats::{FunctorStats, Histogram};
pub use task::{Scope, Task, scope};

use table::{Asker, Table};
use tracing::Instrument as _;

use crate::telemetry;

/// Whether re-entrancy, order and deadlocks are detected in this build.
pub const DETECTION: bool = task::DETECTION;

/// A table of keyed locks. Clones share it; two tables know nothing of each other.
#[derive(Clone, Default)]
pub struct Locks {
    table: Arc<Table>,
}

/// The locks of the whole process, for programs that need only one table.
#[must_use]
pub fn global() -> &'static Locks {
    static GLOBAL: LazyLock<Locks> = LazyLock::new(Locks::new);
    &GLOBAL
}

/// Who holds what in the [`global`] table.
#[must_use]
pub fn snapshot() -> Snapshot {
    global().snapshot()
}

impl Locks {
    /// A table in which nothing is held.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the lock, waiting for its turn. Ask with `&term` for the functor's first mode, or with
    /// [`term.mode(…)`](Term::mode).
    ///
    /// # Errors
    /// [`LockError::Reentrant`], [`LockError::Deadlock`] and [`LockError::OutOfOrder`] instead of a hang, and
    /// [`LockError::Mode`] for a mode that the functor does not have.
    ///
    /// # Cancel safety
    /// Dropped while it waits, it leaves the queue, and the others keep their order. Dropped after it was let in but
    /// before it was polled again, it passes the lock on.
    #[track_caller]
    pub fn lock<'l, 't>(&'l self, ask: impl Into<Ask<'t>>) -> Lock<'l, 't> {
        Lock::new(&self.table, ask.into(), Location::caller(), None)
    }

    /// Takes the lock, waiting until the deadline at most. A lock that is free is taken even after it.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the time is up; it is never granted later. Otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_before<'l, 't>(&'l self, ask: impl Into<Ask<'t>>, deadline: Instant) -> Lock<'l, 't> {
        Lock::new(&self.table, ask.into(), Location::caller(), Some(deadline))
    }

    /// Takes the lock if it is free and nobody waits for it.
    ///
    /// # Errors
    /// [`LockError::Busy`] when it is not free. Otherwise as [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock<'t>(&self, ask: impl Into<Ask<'t>>) -> Result<Guard<'_>, LockError> {
        let Ask { term, mode } = ask.into();
        let task = Task::current();
        let asker = Asker { term, mode, task, holder: task, place: Location::caller() };
        let hold = self.table.try_lock(&asker)?;
        Ok(Guard::new(&self.table, hold, mode))
    }

    /// Acquires the lock and returns a guard that borrows nothing and belongs to no task: it can be stored or sent to
    /// another task. While it waits, the wait is the calling task's, and a cycle is reported as for [`lock`](Self::lock).
    ///
    /// A task that asks for the term again waits for the guard, even if it keeps that guard itself. The task that keeps the
    /// guard can opt in to detection with [`adopt`](OwnedGuard::adopt).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_owned<'t>(
        &self,
        ask: impl Into<Ask<'t>>,
    ) -> impl Future<Output = Result<OwnedGuard, LockError>> {
        let lock = self.lock(ask).detached();
        async move { Ok(lock.await?.owned()) }
    }

    /// Runs a future under the lock.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); the future is then not polled at all.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the future is not begun. Dropped later, it ends where it stands, and the lock is free.
    #[track_caller]
    pub fn with<'l, 't, F: Future>(
        &'l self,
        ask: impl Into<Ask<'t>>,
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

    /// Takes the lock on a thread that may block. Not for async code: it would stop the executor. The hold belongs to the
    /// thread; one that [`try_lock`](Self::try_lock) took on a thread without a runtime belongs to nobody.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_blocking<'l, 't>(&'l self, ask: impl Into<Ask<'t>>) -> Result<Guard<'l>, LockError> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let mut lock = pin!(self.lock(ask).by(Task::blocking()));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match lock.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// Who holds what and who waits, at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.table.snapshot()
    }

    /// The last cycles of waiting tasks that were found, the newest first, and how long ago. In each of them one task was told,
    /// so none of them lasts, unless that task does not listen.
    #[must_use]
    pub fn cycles(&self) -> Vec<(std::time::Duration, Cycle)> {
        self.table.cycles()
    }

    /// How often each functor was locked since the table was made, and how long was waited and held.
    #[must_use]
    pub fn stats(&self) -> Vec<FunctorStats> {
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
