//! User-supplied transactions: rows of your own tables, a batch and a started run in one commit.
//!
//! SQLite blocks and PostgreSQL is async, so a call returns what the driver of its transaction can give: a result, or a
//! future of it.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::any::Any;

use tidelock_core::store::{ApplyError, Batch, Receipt, SharedStore};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use tidelock_core::store::{Store, StoreError, StoreErrorKind};
use tidelock_core::workflow::{RunHandle, StartRequest};

use crate::{Error, Tidelock};

/// A transaction of your own connection to the database of the store: of `rusqlite`, of `tokio-postgres` or, with the
/// feature `sqlx`, of sqlx on PostgreSQL. The trait is sealed.
///
/// | transaction | a call returns |
/// |---|---|
/// | `rusqlite::Transaction` | `Result`, because SQLite blocks: use it with `?`, without `.await` |
/// | `tokio_postgres::Transaction` | a future |
/// | `sqlx::Transaction<Postgres>` | a future |
///
/// See [`Tidelock::apply_in`] and [`StartWithin::within`].
pub trait CallerTransaction: Sealed {
    /// The return type of a call in this transaction.
    type Output<'t, R: 't>
    where
        Self: 't;

    /// Applies a batch, and converts its result.
    #[doc(hidden)]
    fn apply<'t, R: 't, F>(
        &'t mut self,
        store: &SharedStore,
        prepared: Result<(Batch, F), Error>,
    ) -> Self::Output<'t, R>
    where
        F: FnOnce(Result<Receipt, ApplyError>) -> Result<R, Error> + Send + 't;
}

/// Seals [`CallerTransaction`].
pub trait Sealed {}

impl Tidelock {
    /// Applies a batch inside your own transaction. The batch and your rows are one commit: both exist, or neither.
    ///
    /// The batch takes effect when you commit, and its rows are locked until then. A refused batch leaves the transaction
    /// unchanged, and you may continue it. A repeated batch with the same [`op_id`](Batch::op_id) returns the first
    /// receipt. Call [`hint`](Self::hint) after the commit.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tidelock::prelude::*;
    /// use tidelock::sqlite::rusqlite::{Connection, TransactionBehavior};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shop.db");
    /// let tide = Tidelock::open(&format!("sqlite:{}", path.display())).await?;
    /// let mut mine = Connection::open(&path)?;
    /// mine.execute_batch("CREATE TABLE invoices (total INTEGER)")?;
    ///
    /// let mut tx = mine.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("INSERT INTO invoices VALUES (300)", [])?;
    /// let mail = NewWork::once(Key::new("mail", ["invoice-1"])?, "mails".parse()?);
    /// tide.apply_in(&mut tx, Batch::new().enqueue(mail))?; // on PostgreSQL: .await?
    /// tx.commit()?;
    /// tide.hint();
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// [`Error`] when a precondition does not hold or the store fails. Also when the transaction is on another database
    /// than the store (TL0313), or its snapshot is outdated (TL0312). Nothing of the batch was then applied.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction has the batch as a whole or not at all. Roll it back.
    pub fn apply_in<'t, T: CallerTransaction>(&self, tx: &'t mut T, batch: Batch) -> T::Output<'t, Receipt> {
        tx.apply(self.store(), Ok((batch, |applied: Result<Receipt, ApplyError>| Ok(applied?))))
    }

    /// Wakes workers and waiters, in this process and others. Call it after you commit your own transaction.
    ///
    /// It only saves time. On SQLite, they notice the commit within a few milliseconds anyway. On PostgreSQL, they notice it
    /// at the next write of the store, or within the poll interval of the worker, by default one second. In a queue with many
    /// dead index entries, it can take up to 30 seconds.
    pub fn hint(&self) {
        #[cfg(feature = "sqlite")]
        if let Some(store) = backend::<tidelock_sqlite::SqliteStore>(self.store()) {
            store.hint();
        }
        #[cfg(feature = "postgres")]
        if let Some(store) = backend::<tidelock_postgres::PostgresStore>(self.store()) {
            store.hint();
        }
    }
}

/// Starts a run inside your own transaction.
pub trait StartWithin<O> {
    /// Starts the run when your transaction commits. The run and your rows are one commit: both exist, or neither.
    ///
    /// Await the result of the run only after the commit; before it, the run does not exist. On SQLite, do not await any other
    /// write of the store before the commit: it waits for your transaction. A run that exists already,
    /// with the same workflow and input, is a success. Call [`Tidelock::hint`] after the commit.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlx")]
    /// # async fn example(tide: tidelock::Tidelock, pool: tidelock::postgres::sqlx::PgPool)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// # use tidelock::postgres::sqlx;
    /// use tidelock::prelude::*;
    ///
    /// const ORDER: Workflow<u32, String> = Workflow::new("order");
    ///
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("INSERT INTO orders (number) VALUES (17)").execute(&mut *tx).await?;
    /// let run = tide.start(ORDER, &3).id("order-17").within(&mut tx).await?;
    /// tx.commit().await?;
    /// tide.hint();
    /// println!("{}", run.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tidelock::apply_in`], and when another run has the id (TL0802).
    fn within<'t, T: CallerTransaction>(self, tx: &'t mut T) -> T::Output<'t, RunHandle<O>>
    where
        O: 't;
}

