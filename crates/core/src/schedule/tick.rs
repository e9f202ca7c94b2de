//! Context of a run: the fire that it runs for.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::clock::{Timestamp, short};
use crate::store::SharedStore;

/// The cause of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TickKind {
    /// The timetable.
    Scheduled,
    /// An operator request: see [`Schedules::run_now`](super::Schedules::run_now).
    Manual,
    /// An operator request for the fires of a past period: see [`Schedules::backfill`](super::Schedules::backfill).
    Backfill,
}

/// One fire of a task.
#[derive(Clone)]
pub struct Tick {
    pub(super) task: Arc<str>,
    pub(super) time: Timestamp,
    pub(super) kind: TickKind,
    pub(super) attempt: u32,
    pub(super) store: SharedStore,
    pub(super) token: CancellationToken,
}

impl Tick {
    /// Returns the name of the task.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Returns the time of the fire. The run starts at that time or later. After several missed fires, this may be the last
    /// one.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Returns the cause of the run.
    #[must_use]
    pub fn kind(&self) -> TickKind {
        self.kind
    }

    /// Returns the attempt number, starting at 1. Attempts of processes that died count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the key of this fire, the same at every attempt and in every process: `report:2026-03-29T01:00:00Z`. Pass it to
    /// external systems as an idempotency key, so that they recognise repeated effects.
    #[must_use]
    pub fn key(&self) -> String {
        key(&self.task, self.time)
    }

    /// Returns a token that fires when the run ends without a commit. That happens when another owner may soon acquire the
    /// lease, at the timeout, and at shutdown. The task's future is then dropped. Use the token to cancel work that continues
    /// elsewhere.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns the store. Direct writes to it are not part of the task's effects and may happen twice.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.store
    }
}

/// Returns the key of a fire.
pub(super) fn key(task: &str, time: Timestamp) -> String {
    format!("{task}:{}", short(time))
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, time, kind, attempt, .. } = self;
        f.debug_struct("Tick")
            .field("task", task)
            .field("time", time)
            .field("kind", kind)
            .field("attempt", attempt)
            .finish_non_exhaustive()
    }
}
