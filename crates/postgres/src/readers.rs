//! Connections for reads. Readers never wait for writers, which have their own connections. When a caller drops a
//! query, the store cancels it in the server, so that abandoned queries do not delay others.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool::managed::Object;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::Epoch;
use tidelock_core::store::StoreError;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::cancel::CancelOnDrop;
use crate::connect::{Client, Pool};
use crate::db::Db;
use crate::epoch::Epochs;
use crate::error::{Failure, Meaning};
use crate::read::Reader;
use crate::sql::Sql;

/// The readers' connections.
pub(crate) struct Readers {
    pool: Pool,
    connector: MakeRustlsConnect,
    prepared: bool,
    patience: Duration,
    epochs: Arc<Epochs>,
}

/// A connection that is used for one query.
pub(crate) struct Lease<'a> {
    client: Client,
    cancel: CancelOnDrop,
    prepared: bool,
    sql: &'a Sql,
    epoch: Epoch,
}

impl Lease<'_> {
    /// Returns a reader. `given` is the instant to use; `None`: the server's clock.
    pub(crate) fn reader(&self, given: Option<Timestamp>) -> Reader<'_> {
        let db = Db::Own { client: &self.client, prepared: self.prepared };
        Reader { db, sql: self.sql, epoch: self.epoch, given: given.map(Timestamp::as_micros) }
    }

    /// Waits for a response on this connection within the limit.
    pub(crate) async fn answer<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        self.client.answer(limit, answer).await
    }
}

/// The attempts of one read. A dead connection costs another attempt: reading twice does no harm.
pub(crate) struct Attempts<'a> {
    readers: &'a Readers,
    sql: &'a Sql,
    until: Instant,
    pause: Duration,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Readers {
    pub(crate) fn new(
        pool: Pool,
        connector: MakeRustlsConnect,
        prepared: bool,
        patience: Duration,
        epochs: Arc<Epochs>,
    ) -> Self {
        Self { pool, connector, prepared, patience, epochs }
    }

    fn lease<'a>(&self, client: Client, sql: &'a Sql) -> Lease<'a> {
        let cancel = CancelOnDrop::new(&client, self.connector.clone());
        Lease { client, cancel, prepared: self.prepared, sql, epoch: self.epochs.current() }
    }

    pub(crate) fn attempts<'a>(&'a self, sql: &'a Sql) -> Attempts<'a> {
        let (until, pause) = (Instant::now() + self.patience, Duration::from_millis(10));
        Attempts { readers: self, sql, until, pause }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

impl<'a> Attempts<'a> {
    /// Returns a connection. Fails when the patience is used up.
    pub(crate) async fn lease(&mut self) -> Result<Lease<'a>, StoreError> {
        loop {
            let failure = match tokio::time::timeout(self.left(), self.readers.pool.get()).await {
                Ok(Ok(client)) => return Ok(self.readers.lease(client, self.sql)),
                Ok(Err(error)) => Failure::from(error),
                Err(_) => Failure::unreachable(format!("no connection within {:?}", self.readers.patience)),
            };
            if !self.again(&failure).await {
                return Err(failure.into());
            }
        }
    }

    /// Returns the time that is left of the patience.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the result for the caller. `None`: another attempt is worthwhile.
    pub(crate) async fn judge<T>(
        &mut self,
        mut lease: Lease<'_>,
        answer: Result<Result<T, Failure>, Failure>,
    ) -> Option<Result<T, StoreError>> {
        if answer.is_ok() {
            lease.cancel.disarm();
        }
        let failure = match answer {
            Ok(Ok(found)) => return Some(Ok(found)),
            Ok(Err(failure)) | Err(failure) => failure,
        };
        if failure.meaning == Meaning::Epoch {
            let confirmed =
                tokio::time::timeout(self.left(), self.readers.epochs.confirm(&lease.client)).await;
            if let Ok(Err(Failure { error, .. })) = confirmed {
                tracing::warn!(%error, "epoch confirmation failed");
            }
        }
        if failure.meaning == Meaning::Lost {
            drop(Object::take(lease.client));
            self.readers.pool.retain(|connection, _| connection.is_trusted());
        }
        if self.again(&failure).await { None } else { Some(Err(failure.into())) }
    }

    /// Returns whether another attempt is worthwhile, after a pause.
    async fn again(&mut self, failure: &Failure) -> bool {
        let worth =
            matches!(failure.meaning, Meaning::Lost | Meaning::Unsent | Meaning::Again | Meaning::Epoch);
        if !worth || self.readers.pool.is_closed() || self.left() <= self.pause {
            return false;
        }
        tokio::time::sleep(crate::writer::jittered(self.pause)).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        true
    }
}
