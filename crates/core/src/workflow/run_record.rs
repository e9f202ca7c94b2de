//! The document of a run: its workflow, its input, and how it ended.

use serde::{Deserialize, Serialize};

use super::index::Indexed;
use super::journal_entry::{Attributes, Ending, Parent};
use crate::clock::{Timestamp, short};
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::payload::Payload;
use crate::store::Delta;

/// The status of a run, as recorded in its document. Its work row shows the current activity: see [`RunActivity`](super::RunActivity).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It has not ended.
    Running,
    /// It returned an output.
    Completed,
    /// It failed. An operator can resume it.
    Failed,
    /// It was cancelled, and has cleaned up.
    Cancelled,
}

impl RunStatus {
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    /// Returns whether the run has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        self != Self::Running
    }

    /// Returns the name of the status.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// The document of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) workflow: String,
    pub(super) status: RunStatus,
    pub(super) queue: String,
    pub(super) priority: u8,
    #[serde(default)]
    pub(super) generation: u32,
    pub(super) input: Payload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<Parent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) signals: Vec<String>,
    /// It was started with a due time other than now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) delayed: bool,
    #[serde(default)]
    pub(super) attributes: Attributes,
    /// When it was started, by the store's clock as its starter estimated it. Lists of runs are sorted by it.
    pub(super) started_at: Timestamp,
    /// When it ended, by the store's clock as its worker estimated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<Timestamp>,
}

impl Record {
    /// Returns the fields of its index entries.
    pub(super) fn indexed<'a>(&'a self, run: &'a str) -> Indexed<'a> {
        Indexed { run, workflow: &self.workflow, started_at: self.started_at }
    }
}

/// Returns the status of a run after an ending.
pub(super) fn status(ending: &Ending) -> RunStatus {
    match ending {
        Ending::Completed(_) => RunStatus::Completed,
        Ending::Failed(_) => RunStatus::Failed,
        Ending::Cancelled(_) => RunStatus::Cancelled,
        Ending::Continued(_) => RunStatus::Running,
    }
}

/// Returns the changes of the document when a run or a generation ends.
pub(super) fn ended(ending: &Ending, at: Timestamp) -> Result<Vec<Delta>, InvalidInput> {
    let (field, value) = match ending {
        Ending::Completed(output) => ("/output", output.clone()),
        Ending::Failed(failure) | Ending::Cancelled(failure) => ("/failure", Payload::of(failure)?),
        Ending::Continued(input) => ("/input", input.clone()),
    };
    let value: serde_json::Value = value.parse()?;
    let status = status(ending);
    let mut deltas = vec![Delta::set("/status", status.word()), Delta::set(field, value)];
    if status.is_over() {
        deltas.push(Delta::set("/ended_at", short(at)));
    }
    Ok(deltas)
}
