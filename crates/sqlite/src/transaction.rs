//! User-supplied transactions: commit your own tables and a batch together.

use std::sync::Arc;

use rusqlite::Transaction;
use tidelock_core::clock::Timestamp;
use tidelock_core::store::{ApplyError, Batch, Receipt, StoreError};

use crate::merge::Merger;
use crate::open;
use crate::session::{self, Session};

/// The number of unindexed events beyond which a transaction of the caller merges them all.
const LONG_TAIL: usize = 512;

/// Applies a batch inside a transaction of the caller's own connection to the same file. Both commit together, or
/// neither does.
///
/// The transaction must hold the write lock: begin it with
/// [`TransactionBehavior::Immediate`](rusqlite::TransactionBehavior::Immediate). The batch takes effect when the caller
/// commits. A refused batch leaves the transaction unchanged, and the caller may continue with it. When the disk is
/// full, SQLite may roll the whole transaction back. Check `tx.is_autocommit()` before you continue after an error
/// other than a refusal. Open the store with [`Options::shared`](crate::Options::shared) when the file holds your own
/// tables.
///
/// ```
/// use tidelock_core::clock::{Clock, SystemClock};
/// use tidelock_core::store::{Batch, Delta, Store};
/// use tidelock_core::{key::Key, payload::Payload};
/// use tidelock_sqlite::rusqlite::{Connection, TransactionBehavior};
/// use tidelock_sqlite::{Options, SqliteStore, apply_in};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shop.db");
/// let store = SqliteStore::open(&path, Options { shared: true, ..Options::default() }).await?;
/// let mut mine = Connection::open(&path)?;
/// mine.execute_batch("CREATE TABLE invoices (number INTEGER PRIMARY KEY, total INTEGER)")?;
///
/// let tx = mine.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// tx.execute("INSERT INTO invoices (total) VALUES (300)", [])?;
/// let sales = Key::single("sales")?;
/// let batch = Batch::new().merge_or_create(&sales, Payload::of(&0)?, [Delta::inc("", 300)]);
/// apply_in(&tx, &batch, SystemClock::default().now())?;
/// tx.commit()?;
///
/// assert_eq!(store.document(&sales).await?.map(|d| d.value), Some(Payload::of(&300)?));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ApplyError`] as for [`Store::apply`](tidelock_core::store::Store::apply).
pub fn apply_in(tx: &Transaction<'_>, batch: &Batch, now: Timestamp) -> Result<Receipt, ApplyError> {
    batch.validate()?;
    let failed =
        |failure: crate::error::Failure| ApplyError::not_decided(StoreError::from(failure), batch.id());
    open::add_functions(tx).map_err(|e| failed(e.into()))?;
    tx.execute_batch("SAVEPOINT tidelock_batch").map_err(|e| failed(e.into()))?;
    // A separate tail: uncommitted events of the caller must not reach the readers of a store.
    let verdict = Session::open(tx, Arc::default()).and_then(|mut session| {
        session.begun();
        let now = now.max(session.time.stored);
        session.time.now = now;
        // A program that writes in its own transactions only has no writer that merges. A long tail is therefore merged
        // here.
        session.merge(tx, &mut Merger::new(LONG_TAIL), usize::MAX / 4)?;
        let verdict = session.apply_carefully(tx, batch, now)?;
        session.flush(tx)?;
        Ok(verdict)
    });
    if verdict.is_err() && tx.is_autocommit() {
        return session::answer(verdict.map_err(failed)?);
    }
    let end = match &verdict {
        Ok(Ok(_)) => "RELEASE tidelock_batch",
        _ => "ROLLBACK TO tidelock_batch; RELEASE tidelock_batch",
    };
    tx.execute_batch(end).map_err(|e| failed(e.into()))?;
    session::answer(verdict.map_err(failed)?)
}
