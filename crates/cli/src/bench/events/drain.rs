//! Reactions that handle what was appended, with effects in the store.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tidelock::events::Start;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};

use super::super::measure::per_second;

/// Keys that are worked on at the same time.
const CONCURRENCY: usize = 64;

/// How many events of a stream were handled.
#[derive(Serialize, Deserialize)]
struct Counted {
    count: u64,
}

/// A reaction that is known to the store, and is let loose later.
pub(super) struct Drain {
    store: SharedStore,
    prefix: String,
}

impl Drain {
    /// Makes the reaction known: what happens from now on is for it.
    pub(super) async fn begin(store: &SharedStore, round: u32) -> Result<Self> {
        let drain = Self { store: Arc::clone(store), prefix: format!("{round}-drained") };
        let running = Reactions::new(Arc::clone(store)).with(drain.reaction()?).start().await?;
        running.shutdown().await;
        Ok(drain)
    }

    /// What the ids of its streams begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Counts the events of each stream in a document: the count and the progress are one commit.
    fn reaction(&self) -> Result<Reaction> {
        let streams = KeyPrefix::starting("stock", &[], &self.prefix);
        let reaction = Reaction::new(format!("count-{}", self.prefix));
        Ok(reaction.streams(streams).start_from(Start::Now).events_per_grant(100).batch(
            async |turn, events| {
                let counted = turn.key().beside("counted")?;
                let more = Delta::inc("/count", i64::try_from(events.len())?);
                Ok(Batch::new().merge_or_create(&counted, Payload::of(&Counted { count: 0 })?, [more]))
            },
        ))
    }

    /// Handles everything; gives the events handled per second. Fails when they are not those that were committed.
    pub(super) async fn run(self, committed: u64) -> Result<f64> {
        let reactions = Reactions::new(Arc::clone(&self.store)).with(self.reaction()?);
        let started = Instant::now();
        let running = reactions.concurrency(CONCURRENCY).prefetch(CONCURRENCY).start().await?;
        running.settle().await?;
        let took = started.elapsed();
        running.shutdown().await;
        let counted = self.counted().await?;
        ensure!(counted == committed, "{committed} events were committed, and {counted} were counted");
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
