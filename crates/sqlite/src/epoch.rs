//! Epochs: detection that the file went back in time, and the record of where its history was cut.
//!
//! The file records its inode and its birth time. If they differ from the actual ones, the file was copied or restored.
//! While the file is open, numbers below those that this process has committed show the same. Neither detects a copy
//! that was written over the same file while no process had it open: `tidelock restored` declares that.

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Epoch, Fence, Position};
use tidelock_core::model::epoch::{self, HistoryCut};
use tidelock_core::model::working_set::Counters;
use tidelock_core::store::{LogQuery, StoreError};

use crate::error::Failure;
use crate::file_identity::Birth;
use crate::rows::{int, uint};
use crate::session::load_counters;

/// Begins a new epoch inside an open transaction, after those that the file and the process know.
pub(crate) fn begin(
    db: &Connection,
    known: Epoch,
    now: Timestamp,
    reason: &str,
) -> Result<HistoryCut, Failure> {
    let mut counters = load_counters(db)?;
    counters.epoch = counters.epoch.max(known);
    let cut = epoch::begin(&mut counters, now, reason);
    set(db, "epoch", int(cut.epoch.0))?;
    set(db, "position", int(counters.position.0))?;
    set(db, "fence", int(counters.fence.0))?;
    let mut insert = db.prepare_cached(
        "INSERT INTO tidelock_history_cuts (epoch, previous, cut_after, resumes_at, fence, declared_at, reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    insert.execute((
        int(cut.epoch.0),
        int(cut.previous.0),
        int(cut.cut_after.0),
        int(cut.resumes_at.0),
        int(cut.fence.0),
        cut.declared_at.as_micros(),
        &cut.reason,
    ))?;
    tracing::warn!(epoch = %cut.epoch, previous = %cut.previous, reason = cut.reason, "epoch changed");
    Ok(cut)
}

/// Begins a new epoch when the file was copied or restored since it was last open, and records its identity.
pub(crate) fn confirm(db: &mut Connection, birth: Birth, now: Timestamp) -> Result<(), Failure> {
    let (inode, born_at) = (birth.inode.unwrap_or(0), birth.born_at.unwrap_or(0));
    let is = (Some(inode), Some(born_at));
    if noted(db)? == is && counter(db, "epoch")? != Some(0) {
        return Ok(());
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if counter(&transaction, "epoch")? == Some(0) {
        set(&transaction, "epoch", now.as_micros().max(1))?;
    }
    let noted = noted(&transaction)?;
    if noted != is {
        set(&transaction, "inode", inode)?;
        set(&transaction, "born_at", born_at)?;
        if noted.0.is_some() {
            begin(&transaction, Epoch(0), now, "the file is a copy of the one that was written last")?;
        }
    }
    Ok(transaction.commit()?)
}

/// Returns whether the open file is the one with this identity. A connection keeps a file open that was removed or
/// replaced since, and reports the path of its successor.
pub(crate) fn is_of(db: &Connection, birth: Birth) -> Result<bool, Failure> {
    Ok(noted(db)? == (Some(birth.inode.unwrap_or(0)), Some(birth.born_at.unwrap_or(0))))
}

fn noted(db: &Connection) -> Result<(Option<i64>, Option<i64>), Failure> {
    Ok((counter(db, "inode")?, counter(db, "born_at")?))
}

/// Returns why the numbers in the file show that it went back, if they do.
pub(crate) fn went_back(known: &Counters, found: &Counters) -> Option<&'static str> {
    let back = found.position < known.position || found.fence < known.fence || found.epoch < known.epoch;
    back.then_some("the file went back behind what was committed to it")
}

/// Checks that a reader may continue after the position of its query.
pub(crate) fn check_position(db: &Connection, query: &LogQuery) -> Result<(), Failure> {
    let Some(after) = query.after else { return Ok(()) };
    let highest = load_counters(db)?.position;
    let mut statement = db.prepare_cached(
        "SELECT previous, epoch, cut_after, resumes_at, fence, declared_at, reason FROM tidelock_history_cuts
         WHERE cut_after < ?1 AND resumes_at > ?1",
    )?;
    let cut = statement.query_row([int(after.0)], |row| {
        Ok(HistoryCut {
            previous: Epoch(uint(row.get(0)?)),
            epoch: Epoch(uint(row.get(1)?)),
            cut_after: Position(uint(row.get(2)?)),
            resumes_at: Position(uint(row.get(3)?)),
            fence: Fence(uint(row.get(4)?)),
            declared_at: Timestamp::from_micros(row.get(5)?),
            reason: row.get(6)?,
        })
    });
    epoch::check_position(after, highest, cut.optional()?)
        .map_err(|bad| Failure { error: StoreError::position(after, bad), local: true })
}

fn counter(db: &Connection, name: &str) -> Result<Option<i64>, Failure> {
    let mut statement = db.prepare_cached("SELECT value FROM tidelock_counters WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

fn set(db: &Connection, name: &str, value: i64) -> Result<(), Failure> {
    let mut statement = db.prepare_cached(
        "INSERT INTO tidelock_counters (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?;
    statement.execute((name, value))?;
    Ok(())
}
