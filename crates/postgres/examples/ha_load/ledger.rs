//! Outcomes as the clients received them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidelock_core::id::{Fence, OpId, Position};

/// The number of a write. The event that it appends carries it.
pub(crate) type Number = u64;

/// The outcome of a write, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was applied.
    Acknowledged,
    /// It was not applied, and it never will be.
    NotApplied,
    /// It may have been applied. With an id, the store can resolve it.
    Unknown(Option<OpId>),
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::NotApplied => "not applied",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// The known outcome of one write.
pub(crate) struct Entry {
    pub(crate) verdict: Verdict,
    way: &'static str,
    /// The error of each attempt that failed.
    errors: Vec<String>,
}

impl Entry {
    /// For people.
    pub(crate) fn describe(&self) -> String {
        format!("{} through {}: {}", self.verdict.name(), self.way, self.errors.join(" | "))
    }
}

/// The record of all clients.
pub(crate) struct Ledger {
    next: AtomicU64,
    inner: Mutex<Inner>,
}

/// The contents of the record.
#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) writes: HashMap<Number, Entry>,
    /// The writes that were seen or acknowledged at a position. More than one is a repeated position.
    pub(crate) positions: BTreeMap<u64, Vec<Number>>,
    /// The positions that the reader has seen.
    pub(crate) read: BTreeMap<u64, Number>,
    /// The position up to which the reader has come.
    pub(crate) read_to: Option<Position>,
    /// How often a fence was granted. More than once is a repeated fence.
    pub(crate) fences: HashMap<u64, u64>,
    promotions: Vec<u64>,
    /// The times of the acknowledgements of each way in, in microseconds since the epoch.
    acknowledged: BTreeMap<&'static str, Vec<u64>>,
}

impl Ledger {
    pub(crate) fn new(ways: impl Iterator<Item = &'static str>) -> Self {
        let acknowledged = ways.map(|way| (way, Vec::new())).collect();
        Self { next: AtomicU64::new(1), inner: Mutex::new(Inner { acknowledged, ..Inner::default() }) }
    }

    /// A number that no other write has.
    pub(crate) fn number(&self) -> Number {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Records the outcome of an attempt to write: the position of the event, if it is known, or the error.
    pub(crate) fn record(
        &self,
        way: &'static str,
        number: Number,
        verdict: Verdict,
        answer: Result<Option<Position>, String>,
    ) {
        let mut inner = self.inner.lock();
        let entry = inner.writes.entry(number).or_insert_with(|| Entry { verdict, way, errors: Vec::new() });
        entry.verdict = verdict;
        entry.errors.extend(answer.as_ref().err().cloned());
        if verdict == Verdict::Acknowledged {
            inner.acknowledged.entry(way).or_default().push(now());
        }
        if let Ok(Some(Position(position))) = answer {
            inner.at(position, number);
        }
    }

    /// Records a grant.
    pub(crate) fn granted(&self, fence: Fence) {
        *self.inner.lock().fences.entry(fence.0).or_default() += 1;
    }

    /// Records an event that the reader has seen.
    pub(crate) fn read(&self, position: Position, number: Number) {
        let mut inner = self.inner.lock();
        inner.read.insert(position.0, number);
        inner.at(position.0, number);
    }

    /// Records a new primary.
    pub(crate) fn promoted(&self, at: u64) {
        self.inner.lock().promotions.push(at);
    }

    /// How many writes were acknowledged on each way in.
    pub(crate) fn counts(&self) -> String {
        let inner = self.inner.lock();
        let counts = inner.acknowledged.iter().map(|(way, times)| format!("{way}={}", times.len()));
        counts.collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock())
    }
}

impl Inner {
    /// Records which write a position belongs to.
    pub(crate) fn at(&mut self, position: u64, number: Number) {
        let writes = self.positions.entry(position).or_default();
        if !writes.contains(&number) {
            writes.push(number);
        }
    }

    /// Milliseconds from the promotion to the next acknowledgement on a way in.
    pub(crate) fn first_write(&self, way: &str) -> Option<u64> {
        let (promotion, times) = self.promotions.first().zip(self.acknowledged.get(way))?;
        let first = times.iter().find(|time| *time >= promotion)?;
        Some((first - promotion) / 1000)
    }

    /// The longest time without an acknowledgement on each way in, in milliseconds.
    pub(crate) fn gaps(&self) -> Vec<(&'static str, u64)> {
        let longest = |times: &Vec<u64>| {
            let pairs = times.iter().zip(times.iter().skip(1));
            pairs.map(|(before, after)| after.saturating_sub(*before)).max().unwrap_or_default() / 1000
        };
        self.acknowledged.iter().map(|(way, times)| (*way, longest(times))).collect()
    }
}

/// Microseconds since the epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
