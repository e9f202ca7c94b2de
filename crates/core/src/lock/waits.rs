//! Who waits for whom. Every wait is noted here, and whoever closes a circle of waiting tasks hears of it.
//!
//! One mutex is held from the noting of a wait to the end of the search, so the last one to wait sees every wait of a
//! circle, and exactly one of its tasks is told. Shards are looked at one after the other; what was found is looked at a
//! second time: a wait and a hold that are still there have been there all the time, because numbers are never used
//! twice, so all of them were there at once.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt as _};

use super::entry::Number;
use super::error::{Cycle, Link};
use super::queue::Seat;
use super::table::Table;
use super::task::Task;

/// Where somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) hash: u64,
    pub(super) entry: Number,
    pub(super) seat: Seat,
    pub(super) number: Number,
}

/// What tasks wait for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    first: HashMap<Task, Wait>,
    /// A task waits at several places only when it polls several futures side by side.
    others: Vec<(Task, Wait)>,
}

impl Waits {
    fn note(&mut self, task: Task, wait: Wait) {
        if let Some(other) = self.first.insert(task, wait) {
            self.others.push((task, other));
        }
    }

    fn forget(&mut self, task: Task, wait: Wait) {
        if self.first.get(&task) == Some(&wait) {
            self.first.remove(&task);
            if let Some(at) = self.others.iter().position(|(other, _)| *other == task) {
                let (_, other) = self.others.swap_remove(at);
                self.first.insert(task, other);
            }
        } else {
            self.others.retain(|other| *other != (task, wait));
        }
    }

    fn of(&self, task: Task) -> impl Iterator<Item = Wait> {
        let others = self.others.iter().filter(move |(other, _)| *other == task).map(|(_, wait)| *wait);
        self.first.get(&task).copied().into_iter().chain(others)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.others.is_empty()
    }
}

/// One step of the search: who waits, where, and the hold that keeps it out.
#[derive(Clone, Debug)]
struct Step {
    wait: Wait,
    held: Number,
    link: Link,
}

impl Table {
    /// Notes that a task waits. Gives the circle that this closes, and then forgets the wait again.
    pub(super) fn note_wait(&self, task: Task, wait: Wait) -> Option<Cycle> {
        let mut waits = self.waits.lock();
        waits.note(task, wait);
        if !self.may_close_a_circle(&waits, task, wait) {
            return None;
        }
        let circle = self.circle(&waits, task, wait)?;
        if !circle.iter().all(|step| self.still(step)) {
            return None;
        }
        waits.forget(task, wait);
        Some(Cycle(circle.into_iter().map(|step| step.link).collect()))
    }

    pub(super) fn forget_wait(&self, task: Task, wait: Wait) {
        self.waits.lock().forget(task, wait);
    }

    /// Whether anybody who keeps the task out waits as well: rarely, and only then is it worth a search. Whoever was let
    /// in here a moment ago may still stand among those who wait, but does not.
    fn may_close_a_circle(&self, waits: &Waits, task: Task, wait: Wait) -> bool {
        let mut shard = self.shard(wait.hash);
        let Some(entry) = shard.entry(wait.hash, wait.entry) else { return false };
        let Some(waiter) = entry.waiter(wait.seat, wait.number) else { return false };
        let is_over = |other: Wait| {
            (other.hash, other.entry) == (wait.hash, wait.entry)
                && entry.waiter(other.seat, other.number).is_none()
        };
        let waits_too = |holder: Task| holder == task || waits.of(holder).any(|other| !is_over(other));
        entry.blockers(waiter).filter_map(|holder| holder.task).any(waits_too)
    }

    /// The way from a wait back to the task that waits, if there is one.
    fn circle(&self, waits: &Waits, start: Task, wait: Wait) -> Option<Vec<Step>> {
        let mut came_from: HashMap<Task, Step> = HashMap::new();
        let mut ahead = VecDeque::from([(start, wait)]);
        while let Some((task, wait)) = ahead.pop_front() {
            for step in self.steps(task, wait) {
                let holder = step.link.holder;
                if holder == start {
                    return Some(way_back(&came_from, start, step));
                }
                if let Entry::Vacant(new) = came_from.entry(holder) {
                    new.insert(step);
                    ahead.extend(waits.of(holder).map(|wait| (holder, wait)));
                }
            }
        }
        None
    }

    /// Those who keep a waiting task out. Nobody when it does not wait any more.
    fn steps(&self, task: Task, wait: Wait) -> Vec<Step> {
        let mut shard = self.shard(wait.hash);
        let Some(entry) = shard.entry(wait.hash, wait.entry) else { return Vec::new() };
        let Some(waiter) = entry.waiter(wait.seat, wait.number) else { return Vec::new() };
        let (term, asked) = (&entry.term, waiter.place);
        let step = |blocker: &super::entry::Holder| {
            let holder = blocker.task?;
            let link = Link { task, term: term.clone(), asked, holder, held: blocker.place };
            Some(Step { wait, held: blocker.number, link })
        };
        entry.blockers(waiter).filter_map(step).collect()
    }

    /// Whether what was seen is still so.
    fn still(&self, step: &Step) -> bool {
        let mut shard = self.shard(step.wait.hash);
        shard.entry(step.wait.hash, step.wait.entry).is_some_and(|entry| {
            let waits = entry.waiter(step.wait.seat, step.wait.number).is_some();
            waits && entry.holder(step.held).is_some_and(|holder| holder.task == Some(step.link.holder))
        })
    }
}

fn way_back(came_from: &HashMap<Task, Step>, start: Task, last: Step) -> Vec<Step> {
    let mut way = vec![last];
    while let Some(task) = way.last().map(|step| step.link.task).filter(|task| *task != start) {
        match came_from.get(&task) {
            Some(step) => way.push(step.clone()),
            None => break,
        }
    }
    way.reverse();
    way
}
