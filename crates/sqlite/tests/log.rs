//! The write-ahead log stays short under concurrent readers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Durability, Expect, Page, Store as _};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_do_not_keep_the_log_from_starting_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let options = SqliteOptions { durability: Durability::Relaxed, ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, options).await.unwrap();
    let value = Payload::of(&"x".repeat(1_000)).unwrap();
    let put = |n: i64| Batch::new().put(&Key::new("d", [n]).unwrap(), Expect::Any, value.clone());
    for n in 0..500 {
        store.apply(put(n)).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    store.documents(&KeyPrefix::all(), Page::first(500)).await.unwrap();
                }
            })
        })
        .collect();
    // About 60 MiB of log, if it never restarted.
    for n in 0..8_000 {
        store.apply(put(n % 500)).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let log = std::fs::metadata(directory.path().join("a.db-wal")).unwrap().len();
    assert!(log < 24 * 1024 * 1024, "the log has {log} bytes");
}
