//! User-supplied transactions: commit your own tables and a batch together.

use std::sync::Arc;

use rusqlite::Transaction;
use tidelock_core::clock::Clock as _;
use tidelock_core::store::{ApplyError, Batch, Receipt, Store as _, StoreError, StoreErrorKind};

use crate::SqliteStore;
use crate::epoch;
use crate::error::Failure;
use crate::file_identity::Birth;
use crate::index_merge::IndexMerger;
use crate::open;
use crate::session::{self, Session, Verdict};

/// The number of unindexed events beyond which a transaction of the caller merges them all.
const LONG_TAIL: usize = 512;

impl SqliteStore {
    /// Applies a batch inside a transaction of the caller's own connection to the same file. Both commit together, or
    /// neither does.
    ///
    /// The transaction must hold the write lock: begin it with
    /// [`TransactionBehavior::Immediate`](rusqlite::TransactionBehavior::Immediate). The batch takes effect when the
    /// caller commits, at the time of the store's clock. A refused batch leaves the transaction unchanged, and the
    /// caller may continue with it. When the disk is full, SQLite may roll the whole transaction back. Check
    /// `tx.is_autocommit()` before you continue after an error other than a refusal. Open the store with
    /// [`SqliteOptions::shared`](crate::SqliteOptions::shared) when the file already holds your own tables.
    ///
    /// The call blocks like any statement of SQLite, and therefore is not async. Waiters notice the commit within a few
    /// milliseconds; [`hint`](Self::hint) wakes them at once.
    ///
    /// ```
    /// use tidelock_core::store::{Batch, Delta, Store};
    /// use tidelock_core::{key::Key, payload::Payload};
    /// use tidelock_sqlite::rusqlite::{Connection, TransactionBehavior};
    /// use tidelock_sqlite::{SqliteOptions, SqliteStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shop.db");
    /// let store = SqliteStore::open(&path, SqliteOptions { shared: true, ..SqliteOptions::default() }).await?;
    /// let mut mine = Connection::open(&path)?;
    /// mine.execute_batch("CREATE TABLE invoices (number INTEGER PRIMARY KEY, total INTEGER)")?;
    ///
    /// let tx = mine.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("INSERT INTO invoices (total) VALUES (300)", [])?;
    /// let sales = Key::single("sales")?;
    /// let batch = Batch::new().merge_or_create(&sales, Payload::of(&0)?, [Delta::inc("", 300)]);
    /// store.apply_in(&tx, &batch)?;
    /// tx.commit()?;
    ///
    /// assert_eq!(store.document(&sales).await?.map(|d| d.value), Some(Payload::of(&300)?));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ApplyError`] as for [`Store::apply`](tidelock_core::store::Store::apply).
    /// [`StoreErrorKind::ForeignTransaction`] (TL0313) when the connection has another file open.
    pub fn apply_in(&self, tx: &Transaction<'_>, batch: &Batch) -> Result<Receipt, ApplyError> {
        batch.validate()?;
        let batch = batch.clone().submitted_in(self.epoch());
        let failed = |failure: Failure| ApplyError::not_decided(StoreError::from(failure), batch.id());
        self.check_file(tx).map_err(|e| ApplyError::not_decided(e, batch.id()))?;
        if tx.is_autocommit() {
            return Err(ApplyError::not_decided(ended(), batch.id()));
        }
        open::add_functions(tx).map_err(|e| failed(e.into()))?;
        tx.execute_batch("SAVEPOINT tidelock_batch").map_err(|e| failed(e.into()))?;
        let verdict = self.decide_in(tx, &batch);
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

    /// Decides a batch and writes its changes, behind the savepoint.
    fn decide_in(&self, tx: &Transaction<'_>, batch: &Batch) -> Result<Verdict, Failure> {
        // A separate tail: uncommitted events of the caller must not reach the readers of a store.
        let mut session = Session::open(tx, Arc::default())?;
        session.begun();
        self.shared.clock.advance_to(session.time.stored);
        let now = self.shared.clock.now();
        session.time.now = now;
        // A program that writes in its own transactions only has no writer that merges. A long tail is therefore merged
        // here.
        session.merge(tx, &mut IndexMerger::new(LONG_TAIL), usize::MAX / 4)?;
        let verdict = session.apply_carefully(tx, batch, now)?;
        session.flush(tx)?;
        Ok(verdict)
    }

    /// Checks that the transaction writes to the file of the store.
    fn check_file(&self, tx: &Transaction<'_>) -> Result<(), StoreError> {
        let what = "cannot apply a batch in a transaction of rusqlite";
        let found = match self.shared.identity.is_at(tx.path()) {
            Err(found) => found,
            // A failure is reported by the first statement of the batch.
            Ok(()) if epoch::is_of(tx, Birth::of(self.path())).unwrap_or(true) => return Ok(()),
            Ok(()) => "a file that was replaced while its connection was open".to_owned(),
        };
        let detail = format!("it is on {found}, and the store is the file {}", self.path().display());
        Err(StoreError::new(StoreErrorKind::ForeignTransaction, what, detail))
    }
}

/// Returns the error for a transaction that SQLite or the caller has ended: the batch would commit alone.
fn ended() -> StoreError {
    let detail = "the transaction is over: an earlier error or statement ended it; begin another one";
    StoreError::new(StoreErrorKind::Invalid, "cannot apply a batch in a transaction of rusqlite", detail)
}
