//! Only here: lower bounds for index scans of ready work. SQLite has no dead index entries.
//!
//! PostgreSQL keeps the index entries of claimed and acknowledged rows for as long as a snapshot may see them: a dump,
//! or a transaction that stays open. A scan from the beginning of the index walks all of them. Ready times only grow.
//! So a claimer remembers, for every level of a queue, up to where the beginning is empty, and the next scan starts
//! there.
//!
//! A row of this process lowers the bound when its commit is known. A row of another process may be committed below the
//! bound, so full scans from the beginning continue. After each full scan, the claimer makes no other for twenty times
//! the time that walking its dead entries took. A row is thus never missed for longer than one such rest, and full
//! scans take a twentieth of the time at most. Where a scan walks few dead entries there is no rest: every scan is
//! full, and no row can be missed.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use parking_lot::Mutex;
use tidelock_core::id::Priority;
use tidelock_core::model::lease;
use tidelock_core::model::rows::WorkRow;
use tokio_postgres::types::Type;

use crate::db::{Call, Row};
use crate::error::Failure;
use crate::rows::{get, uint};
use crate::writer::pessimistic::short_answer;

/// The number of levels of a queue.
const LEVELS: usize = Priority::FIRST.level() as usize + 1;
/// The number of dead entries that a full scan may walk without a rest.
const FREE_ENTRIES: u64 = 128;
/// The rest for each dead entry: twenty times the time that walking one takes.
const REST_PER_ENTRY: Duration = Duration::from_micros(10);
/// The longest rest.
const MAX_REST: Duration = Duration::from_secs(30);
/// How far below the time of the last scan a bound stays, in microseconds. Other processes commit rows that became
/// ready a moment before.
const MARGIN: RangeInclusive<i64> = 5_000..=2_000_000;
/// The margin grows while a scan walks fewer dead entries than this, and shrinks while it walks more.
const MARGIN_ENTRIES: RangeInclusive<u64> = 100..=400;
/// The delay before the next scan when a ready row is locked, in microseconds.
const LOCKED: i64 = 5_000;
/// How long rows of a transaction that the program commits itself are remembered. Hints do not say which transaction has
/// ended, so each of them covers all transactions of this time.
const UNCOMMITTED: Duration = Duration::from_secs(10);
/// The number of future ready times that are remembered for each queue.
const UPCOMING: usize = 64;
/// The number of queues beyond which all of them are forgotten at once.
const QUEUES: usize = 10_000;

/// The lower bounds of all queues that this process claims from.
#[derive(Debug, Default)]
pub(crate) struct ScanBounds {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<String, QueueBounds>,
    /// The lowest rows of transactions that this process does not commit itself, and when the last of them was written.
    uncommitted: HashMap<(String, usize), (i64, Instant)>,
    scans: u64,
}

#[derive(Debug)]
struct QueueBounds {
    /// Below this no row of a level is ready, as far as is known.
    from: [i64; LEVELS],
    margin: i64,
    /// The known times at which later rows become ready.
    upcoming: BTreeSet<i64>,
    rest: Duration,
    rest_until: Option<Instant>,
    full_scans: u64,
    /// Scans in flight, with the lowest ready times that were committed since each began.
    in_flight: Vec<(u64, [i64; LEVELS])>,
}

/// Levels of queues and where their index scans start, as parallel arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) queues: Vec<String>,
    pub(crate) levels: Vec<i16>,
    pub(crate) from: Vec<i64>,
    /// Whether the server determines which levels hold rows. That is faster where few index entries are dead.
    pub(crate) used: bool,
}

/// The findings of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scanned {
    /// The server's clock when the scan began.
    pub(crate) at: i64,
    /// Index entries that led to no row.
    pub(crate) dead: u64,
    /// For each level, the ready time of its first row.
    pub(crate) lowest: Vec<Option<i64>>,
}

