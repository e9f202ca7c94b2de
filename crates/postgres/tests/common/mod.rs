//! The PostgreSQL backend as the conformance kit sees it: a schema for every database, on one server.
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::{Durability, Store};
use tidelock_pgserver::Server;
use tidelock_postgres::{PostgresOptions, PostgresStore, tokio_postgres};
use tidelock_tck::{Backend, Capabilities, Database};

/// Returns the address of the server under test: the one in `DATABASE_URL`, or a private one that ends with this
/// process.
pub(crate) fn url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return url;
    }
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    SERVER.get_or_init(|| Server::start(&options).expect("a private server starts")).url()
}

/// Returns the name of a schema without other users.
pub(crate) fn fresh_schema() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("test_{}_{}_{count}", std::process::id(), nanos % 1_000_000_000_000)
}

/// The address of a schema on the server under test.
pub(crate) fn address(schema: &str) -> String {
    let url = url();
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}schema={schema}")
}

/// The durability that tests need: processes are killed here, not machines.
pub(crate) fn options() -> PostgresOptions {
    PostgresOptions { durability: Durability::Relaxed, readers: 3, ..PostgresOptions::default() }
}

/// Opens a store on an address.
pub(crate) async fn open(address: &str, clock: Option<Arc<dyn Clock>>) -> PostgresStore {
    PostgresStore::open(address, PostgresOptions { clock, ..options() }).await.unwrap()
}

/// Waits until the server has closed the connections of dead child processes: the server still executes the requests of
/// a killed process.
async fn gone(name: &str) {
    let client = client().await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let begun = std::time::Instant::now();
    while client.query_one(sql, &[&name]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "connections of a child stay");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// Opens a plain connection to the server under test.
pub(crate) async fn client() -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Removes schemas, outside any runtime.
fn drop_schemas(schemas: Vec<String>) {
    let remove = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = client().await;
            for schema in schemas {
                let sql = format!("SET lock_timeout = '2s'; DROP SCHEMA IF EXISTS {schema} CASCADE");
                if let Err(error) = client.batch_execute(&sql).await {
                    eprintln!("the schema {schema} stays: {error}");
                }
            }
        });
    };
    let _ = std::thread::spawn(remove).join();
}

/// Makes databases that are schemas, which are removed with the backend.
#[derive(Default)]
pub(crate) struct Postgres {
    schemas: Mutex<Vec<String>>,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let schemas = std::mem::take(&mut *self.schemas.lock().unwrap());
        if !schemas.is_empty() && std::env::var("DATABASE_URL").is_ok() {
            drop_schemas(schemas);
        }
    }
}

impl Postgres {
    /// Returns a schema without other users, which is removed with the backend.
    pub(crate) fn schema(&self) -> String {
        let schema = fresh_schema();
        self.schemas.lock().unwrap().push(schema.clone());
        schema
    }

    /// Returns the address of the database of the last [`Backend::fresh`].
    pub(crate) fn last_address(&self) -> String {
        address(self.schemas.lock().unwrap().last().expect("a database was made"))
    }
}

#[async_trait]
impl Backend for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database> {
        Box::new(Schema::at(address(&self.schema()), clock))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: true, durable: true, documents_only: false }
    }

    async fn attach(&self, address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        // A separate process uses the server's clock, as programs do.
        drop(clock);
        let name = format!("child_{}", address.rsplit_once("schema=").expect("an address names a schema").1);
        if std::env::var("TIDELOCK_TCK_ROLE").is_ok() {
            return Arc::new(open(&format!("{address}&application_name={name}"), None).await);
        }
        gone(&name).await;
        Arc::new(open(address, None).await)
    }
}

/// One database of the kit, by its address.
pub(crate) struct Schema {
    address: String,
    clock: Arc<ManualClock>,
    opened: Mutex<Vec<PostgresStore>>,
}

/// Everything that goes back with a database.
const TABLES: [&str; 8] =
    ["streams", "events", "documents", "floors", "work", "receipts", "epoch", "history_cuts"];
const SEQUENCES: [&str; 3] = ["positions", "work_seqs", "fences"];

impl Schema {
    fn schema(&self) -> &str {
        self.address.rsplit_once("schema=").expect("an address names a schema").1
    }

    pub(crate) fn at(address: String, clock: Arc<ManualClock>) -> Self {
        Self { address, clock, opened: Mutex::default() }
    }
}

#[async_trait]
impl Database for Schema {
    async fn connect(&self) -> Arc<dyn Store> {
        let store = open(&self.address, Some(Arc::<ManualClock>::clone(&self.clock))).await;
        self.opened.lock().unwrap().push(store.clone());
        Arc::new(store)
    }

    async fn restart(&mut self) -> Arc<dyn Store> {
        let opened: Vec<PostgresStore> = self.opened.lock().unwrap().drain(..).collect();
        for store in opened {
            store.close().await;
        }
        self.connect().await
    }

    async fn backup(&self) -> bool {
        let (client, s) = (client().await, self.schema());
        let mut sql = format!("DROP SCHEMA IF EXISTS {s}_copy CASCADE; CREATE SCHEMA {s}_copy;");
        for table in TABLES {
            sql += &format!("CREATE TABLE {s}_copy.{table} AS TABLE {s}.{table};");
        }
        let numbers = SEQUENCES.map(|q| format!("coalesce(pg_sequence_last_value('{s}.{q}'), 0) AS {q}"));
        sql += &format!("CREATE TABLE {s}_copy.numbers AS SELECT {}", numbers.join(", "));
        client.batch_execute(&sql).await.unwrap();
        true
    }

    /// Imitates a promoted standby: rows and numbers are set back, and the timeline differs from the recorded one.
    async fn restore(&self) {
        let (client, s) = (client().await, self.schema());
        let mut sql = String::from("BEGIN;");
        for table in TABLES {
            sql += &format!(
                "DELETE FROM {s}.{table}; INSERT INTO {s}.{table} OVERRIDING SYSTEM VALUE TABLE {s}_copy.{table};"
            );
        }
        for sequence in SEQUENCES {
            sql += &format!("SELECT setval('{s}.{sequence}', {sequence}) FROM {s}_copy.numbers;");
        }
        sql += &format!("UPDATE {s}.epoch SET timeline = '00000000'; COMMIT");
        client.batch_execute(&sql).await.unwrap();
    }

    fn address(&self) -> Option<String> {
        Some(self.address.clone())
    }
}
