//! Transactions on PostgreSQL, of `tokio-postgres` and sqlx. The server is the one of `DATABASE_URL`, or a private one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tidelock::postgres::tokio_postgres::{self, Client, NoTls, Transaction};
use tidelock::prelude::*;
use tidelock::store::Durability;
use tidelock::workflow::{RunHandle, StartRequest};
use tidelock_pgserver::Server;

use crate::kinds::{Kind, Outcome, Site};

/// Returns the address of the server under test.
pub(crate) fn url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return url;
    }
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    SERVER.get_or_init(|| Server::start(&options).unwrap()).url()
}

/// A schema without other users, which is removed at the end.
pub(crate) struct Schema(pub(crate) String);

impl Schema {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (count, nanos) =
            (COUNT.fetch_add(1, Ordering::Relaxed), std::time::UNIX_EPOCH.elapsed().unwrap());
        Self(format!("own_{}_{}_{count}", std::process::id(), nanos.subsec_nanos()))
    }

    pub(crate) async fn tide(&self) -> Tidelock {
        self.tide_at(&url()).await
    }

    pub(crate) async fn tide_at(&self, url: &str) -> Tidelock {
        let options = PostgresOptions { durability: Durability::Relaxed, ..PostgresOptions::default() };
        Tidelock::options(url).schema(&self.0).postgres(options).open().await.unwrap()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let sql = format!("SET lock_timeout = '2s'; DROP SCHEMA IF EXISTS {} CASCADE", self.0);
        let remove = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { drop(client().await.batch_execute(&sql).await) });
        };
        drop(std::thread::spawn(remove).join());
    }
}

/// Opens a plain connection to the server under test.
pub(crate) async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A transaction of `tokio-postgres`.
pub(crate) struct TokioPostgres;

impl Kind for TokioPostgres {
    type Database = Schema;
    type Connection = Client;
    type Tx<'c> = Transaction<'c>;

    async fn open() -> Site<Self> {
        let place = Schema::new();
        let (tide, mine) = (place.tide().await, Self::connect(&place).await);
        mine.batch_execute("CREATE TABLE invoices (total int)").await.unwrap();
        Site { tide, mine, place }
    }

    async fn connect(place: &Schema) -> Client {
        let mine = client().await;
        mine.batch_execute(&format!("SET search_path = {}", place.0)).await.unwrap();
        mine
    }

    async fn begin(site: &mut Site<Self>) -> (Tidelock, Self::Tx<'_>) {
        (site.tide.clone(), site.mine.transaction().await.unwrap())
    }

    async fn insert(tx: &mut Self::Tx<'_>) {
        tx.execute("INSERT INTO invoices VALUES (1)", &[]).await.unwrap();
    }

    async fn count(site: &mut Site<Self>) -> i64 {
        site.mine.query_one("SELECT count(*) FROM invoices", &[]).await.unwrap().get(0)
    }

    async fn commit(tx: Self::Tx<'_>) {
        tx.commit().await.unwrap();
    }

    async fn roll_back(tx: Self::Tx<'_>) {
        tx.rollback().await.unwrap();
    }

    async fn apply(tide: &Tidelock, tx: &mut Self::Tx<'_>, batch: Batch) -> Outcome<Receipt> {
        tide.apply_in(tx, batch).await
    }

    async fn start<O>(start: StartRequest<O>, tx: &mut Self::Tx<'_>) -> Outcome<RunHandle<O>> {
        start.within(tx).await
    }
}

#[cfg(feature = "sqlx")]
pub(crate) use with_sqlx::Sqlx;

#[cfg(feature = "sqlx")]
mod with_sqlx {
    use tidelock::postgres::sqlx::{
        self, AssertSqlSafe, Connection as _, PgConnection, Postgres, Transaction,
    };

    use super::*;

    /// A transaction of sqlx.
    pub(crate) struct Sqlx;

    impl Kind for Sqlx {
        type Database = Schema;
        type Connection = PgConnection;
        type Tx<'c> = Transaction<'c, Postgres>;

        async fn open() -> Site<Self> {
            let place = Schema::new();
            let tide = place.tide().await;
            let mut mine = Self::connect(&place).await;
            sqlx::query("CREATE TABLE invoices (total int)").execute(&mut mine).await.unwrap();
            Site { tide, mine, place }
        }

        async fn connect(place: &Schema) -> PgConnection {
            let mut mine = PgConnection::connect(&url()).await.unwrap();
            let path = AssertSqlSafe(format!("SET search_path = {}", place.0));
            sqlx::raw_sql(path).execute(&mut mine).await.unwrap();
            mine
        }

        async fn begin(site: &mut Site<Self>) -> (Tidelock, Self::Tx<'_>) {
            (site.tide.clone(), site.mine.begin().await.unwrap())
        }

        async fn insert(tx: &mut Self::Tx<'_>) {
            sqlx::query("INSERT INTO invoices VALUES (1)").execute(&mut **tx).await.unwrap();
        }

        async fn count(site: &mut Site<Self>) -> i64 {
            let count = sqlx::query_scalar("SELECT count(*) FROM invoices");
            count.fetch_one(&mut site.mine).await.unwrap()
        }

        async fn commit(tx: Self::Tx<'_>) {
            tx.commit().await.unwrap();
        }

        async fn roll_back(tx: Self::Tx<'_>) {
            tx.rollback().await.unwrap();
        }

        async fn apply(tide: &Tidelock, tx: &mut Self::Tx<'_>, batch: Batch) -> Outcome<Receipt> {
            tide.apply_in(tx, batch).await
        }

        async fn start<O>(start: StartRequest<O>, tx: &mut Self::Tx<'_>) -> Outcome<RunHandle<O>> {
            start.within(tx).await
        }
    }
}
