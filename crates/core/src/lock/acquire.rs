//! Asking for a lock: at once, or by waiting in the queue. The wait is a plain future that needs nothing but a waker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::entry::{Holder, Waiter, Woken};
use super::error::{Busy, LockError, Place};
use super::functor::Ask;
use super::guard::Guard;
use super::table::{Asker, Hold, Table};
use super::task::Task;
use super::ticks::{self, Alarm};
use super::waits::Wait;
use crate::telemetry;

/// How an attempt ended.
enum Attempt {
    Granted(Hold),
    Queued(Wait),
}

impl Table {
    /// Takes the lock if it is free. If not, the caller is queued with its waker, or refused when it has none.
    fn attempt(&self, asker: &Asker<'_>, waker: Option<&Waker>) -> Result<Attempt, LockError> {
        check_mode(asker)?;
        self.order.check(asker)?;
        let attempt = self.attempt_in_shard(asker, waker)?;
        if let Attempt::Granted(hold) = attempt {
            self.order.note(asker.task, asker.term, hold.number, asker.place);
        }
        Ok(attempt)
    }

    fn attempt_in_shard(&self, asker: &Asker<'_>, waker: Option<&Waker>) -> Result<Attempt, LockError> {
        let (hash, now, index) = (asker.term.hash(), ticks::now(), asker.term.index());
        let mut shard = self.shard(hash);
        let Asker { mode, task, place, .. } = *asker;
        let number = shard.next();
        let holder = Holder { number, task, place, since: now, mode };
        let Some(entry) = shard.find(asker.term) else {
            let hold = shard.insert(asker.term, holder);
            shard.tally(index, |tally| tally.acquired());
            return Ok(Attempt::Granted(hold));
        };
        if entry.is_over() {
            entry.begin(holder);
            let hold = Hold { hash, entry: entry.number, number };
            shard.taken();
            shard.tally(index, |tally| tally.acquired());
            return Ok(Attempt::Granted(hold));
        }
        let result = match task.and_then(|task| Some((task, entry.held_by(task)?))) {
            Some((task, held)) => {
                Err(LockError::Reentrant { term: asker.term.clone(), task, asked: place, held })
            }
            None => match (entry.join(holder), waker) {
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
        shard.tally(index, |tally| match &result {
            Ok(Attempt::Granted(_)) => tally.acquired(),
            Ok(Attempt::Queued(_)) => {}
            Err(_) => tally.refused(),
        });
        result
    }

    /// Takes the lock if it is free.
    pub(super) fn try_lock(&self, asker: &Asker<'_>) -> Result<Hold, LockError> {
        match self.attempt(asker, None)? {
            Attempt::Granted(hold) => Ok(hold),
            Attempt::Queued(wait) => {
                self.cancel(wait);
                Err(busy(asker, Busy { held: None, holders: 0, waiting: 0 }))
            }
        }
    }

    /// Ends a wait: leaves the queue, or passes on what was granted in the meantime.
    fn cancel(&self, wait: Wait) {
        let (mut woken, now) = (Woken::default(), ticks::now());
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
        woken.wake();
    }

    /// Who keeps a waiter out.
    fn in_the_way(&self, wait: Wait) -> Busy {
        let mut shard = self.shard(wait.hash);
        let entry = shard.entry(wait.hash, wait.entry);
        entry.map_or(Busy { held: None, holders: 0, waiting: 0 }, |entry| {
            let in_front = entry.waiters().take_while(|waiter| waiter.number != wait.number).count();
            Busy { waiting: in_front, ..entry.busy() }
        })
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
    /// Who asks, where that is known before the first poll.
    task: Option<Task>,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Waiting {
        wait: Wait,
        task: Option<Task>,
        since: Instant,
        alarm: Option<Alarm>,
        /// Ends with the wait.
        _span: tracing::Span,
    },
    Done,
}

impl<'l, 't> Lock<'l, 't> {
    pub(super) fn new(table: &'l Arc<Table>, ask: Ask<'t>, place: Place, deadline: Option<Instant>) -> Self {
        Self { table, ask, place, deadline, task: None, state: State::New }
    }

    /// The same, asked for by a task that is known.
    pub(super) fn by(mut self, task: Option<Task>) -> Self {
        self.task = task;
        self
    }

    fn granted(
        &mut self,
        hold: Hold,
        task: Option<Task>,
        context: &Context<'_>,
    ) -> Poll<Result<Guard<'l>, LockError>> {
        self.state = State::Done;
        let keep = task.filter(|task| task.needs_waker()).map(|_| context.waker().clone());
        Poll::Ready(Ok(Guard::new(self.table, hold, self.ask.mode, keep)))
    }

    fn begin(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let task = self.task.or_else(|| Task::polled(context));
        let asker = Asker { term: self.ask.term, mode: self.ask.mode, task, place: self.place };
        match self.table.attempt(&asker, Some(context.waker())) {
            Ok(Attempt::Granted(hold)) => self.granted(hold, task, context),
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
            tracing::warn!(target: telemetry::LOCK, %cycle, "deadlock");
            return Poll::Ready(Err(LockError::Deadlock { cycle }));
        }
        let alarm = self.deadline.map(|at| Alarm::set(at, context.waker().clone()));
        let (term, place) = (self.ask.term, self.place);
        let span = tracing::debug_span!(target: telemetry::LOCK, telemetry::LOCK_WAIT, %term, %place);
        self.state = State::Waiting { wait, task, since: Instant::now(), alarm, _span: span };
        Poll::Pending
    }

    fn look_again(&mut self, context: &Context<'_>) -> Poll<Result<Guard<'l>, LockError>> {
        let State::Waiting { wait, task, since, alarm, .. } = &self.state else { return Poll::Pending };
        let (wait, task, since) = (*wait, *task, *since);
        if alarm.as_ref().is_some_and(|alarm| alarm.has_rung() || !alarm.change(context.waker())) {
            return Poll::Ready(Err(self.give_up(wait)));
        }
        if !self.table.is_granted(wait, context.waker(), || since.elapsed()) {
            return Poll::Pending;
        }
        if let Some(task) = task {
            self.table.forget_wait(task, wait);
        }
        let Wait { hash, entry, number, .. } = wait;
        self.table.order.note(task, self.ask.term, number, self.place);
        self.granted(Hold { hash, entry, number }, task, context)
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
            self.table.forget_wait(task, wait);
        }
        self.table.cancel(wait);
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
