//! Your own transaction: commit your own tables and a batch together.

use tidelock_core::id::EventId;
use tidelock_core::model::facts::Footprint;
use tidelock_core::store::{ApplyError, Batch, Receipt, StoreError, StoreErrorKind};
use tokio_postgres::Transaction;

use crate::PostgresStore;
use crate::db::Db;
use crate::error::{Failure, Meaning};
use crate::flush::{Drawn, Flush};
use crate::session::{Session, Verdict};
use crate::writer::Engine;
use crate::writer::settle::decide_all;

/// Attempts within a caller's transaction, when somebody else makes the same row at the same time.
const ATTEMPTS: usize = 5;

impl PostgresStore {
    /// Applies a batch inside a transaction of the caller's own connection to the same database; both commit together,
    /// or neither does.
    ///
    /// The batch takes effect when the caller commits. Its rows are held until then, and readers of the log see no
    /// later event before the transaction ends: keep it short ([`stalls`](Self::stalls) shows those that are not). A
    /// refused batch leaves the transaction as it was, and the caller may go on with it. Call [`hint`](Self::hint)
    /// after the commit to wake those who wait. Works at every isolation level; above read committed the server may
    /// answer that the transaction must be repeated.
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
    /// [`ApplyError`] as for [`Store::apply`](tidelock_core::store::Store::apply). After a failure that is no refusal
    /// the server may have given the whole transaction up; its next statement then says so.
    pub async fn apply_in(&self, tx: &mut Transaction<'_>, batch: &Batch) -> Result<Receipt, ApplyError> {
        batch.validate()?;
        let engine = &self.shared.engine;
        let failed = |failure: Failure| ApplyError::not_applied(StoreError::from(failure));
        for _ in 0..ATTEMPTS {
            let savepoint = tx.transaction().await.map_err(|e| failed(e.into()))?;
            let attempt = apply(engine, &Db::Theirs(&savepoint), batch).await;
            // Whenever the caller commits, what is remembered about these rows is out of date.
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
                Err(failure) if again(failure.meaning) => {
                    savepoint.rollback().await.map_err(|e| failed(e.into()))?;
                }
                Err(failure) => return Err(failed(failure)),
            }
        }
        let detail = "others kept making the same rows at the same time";
        Err(failed(Failure::new(StoreErrorKind::Busy, "applying a batch in a transaction", detail)))
    }
}

fn again(meaning: Meaning) -> bool {
    matches!(meaning, Meaning::Stale | Meaning::TakenEventId | Meaning::Locked)
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
    drawn.verdict(&session, 0).ok_or_else(crate::writer::settle::short_answer)
}
