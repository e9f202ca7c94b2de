//! X8: `Document::ensure_accessible` on a store that was accessible when it was opened, and no longer is. The server is
//! private, because it is stopped and turned read-only.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/poll.rs"]
mod poll;

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::error::{Explain as _, Outcome, Retry};
use tidelock_core::key::Key;
use tidelock_core::state::{Document, Schema, StateError, StateRegistry};
use tidelock_core::store::{ApplyError, StoreError, StoreErrorKind};
use tidelock_pgserver::Server;
use tidelock_postgres::tokio_postgres::{Client, NoTls};
use tidelock_postgres::{PostgresOptions, PostgresStore, tokio_postgres};

type Settings = std::collections::BTreeMap<String, u32>;

struct Site {
    server: Server,
    store: PostgresStore,
    document: Document<Settings>,
}

impl Site {
    async fn new() -> Self {
        let options = tidelock_pgserver::PgServerOptions {
            durable: false,
            ..tidelock_pgserver::PgServerOptions::default()
        };
        let server = Server::start(&options).unwrap();
        // The schema is created beforehand: on a busy machine that takes longer than the patience.
        PostgresStore::open(&server.url(), common::options()).await.unwrap().close().await;
        let options = PostgresOptions { patience: Duration::from_millis(1_500), ..common::options() };
        let store = PostgresStore::open(&server.url(), options).await.unwrap();
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
        Self { server, store, document }
    }

    /// Opens a plain connection, for the actions of other programs.
    async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

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

#[tokio::test(flavor = "multi_thread")]
async fn x8_a_server_that_is_away_is_unreachable() {
    let site = Site::new().await;
    tokio::task::block_in_place(|| site.server.stop().unwrap());
    let error = site.refused().await;
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::Unreachable, "TL0308"), "{error}");
    assert!(matches!(error.retry(), Retry::After(_)));
    tokio::task::block_in_place(|| site.server.run().unwrap());
    site.document.ensure_accessible().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_locked_read_only_and_missing_tables_are_distinguished() {
    let site = Site::new().await;
    let other = site.client().await;
    other.batch_execute("BEGIN; LOCK TABLE tidelock.documents IN EXCLUSIVE MODE").await.unwrap();
    let held = site.refused().await;
    assert_eq!(held.kind, StoreErrorKind::Busy, "{held}");
    other.batch_execute("ROLLBACK").await.unwrap();
    site.document.ensure_accessible().await.unwrap();

    other.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    other.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    poll::until("the server is read-only", async || {
        let row = site.client().await.query_one("SHOW default_transaction_read_only", &[]).await.unwrap();
        row.get::<_, String>(0) == "on"
    })
    .await;
    let error = site.refused().await;
    assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");

    let gone = "SET transaction_read_only = off; DROP SCHEMA tidelock CASCADE";
    other.batch_execute(gone).await.unwrap();
    let gone = site.refused().await;
    assert_eq!(gone.kind, StoreErrorKind::Migration, "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_a_closed_store_reports_it() {
    let site = Site::new().await;
    site.store.close().await;
    assert_eq!(site.refused().await.kind, StoreErrorKind::Closed);
}
