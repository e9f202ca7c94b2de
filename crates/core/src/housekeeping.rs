//! Housekeeping: a background worker that removes rows which no reader sees.
//!
//! It removes expired documents, old tombstones and old operation records in pages, until none is left, and again after
//! an interval. A recurring work row lets one process at a time do it, and keeps the report of the last sweep. A process
//! that dies in between loses its lease, and the next sweep removes the rest.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::{Due, Timestamp};
use crate::error::InvalidInput;
use crate::id::{Owner, QueueName};
use crate::key::Key;
use crate::payload::Payload;
use crate::process;
use crate::runtime::jitter::spread;
use crate::runtime::timer::sleep_until;
use crate::store::{
    ApplyError, Batch, Claim, Grant, Lease, NewWork, Refusal, SharedStore, Store, StoreError, StoreErrorKind,
    Sweep, Swept,
};
use crate::telemetry::HOUSEKEEPING;
use crate::worker::{self, DEFAULT_TTL, idle, unique_owner};

/// The default retention of tombstones of documents: 7 days.
pub const TOMBSTONES: Duration = Duration::from_hours(7 * 24);
/// The default retention of operation records: 24 hours.
pub const OPERATIONS: Duration = Duration::from_hours(24);
/// The default interval between two sweeps: a minute.
pub const INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of rows of each kind that one page removes.
const PAGE: usize = 1_000;
/// The name of the work row and of its queue.
const NAME: &str = "tidelock.housekeeping";

/// A builder for the housekeeping of a store.
///
/// Start one in every process that runs workers. They take turns, so the store bears the load of one.
#[derive(Clone, Debug)]
#[must_use = "nothing is removed before spawn() is called"]
pub struct Housekeeping {
    store: SharedStore,
    tombstones: Duration,
    operations: Duration,
    interval: Duration,
}

/// The report of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepReport {
    /// The start of the sweep, by the store's clock.
    pub at: Timestamp,
    /// Number of rows that it removed.
    pub removed: Swept,
    /// Whether it removed all rows that it may. Otherwise the process lost its lease before the end.
    pub complete: bool,
}

/// A handle of running housekeeping, which stops when the handle is dropped.
#[derive(Debug)]
pub struct HousekeepingHandle {
    stopping: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// The result of a turn.
enum SweepTurn {
    Swept(SweepReport),
    /// Another process has the turn, or the next one is not due. The time until then, if known.
    Waits(Option<Duration>),
}

impl Housekeeping {
    /// Creates housekeeping for a store: tombstones stay for 7 days, operation records for 24 hours, and a sweep runs
    /// every minute.
    pub fn new(store: SharedStore) -> Self {
        Self { store, tombstones: TOMBSTONES, operations: OPERATIONS, interval: INTERVAL }
    }

    /// Sets the retention of tombstones of documents. Keep them for longer than any caller holds a version.
    pub fn tombstones(mut self, retention: Duration) -> Self {
        self.tombstones = retention;
        self
    }

    /// Sets the retention of operation records. Keep them for longer than any caller retries or resolves.
    pub fn operations(mut self, retention: Duration) -> Self {
        self.operations = retention;
        self
    }

    /// Sets the interval between two sweeps.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = worker::interval(interval);
        self
    }

