//! Entry of one held term: its holders, its waiters, and the decision which waiter is granted the lock next.

use std::panic::AssertUnwindSafe;
use std::task::Waker;

use foldhash::HashMap;

use super::class::LockKey;
use super::coarse_clock::Tick;
use super::error::{Busy, CallSite, Cycle};
use super::modes::{MOST_MODES, Mode};
use super::queue::{Queue, QueueSlot};
use super::task::TaskId;

/// The number of a wait and of the hold that follows from it. Unique within a shard.
pub(super) type Number = u64;

/// A holder of the term.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) number: Number,
    pub(super) task: Option<TaskId>,
    pub(super) place: CallSite,
    pub(super) since: Tick,
    pub(super) mode: Mode,
}

/// A waiter for the term.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: Number,
    pub(super) task: Option<TaskId>,
    /// The task that will own the hold.
    pub(super) holder: Option<TaskId>,
    pub(super) place: CallSite,
    pub(super) since: Tick,
    pub(super) mode: Mode,
    pub(super) waker: Waker,
    /// The cycle that the waiter became part of while it waited.
    pub(super) doomed: Option<Cycle>,
}

/// A term that is held.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) term: LockKey,
    pub(super) number: Number,
    /// The only holder, or one of several.
    first: Option<Holder>,
    /// Present when the term has waiters or several holders.
    crowd: Option<Box<SharedHolders>>,
}

#[derive(Debug, Default)]
struct SharedHolders {
    holders: HashMap<Number, Holder>,
    /// Number of these holders in each mode.
    held: [u32; MOST_MODES],
    /// Number of these holds of each task.
    tasks: HashMap<TaskId, u32>,
    queue: Queue<Waiter>,
}

impl SharedHolders {
    fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    fn insert(&mut self, holder: Holder) {
        if let Some(count) = self.held.get_mut(holder.mode.place()) {
            *count += 1;
        }
        if let Some(task) = holder.task {
            *self.tasks.entry(task).or_default() += 1;
        }
        self.holders.insert(holder.number, holder);
    }

    fn remove(&mut self, number: Number) -> Option<Holder> {
        let holder = self.holders.remove(&number)?;
        if let Some(count) = self.held.get_mut(holder.mode.place()) {
            *count -= 1;
        }
        if let Some(task) = holder.task
            && let Some(count) = self.tasks.get_mut(&task)
        {
            *count -= 1;
            if *count == 0 {
                self.tasks.remove(&task);
            }
        }
        Some(holder)
    }

    /// Returns the bits of the modes that are held.
    fn modes(&self) -> u8 {
        let bit = |(place, count): (usize, &u32)| if *count > 0 { 1 << place } else { 0 };
        self.held.iter().enumerate().map(bit).fold(0, |all: u8, bit: u8| all | bit)
    }
}

impl Entry {
    pub(super) fn new(term: LockKey, number: Number, holder: Holder) -> Self {
        Self { term, number, first: Some(holder), crowd: None }
    }

    /// Returns whether the present holders are compatible with the mode.
    fn admits(&self, mode: Mode) -> bool {
        let first = self.first.as_ref().map_or(0, |holder| holder.mode.bit());
        let others = self.crowd.as_ref().map_or(0, |crowd| crowd.modes());
        (first | others) & !self.term.modes().together_with(mode) == 0
    }

    /// Adds a holder immediately, if the queue is empty and the present holders are compatible.
    pub(super) fn join(&mut self, holder: Holder) -> Result<(), Holder> {
        if self.waiting() > 0 || !self.admits(holder.mode) {
            return Err(holder);
        }
        self.add(holder);
        Ok(())
    }

    fn add(&mut self, holder: Holder) {
        match &mut self.first {
            first @ None => *first = Some(holder),
            Some(_) => self.crowd.get_or_insert_default().insert(holder),
        }
    }

    /// Queues a waiter. Returns `None` when the queue cannot number another one.
    pub(super) fn wait(&mut self, waiter: Waiter) -> Option<QueueSlot> {
        self.crowd.get_or_insert_default().queue.push(waiter)
    }

    /// Returns the hold with this number, if it was granted.
    pub(super) fn holder(&self, number: Number) -> Option<&Holder> {
        let first = self.first.as_ref().filter(|holder| holder.number == number);
        first.or_else(|| self.crowd.as_ref()?.holders.get(&number))
    }

    /// Returns the waiter with this number.
    pub(super) fn waiter(&self, seat: QueueSlot, number: Number) -> Option<&Waiter> {
        self.crowd.as_ref()?.queue.get(seat).filter(|waiter| waiter.number == number)
    }

    pub(super) fn waiter_mut(&mut self, seat: QueueSlot, number: Number) -> Option<&mut Waiter> {
        self.crowd.as_mut()?.queue.get_mut(seat).filter(|waiter| waiter.number == number)
    }

    /// Releases a hold and grants the lock to the next waiters.
    pub(super) fn release(&mut self, number: Number, now: Tick, woken: &mut Woken) -> Option<Holder> {
        let ended = match self.first.take_if(|holder| holder.number == number) {
            Some(holder) => Some(holder),
            None => self.crowd.as_mut().and_then(|crowd| crowd.remove(number)),
        };
        if self.crowd.is_some() {
            self.admit(now, woken);
        }
        ended
    }

    /// Removes a waiter from the queue and admits the waiters that it blocked. Returns `None` when it is not queued.
    pub(super) fn leave(
        &mut self,
        seat: QueueSlot,
        number: Number,
        now: Tick,
        woken: &mut Woken,
    ) -> Option<Waiter> {
        self.waiter(seat, number)?;
        let waiter = self.crowd.as_mut()?.queue.remove(seat);
        self.admit(now, woken);
        waiter
    }

