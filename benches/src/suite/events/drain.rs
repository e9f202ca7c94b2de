//! Reactions to appended events, with effects in the store.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tidelock::events::StartFrom;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock_console::bench::statistics::per_second;

/// The number of concurrent keys.
const CONCURRENCY: usize = 64;

/// The number of handled events of a stream.
#[derive(Serialize, Deserialize)]
struct Counted {
    count: u64,
}

/// A reaction that is registered first and started later.
pub(super) struct Drain {
    store: SharedStore,
    prefix: String,
}

impl Drain {
    /// Registers the reaction from the current position.
    pub(super) async fn begin(store: &SharedStore, round: u32) -> Result<Self> {
        let drain = Self { store: Arc::clone(store), prefix: format!("{round}-drained") };
        let running = Reactions::new(Arc::clone(store)).with(drain.reaction()?).start().await?;
        running.shutdown().await;
        Ok(drain)
    }

    /// Returns the prefix of the ids of its streams.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Counts the events of each stream in a document, in one commit with the progress.
    fn reaction(&self) -> Result<Reaction> {
        let streams = KeyPrefix::starting("stock", &[], &self.prefix);
        let reaction = Reaction::new(format!("count-{}", self.prefix));
        Ok(reaction.streams(streams).start_from(StartFrom::Now).events_per_grant(100).batch(
            async |turn, events| {
                let counted = turn.key().beside("counted")?;
                let more = Delta::inc("/count", i64::try_from(events.len())?);
                Ok(Batch::new().merge_or_create(&counted, Payload::of(&Counted { count: 0 })?, [more]))
            },
        ))
    }

    /// Handles all events, and returns the rate. Fails when the count differs from `committed`.
    pub(super) async fn run(self, committed: u64) -> Result<f64> {
        let reactions = Reactions::new(Arc::clone(&self.store)).with(self.reaction()?);
        let started = Instant::now();
        let running = reactions.concurrency(CONCURRENCY).prefetch(CONCURRENCY).start().await?;
        running.quiesce().await?;
        let took = started.elapsed();
        running.shutdown().await;
        let counted = self.counted().await?;
        ensure!(
            counted == committed,
            "cannot trust the run: {committed} events were committed, and reactions counted {counted}"
        );
        Ok(per_second(usize::try_from(committed)?, took))
    }

    async fn counted(&self) -> Result<u64> {
        let prefix = KeyPrefix::starting("counted", &[Arg::from("stock")], &self.prefix);
        let (mut after, mut sum) = (None, 0);
        loop {
            let page = self.store.documents(&prefix, Page { after, limit: 1_000 }).await?;
            for document in &page.rows {
                sum += document.value.parse::<Counted>()?.count;
            }
            after = page.next;
            if after.is_none() {
                return Ok(sum);
            }
        }
    }
}
