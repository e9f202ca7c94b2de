//! The measured load: callers that commit, workers that claim, and the baselines in between.

use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock_console::bench::claim::{self, Queue};
use tidelock_console::bench::commit::Producers;
use tidelock_console::bench::statistics::ratio;

use super::Plan;
use super::baseline::Baselines;
use super::round::Round;
use crate::address::Opened;
use crate::filesystem;
use crate::progress::Progress;

/// The pause between phases, in which background work ends.
const PAUSE: Duration = Duration::from_millis(50);
/// The phases of the store in a round.
const STORE_PHASES: u64 = 4;

/// A store, its baselines and the progress of the run.
pub(super) struct Load {
    store: SharedStore,
    /// Counts commit groups; the store in memory has none.
    opened: Option<Opened>,
    baselines: Baselines,
    /// The mean commit group of the last round.
    group: f64,
    progress: Progress,
}

impl Load {
    pub(super) fn new(plan: &Plan, store: SharedStore, opened: Option<Opened>, baselines: Baselines) -> Self {
        let steps = u64::from(plan.rounds) * (STORE_PHASES + baselines.phases()) + u64::from(plan.rows);
        Self { store, opened, baselines, group: 1.0, progress: Progress::new(steps) }
    }

    /// Runs all rounds.
    pub(super) async fn run(mut self, plan: &Plan) -> Result<Vec<Round>> {
        self.progress.say("filling the queue");
        claim::fill(&*self.store, plan.rows, &self.progress).await?;
        let queue = Queue::new(SharedStore::clone(&self.store)).await?;
        let mut one = Producers::new("solo", 1, plan.streams)?;
        let mut many = Producers::new("many", plan.producers, plan.streams)?;
        let mut rounds = Vec::new();
        for _ in 0..plan.rounds {
            rounds.push(Box::pin(self.round(plan, &mut one, &mut many, &queue)).await?);
        }
        Ok(rounds)
    }

    /// Runs every phase once, each after a sync.
    async fn round(
        &mut self,
        plan: &Plan,
        one: &mut Producers,
        many: &mut Producers,
        queue: &Queue,
    ) -> Result<Round> {
        let (length, mut round) = (plan.slice(), Round::default());
        self.begin("committing, 64 callers").await;
        let before = self.opened.as_ref().map(Opened::written);
        round.commit_n = many.slice(&self.store, length).await?.commits()?;
        if let Some((before, after)) = before.zip(self.opened.as_ref().map(Opened::written)) {
            let batches = after.batches.saturating_sub(before.batches);
            let groups = after.groups.saturating_sub(before.groups);
            self.group = ratio(batches as f64, groups as f64).max(1.0);
        }
        round.commit_n_mean_group = self.group;
        self.begin("measuring the baselines").await;
        let group = self.group.round() as usize;
        round.baseline_per_s = self.baselines.measure(plan, group, length).await?;
        self.progress.done(self.baselines.phases());
        self.begin("committing, 1 caller").await;
        round.commit_1 = one.slice(&self.store, length).await?.commits()?;
        self.begin("claiming, 1 worker").await;
        round.claim_1 = queue.slice(1, length).await?;
        self.begin("claiming, 16 workers").await;
        round.claim_n = queue.slice(plan.workers, length).await?;
        self.progress.done(STORE_PHASES);
        Ok(round)
    }

    /// Flushes earlier writes, so that the next phase does not pay for them.
    async fn begin(&self, phase: &'static str) {
        self.progress.say(phase);
        if self.baselines.flushes() {
            tokio::time::sleep(PAUSE).await;
            tokio::task::block_in_place(filesystem::flush_page_cache);
        }
    }
}
