//! Changes of the database underneath a store that is open or opens: locks of other sessions, a server clock that is
//! set back, settings of a session or a role.
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/poll.rs"]
mod poll;
#[path = "common/proxy.rs"]
mod proxy;

use std::time::{Duration, Instant};

use poll::{in_time, until};
use proxy::Proxy;
use tidelock_core::id::EventType;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Expect, LogQuery, NewEvent, Store as _, StoreErrorKind};
use tidelock_postgres::tokio_postgres::{Client, Config};
use tidelock_postgres::{PostgresOptions, PostgresStore, migrate};

/// The patience of a store that should give up: long enough to connect on a busy machine.
const SHORT: Duration = Duration::from_secs(6);

fn event() -> NewEvent {
    NewEvent::new(EventType::new("Happened").unwrap(), Payload::null())
}

fn append(stream: &str) -> Batch {
    Batch::new().append(&Key::single(stream).unwrap(), Expect::Any, [event()])
}

fn impatient() -> PostgresOptions {
    PostgresOptions { patience: SHORT, ..common::options() }
}

/// Returns the address of a schema, with the schema as the application name.
fn address(schema: &str) -> String {
    format!("{}&application_name={schema}", common::address(schema))
}

/// Checks that no connection of the store waits for a lock or is in the middle of a statement.
async fn nothing_stays_queued(admin: &Client, schema: &str) {
    let waiting = "SELECT count(*) FROM pg_stat_activity a WHERE application_name = $1 \
                   AND (state <> 'idle' OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND NOT l.granted))";
    until("nothing stays queued in the server", async || {
        admin.query_one(waiting, &[&schema]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
}

/// Waits until a connection of the store waits for a lock.
async fn is_waiting(admin: &Client, schema: &str) {
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
    until("it waits for the lock", async || {
        admin.query_one(waiting, &[&schema]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
}

/// Creates a schema whose log has a position that its sequence has not drawn, as after a copy by logical replication.
async fn lagging(schema: &str) -> Client {
    migrate::up(&common::url(), schema).await.unwrap();
    let admin = common::client().await;
    let copied = format!(
        "INSERT INTO {schema}.streams (key, head) VALUES ('copied', 0);
         INSERT INTO {schema}.events (position, stream, version, id, type, recorded_at, payload, bytes)
             VALUES (1000, 'copied', 0, gen_random_uuid(), 'Copied', 0, 'null', 8)"
    );
    admin.batch_execute(&copied).await.unwrap();
    admin
}

/// Returns a writer of another program that does not end its transaction, and a third session with its concurrent
/// statements.
async fn blocked_by(schema: &str) -> (Client, Client, String) {
    let (holder, third) = (common::client().await, common::client().await);
    let write = format!("UPDATE {schema}.streams SET closed_at = NULL WHERE key = 'missing'");
    let hold = format!("BEGIN; DELETE FROM {schema}.work WHERE key = 'missing'");
    holder.batch_execute(&hold).await.unwrap();
    (holder, third, format!("{write}; DELETE FROM {schema}.work WHERE key = 'another'"))
}

/// Opening must lock the tables to move a sequence ahead, and another session holds one of them.
#[tokio::test(flavor = "multi_thread")]
async fn d7_an_open_that_gives_up_on_a_table_lock_leaves_nothing_queued() {
    let schema = common::fresh_schema();
    let admin = lagging(&schema).await;
    let (holder, third, write) = blocked_by(&schema).await;
    let opening = tokio::spawn({
        let address = address(&schema);
        async move { PostgresStore::open(&address, impatient()).await }
    });
    // While it waits, other sessions proceed between its attempts.
    while !opening.is_finished() {
        in_time("another session writes", third.batch_execute(&write)).await.unwrap();
    }
    let error = opening.await.unwrap().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
    nothing_stays_queued(&admin, &schema).await;
    in_time("another session writes", third.batch_execute(&write)).await.unwrap();
    holder.batch_execute("ROLLBACK").await.unwrap();
    let store = PostgresStore::open(&address(&schema), common::options()).await.unwrap();
    assert!(store.apply(append("s")).await.unwrap().last_position().unwrap().0 > 1000);
}

/// The caller drops the call instead of waiting for its end.
#[tokio::test(flavor = "multi_thread")]
async fn d7_an_open_that_is_dropped_leaves_nothing_queued() {
    let schema = common::fresh_schema();
    migrate::up(&common::url(), &schema).await.unwrap();
    let (admin, holder) = (common::client().await, common::client().await);
    // A lock that the open has no limit for: it only reads the table.
    holder.batch_execute(&format!("BEGIN; LOCK TABLE {schema}.migrations")).await.unwrap();
    let opening = tokio::spawn({
        let address = address(&schema);
        let options = PostgresOptions { patience: Duration::from_secs(600), ..common::options() };
        async move { PostgresStore::open(&address, options).await }
    });
    is_waiting(&admin, &schema).await;
    opening.abort();
    nothing_stays_queued(&admin, &schema).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
}

/// Another opener holds the lock of migrations and does not end.
#[tokio::test(flavor = "multi_thread")]
async fn d7_a_migration_that_gives_up_leaves_nothing_queued() {
    let schema = common::fresh_schema();
    let (admin, holder) = (common::client().await, common::client().await);
    let lock =
        format!("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('tidelock migrate {schema}', 0))");
    holder.batch_execute(&lock).await.unwrap();
    let start = Instant::now();
    let error = PostgresStore::open(&address(&schema), impatient()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
    assert!(start.elapsed() >= SHORT / 2, "it gave up after {:?}", start.elapsed());
    nothing_stays_queued(&admin, &schema).await;
    // The lock is free in time for the next opener, which waits for it.
    let opening = tokio::spawn({
        let address = address(&schema);
        async move { PostgresStore::open(&address, common::options()).await }
    });
    is_waiting(&admin, &schema).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    in_time("the migration", opening).await.unwrap().unwrap().apply(append("s")).await.unwrap();
}

/// Makes the server's clock differ from the machine's.
async fn set_clock(client: &Client, schema: &str, micros: i64) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE
         RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + ({micros})"
    );
    client.batch_execute(&sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_the_fast_append_comes_back_after_the_server_clock_was_set_back() {
    let server: Config = common::url().parse().unwrap();
    let port = server.get_ports().first().copied().unwrap_or(5432);
    let (proxy, schema) = (Proxy::before(port).await, common::fresh_schema());
    let address = address(&schema).replace(&format!(":{port}/"), &format!(":{}/", proxy.port()));
    let store = common::open(&format!("{address}&sslmode=disable"), None).await;
    let admin = common::client().await;
    for back in [0, 100_000, 400_000, 5_000_000] {
        set_clock(&admin, &schema, -back).await;
        // One or two appends take the slow path; from then on the store knows the clock again.
        for _ in 0..3 {
            store.apply(append("s")).await.unwrap();
        }
        let stale = store.stats().stale;
        proxy.forget();
        for _ in 0..20 {
            store.apply(append("s")).await.unwrap();
        }
        assert_eq!(store.stats().stale, stale, "set back by {back} µs: guesses were rejected");
        assert!(!proxy.heard("SET LOCAL lock_timeout"), "set back by {back} µs: appends went the long way");
    }
}

/// A session, a role or a database may define any setting that begins with the name of a schema.
#[tokio::test(flavor = "multi_thread")]
async fn a_setting_of_the_session_does_not_hide_positions() {
    let schema = common::fresh_schema();
    let store = common::open(&address(&schema), None).await;
    let mut mine = common::client().await;
    for value in ["advertised", "on", "1"] {
        mine.batch_execute(&format!("SET tidelock.{schema} = '{value}'")).await.unwrap();
        let before = store.read_log(LogQuery::all(99)).await.unwrap().events.len();
        let mut tx = mine.transaction().await.unwrap();
        tx.batch_execute(&format!("SELECT {schema}.append('own', 'Happened')")).await.unwrap();
        store.apply_in(&mut tx, &append("own")).await.unwrap();
        store.apply(append("later")).await.unwrap();
        let seen = store.read_log(LogQuery::all(99)).await.unwrap().events.len();
        assert_eq!(seen, before, "{value}: a reader passed a transaction that has not ended");
        assert_eq!(store.stalls().await.unwrap().len(), 1, "{value}: one lock for a transaction");
        tx.commit().await.unwrap();
        assert_eq!(store.read_log(LogQuery::all(99)).await.unwrap().events.len(), before + 3, "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_check_keys_whatever_the_session_makes_of_backslashes() {
    let schema = common::fresh_schema();
    drop(common::open(&address(&schema), None).await);
    let client = common::client().await;
    for setting in ["on", "off"] {
        let set = format!("SET standard_conforming_strings = {setting}; SET escape_string_warning = off");
        client.batch_execute(&set).await.unwrap();
        let good = format!(
            "SELECT {schema}.append({schema}.key('order') || {schema}.arg('a$b c') || {schema}.arg(7), 'Placed');
             SELECT {schema}.enqueue({schema}.key('mail'), 'mails', priority => 7)"
        );
        client.batch_execute(&good).await.unwrap();
        for (bad, code) in [
            ("append('a$b', 'Placed')", "TL101"),
            ("append('a' || chr(10), 'Placed')", "TL101"),
            ("append('a', 'Pla' || chr(27) || 'ced')", "TL103"),
            ("enqueue('a', 'ma' || chr(127) || 'ils')", "TL103"),
            ("enqueue('a', 'mails', priority => 10)", "TL103"),
            ("enqueue('a', 'mails', priority => 70000)", "TL103"),
        ] {
            let error = client.batch_execute(&format!("SELECT {schema}.{bad}")).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), code, "{setting}: {bad}: {error}");
        }
    }
}
