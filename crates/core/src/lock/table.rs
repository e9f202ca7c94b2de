//! Sharded lock table. A free term has no entry, with one exception per shard. The entry that was freed last stays
//! until another one is freed, because most terms are acquired again soon.

use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;

use super::class::LockKey;
use super::coarse_clock::{self, Tick};
use super::entry::{Entry, Holder, Number, Woken};
use super::lock_order::Order;
use super::modes::Mode;
use super::stats::Tally;
use super::sync::{Mutex, MutexGuard};
use super::task::TaskId;
use super::wait_graph::Waits;

/// Number of shards: enough that tasks on different terms rarely contend.
const SHARDS: usize = if cfg!(any(tidelock_loom, tidelock_shuttle)) { 2 } else { 64 };
/// Number of entries of a shard that are searched linearly. Further entries are hashed.
const FEW: usize = 8;

/// The table that guards and waiters refer to.
#[derive(Debug)]
pub(super) struct Table {
    shards: [Padded; SHARDS],
    /// The fallback for a shard index out of range; never used.
    spare: Padded,
    pub(super) waits: Mutex<Waits>,
    /// Number of tasks that wait at several places.
    pub(super) several: AtomicUsize,
    pub(super) order: Order,
}

/// A shard on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl Default for Table {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Padded::default());
        Self {
            shards,
            spare: Padded::default(),
            waits: Mutex::default(),
            several: AtomicUsize::new(0),
            order: Order::default(),
        }
    }
}

impl Table {
    /// Locks the shard of a term. A caller that holds it must not lock a second shard or the wait-for graph. It may
    /// lock only leaf mutexes: the clock's and the lock order's.
    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let at = (hash >> 32) as usize % SHARDS;
        self.shards.get(at).unwrap_or(&self.spare).0.lock()
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(|shard| shard.0.lock())
    }

    /// Wakes the waiters that were granted the lock. Their new holds may close a cycle with their other waits.
    pub(super) fn wake(&self, woken: Woken) {
        if woken.is_empty() {
            return;
        }
        // A task that records a second wait searches the shards afterwards. It either finds this hand-off there, or is
        // counted here.
        if self.several.load(Ordering::SeqCst) > 0 {
            woken.tasks().for_each(|task| self.look_for_cycles_of(task));
        }
        woken.wake();
    }

    /// Releases a hold.
    #[inline]
    pub(super) fn release(&self, hold: &LockHold) {
        let now = coarse_clock::now();
        let mut shard = self.shard(hold.hash);
        let Some((rank, task)) = shard.release_alone(hold, now) else {
            drop(shard);
            return self.hand_off(hold, now);
        };
        drop(shard);
        if let (Some(_), Some(task)) = (rank, task) {
            self.order.forget(task, hold);
        }
    }

    /// Releases a hold on the slow path: the term has other holders or waiters, or its entry is hashed.
    #[cold]
    fn hand_off(&self, hold: &LockHold, now: Tick) {
        let mut woken = Woken::default();
        let mut shard = self.shard(hold.hash);
        let ended = shard.change(hold.hash, hold.entry, |entry| {
            let ended = entry.release(hold.number, now, &mut woken);
            (entry.term.index(), entry.term.rank(), ended)
        });
        let mut ranked = None;
        if let Some((index, rank, Some(holder))) = ended {
            shard.tally(index, |tally| tally.held(now.since(holder.since)));
            ranked = rank.and(holder.task);
        }
        drop(shard);
        if let Some(task) = ranked {
            self.order.forget(task, hold);
        }
        self.wake(woken);
    }
}

/// The location of a hold in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockHold {
    pub(super) hash: u64,
    pub(super) entry: Number,
    pub(super) number: Number,
}

/// A lock request and its requester.
pub(super) struct Asker<'a> {
    pub(super) term: &'a LockKey,
    pub(super) mode: Mode,
    /// The task that makes the request and waits.
    pub(super) task: Option<TaskId>,
    /// The task that owns the hold once it is granted.
    pub(super) holder: Option<TaskId>,
    pub(super) place: &'static Location<'static>,
}

/// The owner of a hold from the instant of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The requesting task.
    Asker,
    /// No task: the guard may be moved to another task, and a move is not detected.
    Detached,
}

impl Ownership {
    #[inline]
    pub(super) fn holder(self, asker: Option<TaskId>) -> Option<TaskId> {
        match self {
            Self::Asker => asker,
            Self::Detached => None,
        }
    }
}

