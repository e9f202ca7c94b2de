//! Test matrix of stores: in memory, in a SQLite file and on PostgreSQL.

#![allow(unused_macros, reason = "not every test is of each store")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidelock::prelude::*;
use tidelock::store::Durability;

/// Generates each test for every store. The test receives a site. The directory of a SQLite file lives as long as its test.
macro_rules! on_each_store {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case($crate::common::Site::new()).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let (store, _directory) = $crate::common::stores::sqlite().await;
                super::$case($crate::common::Site::writing(store)).await;
            })*
        }
        #[cfg(unix)]
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let store = $crate::common::stores::postgres().await;
                super::$case($crate::common::Site::writing(store)).await;
            })*
        }
    };
}

/// Opens a store in a new file.
pub(crate) async fn sqlite() -> (SharedStore, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("a.db"), SqliteOptions::default()).await.unwrap();
    (Arc::new(store), directory)
}

#[cfg(unix)]
/// Returns the URL of the server that `DATABASE_URL` names, or of a private one that ends with this process.
fn url() -> String {
    static SERVER: std::sync::OnceLock<tidelock_pgserver::Server> = std::sync::OnceLock::new();
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return url;
    }
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    SERVER.get_or_init(|| tidelock_pgserver::Server::start(&options).expect("a private server starts")).url()
}

#[cfg(unix)]
/// Opens a store in a new schema.
pub(crate) async fn postgres() -> SharedStore {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (url, count) = (url(), COUNT.fetch_add(1, Ordering::Relaxed));
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let joint = if url.contains('?') { '&' } else { '?' };
    let address = format!("{url}{joint}schema=server_{}_{nanos}_{count}", std::process::id());
    // These tests kill processes, not machines, so relaxed durability suffices.
    let options =
        PostgresOptions { durability: Durability::Relaxed, readers: 2, ..PostgresOptions::default() };
    Arc::new(PostgresStore::open(&address, options).await.unwrap())
}
