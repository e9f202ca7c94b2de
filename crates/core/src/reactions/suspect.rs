//! Attempts of rows whose holders died, and may have died of them.
//!
//! Attempts count when a row is granted, so every row that a dying process holds loses one, whether its handler ran or not. After
//! a death, an attempt is therefore recorded in the store before the handler starts, and only recorded attempts count. A row
//! that waited for its turn to run alone while another one killed the process keeps its budget (decision 0050).

use std::time::Duration;

use super::decide::{Granted, Recorded, Rules};
use super::error::ReactionsError;
use super::keys;
use crate::clock::Due;
use crate::payload::Payload;
use crate::store::{Batch, Expect, Grant, SharedStore, WorkRow};
use crate::worker::{Committed, LeasedWork};

/// How long a record is kept.
const RETENTION: Duration = Duration::from_hours(7 * 24);

/// Records that a row is about to run, and returns the number of the attempt among those that count. `None` when its lease
/// is lost. All attempts of a row count whose name leaves no room for that of a record.
///
/// # Errors
/// The error of the store.
pub(super) async fn record(
    store: &SharedStore,
    grant: &Grant,
    work: &LeasedWork,
) -> Result<Option<u32>, ReactionsError> {
    let row = &grant.row;
    let Ok(key) = keys::suspect(&row.key) else { return Ok(Some(row.attempts)) };
    let found = store.document(&key).await?.and_then(|found| found.value.parse::<Recorded>().ok());
    let granted =
        Granted { attempts: row.attempts, takeovers: row.takeovers, has_failed: row.last_error.is_some() };
    let attempt = Rules::counted(granted, found.filter(|found| found.position == row.position));
    let record = Payload::of(&Recorded { position: row.position, attempt, granted: row.attempts })?;
    match work.commit(Batch::new().put_until(&key, Expect::Any, record, Due::After(RETENTION))).await {
        Committed::Done(_) => Ok(Some(attempt)),
        Committed::Gone | Committed::Refused(_) => Ok(None),
    }
}

/// Adds to a batch that blocks a row that its record is removed: an unblocked row has all its attempts again.
pub(super) fn forget(batch: Batch, row: &WorkRow) -> Batch {
    match keys::suspect(&row.key) {
        Ok(key) if row.takeovers > 0 => batch.delete(&key, Expect::Any),
        _ => batch,
    }
}
