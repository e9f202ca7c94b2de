//! Snapshot of holders and waiters, for humans and for the inspector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::class::{LockKey, registered};
use super::coarse_clock::{self, Tick};
use super::entry::Entry;
use super::error::CallSite;
use super::stats::LockClassStats;
use super::table::Table;
use super::task::TaskId;

/// All holders and waiters at one time, by term. Shards are read one after another, so two terms may be an instant
/// apart.
#[derive(Clone, Debug, Default)]
pub struct LockSnapshot {
    /// The terms, sorted by key.
    pub terms: Vec<LockEntry>,
}

/// A term that is held.
#[derive(Clone, Debug)]
pub struct LockEntry {
    /// The term.
    pub term: LockKey,
    /// The holders, longest hold first.
    pub holders: Vec<LockOwner>,
    /// The waiters, in queue order.
    pub waiters: Vec<LockOwner>,
}

/// A holder or a waiter.
#[derive(Clone, Debug)]
pub struct LockOwner {
    /// The task; `None` when it is unknown.
    pub task: Option<TaskId>,
    /// The name of the mode.
    pub mode: &'static str,
    /// The time since the grant or the request, with a resolution of ten milliseconds.
    pub age: Duration,
    /// Where in the source the lock was requested.
    pub place: CallSite,
    /// For a waiter, the tasks whose holds block it.
    pub blocked_by: Arc<[TaskId]>,
}

/// A task that waits for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitEdge {
    /// The waiting task.
    pub waiter: TaskId,
    /// The task that it waits for.
    pub holder: TaskId,
    /// The term that it waits for.
    pub term: LockKey,
}

impl LockSnapshot {
    /// Returns the edges of the wait-for graph.
    pub fn edges(&self) -> impl Iterator<Item = WaitEdge> {
        self.terms.iter().flat_map(|held| {
            held.waiters.iter().flat_map(|party| {
                let edge = |holder: &TaskId| {
                    Some(WaitEdge { waiter: party.task?, holder: *holder, term: held.term.clone() })
                };
                party.blocked_by.iter().filter_map(edge)
            })
        })
    }
}

impl Table {
    pub(super) fn snapshot(&self) -> LockSnapshot {
        let now = coarse_clock::exact();
        let mut terms: Vec<LockEntry> = self
            .shards()
            .flat_map(|shard| shard.entries().map(|entry| held(entry, now)).collect::<Vec<_>>())
            .collect();
        terms.sort_by(|a, b| a.term.key().cmp(b.term.key()));
        LockSnapshot { terms }
    }

    /// Returns the counters since the table was created, by functor.
    pub(super) fn stats(&self) -> Vec<LockClassStats> {
        let mut names = registered();
        names.push((super::class::NO_FUNCTOR, ""));
        let named =
            |(_, name): &(u32, &str)| LockClassStats { functor: (*name).to_owned(), ..Default::default() };
        let mut stats: Vec<LockClassStats> = names.iter().map(named).collect();
        for shard in self.shards() {
            for ((index, _), stats) in names.iter().zip(&mut stats) {
                if let Some(tally) = shard.tallies().get(*index as usize) {
                    stats.add(tally);
                }
            }
        }
        stats.retain(|stats| stats.acquired + stats.refused > 0);
        stats.sort_by(|a, b| a.functor.cmp(&b.functor));
        stats
    }
}

fn held(entry: &Entry, now: Tick) -> LockEntry {
    let mode = |mode| entry.term.modes().name(mode).unwrap_or("none");
    let mut holders: Vec<LockOwner> = entry
        .holders()
        .map(|holder| LockOwner {
            task: holder.task,
            mode: mode(holder.mode),
            age: now.since(holder.since),
            place: holder.place,
            blocked_by: Arc::from([]),
        })
        .collect();
    holders.sort_by_key(|party| std::cmp::Reverse(party.age));
    // Waiters that are blocked by the same modes share one list.
    let (mut excluding, mut blocked_by) = (0, Arc::from([]));
    let waiters = entry
        .waiters()
        .map(|waiter| {
            let now_excluding = excluding | entry.excluded_by(waiter.mode);
            if now_excluding != excluding {
                excluding = now_excluding;
                let blocking = entry.holders().filter(|holder| holder.mode.bit() & excluding != 0);
                blocked_by = blocking.filter_map(|holder| holder.task).collect();
            }
            LockOwner {
                task: waiter.task,
                mode: mode(waiter.mode),
                age: now.since(waiter.since),
                place: waiter.place,
                blocked_by: Arc::clone(&blocked_by),
            }
        })
        .collect();
    LockEntry { term: entry.term.clone(), holders, waiters }
}

impl fmt::Display for LockSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return writeln!(f, "nothing is locked");
        }
        for held in &self.terms {
            writeln!(f, "{}", held.term)?;
            held.holders.iter().try_for_each(|party| party.line(f, "held by"))?;
            held.waiters.iter().try_for_each(|party| party.line(f, "awaited by"))?;
        }
        Ok(())
    }
}

impl LockOwner {
    fn line(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        let task = self.task.map_or_else(|| "a task".to_owned(), |task| task.to_string());
        let Self { mode, age, place, .. } = self;
        writeln!(f, "  {what:<10} {task} ({mode}) for {} ms, at {place}", age.as_millis())
    }
}
