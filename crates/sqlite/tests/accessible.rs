//! X8: `Document::ensure_accessible` on a store that was accessible when it was opened, and no longer is.
//!
//! The case of a file that turns read-only is missing here. SQLite keeps the right to write that it had when it opened
//! the file. A file system cannot be made read-only while a file on it is open for writing. The case therefore occurs
//! when a store is opened: `faults.rs` covers that.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidelock_core::error::{Explain as _, Outcome, Retry};
use tidelock_core::key::Key;
use tidelock_core::state::{Document, Schema, StateError, StateRegistry};
use tidelock_core::store::{ApplyError, Store as _, StoreError, StoreErrorKind};
use tidelock_sqlite::rusqlite::Connection;
use tidelock_sqlite::{SqliteOptions, SqliteStore};

type Settings = std::collections::BTreeMap<String, String>;

struct Site {
    directory: TempDir,
    store: SqliteStore,
    document: Document<Settings>,
}

impl Site {
    /// A store with a document of some pages, opened again, so that all of it is in the file and nothing is cached.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let site = Self::open(directory).await;
        let write = site.document.transaction(|tx| {
            tx.set((0..1_000).map(|i| (format!("name-{i}"), "value".to_owned())).collect());
            Ok::<_, String>(())
        });
        write.await.unwrap();
        site.store.close().await;
        let site = Self::open(site.directory).await;
        site.document.ensure_accessible().await.unwrap();
        site.store.close().await;
        Self::open(site.directory).await
    }

    async fn open(directory: TempDir) -> Self {
        let options = SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() };
        let store = SqliteStore::open(directory.path().join("a.db"), options).await.unwrap();
        let key = Key::single("settings").unwrap();
        let document = StateRegistry::new(Arc::new(store.clone())).document(&key, Schema::new());
        Self { directory, store, document }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("a.db")
    }

    /// Returns the error of `ensure_accessible`.
    async fn refused(&self) -> StoreError {
        match self.document.ensure_accessible().await.unwrap_err() {
            StateError::Read(error) => error,
            StateError::Write(error) => match *error {
                ApplyError::Store { error, outcome: Outcome::NotApplied } => error,
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn x8_a_file_that_was_removed_is_missed() {
    let site = Site::new().await;
    std::fs::rename(site.path(), site.directory.path().join("b.db")).unwrap();
    let error = site.refused().await;
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::CannotOpen, "TL0401"), "{error}");
    assert!(error.to_string().contains("a.db"), "{error}");
    assert!(error.to_string().contains("was removed"), "{error}");
    std::fs::rename(site.directory.path().join("b.db"), site.path()).unwrap();
    site.document.ensure_accessible().await.unwrap();
}

#[tokio::test]
async fn x8_a_file_that_was_replaced_is_noticed() {
    let site = Site::new().await;
    std::fs::copy(site.path(), site.directory.path().join("b.db")).unwrap();
    std::fs::rename(site.directory.path().join("b.db"), site.path()).unwrap();
    let error = site.refused().await;
    assert_eq!(error.kind, StoreErrorKind::CannotOpen, "{error}");
    assert!(error.to_string().contains("was replaced"), "{error}");
}

#[tokio::test]
async fn x8_a_file_of_another_writer_is_busy() {
    let site = Site::new().await;
    let other = Connection::open(site.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = site.refused().await;
    assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
    assert!(matches!(error.retry(), Retry::After(_)));
    other.execute_batch("ROLLBACK").unwrap();
    site.document.ensure_accessible().await.unwrap();
}

#[tokio::test]
async fn x8_a_file_that_is_overwritten_is_corrupt() {
    let site = Site::new().await;
    let length = std::fs::metadata(site.path()).unwrap().len();
    let mut file = std::fs::OpenOptions::new().write(true).open(site.path()).unwrap();
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0x5a; usize::try_from(length).unwrap() - 4096]).unwrap();
    let error = site.refused().await;
    assert_eq!((error.kind, error.retry()), (StoreErrorKind::Corrupt, Retry::Never), "{error}");
}

#[tokio::test]
async fn x8_a_closed_store_reports_it() {
    let site = Site::new().await;
    site.store.close().await;
    assert_eq!(site.refused().await.kind, StoreErrorKind::Closed);
}

#[tokio::test]
async fn x8_asking_writes_nothing() {
    let site = Site::new().await;
    let (before, wal) = (std::fs::read(site.path()).unwrap(), site.directory.path().join("a.db-wal"));
    let (log, schema) = (std::fs::metadata(&wal).unwrap().len(), site.store.info().await.unwrap().schema);
    site.document.ensure_accessible().await.unwrap();
    assert_eq!(std::fs::metadata(&wal).unwrap().len(), log);
    assert_eq!(std::fs::read(site.path()).unwrap(), before);
    assert_eq!(site.store.info().await.unwrap().schema, schema);
}
