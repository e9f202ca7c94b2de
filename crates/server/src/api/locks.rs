//! In-process locks of the host program: holders, waiters, and deadlock cycles.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use tidelock_core::lock::{Cycle, LockClassStats, LockEntry, LockOwner, LockSnapshot, Locks, TaskId};

use crate::app_state::App;
use crate::request::{Answered, ok};

/// The maximum number of terms in a response. Terms with the most waiters come first.
const TERMS: usize = 500;
/// The maximum number of holders, and of waiters, of a term in a response.
const PARTIES: usize = 50;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Locks")]
pub(crate) struct Shown {
    /// Whether the program shows its locks here.
    shown: bool,
    /// The number of held terms.
    held: usize,
    /// The number of waiting tasks.
    waiting: usize,
    terms: Vec<LockView>,
    /// The current cycles of tasks that wait for each other.
    cycles: Vec<Vec<String>>,
    /// The recently detected deadlocks. In each of them, one task received an error.
    found: Vec<Found>,
    functors: Vec<Stats>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LockedTerm")]
pub(crate) struct LockView {
    term: String,
    holders: Vec<Line>,
    waiters: Vec<Line>,
    /// The total number of waiters, including those left out of the list.
    waiting: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LockParty")]
pub(crate) struct Line {
    task: Option<String>,
    mode: &'static str,
    age_ms: u64,
    place: String,
    /// The tasks whose holds block this one.
    blocked_by: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LockCycle")]
pub(crate) struct Found {
    ago_ms: u64,
    links: Vec<Link>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LockLink")]
pub(crate) struct Link {
    task: String,
    term: String,
    asked: String,
    holder: String,
    held: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LockStats")]
pub(crate) struct Stats {
    functor: String,
    acquired: u64,
    waited: u64,
    refused: u64,
    wait_ms: u64,
    longest_wait_ms: u64,
    longest_hold_ms: u64,
}

/// Returns the locks, if the program shows them.
pub(crate) async fn list(State(app): State<App>) -> Answered {
    ok(&app.inspected.locks.get().map_or_else(hidden, shown))
}

fn hidden() -> Shown {
    Shown {
        shown: false,
        held: 0,
        waiting: 0,
        terms: vec![],
        cycles: vec![],
        found: vec![],
        functors: vec![],
    }
}

fn shown(locks: &Locks) -> Shown {
    let seen = locks.snapshot();
    let word = |task: &TaskId| task.to_string();
    let cycles = cycles(&seen).iter().map(|cycle| cycle.iter().map(word).collect()).collect();
    let held = seen.terms.len();
    let waiting = seen.terms.iter().map(|term| term.waiters.len()).sum();
    let mut terms = seen.terms;
    terms.sort_by_key(|term| std::cmp::Reverse(term.waiters.len()));
    terms.truncate(TERMS);
    Shown {
        shown: true,
        held,
        waiting,
        terms: terms.iter().map(LockView::of).collect(),
        cycles,
        found: locks.cycles().iter().map(|(ago, cycle)| Found::of(*ago, cycle)).collect(),
        functors: locks.stats().iter().map(Stats::of).collect(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl LockView {
    fn of(held: &LockEntry) -> Self {
        let lines = |parties: &[LockOwner]| parties.iter().take(PARTIES).map(Line::of).collect();
        Self {
            term: held.term.to_string(),
            holders: lines(&held.holders),
            waiters: lines(&held.waiters),
            waiting: held.waiters.len(),
        }
    }
}

impl Line {
    fn of(party: &LockOwner) -> Self {
        Self {
            task: party.task.map(|task| task.to_string()),
            mode: party.mode,
            age_ms: millis(party.age),
            place: party.place.to_string(),
            blocked_by: party.blocked_by.iter().take(PARTIES).map(TaskId::to_string).collect(),
        }
    }
}

impl Found {
    fn of(ago: Duration, cycle: &Cycle) -> Self {
        let link = |link: &tidelock_core::lock::CycleLink| Link {
            task: link.task.to_string(),
            term: link.term.to_string(),
            asked: link.asked.to_string(),
            holder: link.holder.to_string(),
            held: link.held.to_string(),
        };
        Self { ago_ms: millis(ago), links: cycle.0.iter().map(link).collect() }
    }
}

impl Stats {
    fn of(stats: &LockClassStats) -> Self {
        Self {
            functor: stats.functor.clone(),
            acquired: stats.acquired,
            waited: stats.waited,
            refused: stats.refused,
            wait_ms: millis(stats.wait.sum()),
            longest_wait_ms: millis(stats.wait.longest()),
            longest_hold_ms: millis(stats.hold.longest()),
        }
    }
}

/// Returns the cycles of tasks that wait for each other. Each cycle occurs once and starts with its lowest task.
pub(crate) fn cycles(seen: &LockSnapshot) -> Vec<Vec<TaskId>> {
    let mut waits: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
    for edge in seen.edges() {
        waits.entry(edge.waiter).or_default().push(edge.holder);
    }
    let mut found: Vec<Vec<TaskId>> = Vec::new();
    for start in waits.keys() {
        if found.iter().any(|cycle| cycle.contains(start)) {
            continue;
        }
        if let Some(cycle) = back_to(*start, &waits) {
            found.push(cycle);
        }
    }
    found
}

/// Returns the shortest path from a task back to itself.
fn back_to(start: TaskId, waits: &BTreeMap<TaskId, Vec<TaskId>>) -> Option<Vec<TaskId>> {
    let mut came_from: BTreeMap<TaskId, TaskId> = BTreeMap::new();
    let mut ahead = std::collections::VecDeque::from([start]);
    while let Some(task) = ahead.pop_front() {
        for next in waits.get(&task).into_iter().flatten() {
            if *next == start {
                let mut way = vec![task];
                while let Some(before) =
                    way.last().filter(|task| **task != start).and_then(|task| came_from.get(task))
                {
                    way.push(*before);
                }
                way.reverse();
                return Some(way);
            }
            if let std::collections::btree_map::Entry::Vacant(unseen) = came_from.entry(*next) {
                unseen.insert(task);
                ahead.push_back(*next);
            }
        }
    }
    None
}
