//! Asking for a lock: at once, or by waiting in the queue. The wait is a plain future that needs nothing but a waker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::entry::{Holder, Waiter, Woken};
use super::error::{Busy, LockError, Place};
use super::functor::{Ask, Term};
use super::guard::Guard;
use super::sync::MutexGuard;
use super::table::{Asker, Hold, Shard, Table};
use super::task::Task;
use super::ticks::{self, Alarm, Tick};
use super::waits::Wait;

/// Nobody was seen in the way.
const NOBODY: Busy = Busy { held: None, holders: 0, waiting: 0 };

/// How an attempt ended.
enum Attempt {
    Granted(Hold),
    Queued(Wait),
}

impl Table {
    /// Whether this may be asked for at all.
    #[inline]
    fn check(&self, asker: &Asker<'_>) -> Result<(), LockError> {
        check_mode(asker)?;
        self.order.check(asker)
    }

    /// Takes the lock if nobody holds it. Gives the shard back if somebody does.
    // Apart from all that may happen then, and inlined, so that the hold stays in registers on its way to the guard.
    #[inline]
    fn take(&self, asker: &Asker<'_>, now: Tick) -> Result<Hold, MutexGuard<'_, Shard>> {
        let mut shard = self.shard(asker.term.hash());
        let Some(hold) = shard.take(asker, now) else { return Err(shard) };
        drop(shard);
        self.order.note(asker.task, asker.term, hold.number, asker.place);
        Ok(hold)
    }

    /// Somebody holds it: joins them, is queued with its waker, or is refused when it has none.
    #[cold]
    fn contend(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        asker: &Asker<'_>,
        now: Tick,
        waker: Option<&Waker>,
    ) -> Result<Attempt, LockError> {
        let Asker { term, mode, task, place } = *asker;
        let number = shard.next();
        let Some(entry) = shard.find(term) else { return Err(busy(asker, NOBODY)) };
        let hash = term.hash();
        let result = match task.and_then(|task| Some((task, entry.held_by(task)?))) {
            Some((task, held)) => Err(LockError::Reentrant { term: term.clone(), task, asked: place, held }),
            None => match (entry.join(Holder { number, task, place, since: now, mode }), waker) {
                (Ok(()), _) => Ok(Attempt::Granted(Hold { hash, entry: entry.number, number })),
                (Err(_), None) => Err(busy(asker, entry.busy())),
                (Err(_), Some(waker)) => {
                    let waiter = Waiter { number, task, place, since: now, mode, waker: waker.clone() };
                    match entry.wait(waiter) {
                        Some(seat) => Ok(Attempt::Queued(Wait { hash, entry: entry.number, seat, number })),
                        None => Err(busy(asker, entry.busy())),
                    }
                }
            },
        };
        shard.tally(term.index(), |tally| match &result {
            Ok(Attempt::Granted(_)) => tally.acquired(),
            Ok(Attempt::Queued(_)) => {}
            Err(_) => tally.refused(),
        });
        drop(shard);
        if let Ok(Attempt::Granted(hold)) = &result {
            self.order.note(task, term, hold.number, place);
        }
        result
    }

    /// Takes the lock if it is free.
    pub(super) fn try_lock(&self, asker: &Asker<'_>) -> Result<Hold, LockError> {
        self.check(asker)?;
        let now = ticks::now();
        let shard = match self.take(asker, now) {
            Ok(hold) => return Ok(hold),
            Err(shard) => shard,
        };
        match self.contend(shard, asker, now, None)? {
            Attempt::Granted(hold) => Ok(hold),
            Attempt::Queued(wait) => {
                self.cancel(wait);
                Err(busy(asker, NOBODY))
            }
        }
    }

    /// Ends a wait: leaves the queue, or passes on what was granted in the meantime. Says who was in the way.
    fn cancel(&self, wait: Wait) -> Option<Busy> {
        let (mut woken, now) = (Woken::default(), ticks::now());
        let mut shard = self.shard(wait.hash);
        let left = shard.change(wait.hash, wait.entry, |entry| {
            let state = entry.busy();
            let left = entry.leave(wait.seat, wait.number, now, &mut woken);
            if left.is_none() {
                entry.release(wait.number, now, &mut woken);
            }
            (entry.term.index(), state)
        });
        if let Some((index, _)) = left {
            shard.tally(index, |tally| tally.refused());
        }
        drop(shard);
        woken.wake();
        left.map(|(_, state)| state)
    }

    /// Whether a waiter was let in. If not, its waker is brought up to date.
    fn is_granted(&self, wait: Wait, waker: &Waker, waited: impl FnOnce() -> Duration) -> bool {
        let mut shard = self.shard(wait.hash);
        let Some(entry) = shard.entry(wait.hash, wait.entry) else { return false };
        if let Some(waiter) = entry.waiter_mut(wait.seat, wait.number) {
            if !waiter.waker.will_wake(waker) {
                waiter.waker.clone_from(waker);
            }
            return false;
        }
        let index = entry.term.index();
        let waited = waited();
        shard.tally(index, |tally| tally.waited(waited));
        true
    }
}

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
#[derive(Debug)]
#[must_use = "a lock is only asked for when the future is polled"]
pub struct Lock<'l, 't> {
    table: &'l Arc<Table>,
    ask: Ask<'t>,
    place: Place,
    deadline: Option<Instant>,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Waiting { wait: Wait, task: Option<Task>, since: Instant, alarm: Option<Alarm> },
    Done,
}

impl<'l, 't> Lock<'l, 't> {
    pub(super) fn new(table: &'l Arc<Table>, ask: Ask<'t>, place: Place, deadline: Option<Instant>) -> Self {
        Self { table, ask, place, deadline, state: State::New }
    }