    /// Grants the lock to the head of the queue and to the compatible waiters right behind it. No waiter overtakes
    /// another.
    fn admit(&mut self, now: Tick, woken: &mut Woken) {
        while let Some(mode) = self.crowd.as_ref().and_then(|crowd| crowd.queue.front()).map(|next| next.mode)
        {
            if !self.admits(mode) {
                break;
            }
            let Some((_, next)) = self.crowd.as_mut().and_then(|crowd| crowd.queue.pop()) else { break };
            let Waiter { number, holder, place, mode, waker, .. } = next;
            self.add(Holder { number, task: holder, place, mode, since: now });
            woken.push(waker, holder);
        }
        if self.crowd.as_ref().is_some_and(|crowd| crowd.is_empty()) {
            self.crowd = None;
        }
    }

    /// Releases the hold if the term has no other holders and no waiters.
    #[inline]
    pub(super) fn release_alone(&mut self, number: Number) -> Option<Holder> {
        if self.crowd.is_some() {
            return None;
        }
        self.first.take_if(|holder| holder.number == number)
    }

    /// Reuses an entry that has no holders and no waiters.
    pub(super) fn begin(&mut self, holder: Holder) {
        self.first = Some(holder);
    }

    /// Returns whether the entry has neither holders nor waiters.
    pub(super) fn is_over(&self) -> bool {
        self.first.is_none() && self.crowd.is_none()
    }

    /// Changes the mode of a hold to a less exclusive one.
    pub(super) fn step_down(&mut self, number: Number, mode: Mode, now: Tick, woken: &mut Woken) {
        self.change(number, |holder| holder.mode = mode);
        self.admit(now, woken);
    }

    /// Reassigns a hold to another task, or to none. Returns the previous owner.
    pub(super) fn give(&mut self, number: Number, task: Option<TaskId>) -> Option<TaskId> {
        let mut before = None;
        self.change(number, |holder| before = std::mem::replace(&mut holder.task, task));
        before
    }

    fn change(&mut self, number: Number, how: impl FnOnce(&mut Holder)) {
        match &mut self.first {
            Some(first) if first.number == number => how(first),
            _ => {
                let Some(crowd) = self.crowd.as_mut() else { return };
                let Some(mut holder) = crowd.remove(number) else { return };
                how(&mut holder);
                crowd.insert(holder);
            }
        }
    }

    /// Returns where the task acquired the term; `None` when the task does not hold it.
    pub(super) fn held_by(&self, task: TaskId) -> Option<CallSite> {
        let is_its = |holder: &&Holder| holder.task == Some(task);
        if let Some(first) = self.first.as_ref().filter(is_its) {
            return Some(first.place);
        }
        let crowd = self.crowd.as_ref()?;
        crowd.tasks.get(&task)?;
        crowd.holders.values().find(is_its).map(|holder| holder.place)
    }

    /// Returns the holders, among those that `matter`, that block the waiter. A holder blocks it by excluding it or a
    /// waiter in front of it.
    pub(super) fn blockers(&self, waiter: &Waiter, matter: impl Fn(&Holder) -> bool) -> Vec<&Holder> {
        let all: Vec<&Holder> = self.holders().filter(|holder| matter(holder)).collect();
        let excluding = self.excluded_by(waiter.mode);
        if all.iter().all(|holder| holder.mode.bit() & excluding != 0) {
            return all;
        }
        let before = self.waiters().take_while(|before| before.number != waiter.number);
        let excluding = before.fold(excluding, |all, before| all | self.excluded_by(before.mode));
        all.into_iter().filter(|holder| holder.mode.bit() & excluding != 0).collect()
    }

    /// Returns the bits of the modes that are incompatible with the mode.
    pub(super) fn excluded_by(&self, mode: Mode) -> u8 {
        !self.term.modes().together_with(mode)
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.first.iter().chain(self.crowd.iter().flat_map(|crowd| crowd.holders.values()))
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.crowd.iter().flat_map(|crowd| crowd.queue.iter())
    }

    pub(super) fn waiting(&self) -> usize {
        self.crowd.as_ref().map_or(0, |crowd| crowd.queue.len())
    }

    /// Returns why an attempt was not granted.
    pub(super) fn busy(&self) -> Busy {
        Busy {
            held: self.holders().next().map(|holder| holder.place),
            holders: self.holders().count(),
            waiting: self.waiting(),
        }
    }
}

/// Waiters that were granted the lock. They are woken after the shard is unlocked, because wakers run foreign code.
#[derive(Debug, Default)]
pub(super) struct Woken {
    first: Option<(Waker, Option<TaskId>)>,
    others: Vec<(Waker, Option<TaskId>)>,
}

impl Woken {
    fn push(&mut self, waker: Waker, task: Option<TaskId>) {
        match &mut self.first {
            first @ None => *first = Some((waker, task)),
            Some(_) => self.others.push((waker, task)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the tasks that own the new holds.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.first.iter().chain(&self.others).filter_map(|(_, task)| *task)
    }

    pub(super) fn wake(self) {
        wake_all(self.first.into_iter().chain(self.others).map(|(waker, _)| waker));
    }
}

/// Wakes all wakers, even if one of them panics. The first panic is resumed afterwards, unless the thread is already
/// panicking.
pub(super) fn wake_all(wakers: impl Iterator<Item = Waker>) {
    let mut panicked = None;
    for waker in wakers {
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            panicked.get_or_insert(panic);
        }
    }
    if let Some(panic) = panicked.filter(|_| !std::thread::panicking()) {
        std::panic::resume_unwind(panic);
    }
}
