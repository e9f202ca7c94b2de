//! The loop of a scheduler: claims rows that are due while it has room, and gives each a task of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::job::Job;
use super::shared::Shared;
use super::survey;
use crate::clock::Timestamp;
use crate::lease::{Holding, working};
use crate::lock::sleep_until;
use crate::store::{Claim, Grant, StoreError, Watch};
use crate::telemetry::SCHEDULE;

/// Hints that come close together are one. Hints that led to nothing are followed less closely.
const HUSH: Duration = Duration::from_millis(1);
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
    slots: Arc<Semaphore>,
    jobs: JoinSet<()>,
    hints: Watch,
    hush: Duration,
    /// When all tasks were looked at.
    surveyed: Instant,
    /// What the clock of the store showed last.
    shown: Timestamp,
}

impl Worker {
    fn new(shared: Arc<Shared>) -> Self {
        let slots = Arc::new(Semaphore::new(shared.options.concurrency.min(Semaphore::MAX_PERMITS)));
        let hints = shared.store.watch();
        let (surveyed, shown) = (Instant::now(), Timestamp::from_micros(i64::MIN));
        Self { shared, slots, jobs: JoinSet::new(), hints, hush: HUSH, surveyed, shown }
    }

    async fn run_or_die(mut self) {
        let killed = self.shared.killed.clone();
        tokio::select! {
            biased;
            () = killed.cancelled() => {}
            () = self.run() => {}
        }
        self.jobs.shutdown().await;
    }

    async fn run(&mut self) {
        while let Some(slots) = working::free_slots(&self.slots, ROWS, &self.shared.stopping).await {
            while self.jobs.try_join_next().is_some() {}
            match self.claim(slots).await {
                Ok((0, next_at)) => self.idle(next_at).await,
                Ok(_) => self.hush = HUSH,
                Err(error) => self.shared.recover("tasks could not be claimed", &error).await,
            }
        }
        working::wind_down(&mut self.jobs, self.shared.options.grace, &self.shared.cut).await;
    }

    async fn claim(
        &mut self,
        mut slots: Vec<OwnedSemaphorePermit>,
    ) -> Result<(usize, Option<Timestamp>), StoreError> {
        let (owner, ttl) = (&self.shared.owner, self.shared.options.ttl);
        let claim = Claim::lanes(owner, [self.shared.lane.clone()], slots.len(), ttl);
        let sent = Instant::now();
        let claimed = self.shared.store.claim(claim).await?;
        let count = claimed.grants.len();
        for grant in claimed.grants {
            self.begin(grant, sent, slots.pop());
        }
        Ok((count, claimed.next_at))
    }

    fn begin(&mut self, grant: Grant, sent: Instant, slot: Option<OwnedSemaphorePermit>) {
        let shared = Arc::clone(&self.shared);
        self.jobs.spawn(async move {
            let _slot = slot;
            match Holding::start(&shared.store, &grant, shared.options.ttl, sent) {
                Ok(holding) => Job { shared, grant, holding }.run().await,
                // Nobody renews it, so it ends by itself.
                Err(error) => {
                    tracing::error!(target: SCHEDULE, row = %grant.row.key, %error, "a task is not kept")
                }
            }
        });
    }

    /// Waits until there may be something, and never for long.
    async fn idle(&mut self, next_at: Option<Timestamp>) {
        let longest = self.shared.options.look_again;
        let now = self.shared.store.now().await;
        if let Ok(now) = now {
            let went_back = now < self.shown;
            self.shown = now;
            if went_back || self.surveyed.elapsed() >= SURVEY {
                self.surveyed = Instant::now();
                return survey::look(&self.shared).await;
            }
        }
        let wait = match (next_at, now) {
            (Some(at), Ok(now)) => at.since(now).max(HUSH).min(longest),
            _ => longest,
        };
        let looked = Instant::now();
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => {}
            () = working::hinted(&mut self.hints, looked + self.hush) => self.hush = (self.hush * 2).min(LONGEST_HUSH),
            () = sleep_until(looked + wait) => {}
        }
    }
}
