//! User-supplied transactions: commit your own tables and a batch together.

use std::time::Instant;

use tidelock_core::id::EventId;
use tidelock_core::model::facts::Footprint;
use tidelock_core::store::{ApplyError, Batch, Receipt, StoreError, StoreErrorKind};
use tokio_postgres::Transaction;

use crate::PostgresStore;
use crate::db::Db;
use crate::error::{Failure, Meaning};
use crate::flush::{Drawn, Flush};
use crate::rows::get;
use crate::session::{Session, Verdict};
use crate::writer::Engine;
use crate::writer::settle::decide_all;

/// Attempts within a caller's transaction, when another transaction creates the same row at the same time.
const ATTEMPTS: usize = 5;

impl PostgresStore {
    /// Applies a batch inside a transaction of the caller's own connection to the same database. Both commit together,
    /// or neither does.
    ///
    /// The batch takes effect when the caller commits. Its rows are locked until then, and readers of the log see no
    /// later event before the transaction ends. Keep it short; [`stalls`](Self::stalls) shows the ones that are not. A
    /// refused batch leaves the transaction unchanged, and the caller may continue with it. Call [`hint`](Self::hint)
    /// after the commit to wake waiters.
    ///
    /// Works at every isolation level. Above read committed, a transaction sees the rows as they were when it began.
    /// When another transaction has changed a row that the batch needs, the call fails at once with
    /// [`StoreErrorKind::TransactionConflict`] (TL0312). Roll the transaction back and repeat it as a whole.
    ///
    /// ```no_run
    /// # async fn example(store: tidelock_postgres::PostgresStore, mut mine: tidelock_postgres::tokio_postgres::Client)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// use tidelock_core::store::{Batch, Delta};
    /// use tidelock_core::{key::Key, payload::Payload};
    ///
    /// let mut tx = mine.transaction().await?;
    /// tx.execute("INSERT INTO invoices (total) VALUES (300)", &[]).await?;
    /// let sales = Key::single("sales")?;
    /// let batch = Batch::new().merge_or_create(&sales, Payload::of(&0)?, [Delta::inc("", 300)]);
    /// store.apply_in(&mut tx, &batch).await?;
    /// tx.commit().await?;
    /// store.hint();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ApplyError`] as for [`Store::apply`](tidelock_core::store::Store::apply). After a failure other than a
    /// refusal, the server may have aborted the whole transaction. Its next statement then fails.
    pub async fn apply_in(&self, tx: &mut Transaction<'_>, batch: &Batch) -> Result<Receipt, ApplyError> {
        batch.validate()?;
        let engine = &self.shared.engine;
        let batch = &batch.clone().submitted_in(engine.epochs.current());
        let failed = |failure: Failure| ApplyError::not_decided(StoreError::from(failure), batch.id());
        for _ in 0..ATTEMPTS {
            let savepoint = tx.transaction().await.map_err(|e| failed(e.into()))?;
            let attempt = apply(engine, &Db::Theirs(&savepoint), batch).await;
            // From the caller's commit on, the cached rows are outdated.
            engine.warm.distrust(&Footprint::of(batch));
            match attempt {
                Ok(Verdict::Applied(receipt) | Verdict::Repeated(receipt)) => {
                    savepoint.commit().await.map_err(|e| failed(e.into()))?;
                    return Ok(receipt);
                }
                Ok(Verdict::Refused(refusal)) => {
                    savepoint.rollback().await.map_err(|e| failed(e.into()))?;
                    return Err(ApplyError::Refused(refusal));
                }
                Ok(Verdict::Same(_)) => break,
                Err(failure) => {
                    if !is_conflict(failure.meaning) {
                        return Err(failed(failure));
                    }
                    savepoint.rollback().await.map_err(|e| failed(e.into()))?;
                    if failure.meaning == Meaning::Epoch {
                        let client = engine.writer(Instant::now() + engine.patience).await.map_err(failed)?;
                        engine.reconfirm(&client).await;
                    }
                    if failure.meaning != Meaning::Locked && keeps_snapshot(tx).await.map_err(failed)? {
                        return Err(failed(outdated(&failure)));
                    }
                    if failure.meaning == Meaning::Again {
                        return Err(failed(failure));
                    }
                }
            }
        }
        let detail = "others kept making the same rows at the same time";
        Err(failed(Failure::new(StoreErrorKind::Busy, "applying a batch in a transaction", detail)))
    }
}

/// Returns whether another transaction caused the failure.
fn is_conflict(meaning: Meaning) -> bool {
    matches!(
        meaning,
        Meaning::Stale | Meaning::TakenEventId | Meaning::Locked | Meaning::Again | Meaning::Epoch
    )
}

/// Returns whether the transaction runs above read committed. Each of its statements then sees the same snapshot, so
/// that another attempt within it finds the same rows.
async fn keeps_snapshot(tx: &Transaction<'_>) -> Result<bool, Failure> {
    let sql = "SELECT current_setting('transaction_isolation') <> 'read committed'";
    let found = tx.query_typed(sql, &[]).await?;
    found.first().map_or(Ok(false), |row| get(row, 0))
}

/// Maps a failure whose cause is a snapshot of the caller's transaction older than a row that the batch needs.
fn outdated(failure: &Failure) -> Failure {
    let detail = format!("another transaction changed a row since this one began ({})", failure.error.detail);
    Failure::new(StoreErrorKind::TransactionConflict, "applying a batch in a transaction", detail)
}

async fn apply(engine: &Engine, db: &Db<'_>, batch: &Batch) -> Result<Verdict, Failure> {
    let ids: Vec<EventId> = batch.event_ids().collect();
    let mut session: Session = engine.hold(db, None, &[batch], &ids).await?;
    decide_all(db, &engine.sql, &mut session, &[batch]).await?;
    let refused = matches!(session.verdicts.first(), Some(Verdict::Refused(_)));
    let flush = Flush::of(&mut session, None, None);
    let drawn = if refused {
        Drawn::default()
    } else {
        flush.send(db, &engine.sql, &session, None, Vec::new()).await?.0
    };
    if !refused {
        engine.warm.bounds.written(flush.work_rows(&session));
    }
    drawn.verdict(&session, 0).ok_or_else(crate::writer::settle::short_answer)
}
