//! Run history of a task: a stream whose newest entries are kept.

use serde::{Deserialize, Serialize};

use super::keys;
use super::tick::TickKind;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, Expect, NewEvent, SharedStore, StoreError, StreamQuery};

/// The type of the events.
const RAN: &str = "tidelock.task.ran";
/// The minimum number of old entries that are removed at a time.
const SLACK: u64 = 16;
/// The maximum length of a stored error, in bytes.
const ERROR_BYTES: usize = 4_096;

/// A run that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickEntry {
    /// The time of the fire.
    pub fire: Timestamp,
    /// The cause of the run.
    pub kind: TickKind,
    /// The attempt number.
    pub attempt: u32,
    /// The outcome of the run.
    pub outcome: TickOutcome,
    /// The start of the run.
    pub began: Timestamp,
    /// The end of the run, or the time at which the end was noticed.
    pub ended: Timestamp,
    /// The process that ran it.
    pub owner: String,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TickOutcome {
    /// The run succeeded.
    Succeeded,
    /// A run of a workflow was started.
    Started {
        /// The id of the run.
        run: String,
    },
    /// The run failed.
    Failed,
    /// The process died, or lost the lease.
    Lost,
    /// The program was shut down.
    Interrupted,
}

impl TickOutcome {
    /// Returns the name of the outcome.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Started { .. } => "started",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Returns the batch that adds entries.
pub(super) fn add(task: &str, entries: impl IntoIterator<Item = TickEntry>) -> Result<Batch, InvalidInput> {
    let mut events = Vec::new();
    for mut entry in entries {
        if let Some(error) = &mut entry.error {
            error.truncate(error.floor_char_boundary(ERROR_BYTES));
        }
        events.push(NewEvent::new(RAN.parse()?, Payload::of(&entry)?));
    }
    if events.is_empty() {
        return Ok(Batch::new());
    }
    Ok(Batch::new().append(&keys::task(task)?, Expect::Any, events))
}

/// Returns the batch that removes old entries, when there are enough of them.
pub(super) async fn trim(store: &SharedStore, task: &Key, keep: u32) -> Result<Batch, StoreError> {
    let Some(info) = store.stream(task).await? else { return Ok(Batch::new()) };
    let (Some(first), Some(head)) = (info.first, info.head) else { return Ok(Batch::new()) };
    let below = head.next().0.saturating_sub(keep.into());
    if below < first.0.saturating_add(SLACK) {
        return Ok(Batch::new());
    }
    Ok(Batch::new().truncate(task, StreamVersion(below)))
}

/// Reads the newest entries, newest first. Entries that cannot be decoded are skipped.
pub(super) async fn read(
    store: &SharedStore,
    task: &Key,
    limit: usize,
) -> Result<Vec<TickEntry>, StoreError> {
    let page = store.read_stream(StreamQuery::backward(task, limit)).await?;
    Ok(page.events.iter().filter_map(|event| event.payload.parse().ok()).collect())
}
