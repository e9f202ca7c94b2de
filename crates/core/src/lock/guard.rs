//! Lock guards: each holds its term until it is dropped.

use std::fmt;
use std::sync::Arc;

use super::class::LockKey;
use super::coarse_clock;
use super::entry::Woken;
use super::error::LockError;
use super::modes::Mode;
use super::table::{LockHold, Table};
use super::task::TaskId;

/// A guard that releases its term when dropped. A panic drops it as well, and the next waiter acquires the term.
///
/// It belongs to the task that acquired it: that task gets [`LockError::Reentrant`] if it requests the same term again.
/// A move to another task is not detected. Use [`lock_owned`](super::Locks::lock_owned) or
/// [`into_owned`](Self::into_owned) for a guard that leaves its task.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard<'l> {
    table: &'l Arc<Table>,
    hold: LockHold,
    mode: Mode,
}

/// A guard that borrows nothing: it can be stored in a struct or sent to a spawned task.
///
/// It belongs to no task, so it takes part in no re-entrancy, order or deadlock detection. The task that keeps it can
/// opt in with [`adopt`](Self::adopt): from then on the hold belongs to that task.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedGuard {
    table: Arc<Table>,
    hold: LockHold,
    mode: Mode,
}

impl<'l> Guard<'l> {
    pub(super) fn new(table: &'l Arc<Table>, hold: LockHold, mode: Mode) -> Self {
        Self { table, hold, mode }
    }

    /// Converts it into an owned guard, which belongs to no task until one [adopts](OwnedGuard::adopt) it.
    pub fn into_owned(self) -> OwnedGuard {
        self.detach();
        self.owned()
    }

    /// Converts it into an owned guard that keeps its owner.
    pub(super) fn owned(self) -> OwnedGuard {
        let owned = OwnedGuard { table: self.table.clone(), hold: self.hold, mode: self.mode };
        std::mem::forget(self);
        owned
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.table.release(&self.hold);
    }
}

impl Drop for OwnedGuard {
    fn drop(&mut self) {
        self.table.release(&self.hold);
    }
}

/// The methods that both guards share.
macro_rules! guard {
    ($guard:ty) => {
        impl $guard {
            /// Returns the mode in which the term is held.
            #[must_use]
            pub fn mode(&self) -> Mode {
                self.mode
            }

            /// Returns the held term. It is never `None` while the guard lives.
            #[must_use]
            pub fn term(&self) -> Option<LockKey> {
                self.table.term(&self.hold)
            }

            /// Downgrades the hold to a less exclusive mode without releasing it in between. Waiters that are
            /// compatible with the new mode are granted the lock immediately. There is no upgrade: two holders that
            /// both wanted one would wait for each other.
            ///
            /// # Errors
            /// [`LockError::Mode`] when the new mode excludes a mode that the present one allows. The hold then stays
            /// unchanged.
            pub fn downgrade(&mut self, mode: Mode) -> Result<(), LockError> {
                self.table.step_down(&self.hold, self.mode, mode)?;
                self.mode = mode;
                Ok(())
            }

            /// Binds the hold to the calling task. A second request of this task is then reported as re-entrant, and
            /// cycles through the hold are found.
            pub fn adopt(&self) {
                self.table.give(&self.hold, TaskId::current());
            }

            /// Unbinds the hold from its task. A second request then waits, and cycles through the hold are not found.
            pub fn detach(&self) {
                self.table.give(&self.hold, None);
            }
        }

        impl fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("Guard").field("term", &self.term()).field("mode", &self.mode).finish()
            }
        }
    };
}

guard!(Guard<'_>);
guard!(OwnedGuard);

impl Table {
    fn term(&self, hold: &LockHold) -> Option<LockKey> {
        self.shard(hold.hash).entry(hold.hash, hold.entry).map(|entry| entry.term.clone())
    }

    fn step_down(&self, hold: &LockHold, from: Mode, to: Mode) -> Result<(), LockError> {
        let (mut woken, now) = (Woken::default(), coarse_clock::now());
        let mut shard = self.shard(hold.hash);
        let Some(entry) = shard.entry(hold.hash, hold.entry) else { return Ok(()) };
        let modes = entry.term.modes();
        if !modes.steps_down(from, to) {
            let (term, from) = (entry.term.clone(), modes.name(from).unwrap_or("none"));
            return Err(LockError::Mode { term, from, to: to.place(), names: modes.names() });
        }
        entry.step_down(hold.number, to, now, &mut woken);
        drop(shard);
        self.wake(woken);
        Ok(())
    }

    /// Reassigns a hold to another task, or to none. Its rank entry moves with it.
    fn give(&self, hold: &LockHold, task: Option<TaskId>) {
        let mut shard = self.shard(hold.hash);
        let Some(entry) = shard.entry(hold.hash, hold.entry) else { return };
        let before = entry.give(hold.number, task);
        if entry.term.rank().is_some()
            && let Some(holder) = entry.holder(hold.number)
        {
            before.into_iter().for_each(|task| self.order.forget(task, hold));
            self.order.note(task, &entry.term, hold.number, holder.place);
        }
        drop(shard);
        task.into_iter().for_each(|task| self.look_for_cycles_of(task));
    }
}
