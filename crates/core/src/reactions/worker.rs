//! The worker: claims rows while it has slots, and gives each a task of its own. It never waits for a handler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::job::Job;
use super::names::Row;
use super::replay::Replay;
use super::shared::{Shared, heard};
use crate::clock::{Due, Timestamp};
use crate::id::Lane;
use crate::lease::Holding;
use crate::lease::working;
use crate::lock::sleep_until;
use crate::store::limits::{CLAIM_EVENTS, CLAIM_ROWS};
use crate::store::{Batch, Claim, Grant, StoreError, Watch};

/// How long a row is put off whose reaction this process does not know.
const UNKNOWN: Duration = Duration::from_secs(5);

/// Lanes that are claimed from together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    lanes: Vec<Lane>,
    ttl: Duration,
    events: usize,
}

/// What a look at the lanes found.
enum Found {
    Something,
    /// When there will be something, as far as is known.
    Nothing(Option<Timestamp>),
}

/// Claims and works until it is stopped; then waits for what has begun.
pub(super) struct Worker {
    shared: Arc<Shared>,
    groups: Vec<Group>,
    slots: Arc<Semaphore>,
    jobs: JoinSet<()>,
    hints: Watch,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let slots = Arc::new(Semaphore::new(shared.options.concurrency.clamp(1, Semaphore::MAX_PERMITS)));
        let hints = shared.store.watch();
        Self { groups: groups(&shared), slots, jobs: JoinSet::new(), hints, shared }
    }

    pub(super) async fn run(mut self) {
        while let Some(slots) = self.free_slots().await {
            while self.jobs.try_join_next().is_some() {}
            match self.claim(slots).await {
                Ok(Found::Something) => {}
                Ok(Found::Nothing(next_at)) => self.idle(next_at).await,
                Err(error) => self.shared.recover("work could not be claimed", &error).await,
            }
        }
        working::wind_down(&mut self.jobs, self.shared.options.grace, &self.shared.cut).await;
    }

    /// As many free slots as one claim asks for, at least one; `None` when nothing new is to be begun.
    async fn free_slots(&self) -> Option<Vec<OwnedSemaphorePermit>> {
        working::free_slots(&self.slots, self.shared.options.prefetch, &self.shared.stopping).await
    }

    /// Asks every group of lanes, as long as there are slots.
    async fn claim(&mut self, mut slots: Vec<OwnedSemaphorePermit>) -> Result<Found, StoreError> {
        let (mut found, mut next_at) = (false, None);
        for group in self.groups.clone() {
            let limit = slots.len().min(CLAIM_ROWS).min(CLAIM_EVENTS / group.events.max(1)).max(1);
            if slots.is_empty() {
                break;
            }
            let claim =
                Claim::lanes(&self.shared.owner, group.lanes, limit, group.ttl).with_events(group.events);
            self.shared.claims.add(1);
            let sent = Instant::now();
            let claimed = self.shared.store.claim(claim).await?;
            next_at = [next_at, claimed.next_at].into_iter().flatten().min();
            for grant in claimed.grants {
                found = true;
                self.begin(grant, group.ttl, sent, slots.pop());
            }
        }
        // Those that were asked first shall not always be.
        if let Some(last) = self.groups.len().checked_sub(1) {
            self.groups.rotate_right(last.min(1));
        }
        Ok(if found { Found::Something } else { Found::Nothing(next_at) })
    }

    fn begin(&mut self, grant: Grant, ttl: Duration, sent: Instant, slot: Option<OwnedSemaphorePermit>) {
        let shared = Arc::clone(&self.shared);
        self.jobs.spawn(async move {
            let _slot = slot;
            match Holding::start(&shared.store, &grant, ttl, sent) {
                Ok(holding) => handle(shared, grant, holding).await,
                // Nobody renews it, so it ends by itself.
                Err(error) => {
                    tracing::error!(target: crate::telemetry::REACTIONS, row = %grant.row.key, %error, "a row is not kept");
                }
            }
        });
    }

    /// Waits until there may be something, and never for long.
    async fn idle(&mut self, next_at: Option<Timestamp>) {
        let looked = Instant::now();
        let wait = self.shared.until(next_at).await;
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => {}
            () = self.shared.work.notified() => {}
            () = heard(&mut self.hints, looked) => {}
            () = sleep_until(looked + wait) => {}
        }
    }
}

/// Gives a grant to whom it is for.
async fn handle(shared: Arc<Shared>, grant: Grant, holding: Holding) {
    let row = Row::read(&grant.row.key);
    let name = match &row {
        Some(Row::Key { reaction, .. } | Row::Replay { reaction, .. }) => reaction.as_str(),
        None => "",
    };
    let definition = shared.definitions.get(name).cloned();
    match (row, definition) {
        (Some(Row::Key { key, .. }), Some(definition)) => {
            Job::new(shared, definition, key, grant, holding).run().await;
        }
        (Some(Row::Replay { key, position, .. }), Some(definition)) => {
            Replay { shared, definition, key, position, grant, holding }.run().await;
        }
        _ => {
            let row = &grant.row.key;
            tracing::warn!(target: crate::telemetry::REACTIONS, %row, "no reaction here knows the row; it is put off");
            drop(holding.commit(Batch::new().defer(holding.lease(), Due::After(UNKNOWN))).await);
        }
    }
}

/// Lanes with the same settings are claimed from together. Reactions that share a lane share the larger of their settings.
fn groups(shared: &Shared) -> Vec<Group> {
    let mut lanes: BTreeMap<&Lane, (Duration, usize)> = BTreeMap::new();
    for definition in shared.definitions.values() {
        let setting = lanes.entry(&definition.lane).or_default();
        *setting = (setting.0.max(definition.ttl), setting.1.max(definition.events));
    }
    let mut groups: BTreeMap<(Duration, usize), Vec<Lane>> = BTreeMap::new();
    for (lane, setting) in lanes {
        groups.entry(setting).or_default().push(lane.clone());
    }
    groups.into_iter().map(|((ttl, events), lanes)| Group { lanes, ttl, events }).collect()
}
