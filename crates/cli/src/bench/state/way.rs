//! Four ways to add one to a counter in a record that others change, too: two by hand, two of ours.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::prelude::*;

use super::record::Record;
use crate::random::Random;

/// The first pause of the patient way is at most so long; the next ones twice as long each,
const BASE: Duration = Duration::from_millis(1);
/// until they are at most so long.
const CAP: Duration = Duration::from_millis(128);
/// Beyond this, the pauses do not grow.
const DOUBLINGS: u32 = 7;

/// How a counter is incremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By hand: reads, writes if the version is still the same, and otherwise does so again at once.
    Naive,
    /// The same, with a random pause before it does so again.
    Jitter,
    /// A mutator of a container.
    Closures,
    /// A delta of a container.
    Deltas,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Naive, Self::Closures, Self::Jitter, Self::Deltas];

    /// Its name in keys and messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Jitter => "jitter",
            Self::Closures => "closures",
            Self::Deltas => "deltas",
        }
    }
}

/// Which records the writers want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// All of them the same one.
    Hot,
    /// One of many, some of them more often than others.
    Spread,
}

impl Load {
    const ALL: [Self; 2] = [Self::Hot, Self::Spread];

    /// Its name in keys and messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Spread => "spread",
        }
    }
}

/// Every way under every load.
pub(super) fn phases() -> impl Iterator<Item = (Load, Way)> {
    Load::ALL.into_iter().flat_map(|load| Way::ALL.map(|way| (load, way)))
}

/// What became of one increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// How often it was tried. A call of a container is one attempt, whatever goes on inside.
    pub(super) attempts: u64,
    /// Whether it was acknowledged. If not, nothing of it is in the record: the time was over after an attempt in vain.
    pub(super) done: bool,
}

/// Increments counters in one way.
#[derive(Debug)]
pub(super) struct Hand {
    pub(super) way: Way,
    pub(super) store: SharedStore,
    states: States,
    random: Random,
}

impl Hand {
    /// One that works on this store.
    pub(super) fn new(way: Way, store: &SharedStore, states: &States) -> Self {
        Self { way, store: SharedStore::clone(store), states: states.clone(), random: Random::fresh() }
    }

    /// One that does the same, with chance of its own.
    pub(super) fn another(&self) -> Self {
        Self::new(self.way, &self.store, &self.states)
    }

    /// Adds one to a record's counter. What is still tried in vain after `until` is given up.
    pub(super) async fn increment(&mut self, key: &Key, until: Instant) -> Result<Tried> {
        match self.way {
            Way::Naive | Way::Jitter => return self.by_hand(key, until).await,
            // As a request does that knows nothing but the key: the container is asked for each time.
            Way::Closures => {
                self.states.at::<Record>(key).mutate(|record| record.count += 1).await?;
            }
            Way::Deltas => {
                self.states.at::<Record>(key).inc("/count", 1).await?;
            }
        }
        Ok(Tried { attempts: 1, done: true })
    }

    async fn by_hand(&mut self, key: &Key, until: Instant) -> Result<Tried> {
        let mut attempts = 0;
        loop {
            let done = self.attempt(key).await?;
            attempts += 1;
            if done || Instant::now() >= until {
                return Ok(Tried { attempts, done });
            }
            if self.way == Way::Jitter {
                let pause = self.random.between(Duration::ZERO, longest_pause(attempts));
                tokio::time::sleep_until((Instant::now() + pause).min(until).into()).await;
            }
        }
    }

    /// Reads, changes, and writes if nobody else has written meanwhile.
    async fn attempt(&self, key: &Key) -> Result<bool> {
        let found = self.store.document(key).await?;
        let document =
            found.with_context(|| format!("{key} is gone; nobody but this run should write here"))?;
        let mut record: Record = document.value.parse()?;
        record.count += 1;
        let batch = Batch::new().put(key, Expect::Exact(document.version), Payload::of(&record)?);
        match self.store.apply(batch).await {
            Ok(_) => Ok(true),
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The longest pause after so many attempts: full jitter draws between nothing and this.
fn longest_pause(attempts: u64) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(DOUBLINGS).min(DOUBLINGS);
    CAP.min(BASE * (1 << doublings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let millis: Vec<u128> = (1..=10).map(|n| longest_pause(n).as_millis()).collect();
        assert_eq!(millis, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
        assert_eq!(longest_pause(u64::MAX), CAP);
    }
}
