//! The loop of a scheduler: claims rows that are due while it has room, and gives each a task of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::Job;
use super::shared::Shared;
use super::survey;
use crate::clock::Timestamp;
use crate::lease::working::{self, HUSH};
use crate::lease::{Hand, Hands};
use crate::runtime::timer::sleep_until;
use crate::store::{Claim, StoreError, Watch};
use crate::telemetry::SCHEDULE;

/// Hints that led to nothing are followed less closely.
const LONGEST_HUSH: Duration = Duration::from_millis(32);
/// How often all tasks are looked at.
const SURVEY: Duration = Duration::from_secs(30);
/// How many rows are claimed at once, at most.
const ROWS: usize = 100;

/// Claims and runs, and goes on if that panics.
pub(super) async fn supervised(shared: Arc<Shared>) {
    let make = || Worker::new(Arc::clone(&shared)).run_or_die();
    let panicked =
        |error: &str| tracing::error!(target: SCHEDULE, error, "a scheduler failed; it is started again");
    working::supervised(make, panicked, shared.options.look_again, &shared.stopping).await;
}

struct Worker {
    shared: Arc<Shared>,
    hands: Hands,
    hints: Watch,
    hush: Duration,
    /// When all tasks were looked at.
    surveyed: Instant,
    /// What the clock of the store showed last.
    shown: Timestamp,
}

impl Worker {
    fn new(shared: Arc<Shared>) -> Self {
        let hands = Hands::new(&shared.store, shared.options.concurrency);
        let hints = shared.store.watch();
        let (surveyed, shown) = (Instant::now(), Timestamp::from_micros(i64::MIN));
        Self { shared, hands, hints, hush: HUSH, surveyed, shown }
    }

    async fn run_or_die(mut self) {
        let killed = self.shared.killed.clone();
        working::unless(&killed, self.run()).await;
        self.hands.break_off().await;
    }

    async fn run(&mut self) {
        while let Some(hands) = self.hands.free(ROWS, &self.shared.stopping).await {
            match self.claim(hands).await {
                Ok((0, next_at)) => self.idle(next_at).await,
                Ok(_) => self.hush = HUSH,
                Err(error) => self.shared.recover("tasks could not be claimed", &error).await,
            }
        }
        self.hands.wind_down(self.shared.options.grace, &self.shared.cut).await;
    }

    async fn claim(&mut self, mut hands: Vec<Hand>) -> Result<(usize, Option<Timestamp>), StoreError> {
        let (owner, ttl) = (&self.shared.owner, self.shared.options.ttl);
        let claim = Claim::lanes(owner, [self.shared.lane.clone()], hands.len(), ttl);
        let sent = Instant::now();
        let claimed = self.shared.claims.send(claim).await?;
        let count = claimed.grants.len();
        for grant in claimed.grants {
            let shared = Arc::clone(&self.shared);
            self.hands.hold(grant, ttl, sent, hands.pop(), async move |grant, holding| {
                Job { shared, grant, holding }.run().await;
            });
        }
        Ok((count, claimed.next_at))
    }

    /// Waits until there may be something, and never for long.
    async fn idle(&mut self, next_at: Option<Timestamp>) {
        if let Ok(now) = self.shared.store.now().await {
            let went_back = now < self.shown;
            self.shown = now;
            if went_back || self.surveyed.elapsed() >= SURVEY {
                self.surveyed = Instant::now();
                return survey::look(&self.shared).await;
            }
        }
        let looked = Instant::now();
        let wait = working::until(&self.shared.store, next_at, self.shared.options.look_again).await;
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => {}
            () = working::hinted(&mut self.hints, looked + self.hush) => self.hush = (self.hush * 2).min(LONGEST_HUSH),
            () = sleep_until(looked + wait) => {}
        }
    }
}
