//! The worker: claims rows while it has slots, and gives each a task of its own. It never waits for a handler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::Job;
use super::names::Row;
use super::replay::Replay;
use super::shared::{Shared, heard};
use crate::clock::{Due, Timestamp};
use crate::id::Lane;
use crate::lease::{Hand, Hands, Holding, working};
use crate::runtime::timer::sleep_until;
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
    hands: Hands,
    hints: Watch,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let hands = Hands::new(&shared.store, shared.options.concurrency);
        let hints = shared.store.watch();
        Self { groups: groups(&shared), hands, hints, shared }
    }

    pub(super) async fn run_or_die(mut self) {
        let killed = self.shared.killed.clone();
        working::unless(&killed, self.run()).await;
        self.hands.break_off().await;
    }

    async fn run(&mut self) {
        while let Some(hands) = self.hands.free(self.shared.options.prefetch, &self.shared.stopping).await {
            match self.claim(hands).await {
                Ok(Found::Something) => {}
                Ok(Found::Nothing(next_at)) => self.idle(next_at).await,
                Err(error) => self.shared.recover("work could not be claimed", &error).await,
            }
        }
        self.hands.wind_down(self.shared.options.grace, &self.shared.cut).await;
    }

    /// Asks every group of lanes, as long as there are free hands.
    async fn claim(&mut self, mut hands: Vec<Hand>) -> Result<Found, StoreError> {
        let (mut found, mut next_at) = (false, None);
        for group in self.groups.clone() {
            let limit = hands.len().min(CLAIM_ROWS).min(CLAIM_EVENTS / group.events.max(1)).max(1);
            if hands.is_empty() {
                break;
            }
            let claim =
                Claim::lanes(&self.shared.owner, group.lanes, limit, group.ttl).with_events(group.events);
            self.shared.claimed.add(1);
            let sent = Instant::now();
            let claimed = self.shared.claims.send(claim).await?;
            next_at = [next_at, claimed.next_at].into_iter().flatten().min();
            for grant in claimed.grants {
                found = true;
                let shared = Arc::clone(&self.shared);
                self.hands.hold(grant, group.ttl, sent, hands.pop(), |grant, holding| {
                    handle(shared, grant, holding)
                });
            }
        }
        // Those that were asked first shall not always be.
        if let Some(last) = self.groups.len().checked_sub(1) {
            self.groups.rotate_right(last.min(1));
        }
        Ok(if found { Found::Something } else { Found::Nothing(next_at) })
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