/// A scan in flight. The bounds learn from it in [`Scan::finish`]. If it is dropped before, they learn nothing.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    bounds: &'a ScanBounds,
    id: u64,
    queues: Vec<ScannedQueue>,
    pub(crate) levels: Levels,
}

#[derive(Debug)]
struct ScannedQueue {
    name: String,
    full: bool,
    /// The number of full scans that had ended when this one began.
    full_scans: u64,
}

impl Default for QueueBounds {
    fn default() -> Self {
        Self {
            from: [i64::MIN; LEVELS],
            margin: 20_000,
            upcoming: BTreeSet::new(),
            rest: Duration::ZERO,
            rest_until: None,
            full_scans: 0,
            in_flight: Vec::new(),
        }
    }
}

impl QueueBounds {
    fn lower(&mut self, level: usize, ready_at: i64) {
        let scans = self.in_flight.iter_mut().map(|(_, lowered)| lowered);
        for bounds in std::iter::once(&mut self.from).chain(scans) {
            if let Some(bound) = bounds.get_mut(level) {
                *bound = (*bound).min(ready_at);
            }
        }
    }

    /// Remembers when rows become ready, at least for the next ones.
    fn learn(&mut self, ready_at: i64, now: i64) {
        self.upcoming = self.upcoming.split_off(&now);
        if ready_at > now {
            self.upcoming.insert(ready_at);
        }
        while self.upcoming.len() > UPCOMING {
            self.upcoming.pop_last();
        }
    }

    fn rest_after(&mut self, dead: u64, now: Instant) {
        let rest = REST_PER_ENTRY.saturating_mul(u32::try_from(dead).unwrap_or(u32::MAX));
        self.rest = if dead < FREE_ENTRIES { Duration::ZERO } else { rest.min(MAX_REST) };
        self.rest_until = (!self.rest.is_zero()).then(|| now + self.rest);
    }

    fn adapt_margin(&mut self, dead: u64) {
        let margin = match dead {
            dead if dead < *MARGIN_ENTRIES.start() => self.margin * 2,
            dead if dead > *MARGIN_ENTRIES.end() => self.margin / 2,
            _ => self.margin,
        };
        self.margin = margin.clamp(*MARGIN.start(), *MARGIN.end());
    }
}

