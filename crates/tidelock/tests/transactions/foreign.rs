//! Transactions on another database than the store: a typed error, and no write to either.

use tidelock::prelude::*;
use tidelock::sqlite::rusqlite::{Connection, TransactionBehavior};

use crate::cases::append;
use crate::kinds::{Kind, Rusqlite};

/// Checks the error of a transaction on another database. The message must contain these texts.
pub(crate) fn check(error: &tidelock::Error, texts: &[&str]) {
    assert_eq!(error.code().unwrap().as_str(), "TL0313", "{error}");
    let message = error.to_string();
    for text in texts.iter().chain(&["begin the transaction on the database of the store"]) {
        assert!(message.contains(text), "{message} lacks {text:?}");
    }
}

#[tokio::test]
async fn another_file_is_an_error() {
    let site = Rusqlite::open().await;
    let other = Rusqlite::open().await;
    let mut mine = other.mine;
    let mut tx = mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let error = site.tide.apply_in(&mut tx, append(Expect::Absent)).unwrap_err();
    check(
        &error,
        &["it is on the file", other.place.path().to_str().unwrap(), site.place.path().to_str().unwrap()],
    );
    // The transaction is still usable, by its own store.
    other.tide.apply_in(&mut tx, append(Expect::Absent)).unwrap();
    tx.commit().unwrap();
    assert!(site.tide.apply(append(Expect::Absent)).await.is_ok());
}

#[tokio::test]
async fn a_database_without_a_file_is_an_error() {
    let site = Rusqlite::open().await;
    let mut mine = Connection::open_in_memory().unwrap();
    let mut tx = mine.transaction().unwrap();
    let error = site.tide.apply_in(&mut tx, append(Expect::Absent)).unwrap_err();
    check(&error, &["a database without a file"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_replaced_file_is_an_error_and_a_link_is_not() {
    let site = Rusqlite::open().await;
    let path = site.place.path().join("shop.db");
    let link = site.place.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut mine = Connection::open(&link).unwrap();
    let mut tx = mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    site.tide.apply_in(&mut tx, append(Expect::Absent)).unwrap();
    tx.commit().unwrap();
    let kept = site.place.path().join("kept.db");
    std::fs::rename(&path, &kept).unwrap();
    let mut mine = Connection::open(&path).unwrap();
    let mut tx = mine.transaction().unwrap();
    tx.execute_batch("CREATE TABLE new (n INTEGER)").unwrap();
    let error = site.tide.apply_in(&mut tx, append(Expect::Any)).unwrap_err();
    check(&error, &["which was replaced while the store was open"]);
}

/// The connection reports the path of the file that replaced its own.
#[cfg(unix)]
#[tokio::test]
async fn a_connection_to_a_replaced_file_is_an_error() {
    let site = Rusqlite::open().await;
    let path = site.place.path().join("shop.db");
    let mut mine = Connection::open(&path).unwrap();
    let mut tx = mine.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    tx.query_row("SELECT count(*) FROM invoices", [], |row| row.get::<_, i64>(0)).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let (old, new) =
            (path.with_extension(format!("db{suffix}")), path.with_extension(format!("old{suffix}")));
        std::fs::rename(old, new).unwrap();
    }
    let successor = Tidelock::open(path.to_str().unwrap()).await.unwrap();
    let error = successor.apply_in(&mut tx, append(Expect::Any)).unwrap_err();
    check(&error, &["a file that was replaced while its connection was open"]);
}

#[tokio::test]
async fn a_store_in_memory_is_an_error() {
    let mut site = Rusqlite::open().await;
    let (_, mut tx) = Rusqlite::begin(&mut site).await;
    let memory = Tidelock::open("memory:").await.unwrap();
    let error = memory.apply_in(&mut tx, append(Expect::Absent)).unwrap_err();
    check(&error, &["a transaction of rusqlite", "neither a SQLite file nor a PostgreSQL database"]);
    memory.hint();
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::postgres::{Schema, TokioPostgres, client, url};

    #[tokio::test]
    async fn a_transaction_of_the_other_backend_is_an_error() {
        let (mut file, mut server) = (Rusqlite::open().await, TokioPostgres::open().await);
        let (on_file, mut sqlite) = Rusqlite::begin(&mut file).await;
        let (on_server, mut postgres) = TokioPostgres::begin(&mut server).await;
        let error = on_server.apply_in(&mut sqlite, append(Expect::Absent)).unwrap_err();
        check(&error, &["a transaction of rusqlite", "the store is on PostgreSQL", "schema own_"]);
        let error = on_file.apply_in(&mut postgres, append(Expect::Absent)).await.unwrap_err();
        check(&error, &["a transaction of tokio-postgres", "the store is the SQLite file", "shop.db"]);
        TokioPostgres::insert(&mut postgres).await;
        TokioPostgres::commit(postgres).await;
        assert_eq!(TokioPostgres::count(&mut server).await, 1);
    }

    /// Another database of the server, first without the schema of the store and then with one of its own.
    #[tokio::test]
    async fn another_database_is_an_error() {
        let schema = Schema::new();
        let tide = schema.tide().await;
        let name = format!("{}_other", schema.0);
        let admin = client().await;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let other = with_database(&url(), &name);
        let mut mine = connect(&other).await;
        let mut tx = mine.transaction().await.unwrap();
        let error = tide.apply_in(&mut tx, append(Expect::Absent)).await.unwrap_err();
        check(&error, &["has no schema", &schema.0]);
        tx.execute("CREATE TABLE usable (n int)", &[]).await.unwrap();
        tx.commit().await.unwrap();
        let theirs = schema.tide_at(&other).await;
        let mut tx = mine.transaction().await.unwrap();
        let error = tide.apply_in(&mut tx, append(Expect::Absent)).await.unwrap_err();
        check(&error, &["it is on another database"]);
        theirs.apply_in(&mut tx, append(Expect::Absent)).await.unwrap();
        tx.commit().await.unwrap();
        theirs.close().await;
        drop(mine);
        drop(admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await);
        assert!(tide.apply(append(Expect::Absent)).await.is_ok());
    }

    /// Returns the URL of another database of the same server.
    fn with_database(url: &str, name: &str) -> String {
        let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (server, _) = address.rsplit_once('/').unwrap();
        format!("{server}/{name}?{parameters}")
    }

    async fn connect(url: &str) -> tidelock::postgres::tokio_postgres::Client {
        let (client, connection) =
            tidelock::postgres::tokio_postgres::connect(url, tidelock::postgres::tokio_postgres::NoTls)
                .await
                .unwrap();
        tokio::spawn(connection);
        client
    }
}
