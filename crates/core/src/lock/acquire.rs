//! Lock acquisition: immediately, or by waiting in the queue of the term.
//!
//! An attempt first takes a free term under the mutex of its shard. If the term is held, the attempt joins compatible
//! holders, provided that the queue is empty. Otherwise it is queued with its waker, or fails if it has none (`try_lock`).
//! A release grants the lock to the head of the queue and wakes it, so a woken future finds a hold under its number. The
//! wait is a plain future that needs nothing but a waker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::class::LockRequest;
use super::coarse_clock::{self, Tick};
use super::entry::{Holder, Waiter, Woken};
use super::error::{Busy, CallSite, Cycle, LockError};
use super::guard::Guard;
use super::table::{Asker, LockHold, Ownership, Table};
use super::task::TaskId;
use super::wait_graph::{Wait, Wanted};
use crate::process;
use crate::runtime::timer::Timer;
use crate::telemetry;

/// The result of an attempt.
enum Attempt {
    Granted(LockHold),
    Queued(Wait),
    /// The term is not free, and the attempt was not queued.
    Busy(Busy),
}

/// The state of a waiter when its future is polled.
enum PollState {
    Granted,
    Doomed(Cycle),
    /// It is registered with another waker than the one that polls it.
    Stale,
    Waiting,
}

impl Table {
    /// Checks that the mode exists and that the rank is in order.
    #[inline]
    fn check(&self, asker: &Asker<'_>) -> Result<(), LockError> {
        check_mode(asker)?;
        self.order.check(asker)
    }

    /// Acquires the lock if the term has no holders.
    // Separate from the contended path and inlined, so that the hold stays in registers on its way to the guard.
    #[inline]
    fn take(&self, asker: &Asker<'_>, now: Tick) -> Option<LockHold> {
        let hold = self.shard(asker.term.hash()).take(asker, now)?;
        self.order.note(asker.holder, asker.term, hold.number, asker.place);
        Some(hold)
    }

    /// Acquires a term that is held, or was held an instant ago. Joins compatible holders, or queues the attempt if it
    /// has a waker.
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
            let hold = LockHold { hash, entry: entry.number, number };
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

    /// Acquires the lock if it is free.
    pub(super) fn try_lock(&self, asker: &Asker<'_>) -> Result<LockHold, LockError> {
        self.check(asker)?;
        let now = coarse_clock::now();
        if let Some(hold) = self.take(asker, now) {
            return Ok(hold);
        }
        let state = match self.contend(asker, now, None)? {
            Attempt::Granted(hold) => return Ok(hold),
            Attempt::Busy(state) => state,
            // Unreachable: an attempt without a waker is never queued.
            Attempt::Queued(wait) => {
                self.cancel(wait);
                NOBODY
            }
        };
        self.shard(asker.term.hash()).tally(asker.term.index(), |tally| tally.refused());
        Err(busy(asker, state))
    }

    /// Ends a wait: leaves the queue, or releases the hold if it was granted in the meantime.
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

    /// Returns the holders of the term and the number of waiters in front of a waiter.
    fn in_the_way(&self, wait: Wait) -> Busy {
        let mut shard = self.shard(wait.hash);
        let entry = shard.entry(wait.hash, wait.entry);
        entry.map_or(NOBODY, |entry| {
            let in_front = entry.waiters().take_while(|waiter| waiter.number != wait.number).count();
            Busy { waiting: in_front, ..entry.busy() }
        })
    }

    /// Returns the state of a waiter. A `new` waker is swapped with the registered one.
    fn poll_state(&self, wait: Wait, since: Instant, known: &Waker, new: &mut Option<Waker>) -> PollState {
        let mut shard = self.shard(wait.hash);
        let Some(entry) = shard.entry(wait.hash, wait.entry) else { return PollState::Waiting };
        let index = entry.term.index();
        let Some(waiter) = entry.waiter_mut(wait.seat, wait.number) else {
            let time = process::elapsed(since);
            shard.tally(index, |tally| tally.waited(time));
            return PollState::Granted;
        };
        if let Some(cycle) = waiter.doomed.take() {
            return PollState::Doomed(cycle);
        }
        if let Some(new) = new {
            std::mem::swap(&mut waiter.waker, new);
            return PollState::Waiting;
        }
        if waiter.waker.will_wake(known) { PollState::Waiting } else { PollState::Stale }
    }

