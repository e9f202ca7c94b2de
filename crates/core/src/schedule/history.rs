//! What became of the runs of a task: a stream of which the end is kept.

use serde::{Deserialize, Serialize};

use super::fire::Kind;
use super::names;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, Expect, NewEvent, SharedStore, StoreError, StreamQuery};

/// The type of the events.
const RAN: &str = "tidelock.task.ran";
/// Old entries are removed so many at a time.
const SLACK: u64 = 16;
/// The longest error that is kept, in bytes.
const ERROR_BYTES: usize = 4_096;

/// One run that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time that it ran for.
    pub fire: Timestamp,
    /// Why it ran.
    pub kind: Kind,
    /// Which attempt it was.
    pub attempt: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began.
    pub began: Timestamp,
    /// When it ended, or when that was noticed.
    pub ended: Timestamp,
    /// Who ran it.
    pub owner: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Well.
    Succeeded,
    /// A run of a workflow was started.
    Started {
        /// Its id.
        run: String,
    },
    /// It failed.
    Failed,
    /// Its process died, or lost it.
    Lost,
    /// Its program was shut down.
    Interrupted,
}

impl Outcome {
    /// The word for it.
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

/// The batch that adds entries.
pub(super) fn add(task: &str, entries: impl IntoIterator<Item = Entry>) -> Result<Batch, InvalidInput> {
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
    Ok(Batch::new().append(&names::task(task)?, Expect::Any, events))
}

/// The batch that removes what is too old, when there is enough of it.
pub(super) async fn trim(store: &SharedStore, task: &Key, keep: u32) -> Result<Batch, StoreError> {
    let Some(info) = store.stream(task).await? else { return Ok(Batch::new()) };
    let (Some(first), Some(head)) = (info.first, info.head) else { return Ok(Batch::new()) };
    let below = head.next().0.saturating_sub(keep.into());
    if below < first.0.saturating_add(SLACK) {
        return Ok(Batch::new());
    }
    Ok(Batch::new().truncate(task, StreamVersion(below)))
}

/// The newest entries, newest first. What cannot be read is left out.
pub(super) async fn read(store: &SharedStore, task: &Key, limit: usize) -> Result<Vec<Entry>, StoreError> {
    let page = store.read_stream(StreamQuery::backward(task, limit)).await?;
    Ok(page.events.iter().filter_map(|event| event.payload.parse().ok()).collect())
}
