//! The engine of reactions: handles the events of one key, or replays a parked event, per grant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::definition::Definition;
use super::job::Job;
use super::names::Row;
use super::replay::Replay;
use super::stats::Stats;
use crate::clock::Due;
use crate::id::Lane;
use crate::store::{Batch, Grant};
use crate::worker::{ClaimSpec, Engine, LeasedWork, Metered, Worker};

/// The delay of a row whose reaction this process does not know.
const UNKNOWN: Duration = Duration::from_secs(5);

/// The engine of [`Reactions`](super::Reactions).
#[derive(Debug)]
pub struct ReactionEngine {
    pub(super) worker: Arc<Worker>,
    pub(super) definitions: BTreeMap<String, Arc<Definition>>,
    claims: Vec<ClaimSpec>,
    /// The claim that the next poll sends first.
    first: AtomicUsize,
    prefetch: usize,
}

impl ReactionEngine {
    pub(super) fn new(
        worker: Arc<Worker>,
        definitions: BTreeMap<String, Arc<Definition>>,
        prefetch: usize,
    ) -> Self {
        let claims = claims(definitions.values());
        Self { worker, definitions, claims, first: AtomicUsize::new(0), prefetch }
    }
}

impl Metered for ReactionEngine {
    type Stats = Stats;

    fn stats(&self) -> Stats {
        let reactions = self.definitions.iter();
        let reactions =
            reactions.map(|(name, definition)| (name.clone(), definition.counters.snapshot())).collect();
        Stats { claims: self.worker.polls.get(), reactions }
    }
}

impl Engine for ReactionEngine {
    const NAME: &'static str = "reactions";

    fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    fn claims(&self) -> Vec<ClaimSpec> {
        let mut claims = self.claims.clone();
        // Rotated, so that the first lanes do not take all slots.
        let first = self.first.fetch_add(1, Ordering::Relaxed) % claims.len().max(1);
        claims.rotate_left(first);
        claims
    }

    fn max_rows(&self) -> usize {
        self.prefetch
    }

    async fn execute(self: Arc<Self>, grant: Grant, work: LeasedWork) {
        let row = Row::read(&grant.row.key);
        let name = match &row {
            Some(Row::Key { reaction, .. } | Row::Replay { reaction, .. }) => reaction.as_str(),
            None => "",
        };
        let (worker, definition) = (Arc::clone(&self.worker), self.definitions.get(name).cloned());
        match (row, definition) {
            (Some(Row::Key { key, .. }), Some(definition)) => {
                Job::new(worker, definition, key, grant, work).run().await;
            }
            (Some(Row::Replay { key, position, .. }), Some(definition)) => {
                Replay { worker, definition, key, position, grant, work }.run().await;
            }
            _ => {
                let row = &grant.row.key;
                tracing::warn!(target: crate::telemetry::REACTIONS, %row, "reaction unknown, row deferred");
                drop(work.commit(Batch::new().defer(work.lease(), Due::After(UNKNOWN))).await);
            }
        }
    }
}

/// Returns one claim for the lanes with the same settings. Reactions that share a lane share the larger of their settings.
fn claims<'a>(definitions: impl Iterator<Item = &'a Arc<Definition>>) -> Vec<ClaimSpec> {
    let mut lanes: BTreeMap<&Lane, (Duration, usize)> = BTreeMap::new();
    for definition in definitions {
        let setting = lanes.entry(&definition.lane).or_default();
        *setting = (setting.0.max(definition.ttl), setting.1.max(definition.events));
    }
    let mut claims: BTreeMap<(Duration, usize), Vec<Lane>> = BTreeMap::new();
    for (lane, setting) in lanes {
        claims.entry(setting).or_default().push(lane.clone());
    }
    claims.into_iter().map(|((lease_ttl, events), lanes)| ClaimSpec { lanes, lease_ttl, events }).collect()
}
