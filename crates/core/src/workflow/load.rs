//! Journal load at the beginning of an activation.

use super::engine::WorkflowEngine;
use super::error::WorkflowError;
use super::journal;
use super::journal_entry::{JournalEntry, Placed, Started};
use super::resumed::counting;
use super::suspension::Suspension;
use crate::error::InvalidInput;
use crate::id::StreamVersion;
use crate::store::{Event, Grant, StoreError};

/// The content of a journal: a run in progress, or one that has ended.
pub(super) enum Loaded {
    Run(Box<Started>, Vec<Placed>, StreamVersion),
    Over,
}

/// The reason why a journal could not be loaded.
pub(super) enum Unready {
    Store(StoreError),
    Never(Suspension),
}

impl From<StoreError> for Unready {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<WorkflowError> for Unready {
    fn from(error: WorkflowError) -> Self {
        match error {
            WorkflowError::Store(error) => Self::Store(error),
            other => Self::Never(Suspension::unreadable(other)),
        }
    }
}

impl From<InvalidInput> for Unready {
    fn from(error: InvalidInput) -> Self {
        Self::Never(Suspension::unreadable(error))
    }
}

/// Reads the journal of a run. The grant may have included its beginning.
pub(super) async fn load(
    shared: &WorkflowEngine,
    grant: &Grant,
    events: Vec<Event>,
) -> Result<Loaded, Unready> {
    let journal =
        grant.row.follow.clone().ok_or_else(|| Unready::Never(Suspension::unreadable("there is none")))?;
    let complete = !grant.more;
    let mut entries = events.iter().map(Placed::of).collect::<Result<Vec<_>, _>>()?;
    if !complete || entries.is_empty() {
        let from = entries.last().map(|last| last.version.next());
        entries.extend(journal::read(&shared.worker.store, &journal, from).await?);
    }
    let next = entries.last().map_or(StreamVersion(0), |last| last.version.next());
    match entries.split_first() {
        Some((Placed { entry: JournalEntry::Started(started), .. }, history)) => {
            let history = counting(history.to_vec());
            if history.iter().any(|placed| matches!(placed.entry, JournalEntry::Ended(_))) {
                return Ok(Loaded::Over);
            }
            Ok(Loaded::Run(started.clone(), history, next))
        }
        _ => Err(Unready::Never(Suspension::unreadable("it does not begin with the start of the run"))),
    }
}
