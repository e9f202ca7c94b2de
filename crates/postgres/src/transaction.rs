//! User-supplied transactions: commit your own tables and a batch together.

use std::time::Instant;

use futures_util::future::{BoxFuture, FutureExt as _};
use tidelock_core::id::EventId;
use tidelock_core::model::working_set::Footprint;
use tidelock_core::store::{ApplyError, Batch, Receipt, StoreError, StoreErrorKind};

use crate::PostgresStore;
use crate::db::{Call, Db};
use crate::error::{Failure, Meaning};
use crate::flush::{Drawn, Flush};
use crate::rows::get;
use crate::session::{Session, Verdict};
use crate::writer::Engine;
use crate::writer::pessimistic::decide_all;

pub(crate) const WHAT: &str = "cannot apply a batch in a transaction";

/// Attempts within a caller's transaction, when another transaction creates the same row at the same time.
const ATTEMPTS: usize = 5;

/// A transaction of the caller's own connection: of `tokio-postgres` or, with the feature `sqlx`, of sqlx. The trait is
/// sealed.
pub trait DriverTransaction: Begin {}

impl DriverTransaction for tokio_postgres::Transaction<'_> {}

#[cfg(feature = "sqlx")]
impl DriverTransaction for sqlx::Transaction<'_, sqlx::Postgres> {}

/// Begins a savepoint.
pub trait Begin: Send {
    fn begin(&mut self) -> BoxFuture<'_, Result<Savepoint<'_>, StoreError>>;
}

impl Begin for tokio_postgres::Transaction<'_> {
    fn begin(&mut self) -> BoxFuture<'_, Result<Savepoint<'_>, StoreError>> {
        async { Ok(Savepoint::Tokio(self.transaction().await.map_err(Failure::from)?)) }.boxed()
    }
}

#[cfg(feature = "sqlx")]
impl Begin for sqlx::Transaction<'_, sqlx::Postgres> {
    fn begin(&mut self) -> BoxFuture<'_, Result<Savepoint<'_>, StoreError>> {
        async {
            let savepoint = sqlx::Connection::begin(&mut **self).await.map_err(Failure::from)?;
            Ok(Savepoint::Sqlx(tokio::sync::Mutex::new(savepoint)))
        }
        .boxed()
    }
}

/// A savepoint in the caller's transaction. A dropped savepoint is rolled back.
#[expect(missing_debug_implementations, reason = "a transaction of tokio-postgres has none")]
pub enum Savepoint<'a> {
    Tokio(tokio_postgres::Transaction<'a>),
    #[cfg(feature = "sqlx")]
    Sqlx(tokio::sync::Mutex<sqlx::Transaction<'a, sqlx::Postgres>>),
}

impl Savepoint<'_> {
    fn db(&self) -> Db<'_> {
        match self {
            Self::Tokio(savepoint) => Db::Theirs(savepoint),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(savepoint) => Db::Sqlx(savepoint),
        }
    }

    async fn release(self) -> Result<(), Failure> {
        match self {
            Self::Tokio(savepoint) => savepoint.commit().await?,
            #[cfg(feature = "sqlx")]
            Self::Sqlx(savepoint) => savepoint.into_inner().commit().await?,
        }
        Ok(())
    }

    async fn roll_back(self) -> Result<(), Failure> {
        match self {
            Self::Tokio(savepoint) => savepoint.rollback().await?,
            #[cfg(feature = "sqlx")]
            Self::Sqlx(savepoint) => savepoint.into_inner().rollback().await?,
        }
        Ok(())
    }
}

impl PostgresStore {
    /// Applies a batch inside a transaction of the caller's own connection to the same database. Both commit together,
    /// or neither does. The transaction is of `tokio-postgres` or, with the feature `sqlx`, of sqlx.
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
    /// [`ApplyError`] as for [`Store::apply`](tidelock_core::store::Store::apply).
    /// [`StoreErrorKind::ForeignTransaction`] (TL0313) when the connection is to another database. After a failure other
    /// than a refusal, the server may have aborted the whole transaction. Its next statement then fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction has the batch as a whole or not at all. Roll it back.
    pub async fn apply_in(
        &self,
        tx: &mut impl DriverTransaction,
        batch: &Batch,
    ) -> Result<Receipt, ApplyError> {
        self.apply_in_any(tx, batch).await
    }

    async fn apply_in_any(&self, tx: &mut dyn Begin, batch: &Batch) -> Result<Receipt, ApplyError> {
        batch.validate()?;
        let engine = &self.shared.engine;
        let batch = &batch.clone().submitted_in(engine.epochs.current());
        let failed = |failure: Failure| ApplyError::not_decided(StoreError::from(failure), batch.id());
        for _ in 0..ATTEMPTS {
            let savepoint = tx.begin().await.map_err(|e| failed(e.into()))?;
            let attempt = apply(engine, &savepoint.db(), batch).await;
            // From the caller's commit on, the cached rows are outdated.
            engine.warm.invalidate(&Footprint::of(batch));
            match attempt {
                Ok(Verdict::Applied(receipt) | Verdict::Repeated(receipt)) => {
                    savepoint.release().await.map_err(failed)?;
                    return Ok(receipt);
                }
                Ok(Verdict::Refused(refusal)) => {
                    savepoint.roll_back().await.map_err(failed)?;
                    return Err(ApplyError::Refused(refusal));
                }
                Ok(Verdict::Same(_)) => break,
                Err(failure) => {
                    if !is_conflict(failure.meaning) {
                        return Err(failed(without_schema(engine, failure)));
                    }
                    savepoint.roll_back().await.map_err(failed)?;
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
async fn keeps_snapshot(tx: &mut dyn Begin) -> Result<bool, Failure> {
    let sql = "SELECT current_setting('transaction_isolation') <> 'read committed'";
    let savepoint = tx.begin().await?;
    let found = savepoint.db().query(Call::new(sql)).await?;
    savepoint.release().await?;
    found.first().map_or(Ok(false), |row| get(row, 0))
}

/// Maps the failure of a transaction whose database lacks the tables of the store.
fn without_schema(engine: &Engine, failure: Failure) -> Failure {
    if failure.error.kind != StoreErrorKind::Migration {
        return failure;
    }
    let detail = format!(
        "its database has no schema {} with the tables of the store ({})",
        engine.sql.schema, failure.error.detail
    );
    Failure::new(StoreErrorKind::ForeignTransaction, WHAT, detail)
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
        engine.warm.bounds.written(flush.work_rows(&session), Instant::now());
    }
    drawn.verdict(&session, 0).ok_or_else(crate::writer::pessimistic::short_answer)
}
