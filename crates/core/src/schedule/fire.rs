//! What a task knows about the fire that it runs for.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::clock::{Timestamp, short};
use crate::store::SharedStore;

/// Why a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its time has come.
    Scheduled,
    /// Somebody asked for it: see [`Schedules::run_now`](super::Schedules::run_now).
    Manual,
    /// Somebody asked for the fires of a time that has passed: see [`Schedules::backfill`](super::Schedules::backfill).
    Backfill,
}

/// One fire of a task.
#[derive(Clone)]
pub struct Fire {
    pub(super) task: Arc<str>,
    pub(super) time: Timestamp,
    pub(super) kind: Kind,
    pub(super) attempt: u32,
    pub(super) store: SharedStore,
    pub(super) token: CancellationToken,
}

impl Fire {
    /// The name of the task.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.task
    }

    /// The time that it runs for. It runs at that time or later; of several that were missed, this may be the last.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Why it runs.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Which attempt this is, counted from 1. Attempts of processes that died count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The name of this fire, the same at every attempt and in every process: `report:2026-03-29T01:00:00Z`. Hand it to effects
    /// outside of the store, so that the other side can tell that it has done them already.
    #[must_use]
    pub fn key(&self) -> String {
        key(&self.task, self.time)
    }

    /// A token that fires when the run ends without a commit: the lease may soon be somebody else's, the time limit is over, or
    /// the program shuts down. The task's future is dropped then. The token is for what goes on elsewhere.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.token
    }

    /// The store. What a task writes with it stands outside of its effects: it may be done twice.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.store
    }
}

/// The name of a fire.
pub(super) fn key(task: &str, time: Timestamp) -> String {
    format!("{task}:{}", short(time))
}

impl fmt::Debug for Fire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, time, kind, attempt, .. } = self;
        f.debug_struct("Fire")
            .field("task", task)
            .field("time", time)
            .field("kind", kind)
            .field("attempt", attempt)
            .finish_non_exhaustive()
    }
}
