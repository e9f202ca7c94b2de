//! Wait-for graph with deadlock detection. Every wait is recorded here, and a task whose wait closes a cycle gets an
//! error.
//!
//! One mutex is held from the recording of a wait to the end of the search. So the last task to wait sees every wait of
//! the cycle, and exactly one of its tasks gets the error. The search locks the shards one after the other. A task that
//! was waiting when the search began releases nothing until its wait is granted or given up. Neither can be recorded
//! before the search ends.
//!
//! A task that waits at several places at once (`join!`) may close a cycle when one of its waits is granted. It then
//! gets the error at another of its waits.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt as _};

use super::coarse_clock::{self, Tick};
use super::entry::{Holder, Number};
use super::error::{Cycle, CycleLink, LockError};
use super::queue::QueueSlot;
use super::table::Table;
use super::task::TaskId;

/// The location of a wait in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) hash: u64,
    pub(super) entry: Number,
    pub(super) seat: QueueSlot,
    pub(super) number: Number,
}

/// The target of a wait.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// A lock.
    Lock(Wait),
    /// A call that another task runs for the waiting one.
    Call(Arc<CycleLink>),
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lock(one), Self::Lock(other)) => one == other,
            (Self::Call(one), Self::Call(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The waits of all tasks.
#[derive(Debug, Default)]
pub(super) struct Waits {
    first: HashMap<TaskId, Wanted>,
    /// Further waits of tasks that poll several futures concurrently.
    others: HashMap<TaskId, Vec<Wanted>>,
    /// The cycles found most recently, for diagnostics.
    lately: VecDeque<(Tick, Cycle)>,
}

/// Number of cycles that are kept.
const REMEMBERED: usize = 16;

impl Waits {
    fn note(&mut self, task: TaskId, wanted: Wanted) {
        if let Some(before) = self.first.insert(task, wanted) {
            self.others.entry(task).or_default().push(before);
        }
    }

    fn forget(&mut self, task: TaskId, wanted: &Wanted) {
        let Entry::Occupied(mut others) = self.others.entry(task) else {
            if self.first.get(&task) == Some(wanted) {
                self.first.remove(&task);
            }
            return;
        };
        if self.first.get(&task) == Some(wanted) {
            if let Some(other) = others.get_mut().pop() {
                self.first.insert(task, other);
            }
        } else if let Some(at) = others.get().iter().rposition(|other| other == wanted) {
            others.get_mut().swap_remove(at);
        }
        if others.get().is_empty() {
            others.remove();
        }
    }

    fn remember(&mut self, cycle: &Cycle) {
        if self.lately.len() >= REMEMBERED {
            self.lately.pop_front();
        }
        self.lately.push_back((coarse_clock::exact(), cycle.clone()));
    }

    /// Returns the number of recorded waits.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.others.values().map(Vec::len).sum::<usize>()
    }

    fn of(&self, task: TaskId) -> impl Iterator<Item = &Wanted> {
        self.first.get(&task).into_iter().chain(self.others.get(&task).into_iter().flatten())
    }

    fn waits(&self, task: TaskId) -> bool {
        self.first.contains_key(&task)
    }
}

impl Table {
    /// Returns the cycles found most recently, newest first, with their ages.
    pub(super) fn cycles(&self) -> Vec<(Duration, Cycle)> {
        let now = coarse_clock::exact();
        let waits = self.waits.lock();
        waits.lately.iter().rev().map(|(at, cycle)| (now.since(*at), cycle.clone())).collect()
    }

    /// Records that a task waits for a lock.
    ///
    /// # Errors
    /// [`LockError::Reentrant`] when the task already waits for the same term, [`LockError::Deadlock`] when this wait
    /// closes a cycle. A wait that fails is not kept in the graph.
    pub(super) fn note_wait(&self, task: TaskId, wait: Wait) -> Result<(), LockError> {
        let mut waits = self.waits.lock();
        for wanted in waits.of(task) {
            if let Wanted::Lock(other) = wanted
                && (other.hash, other.entry) == (wait.hash, wait.entry)
                && let Some(error) = self.twice(task, *other, wait)
            {
                return Err(error);
            }
        }
        self.note_in(&mut waits, task, Wanted::Lock(wait))
    }

    /// Records that a task waits for a call that another task runs.
    ///
    /// # Errors
    /// [`LockError::Deadlock`] when this closes a cycle.
    pub(super) fn note_call(&self, task: TaskId, wanted: Wanted) -> Result<(), LockError> {
        self.note_in(&mut self.waits.lock(), task, wanted)
    }

    fn note_in(&self, waits: &mut Waits, task: TaskId, wanted: Wanted) -> Result<(), LockError> {
        waits.note(task, wanted.clone());
        self.several.store(waits.others.len(), Ordering::SeqCst);
        match self.cycle(waits, task, &wanted) {
            None => Ok(()),
            Some(cycle) => {
                waits.forget(task, &wanted);
                waits.remember(&cycle);
                self.several.store(waits.others.len(), Ordering::SeqCst);
                Err(LockError::Deadlock { cycle })
            }
        }
    }

    pub(super) fn forget_wait(&self, task: TaskId, wanted: &Wanted) {
        let mut waits = self.waits.lock();
        waits.forget(task, wanted);
        self.several.store(waits.others.len(), Ordering::SeqCst);
    }

    /// Searches for a cycle through the task's holds and one of its waits for a lock. The waiter of that wait gets the
    /// cycle and is woken.
    pub(super) fn look_for_cycles_of(&self, task: TaskId) {
        let mut waits = self.waits.lock();
        let waiting = |wanted: &&Wanted| matches!(wanted, Wanted::Lock(wait) if self.is_waiting(*wait));
        let found = waits.of(task).filter(waiting).find_map(|wanted| match wanted {
            Wanted::Lock(wait) => self.cycle(&waits, task, wanted).map(|cycle| (*wait, cycle)),
            Wanted::Call(_) => None,
        });
        let Some((wait, cycle)) = found else { return };
        waits.remember(&cycle);
        let mut shard = self.shard(wait.hash);
        let waiter =
            shard.entry(wait.hash, wait.entry).and_then(|entry| entry.waiter_mut(wait.seat, wait.number));
        let waker = waiter.map(|waiter| {
            waiter.doomed = Some(cycle);
            std::mem::replace(&mut waiter.waker, Waker::noop().clone())
        });
        drop(shard);
        drop(waits);
        waker.into_iter().for_each(Waker::wake);
    }

    fn is_waiting(&self, wait: Wait) -> bool {
        let mut shard = self.shard(wait.hash);
        shard.entry(wait.hash, wait.entry).is_some_and(|entry| entry.waiter(wait.seat, wait.number).is_some())
    }

    /// Returns the error of a task that waits for one term at two places.
    fn twice(&self, task: TaskId, first: Wait, second: Wait) -> Option<LockError> {
        let mut shard = self.shard(first.hash);
        let entry = shard.entry(first.hash, first.entry)?;
        let held = entry.waiter(first.seat, first.number)?;
        let asked = entry.waiter(second.seat, second.number)?;
        // Another task may release a hold that belongs to no task, so a wait behind such a hold is allowed.
        let ahead = if held.number < asked.number { held } else { asked };
        ahead.holder?;
        let (held, asked) = (held.place, asked.place);
        Some(LockError::Reentrant { term: entry.term.clone(), task, asked, held })
    }

    /// Returns the path from a wait back to the waiting task, if there is one.
    fn cycle(&self, waits: &Waits, start: TaskId, wanted: &Wanted) -> Option<Cycle> {
        let mut came_from: HashMap<TaskId, CycleLink> = HashMap::new();
        let mut ahead = VecDeque::from([(start, wanted)]);
        while let Some((task, wanted)) = ahead.pop_front() {
            for link in self.links(task, wanted, |holder| holder == start || waits.waits(holder)) {
                let holder = link.holder;
                if holder == start {
                    return Some(way_back(&came_from, start, link));
                }
                if let Entry::Vacant(unseen) = came_from.entry(holder) {
                    unseen.insert(link);
                    ahead.extend(waits.of(holder).map(|wanted| (holder, wanted)));
                }
            }
        }
        None
    }

    /// Returns the edges from a waiting task to the holders that block it, among those that matter. A wait that has
    /// ended has none.
    fn links(&self, task: TaskId, wanted: &Wanted, matters: impl Fn(TaskId) -> bool) -> Vec<CycleLink> {
        let wait = match wanted {
            Wanted::Lock(wait) => wait,
            Wanted::Call(link) => return vec![CycleLink::clone(link)],
        };
        let mut shard = self.shard(wait.hash);
        let Some(entry) = shard.entry(wait.hash, wait.entry) else { return Vec::new() };
        let Some(waiter) = entry.waiter(wait.seat, wait.number) else { return Vec::new() };
        let asked = waiter.place;
        let matters = |holder: &Holder| holder.task.is_some_and(&matters);
        let link = |holder: &Holder| {
            Some(CycleLink {
                task,
                term: entry.term.clone(),
                asked,
                holder: holder.task?,
                held: holder.place,
            })
        };
        entry.blockers(waiter, matters).into_iter().filter_map(link).collect()
    }
}

fn way_back(came_from: &HashMap<TaskId, CycleLink>, start: TaskId, last: CycleLink) -> Cycle {
    let mut way = vec![last];
    while let Some(task) = way.last().map(|link| link.task).filter(|task| *task != start) {
        match came_from.get(&task) {
            Some(link) => way.push(link.clone()),
            None => break,
        }
    }
    way.reverse();
    Cycle(way)
}
