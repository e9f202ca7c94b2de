//! Asking for a lock: at once, or by waiting in the queue. The wait is a plain future that needs nothing but a waker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::coarse_clock::{self, Tick};
use super::entry::{Holder, Waiter, Woken};
use super::error::{Busy, Cycle, LockError, Place};
use super::functor::Ask;
use super::guard::Guard;
use super::table::{Asker, Hold, Ownership, Table};
use super::task::Task;
use super::waits::{Wait, Wanted};
use crate::runtime::timer::Timer;
use crate::telemetry;

/// How an attempt ended.
enum Attempt {
    Granted(Hold),
    Queued(Wait),
    /// It is not free, and the caller was not queued.
    Busy(Busy),
}

/// What a waiter finds when it looks again.
enum Look {
    Granted,
    Doomed(Cycle),
    /// It waits with another waker than it should.
    Stale,
    Waiting,
}

impl Table {
    /// Whether this may be asked for at all.
    #[inline]
    fn check(&self, asker: &Asker<'_>) -> Result<(), LockError> {
        check_mode(asker)?;
        self.order.check(asker)
    }

    /// Takes the lock if nobody holds it.
    // Apart from all that may happen then, and inlined, so that the hold stays in registers on its way to the guard.
    #[inline]
    fn take(&self, asker: &Asker<'_>, now: Tick) -> Option<Hold> {
        let hold = self.shard(asker.term.hash()).take(asker, now)?;
        self.order.note(asker.holder, asker.term, hold.number, asker.place);
        Some(hold)
    }

    /// Somebody holds it, or did just now: joins them, or is queued with its waker, if it has one.
    #[cold]
    fn contend(&self, asker: &Asker<'_>, now: Tick, waker: Option<Waker>) -> Result<Attempt, LockError> {
        let Asker { term, mode, task, holder, place } = *asker;
        let (hash, index) = (term.hash(), term.index());
        let mut shard = self.shard(hash);
        if let Some(hold) = shard.take(asker, now) {
            drop(shard);
            self.order.note(holder, term, hold.number, place);
            return Ok(Attempt::Granted(hold));
        }
        let number = shard.next();
        let Some(entry) = shard.find(term) else { return Ok(Attempt::Busy(NOBODY)) };
        if let Some((task, held)) = task.and_then(|task| Some((task, entry.held_by(task)?))) {
            shard.tally(index, |tally| tally.refused());
            return Err(LockError::Reentrant { term: term.clone(), task, asked: place, held });
        }
        if entry.join(Holder { number, task: holder, place, since: now, mode }).is_ok() {
            let hold = Hold { hash, entry: entry.number, number };
            shard.tally(index, |tally| tally.acquired());
            drop(shard);
            self.order.note(holder, term, number, place);
            return Ok(Attempt::Granted(hold));
        }
        let waiting = |waker| Waiter { number, task, holder, place, since: now, mode, waker, doomed: None };
        let waiter = waker.map(waiting);
        let seat = waiter.and_then(|waiter| entry.wait(waiter));
        Ok(match seat {
            Some(seat) => Attempt::Queued(Wait { hash, entry: entry.number, seat, number }),
            None => Attempt::Busy(entry.busy()),
        })
    }

    /// Takes the lock if it is free.
    pub(super) fn try_lock(&self, asker: &Asker<'_>) -> Result<Hold, LockError> {
        self.check(asker)?;
        let now = coarse_clock::now();
        if let Some(hold) = self.take(asker, now) {
            return Ok(hold);
        }
        let state = match self.contend(asker, now, None)? {
            Attempt::Granted(hold) => return Ok(hold),
            Attempt::Busy(state) => state,
            // Without a waker nobody is queued.
            Attempt::Queued(wait) => {
                self.cancel(wait);
                NOBODY
            }
        };
        self.shard(asker.term.hash()).tally(asker.term.index(), |tally| tally.refused());
        Err(busy(asker, state))
    }

    /// Ends a wait: leaves the queue, or passes on what was granted in the meantime.
    fn cancel(&self, wait: Wait) {
        let (mut woken, now) = (Woken::default(), coarse_clock::now());
        let mut shard = self.shard(wait.hash);
        let left = shard.change(wait.hash, wait.entry, |entry| {
            let waiter = entry.leave(wait.seat, wait.number, now, &mut woken);
            if waiter.is_none() {
                entry.release(wait.number, now, &mut woken);
            }
            (entry.term.index(), waiter)
        });
        if let Some((index, _)) = left {
            shard.tally(index, |tally| tally.refused());
        }
        drop(shard);
        self.wake(woken);
    }

