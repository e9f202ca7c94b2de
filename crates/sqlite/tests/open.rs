//! Opening a file: its effects and its errors.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;

use tidelock_core::error::Explain as _;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Durability, Expect, Store as _, StoreError, StoreErrorKind};
use tidelock_sqlite::rusqlite::Connection;
use tidelock_sqlite::{SqliteOptions, SqliteStore};

async fn refused(path: &Path, options: SqliteOptions) -> StoreError {
    SqliteStore::open(path, options).await.expect_err("the store must not open")
}

/// Checks that opening fails with this kind and names all of these parts.
async fn check(path: &Path, options: SqliteOptions, kind: StoreErrorKind, parts: &[&str]) {
    let error = refused(path, options).await;
    assert_eq!(error.kind, kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing in: {error}");
    }
}

#[tokio::test]
async fn t13_a_fresh_file_gets_the_schema_and_an_old_one_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let key = Key::single("k").unwrap();
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    assert_eq!(store.info().await.unwrap().schema, 1);
    store.apply(Batch::new().put(&key, Expect::Absent, Payload::null())).await.unwrap();
    store.close().await;
    let store =
        SqliteStore::open(&path, SqliteOptions { create: false, ..SqliteOptions::default() }).await.unwrap();
    assert!(store.document(&key).await.unwrap().is_some());
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let _store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    for name in ["a.db", "a.db-wal", "a.db-shm"] {
        let mode = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_many_open_the_same_new_file_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let opening = (0..8).map(|_| tokio::spawn(SqliteStore::open(path.clone(), SqliteOptions::default())));
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap();
    }
    let db = Connection::open(&path).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM tidelock_migrations", [], |r| r.get(0)).unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn t13_a_newer_schema_is_refused_with_both_versions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    SqliteStore::open(&path, SqliteOptions::default()).await.unwrap().close().await;
    let db = Connection::open(&path).unwrap();
    db.execute("INSERT INTO tidelock_migrations VALUES (99, 'future', 0, 'tidelock 9.9.9')", []).unwrap();
    let parts = ["version 99", "tidelock 9.9.9", "up to 1", "upgrade"];
    check(&path, SqliteOptions::default(), StoreErrorKind::SchemaTooNew, &parts).await;
}

#[tokio::test]
async fn a_file_of_another_application_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("theirs.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE invoices (n INTEGER)").unwrap();
    let kind = StoreErrorKind::ForeignDatabase;
    check(&path, SqliteOptions::default(), kind, &["invoices", "Options::shared"]).await;
    let count = "SELECT count(*) FROM sqlite_schema";
    assert_eq!(db.query_row(count, [], |r| r.get::<_, i64>(0)).unwrap(), 1);
    SqliteStore::open(&path, SqliteOptions { shared: true, ..SqliteOptions::default() }).await.unwrap();
}

#[tokio::test]
async fn x8_a_wrong_path_says_what_is_wrong_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let kind = StoreErrorKind::CannotOpen;
    check(directory.path(), SqliteOptions::default(), kind, &["it is a directory"]).await;
    let missing = directory.path().join("no/such/a.db");
    check(&missing, SqliteOptions::default(), kind, &["no/such does not exist"]).await;
    let absent = directory.path().join("a.db");
    let options = SqliteOptions { create: false, ..SqliteOptions::default() };
    check(&absent, options, kind, &["does not exist", "Options::create"]).await;
    assert!(!absent.exists());
}

#[tokio::test]
async fn x8_a_file_that_is_no_database_is_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    std::fs::write(&path, "this is a letter to a friend, and not a database at all".repeat(100)).unwrap();
    check(&path, SqliteOptions::default(), StoreErrorKind::Corrupt, &["a.db", "keep the file"]).await;
    assert_eq!(refused(&path, SqliteOptions::default()).await.code().as_str(), "TL0304");
}