impl ScanBounds {
    /// Begins a scan of queues at an instant: full where the rest is over, from the bounds elsewhere.
    pub(crate) fn begin(&self, queues: Vec<String>, now: Instant) -> Scan<'_> {
        let mut state = self.state.lock();
        if state.queues.len() > QUEUES {
            state.queues.clear();
        }
        state.scans += 1;
        let id = state.scans;
        let mut levels = Levels { used: true, ..Levels::default() };
        let mut scanned = Vec::with_capacity(queues.len());
        for name in queues {
            let queue = state.queues.entry(name.clone()).or_default();
            let full = queue.rest_until.is_none_or(|until| now >= until);
            if full && !queue.rest.is_zero() {
                // Only one full scan runs at a time. Concurrent scans start at the bounds.
                queue.rest_until = Some(now + queue.rest);
            }
            queue.in_flight.push((id, [i64::MAX; LEVELS]));
            levels.used &= queue.rest.is_zero();
            levels.add(&name, |level| if full { i64::MIN } else { at(&queue.from, level) });
            scanned.push(ScannedQueue { name, full, full_scans: queue.full_scans });
        }
        Scan { bounds: self, id, queues: scanned, levels }
    }

    /// Returns where a read-only scan of queues starts, and for how long it misses rows below. Such a scan updates no
    /// bound.
    pub(crate) fn levels(&self, queues: &[String], now: Instant) -> (Levels, Option<Duration>) {
        let state = self.state.lock();
        let (mut levels, mut missing) = (Levels { used: true, ..Levels::default() }, None);
        for name in queues {
            let queue = state.queues.get(name);
            levels.used &= queue.is_none_or(|queue| queue.rest.is_zero());
            let resting = queue.filter(|queue| queue.rest_until.is_some_and(|until| now < until));
            levels.add(name, |level| resting.map_or(i64::MIN, |queue| at(&queue.from, level)));
            let rest = resting.and_then(|queue| queue.rest_until).map(|until| until - now);
            missing = [missing, rest].into_iter().flatten().min();
        }
        (levels, missing)
    }

    /// Records rows that this process committed.
    pub(crate) fn committed<'r>(&self, rows: impl Iterator<Item = &'r WorkRow>, now: i64) {
        let mut state = None;
        for (row, ready_at) in rows.filter_map(ready) {
            let state = state.get_or_insert_with(|| self.state.lock());
            if let Some(queue) = state.queues.get_mut(row.queue.as_str()) {
                queue.lower(level(row), ready_at);
                if row.lease.is_none() {
                    queue.learn(ready_at, now);
                }
            }
        }
    }

    /// Records rows of a transaction that another part of the program commits. [`Self::hint`] reports the commit.
    pub(crate) fn written<'r>(&self, rows: impl Iterator<Item = &'r WorkRow>, now: Instant) {
        let mut state = self.state.lock();
        for (row, ready_at) in rows.filter_map(ready) {
            let lowest = state.uncommitted.entry((row.queue.as_str().to_owned(), level(row)));
            let (lowest, written) = lowest.or_insert((ready_at, now));
            (*lowest, *written) = ((*lowest).min(ready_at), now);
        }
        if state.uncommitted.len() > QUEUES {
            state.uncommitted.clear();
        }
    }

    /// Records that the program committed one of its transactions. Others may still be open, so their rows are kept for
    /// the hints that follow.
    pub(crate) fn hint(&self, now: Instant) {
        let mut guard = self.state.lock();
        let State { queues, uncommitted, .. } = &mut *guard;
        uncommitted.retain(|_, (_, written)| now.saturating_duration_since(*written) < UNCOMMITTED);
        for ((name, level), (ready_at, _)) in uncommitted.iter() {
            if let Some(queue) = queues.get_mut(name) {
                queue.lower(*level, *ready_at);
            }
        }
    }

    /// Drops all bounds: the next scan of every queue is full.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        state.queues.clear();
        state.uncommitted.clear();
    }
}

