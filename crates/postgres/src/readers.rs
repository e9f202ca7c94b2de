//! Connections for reads. Readers never wait for writers, and writers have connections of their own. A query whose answer nobody
//! waits for any more is ended in the server, too: those who hang up do not keep the others waiting.

use std::time::{Duration, Instant};

use deadpool_postgres::{Client, Object, Pool};
use tidelock_core::store::StoreError;
use tokio::runtime::Handle;
use tokio_postgres::CancelToken;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::Db;
use crate::error::{Failure, Meaning};
use crate::read::Reader;
use crate::sql::Sql;

/// The readers' connections.
pub(crate) struct Readers {
    pool: Pool,
    connector: MakeRustlsConnect,
    prepared: bool,
    patience: Duration,
}

/// A connection that is used for one query.
pub(crate) struct Lease<'a> {
    client: Client,
    awaited: Awaited,
    prepared: bool,
    sql: &'a Sql,
}

impl Lease<'_> {
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { db: Db::Own { client: &self.client, prepared: self.prepared }, sql: self.sql }
    }
}

/// Somebody waits for the answer; without one, the query is ended when this is dropped.
struct Awaited {
    answered: bool,
    query: CancelToken,
    connector: MakeRustlsConnect,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.answered {
            return;
        }
        let (query, connector) = (self.query.clone(), self.connector.clone());
        runtime.spawn(async move {
            // If it comes too late, it may hit the next query of this connection, which is then asked again.
            if let Err(error) = query.cancel_query(connector).await {
                tracing::debug!(%error, "a query that nobody waits for could not be ended");
            }
        });
    }
}

/// One read, over as many attempts as it takes. A connection that turns out to be dead costs another attempt: reading
/// twice does no harm.
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
    pub(crate) fn new(pool: Pool, connector: MakeRustlsConnect, prepared: bool, patience: Duration) -> Self {
        Self { pool, connector, prepared, patience }
    }

    fn lease<'a>(&self, client: Client, sql: &'a Sql) -> Lease<'a> {
        let (query, connector) = (client.cancel_token(), self.connector.clone());
        let awaited = Awaited { answered: false, query, connector };
        Lease { client, awaited, prepared: self.prepared, sql }
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
    /// A connection. Fails when patience ends.
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

    /// What is left of patience.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// The answer for the caller; `None` when another attempt is worth it.
    pub(crate) async fn judge<T>(
        &mut self,
        mut lease: Lease<'_>,
        answer: Result<Result<T, Failure>, tokio::time::error::Elapsed>,
    ) -> Option<Result<T, StoreError>> {
        lease.awaited.answered = answer.is_ok();
        let failure = match answer {
            Ok(Ok(found)) => return Some(Ok(found)),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::silent(self.readers.patience),
        };
        if failure.meaning == Meaning::Lost {
            drop(Object::take(lease.client));
        }
        if self.again(&failure).await { None } else { Some(Err(failure.into())) }
    }

    /// Whether another attempt is worth it, after a pause.
    async fn again(&mut self, failure: &Failure) -> bool {
        let worth = matches!(failure.meaning, Meaning::Lost | Meaning::Unsent | Meaning::Again);
        if !worth || self.readers.pool.is_closed() || self.left() <= self.pause {
            return false;
        }
        tokio::time::sleep(crate::writer::jittered(self.pause)).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        true
    }
}
