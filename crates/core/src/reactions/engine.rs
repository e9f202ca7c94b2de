//! The engine of reactions: handles the events of one key, or replays a parked event, per grant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::decide::Rules;
use super::definition::Definition;
use super::execution::Job;
use super::keys::Row;
use super::replay::Replay;
use super::stats::ReactionsStats;
use super::stored::DefinitionState;
use super::suspect;
use crate::clock::{Due, Timestamp};
use crate::id::QueueName;
use crate::process;
use crate::store::{Batch, Grant};
use crate::telemetry::REACTIONS;
use crate::worker::{ClaimSpec, Engine, LeasedWork, Metered, Worker};

/// The delay of a row whose reaction this process does not know.
const UNKNOWN: Duration = Duration::from_secs(5);
/// The delay of a row that this process must not run now.
const SUSPENDED: Duration = Duration::from_millis(100);

/// The engine of [`Reactions`](super::Reactions).
#[derive(Debug)]
pub struct ReactionEngine {
    pub(super) worker: Arc<Worker>,
    pub(super) definitions: BTreeMap<String, Arc<Definition>>,
    /// The claim that the next poll sends first.
    first: AtomicUsize,
    prefetch: usize,
    /// The time of the last comparison with the stored definitions.
    prepared: Mutex<Instant>,
    /// Held while a row runs whose last holder died with it.
    suspects: AsyncMutex<()>,
}

impl ReactionEngine {
    pub(super) fn new(
        worker: Arc<Worker>,
        definitions: BTreeMap<String, Arc<Definition>>,
        prefetch: usize,
    ) -> Self {
        let (first, prepared) = (AtomicUsize::new(0), Mutex::new(process::now()));
        Self { worker, definitions, first, prefetch, prepared, suspects: AsyncMutex::new(()) }
    }
}

impl Metered for ReactionEngine {
    type Stats = ReactionsStats;

    fn stats(&self) -> ReactionsStats {
        let one = |(name, definition): (&String, &Arc<Definition>)| {
            (name.clone(), definition.counters.snapshot(definition.standing()))
        };
        ReactionsStats {
            claims: self.worker.polls.get(),
            reactions: self.definitions.iter().map(one).collect(),
        }
    }
}

impl Engine for ReactionEngine {
    const NAME: &'static str = "reactions";

    fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    fn claims(&self) -> Vec<ClaimSpec> {
        let current = |definition: &&Arc<Definition>| definition.standing() == DefinitionState::Current;
        let mut claims = claims(self.definitions.values().filter(current));
        // Rotated, so that the first queues do not take all slots.
        let first = self.first.fetch_add(1, Ordering::Relaxed) % claims.len().max(1);
        claims.rotate_left(first);
        claims
    }

    fn max_rows(&self) -> usize {
        self.prefetch
    }

    async fn execute(self: Arc<Self>, mut grant: Grant, work: LeasedWork) {
        let row = Row::read(&grant.row.key);
        let name = match &row {
            Some(Row::Key { reaction, .. } | Row::Replay { reaction, .. }) => reaction.clone(),
            None => String::new(),
        };
        let (worker, definition) = (Arc::clone(&self.worker), self.definitions.get(&name).cloned());
        let (Some(row), Some(definition)) = (row, definition) else {
            let row = &grant.row.key;
            tracing::warn!(target: REACTIONS, %row, "reaction unknown, row deferred");
            return defer_row(&work, UNKNOWN).await;
        };
        let stored = match definition.current(&worker.store).await {
            Ok(Some(stored)) => stored,
            // Another process has the current definition. The queue is not polled again if no other reaction shares it.
            Ok(None) => return defer_row(&work, SUSPENDED).await,
            Err(error) => {
                tracing::warn!(target: REACTIONS, reaction = name, %error, "definition not read");
                return work.release().await;
            }
        };
        let (attempts, takeovers) = (grant.row.attempts, grant.row.takeovers);
        let mut _alone = None;
        if definition.rules.is_suspect(attempts, takeovers) {
            // Short, so that suspect rows leave slots to the others; they are claimed again.
            match timeout(SUSPENDED, self.suspects.lock()).await {
                Ok(alone) => _alone = Some(alone),
                Err(_) => return defer_row(&work, Duration::ZERO).await,
            }
        }
        if Rules::is_recorded(attempts, takeovers) {
            match suspect::record(&worker.store, &grant, &work).await {
                Ok(Some(attempt)) => grant.row.attempts = attempt,
                Ok(None) => return work.release().await,
                Err(error) => {
                    tracing::warn!(target: REACTIONS, reaction = name, %error, "attempt not recorded");
                    return work.release().await;
                }
            }
        }
        match row {
            Row::Key { key, .. } => Job::new(worker, definition, stored, key, grant, work).run().await,
            Row::Replay { key, position, .. } => {
                let parked_under = key.clone();
                let replay = Replay { worker, definition, stored, key, parked_under, position, grant, work };
                replay.run().await;
            }
        }
    }

    async fn tick(&self, _now: Option<Timestamp>) {
        {
            let mut prepared = self.prepared.lock();
            if process::elapsed(*prepared) < self.worker.options.poll_interval {
                return;
            }
            *prepared = process::now();
        }
        for (reaction, definition) in &self.definitions {
            if let Err(error) = definition.refresh(&self.worker.store).await {
                tracing::warn!(target: REACTIONS, reaction, %error, "definition not prepared");
            }
        }
    }
}

/// Returns a row to its queue after a delay. The attempt does not count.
async fn defer_row(work: &LeasedWork, wait: Duration) {
    drop(work.commit(Batch::new().defer(work.lease(), Due::After(wait))).await);
}

/// Returns one claim for the queues with the same settings. Reactions that share a queue share the larger of their settings.
fn claims<'a>(definitions: impl Iterator<Item = &'a Arc<Definition>>) -> Vec<ClaimSpec> {
    let mut queues: BTreeMap<&QueueName, (Duration, usize)> = BTreeMap::new();
    for definition in definitions {
        let setting = queues.entry(definition.queue()).or_default();
        *setting = (setting.0.max(definition.ttl), setting.1.max(definition.events));
    }
    let mut claims: BTreeMap<(Duration, usize), Vec<QueueName>> = BTreeMap::new();
    for (queue, setting) in queues {
        claims.entry(setting).or_default().push(queue.clone());
    }
    claims.into_iter().map(|((lease_ttl, events), queues)| ClaimSpec { queues, lease_ttl, events }).collect()
}