impl Scan<'_> {
    /// Updates the bounds with the findings of the scan.
    pub(crate) fn finish(&self, scanned: &Scanned, now: Instant) {
        let mut state = self.bounds.state.lock();
        for (place, of) in self.queues.iter().enumerate() {
            let Some(queue) = state.queues.get_mut(&of.name) else { continue };
            let Some((_, lowered)) = queue.in_flight.iter().find(|(id, _)| *id == self.id) else { continue };
            let lowered = *lowered;
            // A full scan may have found rows that this one did not see.
            let overtaken = !of.full && of.full_scans != queue.full_scans;
            let margin = scanned.at.saturating_sub(queue.margin);
            for (level, from) in queue.from.iter_mut().enumerate() {
                let lowest = scanned.lowest.get(place * LEVELS + level).copied().flatten();
                let seen = lowest.unwrap_or(i64::MAX).min(margin).min(at(&lowered, level));
                *from = if overtaken { seen.min(*from) } else { seen };
            }
            if of.full {
                queue.full_scans += 1;
                queue.rest_after(scanned.dead, now);
            } else {
                queue.adapt_margin(scanned.dead);
            }
        }
    }

    /// Returns the levels of the queues that this scan read in full: the server knows when their next rows are ready.
    pub(crate) fn full_levels(&self, queues: &[String]) -> Levels {
        let state = self.bounds.state.lock();
        let mut levels = Levels { used: self.levels.used, ..Levels::default() };
        for of in self.queues.iter().filter(|of| of.full && queues.contains(&of.name)) {
            let from = state.queues.get(&of.name).map(|queue| &queue.from);
            levels.add(&of.name, |level| from.map_or(i64::MIN, |from| at(from, level)));
        }
        levels
    }

    /// Records when rows are ready, as the server reports for [`Self::full_levels`], and how many dead entries it
    /// walked.
    pub(crate) fn learn(&self, levels: &Levels, ready: &[Option<i64>], dead: u64, at: i64, now: Instant) {
        let mut state = self.bounds.state.lock();
        for (name, ready) in levels.queues.iter().zip(ready) {
            let Some(queue) = state.queues.get_mut(name) else { continue };
            if let Some(ready) = ready {
                queue.learn(*ready, at);
            }
            let rest = queue.rest;
            queue.rest_after(dead, now);
            if queue.rest < rest {
                queue.rest = rest;
                queue.rest_until = Some(now + rest);
            }
        }
    }

    /// Returns when to scan again the queues that this scan did not read in full. That is soon if another claimer has
    /// locked a ready row, when a known row becomes ready, or when the next full scan is due.
    pub(crate) fn next_look(&self, queues: &[String], scanned: &Scanned, now: Instant) -> Option<i64> {
        let (state, at) = (self.bounds.state.lock(), scanned.at);
        let partial = self.queues.iter().enumerate();
        let partial = partial.filter(|(_, of)| !of.full && queues.contains(&of.name));
        let looks = partial.map(|(place, of)| {
            let levels = scanned.lowest.iter().skip(place * LEVELS).take(LEVELS);
            let Some(queue) = state.queues.get(&of.name).filter(|_| levels.flatten().next().is_none()) else {
                return at + LOCKED;
            };
            let rest = queue.rest_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
            let rest = at.saturating_add(i64::try_from(rest.as_micros()).unwrap_or(i64::MAX));
            let next = queue.upcoming.range(at + 1..).next();
            next.map_or(rest, |next| rest.min(*next))
        });
        looks.min()
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        let mut state = self.bounds.state.lock();
        for of in &self.queues {
            if let Some(queue) = state.queues.get_mut(&of.name) {
                queue.in_flight.retain(|(id, _)| *id != self.id);
            }
        }
    }
}

impl Levels {
    fn add(&mut self, queue: &str, from: impl Fn(usize) -> i64) {
        for level in 0..LEVELS {
            self.queues.push(queue.to_owned());
            self.levels.push(i16::try_from(level).unwrap_or(i16::MAX));
            self.from.push(from(level));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the index of a level of a queue.
    pub(crate) fn place(&self, queue: &str, level: i16) -> Option<usize> {
        let first = self.queues.iter().step_by(LEVELS).position(|name| name == queue)? * LEVELS;
        Some(first + usize::try_from(level).ok()?)
    }

    /// Adds the levels to a statement as its next parameters.
    pub(crate) fn add_to<'a>(&'a self, call: Call<'a>) -> Call<'a> {
        let Self { queues, levels, from, used } = self;
        let call = call.with(queues, Type::TEXT_ARRAY).with(levels, Type::INT2_ARRAY);
        call.with(from, Type::INT8_ARRAY).with(*used, Type::BOOL)
    }
}

/// Decodes the answer of `next_ready`: when rows of levels are ready, and how many index entries led to no row.
pub(crate) fn next_ready(found: &[Row]) -> Result<(Vec<Option<i64>>, u64), Failure> {
    let row = found.first().ok_or_else(short_answer)?;
    let mut ready: Vec<Option<i64>> = get(row, 0)?;
    let dead = ready.pop().flatten().map_or(0, uint);
    Ok((ready, dead))
}

fn at(bounds: &[i64; LEVELS], level: usize) -> i64 {
    bounds.get(level).copied().unwrap_or(i64::MIN)
}

fn level(row: &WorkRow) -> usize {
    usize::from(row.priority.level())
}

/// Returns a row with its ready time, unless it is blocked or rests.
fn ready(row: &WorkRow) -> Option<(&WorkRow, i64)> {
    Some((row, lease::ready_at(row)?.as_micros()))
}

#[cfg(test)]
mod tests;
