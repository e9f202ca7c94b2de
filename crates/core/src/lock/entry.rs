//! One term that is held: its holders, those who wait, and who is let in next.

use std::panic::AssertUnwindSafe;
use std::task::Waker;

use foldhash::HashMap;

use super::coarse_clock::Tick;
use super::error::{Busy, Cycle, Place};
use super::functor::Term;
use super::modes::{MOST_MODES, Mode};
use super::queue::{Queue, Seat};
use super::task::Task;

/// The number of a wait and of the hold that follows from it. Never used twice in a shard.
pub(super) type Number = u64;

/// Somebody who holds the term.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) number: Number,
    pub(super) task: Option<Task>,
    pub(super) place: Place,
    pub(super) since: Tick,
    pub(super) mode: Mode,
}

/// Somebody who waits for the term.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: Number,
    pub(super) task: Option<Task>,
    /// Whose the hold will be.
    pub(super) holder: Option<Task>,
    pub(super) place: Place,
    pub(super) since: Tick,
    pub(super) mode: Mode,
    pub(super) waker: Waker,
    /// The cycle that it became a part of while it waited.
    pub(super) doomed: Option<Cycle>,
}

/// A term that is held.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) term: Term,
    pub(super) number: Number,
    /// The only holder, or one of several.
    first: Option<Holder>,
    /// There when somebody waits, or several hold.
    crowd: Option<Box<Crowd>>,
}

#[derive(Debug, Default)]
struct Crowd {
    holders: HashMap<Number, Holder>,
    /// How many of these hold in each mode.
    held: [u32; MOST_MODES],
    /// How often each task is among these.
    tasks: HashMap<Task, u32>,
    queue: Queue<Waiter>,
}

impl Crowd {
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

    /// The bits of the modes that are held.
    fn modes(&self) -> u8 {
        let bit = |(place, count): (usize, &u32)| if *count > 0 { 1 << place } else { 0 };
        self.held.iter().enumerate().map(bit).fold(0, |all: u8, bit: u8| all | bit)
    }
}

impl Entry {
    pub(super) fn new(term: Term, number: Number, holder: Holder) -> Self {
        Self { term, number, first: Some(holder), crowd: None }
    }

    /// Whether somebody may hold it in this mode beside those who do.
    fn admits(&self, mode: Mode) -> bool {
        let first = self.first.as_ref().map_or(0, |holder| holder.mode.bit());
        let others = self.crowd.as_ref().map_or(0, |crowd| crowd.modes());
        (first | others) & !self.term.modes().together_with(mode) == 0
    }

    /// Lets a newcomer in at once, if nobody waits and the holders allow it.
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

    /// Queues somebody. `None` when no more can be counted.
    pub(super) fn wait(&mut self, waiter: Waiter) -> Option<Seat> {
        self.crowd.get_or_insert_default().queue.push(waiter)
    }

    /// The hold with this number, once it was granted.
    pub(super) fn holder(&self, number: Number) -> Option<&Holder> {
        let first = self.first.as_ref().filter(|holder| holder.number == number);
        first.or_else(|| self.crowd.as_ref()?.holders.get(&number))
    }

    /// Whoever waits with this number.
    pub(super) fn waiter(&self, seat: Seat, number: Number) -> Option<&Waiter> {
        self.crowd.as_ref()?.queue.get(seat).filter(|waiter| waiter.number == number)
    }

    pub(super) fn waiter_mut(&mut self, seat: Seat, number: Number) -> Option<&mut Waiter> {
        self.crowd.as_mut()?.queue.get_mut(seat).filter(|waiter| waiter.number == number)
    }

    /// Ends a hold, and lets in whoever comes next.
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

    /// Leaves the queue, and lets in whoever was kept out by this one. `None` when it does not wait any more.
    pub(super) fn leave(
        &mut self,
        seat: Seat,
        number: Number,
        now: Tick,
        woken: &mut Woken,
    ) -> Option<Waiter> {
        self.waiter(seat, number)?;
        let waiter = self.crowd.as_mut()?.queue.remove(seat);
        self.admit(now, woken);
        waiter
    }

    /// Lets in the head of the queue, with the compatible ones right behind it. Nobody overtakes.
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

    /// Ends the hold, if nobody else holds it or waits.
    #[inline]
    pub(super) fn release_alone(&mut self, number: Number) -> Option<Holder> {
        if self.crowd.is_some() {
            return None;
        }
        self.first.take_if(|holder| holder.number == number)
    }

    /// Takes an entry that nobody was left in.
    pub(super) fn begin(&mut self, holder: Holder) {
        self.first = Some(holder);
    }

    /// Whether nobody is left.
    pub(super) fn is_over(&self) -> bool {
        self.first.is_none() && self.crowd.is_none()
    }

    /// Changes the mode of a hold to one that keeps fewer out.
    pub(super) fn step_down(&mut self, number: Number, mode: Mode, now: Tick, woken: &mut Woken) {
        self.change(number, |holder| holder.mode = mode);
        self.admit(now, woken);
    }

    /// Makes a hold another task's, or nobody's.
    pub(super) fn give(&mut self, number: Number, task: Option<Task>) -> Option<Task> {
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

    /// Where the task took it; `None` when it does not hold it.
    pub(super) fn held_by(&self, task: Task) -> Option<Place> {
        let is_its = |holder: &&Holder| holder.task == Some(task);
        if let Some(first) = self.first.as_ref().filter(is_its) {
            return Some(first.place);
        }
        let crowd = self.crowd.as_ref()?;
        crowd.tasks.get(&task)?;
        crowd.holders.values().find(is_its).map(|holder| holder.place)
    }

    /// The holders that keep the waiter out, because they exclude it or somebody before it in the queue, of those that
    /// `matter`.
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

    /// The bits of the modes that may not hold together with the mode.
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

    /// Why somebody was not let in.
    pub(super) fn busy(&self) -> Busy {
        Busy {
            held: self.holders().next().map(|holder| holder.place),
            holders: self.holders().count(),
            waiting: self.waiting(),
        }
    }
}

/// Those who were let in, to be woken once the shard is free again: wakers are other people's code.
#[derive(Debug, Default)]
pub(super) struct Woken {
    first: Option<(Waker, Option<Task>)>,
    others: Vec<(Waker, Option<Task>)>,
}

impl Woken {
    fn push(&mut self, waker: Waker, task: Option<Task>) {
        match &mut self.first {
            first @ None => *first = Some((waker, task)),
            Some(_) => self.others.push((waker, task)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The tasks that hold something since they were let in.
    pub(super) fn tasks(&self) -> impl Iterator<Item = Task> {
        self.first.iter().chain(&self.others).filter_map(|(_, task)| *task)
    }

    pub(super) fn wake(self) {
        wake_all(self.first.into_iter().chain(self.others).map(|(waker, _)| waker));
    }
}

/// Wakes everybody, also when a waker panics; that panic goes on afterwards, unless there is one already.
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