#[tokio::test]
async fn x8_a_database_that_another_process_locks_is_busy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    SqliteStore::open(&path, SqliteOptions::default()).await.unwrap().close().await;
    let other = Connection::open(&path).unwrap();
    let short =
        SqliteOptions { busy_timeout: std::time::Duration::from_millis(20), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, short).await.unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let key = Key::single("k").unwrap();
    let put = Batch::new().put(&key, Expect::Any, Payload::null());
    let error = store.apply(put.clone()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0301", "{error}");
    assert_eq!(error.outcome(), tidelock_core::error::Outcome::NotApplied);
    assert!(error.to_string().contains("nothing was applied"), "{error}");
    // Readers are unaffected.
    assert!(store.document(&key).await.unwrap().is_none());
    other.execute_batch("COMMIT").unwrap();
    store.apply(put).await.unwrap();
}

#[tokio::test]
async fn durability_is_what_was_asked_for_or_nothing_opens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let none = SqliteOptions { durability: Durability::None, ..SqliteOptions::default() };
    check(&path, none, StoreErrorKind::SettingNotInForce, &["memory store"]).await;
    let relaxed = SqliteOptions { durability: Durability::Relaxed, ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, relaxed).await.unwrap();
    assert_eq!(store.info().await.unwrap().durability, Durability::Relaxed);
}

/// An applied operation is not reported as unapplied because the file is busy at the moment.
#[tokio::test]
async fn s11_an_id_that_could_not_be_looked_up_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let short =
        SqliteOptions { busy_timeout: std::time::Duration::from_millis(20), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, short).await.unwrap();
    let id = tidelock_core::id::OpId::new();
    let put = Batch::new().put(&Key::single("k").unwrap(), Expect::Absent, Payload::null()).op_id(id);
    store.apply(put.clone()).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.apply(put.clone()).await.unwrap_err();
    assert_eq!(error.outcome(), tidelock_core::error::Outcome::Unknown(Some(id)));
    other.execute_batch("ROLLBACK").unwrap();
    assert!(store.apply(put).await.unwrap().repeated);
}

#[tokio::test]
async fn a_failed_open_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    SqliteStore::open(&path, SqliteOptions::default()).await.unwrap().close().await;
    let db = Connection::open(&path).unwrap();
    db.execute("DELETE FROM tidelock_counters WHERE name = 'indexed'", []).unwrap();
    drop(db);
    let open_files = || {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fd.ok()?.path().read_link().ok());
        links.filter(|link| link.starts_with(directory.path())).count()
    };
    for _ in 0..5 {
        assert_eq!(refused(&path, SqliteOptions::default()).await.kind, StoreErrorKind::Corrupt);
    }
    // The threads close their files when they end.
    let gone = (0..10_000_000).any(|_| {
        std::thread::yield_now();
        open_files() == 0
    });
    assert!(gone, "{} files stay open", open_files());
}

#[tokio::test]
async fn numbers_without_measure_are_cut_to_size() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        busy_timeout: std::time::Duration::MAX,
        queue: usize::MAX,
        readers: 0,
        unindexed: 0,
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(directory.path().join("a.db"), options).await.unwrap();
    let key = Key::single("k").unwrap();
    store.apply(Batch::new().put(&key, Expect::Any, Payload::null())).await.unwrap();
    assert!(store.document(&key).await.unwrap().is_some());
}

#[tokio::test]
async fn every_close_waits_for_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("a.db"), SqliteOptions::default()).await.unwrap();
    let key = Key::single("k").unwrap();
    let late = store.apply(Batch::new().put(&key, Expect::Any, Payload::null()));
    let (applied, (), ()) = tokio::join!(late, store.close(), store.close());
    applied.unwrap();
}

#[tokio::test]
async fn a_closed_store_reports_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("a.db"), SqliteOptions::default()).await.unwrap();
    store.close().await;
    let key = Key::single("k").unwrap();
    let error = store.apply(Batch::new().put(&key, Expect::Any, Payload::null())).await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0306");
    assert_eq!(store.document(&key).await.unwrap_err().kind, StoreErrorKind::Closed);
}