    /// Reassigns a wait that another task polls from now on. A hold that was already granted is reassigned to `holder`.
    fn move_wait(
        &self,
        wait: Wait,
        from: Option<TaskId>,
        to: Option<TaskId>,
        holder: Option<TaskId>,
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

/// No holders and no waiters.
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

/// A future that acquires a lock and returns its guard.
///
/// # Cancel safety
/// A future that is dropped while it waits leaves the queue, and the other waiters keep their order. A future that is
/// dropped after the grant, but before it is polled again, releases the lock to the next waiter.
///
/// A future that is polled again after it returned its guard makes a new attempt.
#[derive(Debug)]
#[must_use = "a lock is only asked for when the future is polled"]
pub struct Lock<'l, 't> {
    table: &'l Arc<Table>,
    ask: LockRequest<'t>,
    place: CallSite,
    deadline: Option<Instant>,
    /// The task that makes the attempt, if known before the first poll.
    task: Option<TaskId>,
    ownership: Ownership,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The attempt has not started, or has ended.
    Done,
    Waiting {
        wait: Wait,
        task: Option<TaskId>,
        since: Instant,
        timer: Option<Timer>,
        /// Closed when the wait ends.
        _span: tracing::Span,
    },
}

impl<'l, 't> Lock<'l, 't> {
    pub(super) fn new(
        table: &'l Arc<Table>,
        ask: LockRequest<'t>,
        place: CallSite,
        deadline: Option<Instant>,
    ) -> Self {
        Self { table, ask, place, deadline, task: None, ownership: Ownership::Asker, state: State::Done }
    }

    /// Sets the task that makes the attempt.
    pub(super) fn by(mut self, task: Option<TaskId>) -> Self {
        self.task = task;
        self
    }

    /// Makes the guard belong to no task.
    pub(super) fn detached(mut self) -> Self {
        self.ownership = Ownership::Detached;
        self
    }

    #[inline]
    fn asker(&self, task: Option<TaskId>) -> Asker<'t> {
        let holder = self.ownership.holder(task);
        Asker { term: self.ask.term, mode: self.ask.mode, task, holder, place: self.place }
    }

    #[inline]
    fn granted(&mut self, hold: LockHold) -> Poll<Result<Guard<'l>, LockError>> {
        self.state = State::Done;
        Poll::Ready(Ok(Guard::new(self.table, hold, self.ask.mode)))
    }

    #[inline]
    fn begin(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let task = self.task.or_else(TaskId::current);
        let asker = self.asker(task);
        if let Err(error) = self.table.check(&asker) {
            return Poll::Ready(Err(error));
        }
        let now = coarse_clock::now();
        if let Some(hold) = self.table.take(&asker, now) {
            return self.granted(hold);
        }
        // The waker is cloned before the shard is locked, because cloning runs foreign code.
        match self.table.contend(&asker, now, Some(context.waker().clone())) {
            Ok(Attempt::Granted(hold)) => self.granted(hold),
            Ok(Attempt::Queued(wait)) => self.queued(wait, task, context),
            Ok(Attempt::Busy(state)) => Poll::Ready(Err(busy(&asker, state))),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Starts the wait, unless it closes a cycle.
    #[cold]
    fn queued(
        &mut self,
        wait: Wait,
        task: Option<TaskId>,
        context: &Context<'_>,
    ) -> Poll<Result<Guard<'l>, LockError>> {
        let (term, place) = (self.ask.term, self.place);
        let span = tracing::debug_span!(target: telemetry::LOCK, telemetry::LOCK_WAIT, %term, %place);
        // From here on, dropping the future leaves the queue.
        self.state = State::Waiting { wait, task, since: process::now(), timer: None, _span: span };
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
    fn poll_waiting(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let State::Waiting { wait, task, since, timer, .. } = &self.state else { return self.begin(context) };
        let (wait, before, since) = (*wait, *task, *since);
        if timer.as_ref().is_some_and(|timer| timer.is_due() || !timer.set_waker(context.waker())) {
            let error = self.give_up(wait);
            return Poll::Ready(Err(error));
        }
        let task = self.task.or_else(TaskId::current);
        if task != before {
            if let State::Waiting { task: known, .. } = &mut self.state {
                *known = task;
            }
            let holder = self.ownership.holder(task);
            if let Err(error) = self.table.move_wait(wait, before, task, holder) {
                return self.refused(error);
            }
        }
        let mut look = self.table.poll_state(wait, since, context.waker(), &mut None);
        if matches!(look, PollState::Stale) {
            // The previous waker is dropped here, outside the shard.
            let mut waker = Some(context.waker().clone());
            look = self.table.poll_state(wait, since, context.waker(), &mut waker);
        }
        match look {
            PollState::Waiting | PollState::Stale => Poll::Pending,
            PollState::Doomed(cycle) => self.refused(LockError::Deadlock { cycle }),
            PollState::Granted => {
                telemetry::seconds(telemetry::LOCK_WAIT_SECONDS, process::elapsed(since));
                task.into_iter().for_each(|task| self.table.forget_wait(task, &Wanted::Lock(wait)));
                let Wait { hash, entry, number, .. } = wait;
                self.table.order.note(self.ownership.holder(task), self.ask.term, number, self.place);
                self.granted(LockHold { hash, entry, number })
            }
        }
    }

    /// Ends the wait at its deadline. The lock is never granted later.
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
            State::Waiting { .. } => self.poll_waiting(context),
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
