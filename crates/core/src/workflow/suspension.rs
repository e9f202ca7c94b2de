//! Typed reasons of suspended runs. The text that people read is derived from them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::nondeterminism::Nondeterminism;
use crate::clock::Due;
use crate::error::Explain as _;
use crate::lease::NEVER;
use crate::model::limits::ERROR_BYTES;
use crate::payload::Payload;
use crate::store::{NewWork, WorkRow};

/// The reason why a run is suspended: no worker could continue it. It is retried after a backoff, or when it is
/// [resumed](super::WorkflowClient::resume).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Suspension {
    /// The code differs from the journal, or cannot continue: it was changed, uses a name twice, or panics.
    UnfitCode {
        /// The code of the page that explains it.
        code: String,
        /// The description of the fault.
        detail: String,
    },
    /// No worker of the queue has registered the workflow.
    UnknownWorkflow {
        /// The workflow of the run.
        workflow: String,
        /// The workflows that the worker has registered.
        known: Vec<String>,
    },
    /// The input of the run cannot be decoded.
    UnfitInput {
        /// The workflow of the run.
        workflow: String,
        /// The reason.
        detail: String,
    },
    /// The journal cannot be decoded, or contradicts the run's document.
    UnreadableJournal {
        /// The reason.
        detail: String,
    },
    /// The store rejected a commit of the run.
    Rejected {
        /// The reason.
        detail: String,
    },
    /// Workers that drove the run died in the same place, without progress and without a report.
    WorkersDied {
        /// The number of claims since the last progress.
        claims: u32,
    },
    /// A worker handed the run back while a step ran.
    Interrupted {
        /// The reason.
        detail: String,
    },
}

impl Suspension {
    pub(super) fn unreadable(detail: impl fmt::Display) -> Self {
        Self::UnreadableJournal { detail: cut(detail.to_string()) }
    }

    pub(super) fn rejected(detail: impl fmt::Display) -> Self {
        Self::Rejected { detail: cut(detail.to_string()) }
    }
}

impl From<&Nondeterminism> for Suspension {
    fn from(broken: &Nondeterminism) -> Self {
        Self::UnfitCode { code: broken.code().to_string(), detail: cut(broken.to_string()) }
    }
}

impl fmt::Display for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnfitCode { code, detail } => write!(f, "{code}: {detail}"),
            Self::UnknownWorkflow { workflow, known } => {
                write!(f, "no worker here knows workflow {workflow:?}; it knows: {}", known.join(", "))
            }
            Self::UnfitInput { workflow, detail } => {
                write!(f, "its input does not fit workflow {workflow:?}: {detail}")
            }
            Self::UnreadableJournal { detail } => write!(f, "its journal cannot be read: {detail}"),
            Self::Rejected { detail } | Self::Interrupted { detail } => f.write_str(detail),
            Self::WorkersDied { claims } => {
                write!(f, "it was claimed {claims} times without progress, and no worker reported why")
            }
        }
    }
}

/// Truncates a text so that it fits into the row beside the rest.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(ERROR_BYTES));
    text
}

/// The payload of a suspended run's work row. The number of claims shows whether the report belongs to the latest claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Suspended {
    /// The number of claims without progress when this was written.
    pub(super) claims: u32,
    pub(super) reason: Suspension,
}

impl Suspended {
    /// Returns the last report of a worker about a row, if there is one.
    fn of(row: &WorkRow) -> Option<Self> {
        row.last_error.as_ref()?;
        row.payload.parse().ok()
    }

    /// Returns the row with this report. It is enqueued after the row was failed, and leaves its due time unchanged.
    pub(super) fn row(&self, row: &WorkRow) -> NewWork {
        let new = NewWork::once(row.key.clone(), row.queue.clone()).priority(row.priority);
        NewWork { payload: Payload::of(self).ok(), ..new.due(Due::At(NEVER)) }
    }

    /// Returns the report of a worker that hands a row back. The error of the row contains the reason.
    pub(super) fn interrupted(row: &WorkRow) -> Self {
        Self { claims: row.attempts, reason: Suspension::Interrupted { detail: String::new() } }
    }
}

/// Returns why the last claim of an unleased row did not complete, if it did not.
pub(super) fn reason(row: &WorkRow) -> Option<Suspension> {
    let detail = row.last_error.clone()?;
    let last = Suspended::of(row).filter(|last| last.claims == row.attempts).map(|last| last.reason);
    match last {
        Some(reason) if !matches!(reason, Suspension::Interrupted { .. }) => Some(reason),
        _ => Some(Suspension::Interrupted { detail }),
    }
}

/// The number of claims without any progress and without a report after which a run must wait.
pub(super) const SILENT_CLAIMS: u32 = 5;

/// Returns whether a run may be the reason why its workers die: it was claimed often without progress or a report. After each
/// backoff it is tried once.
pub(super) fn workers_die(row: &WorkRow) -> bool {
    let before = row.attempts.saturating_sub(1);
    match Suspended::of(row) {
        Some(Suspended { claims, reason }) => {
            let silent = before.saturating_sub(claims);
            let limit = if matches!(reason, Suspension::WorkersDied { .. }) { 1 } else { SILENT_CLAIMS };
            silent >= limit
        }
        None => row.last_error.is_none() && before >= SILENT_CLAIMS,
    }
}
