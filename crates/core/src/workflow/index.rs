//! Index documents of runs: one list of all of them and one per status, newest first.
//!
//! An entry has the start of the run and its id in its key, and the workflow as its value. The batch that starts, ends, resumes or
//! removes a run changes its entries, so that they always agree with its document. The entry in the list of all runs never
//! moves; the other one moves with the status.

use super::run_record::RunStatus;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::key::{Arg, INDEX_KIND, Key, KeyPrefix};
use crate::payload::Payload;
use crate::store::{Batch, Expect, StoredDocument};

/// The fields of a run's index entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed<'a> {
    pub(super) run: &'a str,
    pub(super) workflow: &'a str,
    pub(super) started_at: Timestamp,
}

impl Indexed<'_> {
    /// Adds the entries of a run that starts.
    pub(super) fn start(&self, batch: Batch) -> Result<Batch, InvalidInput> {
        self.put(self.put(batch, None)?, Some(RunStatus::Running))
    }

    /// Moves the entry of a run whose status changes.
    pub(super) fn change(&self, batch: Batch, from: RunStatus, to: RunStatus) -> Result<Batch, InvalidInput> {
        let batch = batch.delete(&self.key(Some(from))?, Expect::Any);
        self.put(batch, Some(to))
    }

    /// Removes the entries of a run.
    pub(super) fn remove(&self, batch: Batch, status: RunStatus) -> Result<Batch, InvalidInput> {
        Ok(batch.delete(&self.key(Some(status))?, Expect::Any).delete(&self.key(None)?, Expect::Any))
    }

    fn put(&self, batch: Batch, list: Option<RunStatus>) -> Result<Batch, InvalidInput> {
        Ok(batch.put(&self.key(list)?, Expect::Any, Payload::of(self.workflow)?))
    }

    fn key(&self, list: Option<RunStatus>) -> Result<Key, InvalidInput> {
        key(list, self.started_at, self.run)
    }
}

/// Returns the key of a run's entry in the list of a status, or of all runs. Later starts have smaller keys.
pub(super) fn key(list: Option<RunStatus>, started_at: Timestamp, run: &str) -> Result<Key, InvalidInput> {
    let newest_first = Arg::Int(started_at.as_micros().saturating_neg());
    Key::of(INDEX_KIND, &[name(list), newest_first, Arg::Str(run.to_owned())])
}

/// Returns the prefix of the entries of a list.
pub(super) fn range(list: Option<RunStatus>) -> KeyPrefix {
    KeyPrefix::under(INDEX_KIND, &[name(list)])
}

fn name(list: Option<RunStatus>) -> Arg {
    Arg::Str(list.map_or_else(|| "run".to_owned(), |status| format!("run.{status}")))
}

/// An index entry that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) started_at: Timestamp,
    pub(super) run: String,
    pub(super) workflow: String,
}

impl Found {
    pub(super) fn of(document: &StoredDocument) -> Option<Self> {
        let mut args = document.key.args().into_iter().skip(1);
        let (Some(Arg::Int(negated)), Some(Arg::Str(run))) = (args.next(), args.next()) else { return None };
        let started_at = Timestamp::from_micros(negated.saturating_neg());
        Some(Self { started_at, run, workflow: document.value.parse().ok()? })
    }
}
