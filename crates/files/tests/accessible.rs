//! X8: `Document::ensure_accessible` on a directory that was accessible when it was opened, and no longer is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use tempfile::TempDir;
use tidelock_core::error::Explain as _;
use tidelock_core::key::Key;
use tidelock_core::state::{Document, Schema, StateError, StateRegistry};
use tidelock_core::store::{StoreError, StoreErrorKind};
use tidelock_files::{FilesOptions, FilesStore};

type Settings = std::collections::BTreeMap<String, u32>;

struct Site {
    _directory: TempDir,
    store: FilesStore,
    document: Document<Settings>,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = FilesOptions { busy_timeout: Duration::from_millis(20), ..FilesOptions::default() };
        let store = FilesStore::open(directory.path().join("s"), options).await.unwrap();
        let key = Key::single("settings").unwrap();
        let document: Document<Settings> =
            StateRegistry::new(Arc::new(store.clone())).document(&key, Schema::new());
        document.ensure_accessible().await.unwrap();
        let write = document.transaction(|tx| {
            tx.set(Settings::from([("per_hour".to_owned(), 100)]));
            Ok::<_, String>(())
        });
        write.await.unwrap();
        document.ensure_accessible().await.unwrap();
        Self { _directory: directory, store, document }
    }

    async fn refused(&self) -> StoreError {
        match self.document.ensure_accessible().await.unwrap_err() {
            StateError::Read(error) => error,
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn x8_a_directory_that_was_removed_is_missed() {
    let site = Site::new().await;
    fs::remove_dir_all(site.store.path().join("documents")).unwrap();
    assert_eq!(site.refused().await.kind, StoreErrorKind::CannotOpen);
    fs::remove_dir_all(site.store.path()).unwrap();
    let error = site.refused().await;
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::CannotOpen, "TL0401"), "{error}");
    assert!(!site.store.path().exists(), "no new directory is created");
}

#[tokio::test]
async fn x8_a_directory_that_turns_read_only_is_reported() {
    let site = Site::new().await;
    for directory in [site.store.path().to_owned(), site.store.path().join("documents")] {
        fs::set_permissions(&directory, Permissions::from_mode(0o500)).unwrap();
        let error = site.refused().await;
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");
    }
    site.document.ensure_accessible().await.unwrap();
}

#[tokio::test]
async fn x8_a_directory_of_another_holder_is_busy() {
    let site = Site::new().await;
    let lock = File::open(site.store.path().join(".lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    assert_eq!(site.refused().await.kind, StoreErrorKind::Busy);
    drop(lock);
    site.document.ensure_accessible().await.unwrap();
}

#[tokio::test]
async fn x8_a_file_that_was_damaged_by_hand_is_named() {
    let site = Site::new().await;
    let file = site.store.path().join("documents").join("settings.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace('}', "")).unwrap();
    let error = site.refused().await;
    assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("settings.json"), "{error}");
    fs::write(&file, text).unwrap();
    site.document.ensure_accessible().await.unwrap();
}

#[tokio::test]
async fn x8_a_file_that_was_edited_into_another_shape_does_not_read() {
    let site = Site::new().await;
    let file = site.store.path().join("documents").join("settings.json");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("100", "\"many\"")).unwrap();
    let error = site.document.ensure_accessible().await.unwrap_err();
    assert!(matches!(error, StateError::Undecodable { .. }), "{error}");
}

#[tokio::test]
async fn x8_a_closed_store_reports_it() {
    let site = Site::new().await;
    site.store.close().await;
    assert_eq!(site.refused().await.kind, StoreErrorKind::Closed);
}
