//! The SQLite backend as the conformance kit sees it.
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::Store;
use tidelock_sqlite::{SqliteOptions, SqliteStore};
use tidelock_tck::{Backend, Capabilities, Database};

/// A factory of databases in temporary directories, which live as long as the backend.
#[derive(Default)]
pub(crate) struct Sqlite {
    directories: Mutex<Vec<TempDir>>,
}

impl Sqlite {
    /// Returns the path of the database of the last [`Backend::fresh`].
    pub(crate) fn last_path(&self) -> PathBuf {
        self.directories.lock().unwrap().last().expect("a database was made").path().join("kit.db")
    }
}

/// Replaces the rows of an open database with those of a copy.
pub(crate) fn write_back(path: &Path, copy: &Path) {
    let mut db = rusqlite::Connection::open(path).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    db.execute("ATTACH ?1 AS copy", [copy.display().to_string()]).unwrap();
    let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let names = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name LIKE 'tidelock_%'";
    let tables: Vec<String> = transaction
        .prepare(names)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for table in tables {
        let both = format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM copy.{table}");
        transaction.execute_batch(&both).unwrap();
    }
    transaction.commit().unwrap();
}

/// Opens a store. Small numbers make the store merge its index all the time.
pub(crate) async fn open(path: &Path, clock: Arc<dyn Clock>) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions { clock, readers: 2, unindexed: 24, ..SqliteOptions::default() })
        .await
        .unwrap()
}

#[async_trait]
impl Backend for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kit.db");
        self.directories.lock().unwrap().push(directory);
        Box::new(File { path, clock, opened: Mutex::default() })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: true, durable: true, documents_only: false }
    }

    async fn attach(&self, address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(open(Path::new(address), clock).await)
    }

    async fn detach(&self, store: Arc<dyn Store>) {
        close(&store).await;
    }

    async fn inspect(&self, address: &str) {
        inspect(address);
    }
}

/// Closes a store that is known by the contract alone.
pub(crate) async fn close(store: &Arc<dyn Store>) {
    let store: &dyn Any = store.as_ref();
    store.downcast_ref::<SqliteStore>().expect("the store is on SQLite").close().await;
}

/// Checks the file itself, and that the index of streams agrees with the log.
pub(crate) fn inspect(address: &str) {
    let db = rusqlite::Connection::open(address).unwrap();
    let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let missing = number(
        "SELECT count(*) FROM tidelock_events e
         WHERE position <= (SELECT value FROM tidelock_counters WHERE name = 'indexed') AND NOT EXISTS (
         SELECT 1 FROM tidelock_stream_index i
         WHERE i.stream = e.stream AND i.version = e.version AND i.position = e.position)",
    );
    assert_eq!(missing, 0, "events below the end of the index are not in it");
    let dangling = number(
        "SELECT count(*) FROM tidelock_stream_index i WHERE NOT EXISTS (
         SELECT 1 FROM tidelock_events e
         WHERE e.position = i.position AND e.stream = i.stream AND e.version = i.version)",
    );
    assert_eq!(dangling, 0, "the index has places without events");
}

struct File {
    path: PathBuf,
    clock: Arc<ManualClock>,
    opened: Mutex<Vec<SqliteStore>>,
}

#[async_trait]
impl Database for File {
    async fn connect(&self) -> Arc<dyn Store> {
        let store = open(&self.path, Arc::<ManualClock>::clone(&self.clock)).await;
        self.opened.lock().unwrap().push(store.clone());
        Arc::new(store)
    }

    async fn restart(&mut self) -> Arc<dyn Store> {
        let opened: Vec<SqliteStore> = self.opened.lock().unwrap().drain(..).collect();
        for store in opened {
            store.close().await;
        }
        self.connect().await
    }

    async fn backup(&self) -> bool {
        let copy = self.path.with_extension("copy");
        let _ = std::fs::remove_file(&copy);
        let db = rusqlite::Connection::open(&self.path).unwrap();
        db.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        db.execute("VACUUM INTO ?1", [copy.display().to_string()]).unwrap();
        true
    }

    async fn restore(&self) {
        write_back(&self.path, &self.path.with_extension("copy"));
        // No process can detect this from outside: an operator declares it.
        let store = self.opened.lock().unwrap().last().expect("a store is open").clone();
        store.declare_cut("restored from a backup").await.unwrap();
    }

    fn address(&self) -> Option<String> {
        Some(self.path.display().to_string())
    }
}
