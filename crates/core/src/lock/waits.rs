//! Who waits for whom. Every wait is noted here, and whoever closes a circle of waiting tasks hears of it.
//!
//! One mutex is held from the noting of a wait to the end of the search, so the last one to wait sees every wait of a
//! circle, and exactly one of its tasks is told. Shards are looked at one after the other: a task that waited when the
//! search began lets go of nothing until it is let in or gives up, and neither can be noted before the search ends.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt as _};

use super::entry::{Holder, Number};
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

    /// How many are noted.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.others.len()
    }

    fn of(&self, task: Task) -> impl Iterator<Item = Wait> {
        let others = self.others.iter().filter(move |(other, _)| *other == task).map(|(_, wait)| *wait);
        self.first.get(&task).copied().into_iter().chain(others)
    }
}

impl Table {
    /// Notes that a task waits. Gives the circle that this closes, and then forgets the wait again.
    pub(super) fn note_wait(&self, task: Task, wait: Wait) -> Option<Cycle> {
        let mut waits = self.waits.lock();
        waits.note(task, wait);
        let circle = self.circle(&waits, task, wait)?;
        waits.forget(task, wait);
        Some(Cycle(circle))
    }

    pub(super) fn forget_wait(&self, task: Task, wait: Wait) {
        self.waits.lock().forget(task, wait);
    }

    /// The way from a wait back to the task that waits, if there is one.
    fn circle(&self, waits: &Waits, start: Task, wait: Wait) -> Option<Vec<Link>> {
        let mut came_from: HashMap<Task, Link> = HashMap::new();
        let mut ahead = VecDeque::from([(start, wait)]);
        while let Some((task, wait)) = ahead.pop_front() {
            for link in self.links(task, wait) {
                let holder = link.holder;
                if holder == start {
                    return Some(way_back(&came_from, start, link));
                }
                if let Entry::Vacant(unseen) = came_from.entry(holder) {
                    unseen.insert(link);
                    ahead.extend(waits.of(holder).map(|wait| (holder, wait)));
                }
            }
        }
        None
    }

    /// Those who keep a waiting task out. Nobody when it does not wait any more.
    fn links(&self, task: Task, wait: Wait) -> Vec<Link> {
        let mut shard = self.shard(wait.hash);
        let Some(entry) = shard.entry(wait.hash, wait.entry) else { return Vec::new() };
        let Some(waiter) = entry.waiter(wait.seat, wait.number) else { return Vec::new() };
        let (term, asked) = (&entry.term, waiter.place);
        let link = |blocker: Holder| {
            Some(Link { task, term: term.clone(), asked, holder: blocker.task?, held: blocker.place })
        };
        entry.blockers(waiter).into_iter().filter_map(link).collect()
    }
}

fn way_back(came_from: &HashMap<Task, Link>, start: Task, last: Link) -> Vec<Link> {
    let mut way = vec![last];
    while let Some(task) = way.last().map(|link| link.task).filter(|task| *task != start) {
        match came_from.get(&task) {
            Some(link) => way.push(link.clone()),
            None => break,
        }
    }
    way.reverse();
    way
}
