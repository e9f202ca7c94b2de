//! The names that the parent and its workers share: orders, shipping jobs and counters of one demo.

use anyhow::Result;
use serde::Deserialize;
use tidelock::prelude::*;
use tidelock::store::WorkFilter;

/// The event that an order begins with.
pub(crate) const PLACED: &str = "OrderPlaced";
/// The event that must follow exactly once.
pub(crate) const SHIPPED: &str = "OrderShipped";

/// One demo's part of a store. Several may share a file.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    run: String,
    /// The queue of shipping jobs.
    pub(crate) lane: Lane,
}

/// Numbers that workers keep in one document, changed in the same commits that they count.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Counters {
    /// Orders shipped: in the commit that ships.
    pub(crate) shipped: u64,
    /// Attempts that failed on purpose: in the commit that fails them.
    pub(crate) retries: u64,
    /// Writes that were refused because of a stale fence: in a commit of its own afterwards.
    pub(crate) fenced: u64,
}

impl Shop {
    /// The shop of a demo.
    pub(crate) fn new(run: &str) -> Result<Self> {
        Ok(Self { run: run.to_owned(), lane: Lane::new(format!("ship-{run}"))? })
    }

    /// The name of the demo.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// The stream of an order.
    pub(crate) fn order(&self, number: u64) -> Result<Key> {
        self.named("order", number)
    }

    /// The job of shipping an order.
    pub(crate) fn job(&self, number: u64) -> Result<Key> {
        self.named("ship", number)
    }

    fn named(&self, kind: &str, number: u64) -> Result<Key> {
        Ok(Key::of(kind, &[Arg::Str(self.run.clone()), Arg::Int(i64::try_from(number)?)])?)
    }

    /// All orders of this demo.
    pub(crate) fn orders(&self) -> KeyPrefix {
        KeyPrefix::under("order", &[Arg::Str(self.run.clone())])
    }

    /// All jobs of this demo.
    pub(crate) fn all_jobs(&self) -> WorkFilter {
        WorkFilter { lane: Some(self.lane.clone()), ..WorkFilter::default() }
    }

    /// The number of an order or a job.
    pub(crate) fn number(key: &Key) -> Option<u64> {
        match key.args().last() {
            Some(Arg::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Counts something, as part of a batch.
    pub(crate) fn count(&self, batch: Batch, what: &str) -> Result<Batch> {
        let empty = Payload::from_json("{}")?;
        Ok(batch.merge_or_create(&self.counters_key()?, empty, [Delta::inc(format!("/{what}"), 1)]))
    }

    /// The counters as they stand.
    pub(crate) async fn counters(&self, store: &dyn Store) -> Result<Counters> {
        let document = store.document(&self.counters_key()?).await?;
        Ok(document.map(|found| found.value.parse()).transpose()?.unwrap_or_default())
    }

    fn counters_key(&self) -> Result<Key> {
        Ok(Key::new("counters", [self.run.as_str()])?)
    }
}