    /// Who keeps a waiter out.
    fn in_the_way(&self, wait: Wait) -> Busy {
        let mut shard = self.shard(wait.hash);
        let entry = shard.entry(wait.hash, wait.entry);
        entry.map_or(NOBODY, |entry| {
            let in_front = entry.waiters().take_while(|waiter| waiter.number != wait.number).count();
            Busy { waiting: in_front, ..entry.busy() }
        })
    }

    /// What became of a waiter. A waker that is given takes the place of the one that is there, which comes back.
    fn look(&self, wait: Wait, since: Instant, known: &Waker, new: &mut Option<Waker>) -> Look {
        let mut shard = self.shard(wait.hash);
        let Some(entry) = shard.entry(wait.hash, wait.entry) else { return Look::Waiting };
        let index = entry.term.index();
        let Some(waiter) = entry.waiter_mut(wait.seat, wait.number) else {
            let time = since.elapsed();
            shard.tally(index, |tally| tally.waited(time));
            return Look::Granted;
        };
        if let Some(cycle) = waiter.doomed.take() {
            return Look::Doomed(cycle);
        }
        if let Some(new) = new {
            std::mem::swap(&mut waiter.waker, new);
            return Look::Waiting;
        }
        if waiter.waker.will_wake(known) { Look::Waiting } else { Look::Stale }
    }

    /// Another task polls: the wait is that task's from now on, and the hold that came of it is `holder`'s.
    fn move_wait(
        &self,
        wait: Wait,
        from: Option<Task>,
        to: Option<Task>,
        holder: Option<Task>,
    ) -> Result<(), LockError> {
        from.into_iter().for_each(|task| self.forget_wait(task, &Wanted::Lock(wait)));
        let mut shard = self.shard(wait.hash);
        let waits = shard.entry(wait.hash, wait.entry).is_some_and(|entry| {
            entry.give(wait.number, holder);
            let waiter = entry.waiter_mut(wait.seat, wait.number);
            waiter.map(|waiter| (waiter.task, waiter.holder) = (to, holder)).is_some()
        });
        drop(shard);
        match to.filter(|_| waits) {
            Some(task) => self.note_wait(task, wait),
            None => Ok(()),
        }
    }
}

/// Nobody was in the way.
const NOBODY: Busy = Busy { held: None, holders: 0, waiting: 0 };

fn check_mode(asker: &Asker<'_>) -> Result<(), LockError> {
    let modes = asker.term.modes();
    match modes.name(asker.mode) {
        Some(_) => Ok(()),
        None => Err(LockError::Mode {
            term: asker.term.clone(),
            from: "none",
            to: asker.mode.place(),
            names: modes.names(),
        }),
    }
}

fn busy(asker: &Asker<'_>, state: Busy) -> LockError {
    LockError::Busy { term: asker.term.clone(), asked: asker.place, state }
}

/// A lock that was asked for: a future that gives the guard.
///
/// # Cancel safety
/// Dropped while it waits, it leaves the queue, and the others keep their order. Dropped after it was let in but before
/// it was polled again, it passes the lock on.
///
/// Polled again after it gave its guard, it asks again.
#[derive(Debug)]
#[must_use = "a lock is only asked for when the future is polled"]
pub struct Lock<'l, 't> {
    table: &'l Arc<Table>,
    ask: Ask<'t>,
    place: Place,
    deadline: Option<Instant>,
    /// Who asks, where that is known before the first poll.
    task: Option<Task>,
    ownership: Ownership,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It has not asked, or was answered.
    Done,
    Waiting {
        wait: Wait,
        task: Option<Task>,
        since: Instant,
        timer: Option<Timer>,
        /// Ends with the wait.
        _span: tracing::Span,
    },
}

impl<'l, 't> Lock<'l, 't> {
    pub(super) fn new(table: &'l Arc<Table>, ask: Ask<'t>, place: Place, deadline: Option<Instant>) -> Self {
        Self { table, ask, place, deadline, task: None, ownership: Ownership::Asker, state: State::Done }
    }

    /// The same, asked for by a task that is known.
    pub(super) fn by(mut self, task: Option<Task>) -> Self {
        self.task = task;
        self
    }

    /// The same, with a guard that belongs to no task.
    pub(super) fn detached(mut self) -> Self {
        self.ownership = Ownership::Detached;
        self
    }