impl<O> StartWithin<O> for StartRequest<O> {
    fn within<'t, T: CallerTransaction>(self, tx: &'t mut T) -> T::Output<'t, RunHandle<O>>
    where
        O: 't,
    {
        let store = SharedStore::clone(self.store());
        let prepared = self.split().map_err(Error::from).map(|(batch, pending)| {
            (batch, move |applied: Result<Receipt, ApplyError>| Ok(pending.finish(applied)?))
        });
        tx.apply(&store, prepared)
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use rusqlite::Transaction;
    use tidelock_sqlite::{SqliteStore, rusqlite};

    use super::{
        ApplyError, Batch, CallerTransaction, Error, Receipt, Sealed, SharedStore, backend, foreign,
    };

    impl Sealed for Transaction<'_> {}

    impl CallerTransaction for Transaction<'_> {
        type Output<'t, R: 't>
            = Result<R, Error>
        where
            Self: 't;

        fn apply<'t, R: 't, F>(
            &'t mut self,
            store: &SharedStore,
            prepared: Result<(Batch, F), Error>,
        ) -> Result<R, Error>
        where
            F: FnOnce(Result<Receipt, ApplyError>) -> Result<R, Error> + Send + 't,
        {
            let (batch, finish) = prepared?;
            finish(match backend::<SqliteStore>(store) {
                Some(store) => store.apply_in(self, &batch),
                None => Err(foreign("rusqlite", store, &batch)),
            })
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::pin::Pin;

    use tidelock_postgres::{PostgresStore, tokio_postgres};

    use super::{
        ApplyError, Batch, CallerTransaction, Error, Receipt, Sealed, SharedStore, backend, foreign,
    };

    /// The future of a call in a transaction of PostgreSQL.
    type Applying<'t, R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send + 't>>;

    macro_rules! caller_transaction {
        ($transaction:ty, $driver:literal) => {
            impl Sealed for $transaction {}

            impl CallerTransaction for $transaction {
                type Output<'t, R: 't>
                    = Applying<'t, R>
                where
                    Self: 't;

                fn apply<'t, R: 't, F>(
                    &'t mut self,
                    store: &SharedStore,
                    prepared: Result<(Batch, F), Error>,
                ) -> Applying<'t, R>
                where
                    F: FnOnce(Result<Receipt, ApplyError>) -> Result<R, Error> + Send + 't,
                {
                    let store = SharedStore::clone(store);
                    Box::pin(async move {
                        let (batch, finish) = prepared?;
                        finish(match backend::<PostgresStore>(&store) {
                            Some(store) => store.apply_in(self, &batch).await,
                            None => Err(foreign($driver, &store, &batch)),
                        })
                    })
                }
            }
        };
    }

    caller_transaction!(tokio_postgres::Transaction<'_>, "tokio-postgres");
    #[cfg(feature = "sqlx")]
    caller_transaction!(tidelock_postgres::sqlx::Transaction<'_, tidelock_postgres::sqlx::Postgres>, "sqlx");
}

/// Returns the store, if it is of this backend.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn backend<S: Store>(store: &SharedStore) -> Option<&S> {
    let any: &dyn Any = &**store;
    any.downcast_ref()
}

/// Returns the error for a transaction of another driver than the store's.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn foreign(driver: &str, store: &SharedStore, batch: &Batch) -> ApplyError {
    let what = format!("cannot apply a batch in a transaction of {driver}");
    let detail = format!("the store is {}", describe(store));
    let error = StoreError::new(StoreErrorKind::ForeignTransaction, what, detail);
    ApplyError::not_decided(error, batch.id())
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn describe(store: &SharedStore) -> String {
    #[cfg(feature = "sqlite")]
    if let Some(store) = backend::<tidelock_sqlite::SqliteStore>(store) {
        return format!("the SQLite file {}", store.path().display());
    }
    #[cfg(feature = "postgres")]
    if let Some(store) = backend::<tidelock_postgres::PostgresStore>(store) {
        return format!("on PostgreSQL, {}", store.location());
    }
    "neither a SQLite file nor a PostgreSQL database".to_owned()
}