/// One shard of the held terms.
#[derive(Debug, Default)]
pub(super) struct Shard {
    few: Vec<Entry>,
    many: HashTable<Entry>,
    /// The entry among the few that has neither holders nor waiters.
    vacant: Option<Number>,
    last: Number,
    tallies: Vec<Tally>,
}

impl Shard {
    pub(super) fn next(&mut self) -> Number {
        self.last += 1;
        self.last
    }

    /// Returns the term's entry, which may be vacant.
    pub(super) fn find(&mut self, term: &LockKey) -> Option<&mut Entry> {
        match self.few.iter().position(|entry| entry.term == *term) {
            Some(at) => self.few.get_mut(at),
            None if self.many.is_empty() => None,
            None => self.many.find_mut(term.hash(), |entry| entry.term == *term),
        }
    }

    /// Returns the entry with this number.
    pub(super) fn entry(&mut self, hash: u64, number: Number) -> Option<&mut Entry> {
        match self.few.iter().position(|entry| entry.number == number) {
            Some(at) => self.few.get_mut(at),
            None => self.many.find_mut(hash, |entry| entry.number == number),
        }
    }

    /// Acquires a term that has no holders and no waiters. Returns `None` when it has some.
    #[inline]
    pub(super) fn take(&mut self, asker: &Asker<'_>, now: Tick) -> Option<LockHold> {
        let Asker { term, mode, holder, place, .. } = *asker;
        let (hash, number) = (term.hash(), self.last + 1);
        let holder = Holder { number, task: holder, place, since: now, mode };
        let entry = match self.find(term) {
            Some(entry) if entry.is_over() => {
                entry.begin(holder);
                let entry = entry.number;
                self.vacant = None;
                entry
            }
            Some(_) => return None,
            None => self.insert(term, holder),
        };
        self.last = number;
        self.tally(term.index(), Tally::acquired);
        Some(LockHold { hash, entry, number })
    }

    /// Inserts an entry for a term that has none.
    fn insert(&mut self, term: &LockKey, holder: Holder) -> Number {
        let number = holder.number;
        let new = Entry::new(term.clone(), number, holder);
        if self.few.len() < FEW {
            self.few.push(new);
        } else {
            self.many.insert_unique(term.hash(), new, |entry| entry.term.hash());
        }
        number
    }

    /// Changes an entry, and removes it if it has no holders or waiters left. Returns `None` when there is no such
    /// entry.
    pub(super) fn change<R>(
        &mut self,
        hash: u64,
        number: Number,
        how: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        if let Some(at) = self.few.iter().position(|entry| entry.number == number) {
            let entry = self.few.get_mut(at)?;
            let result = how(entry);
            if entry.is_over() {
                self.vacate(at, number);
            }
            return Some(result);
        }
        let mut found = self.many.find_entry(hash, |entry| entry.number == number).ok()?;
        let result = how(found.get_mut());
        if found.get().is_over() {
            found.remove();
            if self.many.is_empty() {
                self.many = HashTable::new();
            }
        }
        Some(result)
    }

    /// Releases a hold on an entry among the few, if it has no other holders and no waiters. Returns its rank and task.
    #[inline]
    fn release_alone(&mut self, hold: &LockHold, now: Tick) -> Option<(Option<u32>, Option<TaskId>)> {
        let at = self.few.iter().position(|entry| entry.number == hold.entry)?;
        let entry = self.few.get_mut(at)?;
        let holder = entry.release_alone(hold.number)?;
        let (index, rank) = (entry.term.index(), entry.term.rank());
        self.vacate(at, hold.entry);
        self.tally(index, |tally| tally.held(now.since(holder.since)));
        Some((rank, holder.task))
    }

    /// Marks an entry among the few as vacant, and removes the one that was vacant before.
    fn vacate(&mut self, at: usize, number: Number) {
        match self.vacant.replace(number) {
            None => {}
            // The last entry moves to the index of the removed one.
            Some(before) => {
                let gone = self.few.iter().position(|entry| entry.number == before).unwrap_or(at);
                self.few.swap_remove(gone);
            }
        }
    }

    /// Updates the counters of a functor.
    pub(super) fn tally(&mut self, index: u32, how: impl FnOnce(&mut Tally)) {
        let at = index as usize;
        if self.tallies.len() <= at {
            self.tallies.resize_with(at + 1, Tally::default);
        }
        if let Some(tally) = self.tallies.get_mut(at) {
            how(tally);
        }
    }

    pub(super) fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.few.iter().chain(&self.many).filter(|entry| !entry.is_over())
    }
}
