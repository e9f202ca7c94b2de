//! Four strategies to increment a counter under contention: two retry loops and two calls of a container.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tidelock_console::random::Random;

use super::record::Record;

/// The longest first pause of the retry loop with jitter; it doubles with each attempt,
const BASE: Duration = Duration::from_millis(1);
/// up to this limit.
const CAP: Duration = Duration::from_millis(128);
/// The number of doublings until the limit.
const DOUBLINGS: u32 = 7;

/// The strategy of an increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// A compare-and-swap loop that retries at once.
    Naive,
    /// The same with exponential backoff and full jitter.
    Jitter,
    /// A mutator of a container.
    Closures,
    /// A delta of a container.
    Deltas,
}

impl Strategy {
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

/// The distribution of writers over records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// All writers on one record.
    Hot,
    /// Writers on many records, with a Zipf distribution.
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

/// Returns every strategy under every load.
pub(super) fn phases() -> impl Iterator<Item = (Load, Strategy)> {
    Load::ALL.into_iter().flat_map(|load| Strategy::ALL.map(|strategy| (load, strategy)))
}

/// The result of one increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// The number of attempts. A call of a container is one attempt.
    pub(super) attempts: u64,
    /// Whether it was acknowledged. If not, the record is unchanged, and the slice ended after a failed attempt.
    pub(super) done: bool,
}

/// A writer's handle that increments counters with one strategy.
#[derive(Debug)]
pub(super) struct Incrementer {
    pub(super) strategy: Strategy,
    pub(super) store: SharedStore,
    states: StateRegistry,
    random: Random,
}

impl Incrementer {
    /// Creates a handle.
    pub(super) fn new(strategy: Strategy, store: &SharedStore, states: &StateRegistry) -> Self {
        Self { strategy, store: SharedStore::clone(store), states: states.clone(), random: Random::fresh() }
    }

    /// Creates another handle with its own random numbers.
    pub(super) fn another(&self) -> Self {
        Self::new(self.strategy, &self.store, &self.states)
    }

    /// Increments a record's counter. A retry loop gives up after `until`.
    pub(super) async fn increment(&mut self, key: &Key, until: Instant) -> Result<Tried> {
        match self.strategy {
            Strategy::Naive | Strategy::Jitter => return self.handwritten(key, until).await,
            // Looks the container up each time, like a request handler that knows only the key.
            Strategy::Closures => {
                self.states.at::<Record>(key).mutate(|record| record.count += 1).await?;
            }
            Strategy::Deltas => {
                self.states.at::<Record>(key).inc("/count", 1).await?;
            }
        }
        Ok(Tried { attempts: 1, done: true })
    }

    async fn handwritten(&mut self, key: &Key, until: Instant) -> Result<Tried> {
        let mut attempts = 0;
        loop {
            let done = self.attempt(key).await?;
            attempts += 1;
            if done || Instant::now() >= until {
                return Ok(Tried { attempts, done });
            }
            if self.strategy == Strategy::Jitter {
                let pause = self.random.between(Duration::ZERO, longest_pause(attempts));
                tokio::time::sleep_until((Instant::now() + pause).min(until).into()).await;
            }
        }
    }

    /// Reads, changes, and writes if the version is still the same.
    async fn attempt(&self, key: &Key) -> Result<bool> {
        let found = self.store.document(key).await?;
        let document = found.with_context(|| {
            format!("cannot increment {key}: the record is gone; another program wrote to this store")
        })?;
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

/// Returns the upper bound of the pause after an attempt.
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