    #[inline]
    fn granted(&mut self, hold: Hold) -> Poll<Result<Guard<'l>, LockError>> {
        self.state = State::Done;
        Poll::Ready(Ok(Guard::new(self.table, hold, self.ask.mode)))
    }

    #[inline]
    fn begin(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let task = Task::polled(context);
        let asker = Asker { term: self.ask.term, mode: self.ask.mode, task, place: self.place };
        if let Err(error) = self.table.check(&asker) {
            self.state = State::Done;
            return Poll::Ready(Err(error));
        }
        let now = ticks::now();
        let shard = match self.table.take(&asker, now) {
            Ok(hold) => return self.granted(hold),
            Err(shard) => shard,
        };
        match self.table.contend(shard, &asker, now, Some(context.waker())) {
            Ok(Attempt::Granted(hold)) => self.granted(hold),
            Ok(Attempt::Queued(wait)) => self.queued(wait, task, context),
            Err(error) => {
                self.state = State::Done;
                Poll::Ready(Err(error))
            }
        }
    }

    /// It waits from here on, unless that closed a circle.
    #[cold]
    fn queued(
        &mut self,
        wait: Wait,
        task: Option<Task>,
        context: &Context<'_>,
    ) -> Poll<Result<Guard<'l>, LockError>> {
        if let Some(cycle) = task.and_then(|task| self.table.note_wait(task, wait)) {
            self.table.cancel(wait);
            self.state = State::Done;
            tracing::warn!(target: "tidelock::lock", %cycle, "deadlock");
            return Poll::Ready(Err(LockError::Deadlock { cycle }));
        }
        let alarm = self.deadline.map(|at| Alarm::set(at, context.waker().clone()));
        self.state = State::Waiting { wait, task, since: Instant::now(), alarm };
        Poll::Pending
    }

    fn look_again(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let State::Waiting { wait, task, since, alarm } = &self.state else { return Poll::Pending };
        let (wait, task, since) = (*wait, *task, *since);
        if alarm.as_ref().is_some_and(Alarm::has_rung) {
            return Poll::Ready(Err(self.give_up()));
        }
        if let Some(alarm) = alarm {
            alarm.change(context.waker());
        }
        if !self.table.is_granted(wait, context.waker(), || since.elapsed()) {
            return Poll::Pending;
        }
        if let Some(task) = task {
            self.table.forget_wait(task, wait);
        }
        let Wait { hash, entry, number, .. } = wait;
        let term: &Term = self.ask.term;
        tracing::trace!(target: "tidelock::lock", %term, waited = ?since.elapsed(), "locked after waiting");
        self.table.order.note(task, term, number, self.place);
        self.granted(Hold { hash, entry, number })
    }

    /// The time is up: it is not granted any more.
    fn give_up(&mut self) -> LockError {
        let state = self.leave().unwrap_or(NOBODY);
        LockError::TimedOut { term: self.ask.term.clone(), asked: self.place, state }
    }

    #[cold]
    fn leave(&mut self) -> Option<Busy> {
        let State::Waiting { wait, task, .. } = std::mem::replace(&mut self.state, State::Done) else {
            return None;
        };
        if let Some(task) = task {
            self.table.forget_wait(task, wait);
        }
        self.table.cancel(wait)
    }
}

impl<'l> Future for Lock<'l, '_> {
    type Output = Result<Guard<'l>, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.state {
            State::New => self.begin(context),
            _ => self.look_again(context),
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