    #[inline]
    fn asker(&self, task: Option<Task>) -> Asker<'t> {
        let holder = self.ownership.holder(task);
        Asker { term: self.ask.term, mode: self.ask.mode, task, holder, place: self.place }
    }

    #[inline]
    fn granted(&mut self, hold: Hold) -> Poll<Result<Guard<'l>, LockError>> {
        self.state = State::Done;
        Poll::Ready(Ok(Guard::new(self.table, hold, self.ask.mode)))
    }

    #[inline]
    fn begin(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let task = self.task.or_else(Task::current);
        let asker = self.asker(task);
        if let Err(error) = self.table.check(&asker) {
            return Poll::Ready(Err(error));
        }
        let now = coarse_clock::now();
        if let Some(hold) = self.table.take(&asker, now) {
            return self.granted(hold);
        }
        // The waker is cloned outside of the shard: it is other people's code.
        match self.table.contend(&asker, now, Some(context.waker().clone())) {
            Ok(Attempt::Granted(hold)) => self.granted(hold),
            Ok(Attempt::Queued(wait)) => self.queued(wait, task, context),
            Ok(Attempt::Busy(state)) => Poll::Ready(Err(busy(&asker, state))),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// It waits from here on, unless that closed a cycle.
    #[cold]
    fn queued(
        &mut self,
        wait: Wait,
        task: Option<Task>,
        context: &Context<'_>,
    ) -> Poll<Result<Guard<'l>, LockError>> {
        let (term, place) = (self.ask.term, self.place);
        let span = tracing::debug_span!(target: telemetry::LOCK, telemetry::LOCK_WAIT, %term, %place);
        // From here on, being dropped means leaving the queue.
        self.state = State::Waiting { wait, task, since: Instant::now(), timer: None, _span: span };
        if let Some(error) = task.and_then(|task| self.table.note_wait(task, wait).err()) {
            return self.refused(error);
        }
        if let (Some(at), State::Waiting { timer, .. }) = (self.deadline, &mut self.state) {
            *timer = Some(Timer::start(at, context.waker().clone()));
        }
        Poll::Pending
    }

    fn refused(&mut self, error: LockError) -> Poll<Result<Guard<'l>, LockError>> {
        if let LockError::Deadlock { cycle } = &error {
            tracing::warn!(target: telemetry::LOCK, %cycle, "deadlock");
        }
        self.leave();
        Poll::Ready(Err(error))
    }

    #[cold]
    fn look_again(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let State::Waiting { wait, task, since, timer, .. } = &self.state else { return self.begin(context) };
        let (wait, before, since) = (*wait, *task, *since);
        if timer.as_ref().is_some_and(|timer| timer.is_due() || !timer.set_waker(context.waker())) {
            let error = self.give_up(wait);
            return Poll::Ready(Err(error));
        }
        let task = self.task.or_else(Task::current);
        if task != before {
            if let State::Waiting { task: known, .. } = &mut self.state {
                *known = task;
            }
            let holder = self.ownership.holder(task);
            if let Err(error) = self.table.move_wait(wait, before, task, holder) {
                return self.refused(error);
            }
        }
        let mut look = self.table.look(wait, since, context.waker(), &mut None);
        if matches!(look, Look::Stale) {
            // What comes back is dropped here, outside of the shard.
            let mut waker = Some(context.waker().clone());
            look = self.table.look(wait, since, context.waker(), &mut waker);
        }
        match look {
            Look::Waiting | Look::Stale => Poll::Pending,
            Look::Doomed(cycle) => self.refused(LockError::Deadlock { cycle }),
            Look::Granted => {
                telemetry::seconds(telemetry::LOCK_WAIT_SECONDS, since.elapsed());
                task.into_iter().for_each(|task| self.table.forget_wait(task, &Wanted::Lock(wait)));
                let Wait { hash, entry, number, .. } = wait;
                self.table.order.note(self.ownership.holder(task), self.ask.term, number, self.place);
                self.granted(Hold { hash, entry, number })
            }
        }
    }

    /// The time is up: it is not granted any more.
    fn give_up(&mut self, wait: Wait) -> LockError {
        let state = self.table.in_the_way(wait);
        self.leave();
        LockError::TimedOut { term: self.ask.term.clone(), asked: self.place, state }
    }

    #[cold]
    fn leave(&mut self) {
        let State::Waiting { wait, task, .. } = std::mem::replace(&mut self.state, State::Done) else {
            return;
        };
        if let Some(task) = task {
            self.table.forget_wait(task, &Wanted::Lock(wait));
        }
        self.table.cancel(wait);
    }
}

impl<'l> Future for Lock<'l, '_> {
    type Output = Result<Guard<'l>, LockError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.state {
            State::Done => self.begin(context),
            State::Waiting { .. } => self.look_again(context),
        }
    }
}

impl Drop for Lock<'_, '_> {
    fn drop(&mut self) {
        if matches!(self.state, State::Waiting { .. }) {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests;