    /// Starts a task that sweeps until the handle is dropped. Must be called inside a Tokio runtime.
    pub fn spawn(self) -> HousekeepingHandle {
        let stopping = CancellationToken::new();
        let task = process::spawn({
            let stopping = stopping.clone();
            async move {
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => {}
                    () = self.run(&stopping) => {}
                }
            }
        });
        HousekeepingHandle { stopping, task: Some(task) }
    }

    /// Sweeps now if a sweep is due and no other process is sweeping. Returns `None` otherwise.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails. Rows that were already removed stay removed.
    pub async fn sweep_if_due(&self) -> Result<Option<SweepReport>, StoreError> {
        match self.turn(&unique_owner(None)?).await? {
            SweepTurn::Swept(report) => Ok(Some(report)),
            SweepTurn::Waits(_) => Ok(None),
        }
    }

    async fn run(&self, stopping: &CancellationToken) {
        // The random delay spreads the first polls of processes that start together.
        idle::pause(spread(self.interval, 0.25..0.75), stopping).await;
        while !stopping.is_cancelled() {
            let turn = match unique_owner(None) {
                Ok(owner) => self.turn(&owner).await,
                Err(error) => Err(error.into()),
            };
            let wait = match turn {
                Ok(SweepTurn::Swept(_)) => self.interval,
                Ok(SweepTurn::Waits(wait)) => wait.map_or(self.interval, |wait| wait.min(self.interval)),
                Err(error) => {
                    tracing::warn!(target: HOUSEKEEPING, %error, "housekeeping failed");
                    idle::backoff(&error, self.interval)
                }
            };
            idle::pause(wait, stopping).await;
        }
    }

    /// Claims the turn and sweeps, if the turn is due and free.
    async fn turn(&self, owner: &Owner) -> Result<SweepTurn, StoreError> {
        let queue = queue()?;
        let claim = || Claim::queues(owner, [queue.clone()], 1, DEFAULT_TTL);
        let claimed = match self.store.claim(claim()).await {
            // A store without work rows cannot assign turns. Concurrent sweeps are harmless, because a row is removed
            // only once.
            Err(error) if error.kind == StoreErrorKind::Unsupported => {
                return Ok(SweepTurn::Swept(self.sweep(None, self.store.now().await?).await?));
            }
            claimed => claimed?,
        };
        let (wait, now) = (claimed.wait(), claimed.now);
        let grant = match claimed.grants.into_iter().next() {
            Some(grant) => Some(grant),
            None if claimed.next_at.is_none() && self.create_row().await? => {
                self.store.claim(claim()).await?.grants.into_iter().next()
            }
            None => None,
        };
        match grant {
            Some(grant) => self.sweep_under(&grant, now).await.map(SweepTurn::Swept),
            None => Ok(SweepTurn::Waits(wait)),
        }
    }

    /// Creates the row. Returns `false` when it exists.
    async fn create_row(&self) -> Result<bool, StoreError> {
        let row = NewWork::standing(key()?, queue()?).only_new();
        match self.store.apply(Batch::new().enqueue(row)).await {
            Ok(_) => Ok(true),
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Work { .. }) => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }

    /// Sweeps under the lease of the row, and writes the report to the row.
    async fn sweep_under(&self, grant: &Grant, now: Timestamp) -> Result<SweepReport, StoreError> {
        let lease = grant.lease();
        let report = self.sweep(Some(&lease), now).await?;
        let (due, told) = (Due::After(self.interval), Payload::of(&report)?);
        let row = NewWork::standing(key()?, queue()?).payload(told).due(due);
        match self.store.apply(Batch::new().defer(&lease, due).enqueue(row)).await {
            // Without the lease, another process sweeps and reports.
            Ok(_) | Err(ApplyError::Refused(_)) => Ok(report),
            Err(error) => Err(failure(error)),
        }
    }

    /// Removes pages of rows until none is left, or until the lease is lost.
    async fn sweep(&self, lease: Option<&Lease>, now: Timestamp) -> Result<SweepReport, StoreError> {
        let sweep = Sweep {
            tombstones_before: Some(ago(now, self.tombstones)),
            operations_before: Some(ago(now, self.operations)),
            limit: PAGE,
        };
        let mut report = SweepReport { at: now, removed: Swept::default(), complete: false };
        loop {
            let begun = process::now();
            let page = self.store.sweep(sweep).await?;
            report.removed.expired += page.expired;
            report.removed.tombstones += page.tombstones;
            report.removed.operations += page.operations;
            let most = page.expired.max(page.tombstones).max(page.operations);
            report.complete = most < PAGE as u64;
            if report.complete || !self.renewed(lease).await? {
                break;
            }
            // The pause gives writers as much of the store's time as the sweep took.
            sleep_until(process::now() + process::elapsed(begun)).await;
        }
        if report.removed != Swept::default() {
            let Swept { expired, tombstones, operations } = report.removed;
            tracing::info!(target: HOUSEKEEPING, expired, tombstones, operations, "rows swept");
        }
        Ok(report)
    }

    /// Renews the lease for another page. Returns `false` when the lease is lost.
    async fn renewed(&self, lease: Option<&Lease>) -> Result<bool, StoreError> {
        let Some(lease) = lease else { return Ok(true) };
        match self.store.apply(Batch::new().renew(lease, DEFAULT_TTL)).await {
            Ok(_) => Ok(true),
            Err(ApplyError::Refused(_)) => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }
}

impl HousekeepingHandle {
    /// Stops housekeeping and waits for its end.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        if let Some(task) = self.task.take() {
            // The task ends once the token is cancelled. The runtime has reported a panic in it.
            let _ = task.await;
        }
    }
}

impl Drop for HousekeepingHandle {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

/// Returns the report of the last sweep of any process; `None` when there was none.
///
/// # Errors
/// [`StoreError`] when the store cannot be read.
pub async fn last_sweep(store: &dyn Store) -> Result<Option<SweepReport>, StoreError> {
    let row = match store.work(&key()?).await {
        Err(error) if error.kind == StoreErrorKind::Unsupported => return Ok(None),
        row => row?,
    };
    Ok(row.and_then(|row| row.payload.parse().ok()))
}

fn key() -> Result<Key, InvalidInput> {
    Key::single(NAME)
}

fn queue() -> Result<QueueName, InvalidInput> {
    QueueName::new(NAME)
}

/// Returns the instant that lies `by` before `now`.
fn ago(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

/// Converts a failure of the store, or a refusal that this module does not expect.
fn failure(error: ApplyError) -> StoreError {
    match error {
        ApplyError::Store { error, .. } => error,
        ApplyError::Refused(refusal) => {
            StoreError::new(StoreErrorKind::Bug, "sweeping the store", refusal.to_string())
        }
    }
}
