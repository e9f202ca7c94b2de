//! D2 and D3 on real servers: an asynchronous standby is promoted without the newest commits, or a dump is restored.
//! Lost numbers are never reused, and processes that survived the cut notice it.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/poll.rs"]
mod poll;

use std::collections::BTreeSet;
use std::time::Duration;

use poll::until;
use serde_json::{Value, json};
use tidelock_core::error::{Explain as _, Outcome};
use tidelock_core::id::{EventType, Fence, OpId, Owner, Position, QueueName};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Delta, Expect, Grant, LogQuery, NewEvent, NewWork, Receipt, Refusal,
    Store as _, StoreErrorKind,
};
use tidelock_pgserver::Server;
use tidelock_postgres::tokio_postgres::{Client, NoTls};
use tidelock_postgres::{PostgresOptions, PostgresStore, tokio_postgres};

const TTL: Duration = Duration::from_secs(600);

fn start() -> Server {
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    Server::start(&options).expect("a private server starts")
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A primary, and a standby that follows until it is cut off.
struct Pair {
    primary: Server,
    standby: Server,
}

impl Pair {
    fn start() -> Self {
        tokio::task::block_in_place(|| {
            let primary = start();
            let standby = primary.standby().unwrap();
            Self { primary, standby }
        })
    }

    async fn open(&self) -> PostgresStore {
        let (one, two) = (self.primary.port(), self.standby.port());
        let hosts = format!("127.0.0.1:{one},127.0.0.1:{two}/");
        let url = self.primary.url().replace(&format!("127.0.0.1:{one}/"), &hosts);
        let options = PostgresOptions { patience: Duration::from_secs(60), ..common::options() };
        PostgresStore::open(&format!("{url}?target_session_attrs=read-write"), options).await.unwrap()
    }

    /// Disconnects the standby after it has replayed everything so far.
    async fn cut_off(&self) {
        let (primary, standby) = (client(&self.primary.url()).await, client(&self.standby.url()).await);
        let written = primary.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap();
        let written: String = written.get(0);
        until("the standby has everything", async || {
            let sql = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn";
            standby.query_one(sql, &[&written]).await.unwrap().get(0)
        })
        .await;
        standby.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
        standby.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        until("the standby is cut off", async || {
            let sql = "SELECT count(*) FROM pg_stat_wal_receiver";
            standby.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
    }

    fn fail_over(&self) {
        tokio::task::block_in_place(|| {
            self.primary.kill().unwrap();
            self.standby.promote().unwrap();
        });
    }
}

fn key(name: &str) -> Key {
    Key::new("epoch", [name]).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

fn number(n: i64) -> Payload {
    Payload::of(&json!({ "n": n })).unwrap()
}

/// Applies a batch under one id until its outcome is known: the first call on a dead connection fails.
async fn surely(store: &PostgresStore, batch: Batch) -> Result<Receipt, ApplyError> {
    let batch = batch.op_id(OpId::new());
    loop {
        match store.apply(batch.clone()).await {
            Err(ApplyError::Store { outcome: Outcome::Unknown(_), .. }) => {}
            answer => return answer,
        }
    }
}

async fn add(store: &PostgresStore, k: &Key, n: i64) {
    surely(store, Batch::new().merge(k, [Delta::inc("/n", n)])).await.unwrap();
}

async fn value(store: &PostgresStore, k: &Key) -> Value {
    store.document(k).await.unwrap().unwrap().value.parse().unwrap()
}

async fn append(store: &PostgresStore, stream: &Key) -> Position {
    let event = NewEvent::new(EventType::new("Happened").unwrap(), Payload::null());
    let receipt = surely(store, Batch::new().append(stream, Expect::Any, [event])).await.unwrap();
    receipt.appended[0].last_position
}

async fn take(store: &PostgresStore, who: &str, row: &Key) -> Grant {
    loop {
        let claimed = store.claim(Claim::existing(&owner(who), row, TTL)).await;
        match claimed {
            Ok(mut claimed) => return claimed.grants.pop().expect("it is free"),
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}"),
        }
    }
}

async fn after(store: &PostgresStore, position: Position) -> Result<usize, StoreErrorKind> {
    let page = store.read_log(LogQuery::after(position, 1_000)).await;
    page.map(|page| page.events.len()).map_err(|error| error.kind)
}

/// The idle process of the review: its rows, its fence and its versions belong to the lost history.
#[tokio::test(flavor = "multi_thread")]
async fn d2_an_idle_process_writes_by_the_new_history_after_a_failover() {
    let pair = Pair::start();
    let (a, b) = (pair.open().await, pair.open().await);
    let (k, row) = (key("d2"), key("d2-row"));
    a.apply(Batch::new().put(&k, Expect::Absent, number(0))).await.unwrap();
    a.apply(Batch::new().enqueue(NewWork::standing(row.clone(), QueueName::new("l").unwrap())))
        .await
        .unwrap();
    pair.cut_off().await;
    let before = a.epoch();
    add(&a, &k, 10).await;
    let stale = take(&a, "a", &row).await;
    pair.fail_over();
    add(&b, &k, 5).await;
    let good = take(&b, "b", &row).await;
    assert!(good.fence > stale.fence, "{} is not above {}", good.fence, stale.fence);
    add(&a, &k, 1).await;
    assert_eq!(value(&b, &k).await, json!({ "n": 6 }), "the lost 10 came back");
    let refused = surely(&a, Batch::new().ack(&stale.lease())).await.unwrap_err();
    assert!(matches!(refused.refusal(), Some(Refusal::Fenced { .. })), "{refused}");
    surely(&b, Batch::new().ack(&good.lease())).await.unwrap();
    assert!(a.epoch() > before);
    assert_eq!(a.epoch(), b.epoch());
    let version = b.document(&k).await.unwrap().unwrap().version;
    let of_before = Batch::new().put(&k, Expect::Exact(version), number(99)).observed_in(before);
    assert_eq!(surely(&a, of_before).await.unwrap_err().code().as_str(), "TL0212");
}

/// Readers, positions and fences of the review: a reader at 100 received 0 of 50 new events, and fences were granted
/// twice.
#[tokio::test(flavor = "multi_thread")]
async fn d3_positions_and_fences_never_repeat_after_a_failover() {
    let pair = Pair::start();
    let (a, b) = (pair.open().await, pair.open().await);
    let (stream, row) = (key("d3"), key("d3-row"));
    a.apply(Batch::new().enqueue(NewWork::standing(row.clone(), QueueName::new("l").unwrap())))
        .await
        .unwrap();
    let mut kept = Position(0);
    for _ in 0..50 {
        kept = append(&a, &stream).await;
    }
    pair.cut_off().await;
    let (mut positions, mut fences) = (BTreeSet::new(), BTreeSet::<Fence>::new());
    let mut lost = kept;
    for _ in 0..50 {
        lost = append(&a, &stream).await;
        positions.insert(lost);
        let grant = take(&a, "a", &row).await;
        fences.insert(grant.fence);
        a.apply(Batch::new().release(&grant.lease())).await.unwrap();
    }
    pair.fail_over();
    for n in 0..50 {
        let store = if n % 2 == 0 { &b } else { &a };
        assert!(positions.insert(append(store, &stream).await), "a position came twice");
        let grant = take(store, "b", &row).await;
        assert!(fences.insert(grant.fence), "fence {} came twice", grant.fence);
        surely(store, Batch::new().release(&grant.lease())).await.unwrap();
    }
    for store in [&a, &b] {
        assert_eq!(after(store, lost).await, Err(StoreErrorKind::PositionLost));
        assert_eq!(after(store, kept).await, Ok(50), "a reader at the cut misses nothing");
        assert_eq!(after(store, Position(kept.0 - 10)).await, Ok(60));
    }
}

/// A dump that is restored into another database of the same server is another history.
#[tokio::test(flavor = "multi_thread")]
async fn d3_a_restored_dump_begins_a_new_epoch() {
    let server = tokio::task::block_in_place(start);
    let store = PostgresStore::open(&server.url(), common::options()).await.unwrap();
    let stream = key("dump");
    let kept = append(&store, &stream).await;
    let dump = server.data_directory().with_file_name("dump.sql");
    let run = |program: &str, args: &[&str]| {
        let output = tokio::task::block_in_place(|| server.command(program).args(args).output().unwrap());
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let file = dump.display().to_string();
    run("pg_dump", &["-d", "tidelock", "-f", &file]);
    let lost = append(&store, &stream).await;
    run("psql", &["-X", "-q", "-d", "postgres", "-c", "CREATE DATABASE restored"]);
    run("psql", &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "restored", "-f", &file]);
    let restored = PostgresStore::open(&server.url_of("restored"), common::options()).await.unwrap();
    assert!(restored.epoch() > store.epoch());
    assert_eq!(after(&restored, lost).await, Err(StoreErrorKind::PositionLost));
    assert_eq!(after(&restored, kept).await, Ok(0));
    let new = append(&restored, &stream).await;
    assert!(new > lost);
    assert_eq!(after(&restored, kept).await, Ok(1));
}

/// A role with the rights that the guide lists confirms the epoch, and cannot declare a cut without further rights.
#[tokio::test(flavor = "multi_thread")]
async fn d3_a_plain_role_finds_a_cut() {
    let server = tokio::task::block_in_place(start);
    let owner = PostgresStore::open(&server.url(), common::options()).await.unwrap();
    let admin = client(&server.url()).await;
    admin
        .batch_execute(
            "CREATE ROLE app LOGIN PASSWORD 'app';
             GRANT USAGE ON SCHEMA tidelock TO app;
             GRANT SELECT ON tidelock.migrations, tidelock.epoch, tidelock.history_cuts TO app;
             GRANT SELECT, INSERT, UPDATE, DELETE ON tidelock.streams, tidelock.documents, tidelock.work TO app;
             GRANT SELECT, INSERT ON tidelock.events TO app;
             GRANT SELECT, UPDATE ON tidelock.floors TO app;
             GRANT SELECT, INSERT, DELETE ON tidelock.receipts TO app;
             GRANT USAGE ON SEQUENCE tidelock.positions, tidelock.work_seqs, tidelock.fences TO app;",
        )
        .await
        .unwrap();
    let address = format!("postgres://app:app@127.0.0.1:{}/tidelock", server.port());
    let options = PostgresOptions { migrate: false, ..common::options() };
    let app = PostgresStore::open(&address, options).await.unwrap();
    assert_eq!(app.epoch(), owner.epoch(), "both see the same identity");
    let last = append(&app, &key("role")).await;
    admin.batch_execute("UPDATE tidelock.epoch SET timeline = '00000000'").await.unwrap();
    let next = append(&app, &key("role")).await;
    assert!(next.0 > last.0 + (1 << 29), "the epoch began: {next}");
    assert!(app.declare_cut("not allowed").await.is_err());
    assert_eq!(append(&owner, &key("role")).await.0, next.0 + 1);
    assert_eq!(app.epoch(), owner.epoch());
}
