//! Guards: as long as one lives, its term is held.

use std::fmt;
use std::sync::Arc;

use super::coarse_clock;
use super::entry::Woken;
use super::error::LockError;
use super::functor::Term;
use super::modes::Mode;
use super::table::{Hold, Table};
use super::task::Task;

/// A guard that releases its term when dropped. A panic drops it as well, and the next waiter acquires the term.
///
/// It belongs to the task that asked: that task gets [`LockError::Reentrant`] if it asks for the same term again. A move to
/// another task cannot be seen. Use [`lock_owned`](super::Locks::lock_owned) or [`into_owned`](Self::into_owned) for a guard
/// that leaves its task.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard<'l> {
    table: &'l Arc<Table>,
    hold: Hold,
    mode: Mode,
}

/// A guard that borrows nothing: it can be stored in a struct or sent to a spawned task.
///
/// It belongs to no task, so it takes part in no re-entrancy, order or deadlock detection. The task that keeps it can opt in
/// with [`adopt`](Self::adopt): from then on the hold is that task's.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedGuard {
    table: Arc<Table>,
    hold: Hold,
    mode: Mode,
}

impl<'l> Guard<'l> {
    pub(super) fn new(table: &'l Arc<Table>, hold: Hold, mode: Mode) -> Self {
        Self { table, hold, mode }
    }

    /// Converts it into an owned guard, which belongs to no task until one [adopts](OwnedGuard::adopt) it.
    pub fn into_owned(self) -> OwnedGuard {
        self.detach();
        self.owned()
    }

    /// The same hold as an owned guard, with the owner that it has.
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

/// What both guards can do.
macro_rules! guard {
    ($guard:ty) => {
        impl $guard {
            /// The mode in which it is held.
            #[must_use]
            pub fn mode(&self) -> Mode {
                self.mode
            }

            /// What is held; `None` never, as long as the guard lives.
            #[must_use]
            pub fn term(&self) -> Option<Term> {
                self.table.term(&self.hold)
            }

            /// Steps down to a mode that keeps fewer out, without letting go in between. Those who may come in do so at
            /// once. There is no way up: two holders that both wanted it would wait for each other.
            ///
            /// # Errors
            /// [`LockError::Mode`] when the mode keeps out somebody whom the present one does not. The hold stays as it was.
            pub fn downgrade(&mut self, mode: Mode) -> Result<(), LockError> {
                self.table.step_down(&self.hold, self.mode, mode)?;
                self.mode = mode;
                Ok(())
            }

            /// Binds it to the calling task: asking again is then reported as re-entrant to this task, and cycles
            /// through the hold are found.
            pub fn adopt(&self) {
                self.table.give(&self.hold, Task::current());
            }

            /// Binds it to no task: asking again waits, and cycles through the hold are not found.
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
    fn term(&self, hold: &Hold) -> Option<Term> {
        self.shard(hold.hash).entry(hold.hash, hold.entry).map(|entry| entry.term.clone())
    }

    fn step_down(&self, hold: &Hold, from: Mode, to: Mode) -> Result<(), LockError> {
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

    /// Makes a hold another task's, or nobody's. Its rank goes along.
    fn give(&self, hold: &Hold, task: Option<Task>) {
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
