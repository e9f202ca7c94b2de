//! Lost connections, silent and restarted servers, locked rows, failover: every call returns a typed result. Every
//! acknowledged batch is there once, and an unknown outcome can be resolved by its id.
//!
//! The network is a proxy that the tests break. Servers are private, because they are stopped and killed.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/poll.rs"]
mod poll;
#[path = "common/proxy.rs"]
mod proxy;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use load::{Load, Tally, append, check, event, key, sayings, surely};
use poll::{POLL, in_time, until};
use proxy::{Proxy, Trap};
use tidelock_core::error::Outcome;
use tidelock_core::id::{OpId, Owner, QueueName};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::{
    ApplyError, Batch, Claim, Expect, LogQuery, NewWork, Page, Receipt, Store as _, StoreError,
    StoreErrorKind, StreamQuery,
};
use tidelock_pgserver::Server;
use tidelock_postgres::tokio_postgres::{Client, NoTls};
use tidelock_postgres::{PostgresOptions, PostgresStore, tokio_postgres};

/// The time that a call may take beyond the patience: a busy machine, and a response that is awaited for a second
/// longer.
const SLACK: Duration = Duration::from_secs(4);

/// The patience of stores whose calls should fail.
const SHORT: Duration = Duration::from_millis(1_500);

fn start() -> Server {
    // The server looks for deadlocks before any waiter gives up.
    let settings = vec![("deadlock_timeout".to_owned(), "50ms".to_owned())];
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        settings,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    Server::start(&options).expect("a private server starts")
}

/// The server of the tests that leave it running.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(start)
}

/// Opens a store. The schema is created beforehand: on a busy machine that takes longer than the patience of some
/// tests.
async fn open(url: &str, options: PostgresOptions) -> PostgresStore {
    let migrated = PostgresStore::open(url, common::options()).await.unwrap();
    migrated.close().await;
    PostgresStore::open(url, options).await.unwrap()
}

fn patience(patience: Duration) -> PostgresOptions {
    PostgresOptions { patience, ..common::options() }
}

/// Opens a plain connection, for the actions of other programs.
async fn client(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A store behind a proxy. The schema is also the application name of its connections.
struct Site {
    proxy: Proxy,
    store: PostgresStore,
    schema: String,
}

impl Site {
    async fn open(options: PostgresOptions) -> Self {
        let (proxy, schema) = (Proxy::before(server().port()).await, common::fresh_schema());
        let store = open(&address(&proxy, &schema), options).await;
        Self { proxy, store, schema }
    }

    /// Opens a store that bypasses the proxy.
    async fn witness(&self) -> PostgresStore {
        let url = format!("{}?schema={}", server().url(), self.schema);
        PostgresStore::open(&url, common::options()).await.unwrap()
    }
}

fn address(proxy: &Proxy, schema: &str) -> String {
    let url = server().url().replace(&format!(":{}/", server().port()), &format!(":{}/", proxy.port()));
    format!("{url}?sslmode=disable&schema={schema}&application_name={schema}")
}

/// Returns a key of a kind that the store has not written yet, so that its row is read before it is written.
fn unknown(kind: &str) -> Key {
    Key::new(&kind.replace([' ', ','], "-"), ["row"]).unwrap()
}

/// Returns the failure of a batch, and whether it was applied.
#[track_caller]
fn failure(answer: Result<Receipt, ApplyError>) -> (StoreError, Outcome) {
    match answer {
        Err(ApplyError::Store { error, outcome }) => (error, outcome),
        other => panic!("expected a failure of the store, got {other:?}"),
    }
}

/// Checks that a call failed within the patience because the server is unavailable.
#[track_caller]
fn unreachable<T: std::fmt::Debug>(answer: Result<T, StoreError>, start: Instant, patience: Duration) {
    assert_eq!(answer.unwrap_err().kind, StoreErrorKind::Unreachable);
    assert!(start.elapsed() < patience + SLACK, "it took {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_while_idle_is_made_again_unnoticed() {
    let site = Site::open(common::options()).await;
    let stream = key("warm");
    for n in 0..5 {
        // Twice, so that the second is decided on cached rows.
        site.store.apply(append(&stream, &format!("{n}"))).await.unwrap();
        site.store.apply(append(&stream, &format!("{n} again"))).await.unwrap();
        site.proxy.cut().await;
        site.store.apply(append(&stream, &format!("{n} after"))).await.unwrap();
        site.proxy.cut().await;
        site.store.apply(append(&key(&format!("cold-{n}")), "after")).await.unwrap();
        site.proxy.cut().await;
        assert_eq!(sayings(&site.store, &stream).await.len(), 3 * (n + 1));
        site.proxy.cut().await;
        let claim = Claim::queues(&Owner::new("w").unwrap(), [QueueName::new("none").unwrap()], 1, SLACK);
        assert!(site.store.claim(claim).await.unwrap().grants.is_empty());
    }
}

/// A batch whose response is lost, before or after the server executed it.
struct Lost {
    /// Whether this process caches the stream: then one statement without a prior read carries the batch. Otherwise the
    /// kind of the stream is new to it.
    warm: bool,
    id: Option<OpId>,
    trap: Trap,
}

async fn lose_an_answer(site: &Site, witness: &PostgresStore, lost: Lost) {
    let Lost { warm, id, trap } = lost;
    let what = format!("warm {warm}, id {}, {trap:?}", id.is_some());
    let stream = if warm { key(&what) } else { unknown(&what) };
    let marker = format!("marker-{}", OpId::new());
    let mut before = 0;
    if warm {
        for n in 0..2 {
            site.store.apply(append(&stream, &format!("before {n}"))).await.unwrap();
            before += 1;
        }
    }
    let batch = append(&stream, &marker);
    let batch = id.map_or(batch.clone(), |id| batch.op_id(id));
    site.proxy.forget();
    site.proxy.trap(&marker, trap);
    let (error, outcome) = failure(in_time(&what, site.store.apply(batch.clone())).await);
    assert!(site.proxy.sprung());
    assert_eq!(site.proxy.heard("SET LOCAL lock_timeout"), !warm, "{what}: it went the other way");
    assert_eq!((error.kind, outcome), (StoreErrorKind::Unreachable, Outcome::Unknown(id)), "{what}: {error}");
    let happened = trap == Trap::Answer;
    let there = sayings(witness, &stream).await.iter().filter(|said| **said == marker).count();
    assert_eq!(there, usize::from(happened), "{what}");
    let Some(id) = id else { return };
    assert_eq!(site.store.operation(id).await.unwrap().is_some(), happened, "{what}");
    let receipt = site.store.apply(batch).await.unwrap();
    assert_eq!(receipt.repeated, happened, "{what}");
    assert_eq!(receipt.appended[0].first_version.0, before, "{what}");
    let mut said = sayings(witness, &stream).await;
    assert_eq!((said.len() as u64, said.pop()), (before + 1, Some(marker)), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_is_unknown_and_its_id_resolves() {
    let site = Site::open(common::options()).await;
    let witness = site.witness().await;
    for warm in [true, false] {
        for trap in [Trap::Answer, Trap::Before] {
            for id in [Some(OpId::new()), None] {
                lose_an_answer(&site, &witness, Lost { warm, id, trap }).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_lost_before_the_commit_is_sent_costs_another_attempt_and_nothing_else() {
    let site = Site::open(common::options()).await;
    for (n, trap) in [Trap::Before, Trap::Behind].into_iter().enumerate() {
        // The stream is not cached: its row is locked and read first, and that request is cut.
        let stream = unknown(&format!("cold-{n}"));
        site.proxy.trap(stream.canonical(), trap);
        let receipt = site.store.apply(append(&stream, "once")).await.unwrap();
        assert!(site.proxy.sprung() && !receipt.repeated);
        assert_eq!(sayings(&site.store, &stream).await, ["once"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_response_is_lost_expires() {
    let ttl = Duration::from_millis(300);
    let site = Site::open(common::options()).await;
    let (job, queue) = (key("job"), QueueName::new("jobs").unwrap());
    site.store.apply(Batch::new().enqueue(NewWork::once(job.clone(), queue.clone()))).await.unwrap();
    let claim = |who: &str| Claim::queues(&Owner::new(who).unwrap(), [queue.clone()], 1, ttl);
    site.proxy.trap("unlucky", Trap::Answer);
    let error = site.store.claim(claim("unlucky")).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert_eq!(site.store.work(&job).await.unwrap().unwrap().attempts, 1);
    let mut grants = Vec::new();
    until("the lease ends", async || {
        grants = site.store.claim(claim("heir")).await.unwrap().grants;
        !grants.is_empty()
    })
    .await;
    assert_eq!((grants[0].row.attempts, grants[0].row.takeovers), (2, 1));
    site.store.apply(Batch::new().ack(&grants[0].lease())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn terminated_again_and_again_under_load_nothing_is_lost_or_there_twice() {
    let patience = Duration::from_secs(10);
    let site = Site::open(self::patience(patience)).await;
    let load = Load::start(&site.store, 8);
    let admin = client(server()).await;
    let (start, mut terminated) = (Instant::now(), 0);
    // On a busy machine, reconnecting takes longer than terminating a connection.
    while start.elapsed() < Duration::from_secs(2) || terminated <= 20 {
        load.progress(1).await;
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
        terminated += admin.query_one(sql, &[&site.schema]).await.unwrap().get::<_, i64>(0);
    }
    load.progress(8).await;
    let tally = load.end().await;
    assert!(tally.unknown() > 0, "{terminated} terminated, none of them in the middle of a commit");
    assert!(tally.slowest() < patience + SLACK, "a call took {:?}", tally.slowest());
    check(&site.witness().await, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_unreachable_within_patience_and_is_found_again() {
    let patience = SHORT;
    let server = start();
    let store = open(&server.url(), self::patience(patience)).await;
    let (stream, id) = (key("s"), OpId::new());
    store.apply(append(&stream, "before")).await.unwrap();
    tokio::task::block_in_place(|| server.stop().unwrap());
    let (everything, claim) = (KeyPrefix::all(), Claim::queues(&Owner::new("w").unwrap(), [], 1, SLACK));
    let at = Instant::now();
    let (plain, named, cold, claimed, read, log, listed, time) = tokio::join!(
        store.apply(append(&stream, "lost")),
        store.apply(append(&stream, "lost").op_id(id)),
        store.apply(append(&key("cold"), "lost")),
        store.claim(claim),
        store.read_stream(StreamQuery::forward(&stream, 10)),
        store.read_log(LogQuery::all(10)),
        store.documents(&everything, Page::first(10)),
        store.now(),
    );
    for (answer, expected) in [
        (plain, Outcome::NotApplied),
        // Under an id it may have been applied by an earlier call.
        (named, Outcome::Unknown(Some(id))),
        (cold, Outcome::NotApplied),
    ] {
        let (error, outcome) = failure(answer);
        assert_eq!((error.kind, outcome), (StoreErrorKind::Unreachable, expected), "{error}");
    }
    unreachable(claimed, at, patience);
    unreachable(read.map(|_| ()), at, patience);
    unreachable(log.map(|_| ()), at, patience);
    unreachable(listed.map(|_| ()), at, patience);
    unreachable(time, at, patience);
    let mut watch = store.watch();
    tokio::task::block_in_place(|| server.run().unwrap());
    store.apply(append(&stream, "after")).await.unwrap();
    assert_eq!(sayings(&store, &stream).await, ["before", "after"]);
    assert_eq!(store.operation(id).await.unwrap(), None);
    assert!(watch.changed().await);
    // Hints from other stores arrive again as well.
    let other = PostgresStore::open(&server.url(), common::options()).await.unwrap();
    wakes("hints arrive after a restart", &store, &other).await;
}

/// Checks that a commit of one store wakes waiters of the other. Hints may be missed while a connection is made, and a
/// store hints once when it connects. The waiters must therefore be woken repeatedly, by the commits alone.
async fn wakes(when: &str, listener: &PostgresStore, speaker: &PostgresStore) {
    let mut heard = 0;
    until(when, async || {
        let mut watch = listener.watch();
        speaker.apply(append(&key("hints"), "heard?")).await.unwrap();
        heard += usize::from(
            tokio::time::timeout(Duration::from_millis(200), watch.changed()).await.unwrap_or(false),
        );
        heard >= 10
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_under_load_nothing_is_lost_or_there_twice() {
    let server = start();
    let store = PostgresStore::open(&server.url(), common::options()).await.unwrap();
    let load = Load::start(&store, 8);
    for _ in 0..3 {
        load.progress(100).await;
        tokio::task::block_in_place(|| {
            server.kill().unwrap();
            server.run().unwrap();
        });
    }
    load.progress(100).await;
    let tally = load.end().await;
    assert!(tally.slowest() < common::options().patience + SLACK, "a call took {:?}", tally.slowest());
    check(&store, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_lets_callers_wait_with_a_limit() {
    let patience = Duration::from_millis(500);
    let site = Site::open(PostgresOptions { queue: 2, committers: 1, ..self::patience(patience) }).await;
    site.proxy.refuse(true);
    site.proxy.cut().await;
    let (start, groups) = (Instant::now(), site.store.stats().groups);
    let call = |n: usize| {
        let store = site.store.clone();
        tokio::spawn(async move { store.apply(append(&key(&format!("s-{n}")), "lost")).await })
    };
    let calls: Vec<_> = (0..9).map(call).collect();
    for call in calls {
        let (error, outcome) = failure(in_time("a caller is answered", call).await.unwrap());
        assert_eq!((error.kind, outcome), (StoreErrorKind::Unreachable, Outcome::NotApplied), "{error}");
    }
    assert!(start.elapsed() < patience + SLACK, "it took {:?}", start.elapsed());
    let groups = site.store.stats().groups - groups;
    assert!(groups > 4, "{groups} groups for 9 batches: more than two were queued");
    site.proxy.refuse(false);
    site.store.apply(append(&key("s-0"), "after")).await.unwrap();
    assert_eq!(sayings(&site.store, &key("s-0")).await, ["after"]);
}

/// Locks the row of a stream in a transaction that stays open.
async fn hold(client: &Client, schema: &str, stream: &Key) {
    let sql = format!("SELECT 1 FROM {schema}.streams WHERE key = $1 FOR UPDATE");
    assert_eq!(client.query(&sql, &[&stream.canonical()]).await.unwrap().len(), 1);
}

/// Waits until a connection of a program waits for a lock.
async fn is_waiting(admin: &Client, program: &str) {
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
    until("it waits for the row", async || {
        admin.query_one(sql, &[&program]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_read_is_cancelled_in_the_server() {
    let site = Site::open(common::options()).await;
    let (holder, admin) = (client(server()).await, client(server()).await);
    holder.batch_execute(&format!("BEGIN; LOCK TABLE {}.work", site.schema)).await.unwrap();
    let store = site.store.clone();
    let reading = tokio::spawn(async move { store.work(&key("w")).await });
    is_waiting(&admin, &site.schema).await;
    reading.abort();
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'";
    until("the query has ended", async || {
        admin.query_one(sql, &[&site.schema]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(site.store.work(&key("w")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_with_other_programs_costs_another_attempt_and_nothing_else() {
    let site = Site::open(common::options()).await;
    let [a, b, c] = ["a", "b", "c"].map(key);
    let all = |says: &str| append(&a, says).and(append(&b, says)).and(append(&c, says));
    site.store.apply(all("before")).await.unwrap();
    let (one, two, admin) = (client(server()).await, client(server()).await, client(server()).await);
    // The other program does not look for deadlocks, so the server aborts the store's transaction.
    one.batch_execute("SET deadlock_timeout = '1min'; SET application_name = 'one'").await.unwrap();
    let mut rounds = 0;
    // The store's wait for the second row is bounded: the cycle may not be closed in time.
    until("there is a deadlock", async || {
        one.batch_execute("BEGIN").await.unwrap();
        hold(&one, &site.schema, &c).await;
        two.batch_execute("BEGIN").await.unwrap();
        hold(&two, &site.schema, &b).await;
        let (store, batch) = (site.store.clone(), all("again"));
        let applying = tokio::spawn(async move { store.apply(batch).await });
        is_waiting(&admin, &site.schema).await;
        // The store holds the first row. The holder of the third waits for it; then the second is released.
        let closing = async {
            is_waiting(&admin, "one").await;
            two.batch_execute("ROLLBACK").await.unwrap();
        };
        tokio::join!(hold(&one, &site.schema, &a), tokio::time::timeout(POLL * 10, closing)).1.ok();
        two.batch_execute("ROLLBACK").await.unwrap();
        one.batch_execute("COMMIT").await.unwrap();
        in_time("the store continues", applying).await.unwrap().unwrap();
        rounds += 1;
        site.proxy.answered("C40P01")
    })
    .await;
    for stream in [&a, &b, &c] {
        assert_eq!(sayings(&site.store, stream).await.len(), rounds + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_programs_that_lock_in_other_orders_every_call_succeeds() {
    let site = Site::open(common::options()).await;
    let (a, b) = (key("a"), key("b"));
    let both = |says: &str| append(&b, says).and(append(&a, says));
    site.store.apply(both("first")).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut others = Vec::new();
    for order in [[a.clone(), b.clone()], [b.clone(), a.clone()]] {
        let (client, schema, done) = (client(server()).await, site.schema.clone(), Arc::clone(&done));
        others.push(tokio::spawn(async move {
            let [first, second] = order.map(|stream| {
                format!("SELECT 1 FROM {schema}.streams WHERE key = '{}' FOR UPDATE", stream.canonical())
            });
            let lock = format!("BEGIN; {first}; SELECT pg_sleep(0.005); {second}");
            let mut given_up = 0;
            client.batch_execute("SET deadlock_timeout = '20ms'").await.unwrap();
            while !done.load(Ordering::SeqCst) {
                given_up += usize::from(client.batch_execute(&lock).await.is_err());
                client.batch_execute("ROLLBACK; SELECT pg_sleep(0.005)").await.unwrap();
            }
            given_up
        }));
    }
    for n in 0..20 {
        in_time("a call", site.store.apply(both(&format!("{n}")))).await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let mut given_up = 0;
    for other in others {
        given_up += other.await.unwrap();
    }
    assert!(given_up > 0, "there was no deadlock at all");
    for stream in [&a, &b] {
        assert_eq!(sayings(&site.store, stream).await.len(), 21);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_are_not_delayed_by_a_locked_row() {
    // One committer: concurrent batches share a group.
    let site = Site::open(PostgresOptions { committers: 1, ..common::options() }).await;
    let (held, free) = (key("held"), key("free"));
    site.store.apply(append(&held, "1").and(append(&free, "1"))).await.unwrap();
    let other = client(server()).await;
    other.batch_execute("BEGIN").await.unwrap();
    hold(&other, &site.schema, &held).await;
    let store = site.store.clone();
    let batch = append(&held, "2");
    let waiting = tokio::spawn(async move { store.apply(batch).await });
    let groups = site.store.stats().groups;
    for n in 2..6 {
        in_time("the neighbour", site.store.apply(append(&free, &n.to_string()))).await.unwrap();
        assert!(!waiting.is_finished(), "{:?}", waiting.await);
    }
    assert!(site.store.stats().groups > groups);
    // Another transaction creates the row that a batch wants to create, and does not commit. The behaviour is the same.
    let made = key("made");
    let insert = format!("INSERT INTO {}.streams (key, head) VALUES ($1, NULL)", site.schema);
    other.execute(&insert, &[&made.canonical()]).await.unwrap();
    let store = site.store.clone();
    let batch = Batch::new().append(&made, Expect::Absent, [event("1")]);
    let making = tokio::spawn(async move { store.apply(batch).await });
    for n in 6..10 {
        in_time("the neighbour", site.store.apply(append(&free, &n.to_string()))).await.unwrap();
        assert!(!waiting.is_finished() && !making.is_finished());
    }
    other.batch_execute("ROLLBACK").await.unwrap();
    in_time("the row is free", waiting).await.unwrap().unwrap();
    in_time("the row is free", making).await.unwrap().unwrap();
    assert_eq!(sayings(&site.store, &held).await, ["1", "2"]);
    assert_eq!(sayings(&site.store, &free).await.len(), 9);
    assert_eq!(sayings(&site.store, &made).await, ["1"]);
}

/// Starts a batch that is queued when this returns.
async fn queue(store: &PostgresStore, batch: Batch) -> tokio::task::JoinHandle<Result<Receipt, ApplyError>> {
    let store = store.clone();
    let mut applying = Box::pin(async move { store.apply(batch).await });
    tokio::select! {
        biased;
        answer = &mut applying => panic!("it was answered at once: {answer:?}"),
        () = std::future::ready(()) => {}
    }
    tokio::spawn(applying)
}

/// Applies batches for free rows among many batches for rows that another transaction holds.
async fn crowd_around(rows: usize) {
    let site = Site::open(PostgresOptions { committers: 1, ..common::options() }).await;
    let held: Vec<Key> = (0..rows).map(|n| key(&format!("held-{n}"))).collect();
    for stream in &held {
        site.store.apply(append(stream, "1")).await.unwrap();
    }
    let other = client(server()).await;
    other.batch_execute("BEGIN").await.unwrap();
    for stream in &held {
        hold(&other, &site.schema, stream).await;
    }
    // While the network is blocked, all of them queue behind the first and become one group.
    site.proxy.hold();
    let batches = site.store.stats().batches;
    let first = queue(&site.store, append(&unknown("first"), "2")).await;
    until("the first is under way", async || site.store.stats().batches > batches).await;
    let (mut waiting, mut neighbours) = (Vec::new(), Vec::new());
    for n in 0..100 {
        match n % 10 {
            5 => neighbours.push(queue(&site.store, append(&key(&format!("free-{n}")), "2")).await),
            _ => waiting.push(queue(&site.store, append(&held[n % rows], "2")).await),
        }
    }
    site.proxy.pass();
    first.await.unwrap().unwrap();
    for neighbour in neighbours {
        in_time("a neighbour", neighbour).await.unwrap().unwrap();
    }
    let released = waiting.iter().filter(|call| call.is_finished()).count();
    assert_eq!(released, 0, "the neighbours waited until the others gave up");
    other.batch_execute("ROLLBACK").await.unwrap();
    for call in waiting {
        in_time("the row is free", call).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_do_not_pay_however_many_wait_for_the_row() {
    crowd_around(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_do_not_pay_however_many_rows_are_held() {
    crowd_around(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_held_beyond_patience_is_busy() {
    let patience = SHORT;
    let site = Site::open(self::patience(patience)).await;
    let (stream, id) = (key("held"), OpId::new());
    site.store.apply(append(&stream, "before")).await.unwrap();
    let other = client(server()).await;
    other.batch_execute("BEGIN").await.unwrap();
    hold(&other, &site.schema, &stream).await;
    let start = Instant::now();
    let (plain, named) = tokio::join!(
        site.store.apply(append(&stream, "plain")),
        site.store.apply(append(&stream, "named").op_id(id)),
    );
    assert!(start.elapsed() < patience * 2 + SLACK, "it took {:?}", start.elapsed());
    for (answer, expected) in [(plain, Outcome::NotApplied), (named, Outcome::Unknown(Some(id)))] {
        let (error, outcome) = failure(answer);
        assert_eq!((error.kind, outcome), (StoreErrorKind::Busy, expected), "{error}");
    }
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(site.store.operation(id).await.unwrap(), None);
    site.store.apply(append(&stream, "after")).await.unwrap();
    assert_eq!(sayings(&site.store, &stream).await, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_given_up_within_patience() {
    let patience = SHORT;
    let site = Site::open(self::patience(patience)).await;
    let (stream, id) = (key("warm"), OpId::new());
    for both_ways in [true, false] {
        for says in ["before", "before again"] {
            site.store.apply(append(&stream, says)).await.unwrap();
        }
        if both_ways {
            site.proxy.hold()
        } else {
            site.proxy.hold_answers()
        }
        let start = Instant::now();
        let (warm, cold, named, read, claimed) = tokio::join!(
            site.store.apply(append(&stream, "unknown")),
            site.store.apply(append(&key("cold"), "never")),
            site.store.apply(append(&key("named"), "unknown").op_id(id)),
            site.store.stream(&stream),
            site.store.claim(Claim::queues(&Owner::new("w").unwrap(), [], 1, SLACK)),
        );
        let took = start.elapsed();
        assert!(took < patience + SLACK, "both ways {both_ways}: it took {took:?}");
        for answer in [warm, cold, named] {
            let (error, outcome) = failure(answer);
            assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
            assert_ne!(outcome, Outcome::Applied);
        }
        unreachable(read.map(|_| ()), start, patience);
        unreachable(claimed, start, patience);
        site.proxy.cut().await;
        site.proxy.pass();
        let batch = append(&key("named"), "unknown").op_id(id);
        surely(&site.store, &batch, &Tally::default()).await.unwrap();
        assert_eq!(sayings(&site.store, &key("named")).await, ["unknown"]);
    }
    assert!(sayings(&site.store, &key("cold")).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_network_costs_time_and_nothing_else() {
    let site = Site::open(PostgresOptions { patience: Duration::from_secs(60), ..common::options() }).await;
    let stream = key("s");
    for says in ["1", "2"] {
        site.store.apply(append(&stream, says)).await.unwrap();
    }
    // Longer than an estimate of the server's clock may be old.
    site.proxy.delay(Duration::from_millis(1_200));
    site.store.apply(append(&stream, "3")).await.unwrap();
    site.proxy.pass();
    assert_eq!(sayings(&site.store, &stream).await, ["1", "2", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_arrive_again_after_a_silence() {
    let site = Site::open(self::patience(SHORT)).await;
    let witness = site.witness().await;
    wakes("hints arrive", &site.store, &witness).await;
    // Connections that the network has dropped: no end, no response. New ones work.
    site.proxy.abandon();
    surely(&site.store, &append(&key("s"), "after").op_id(OpId::new()), &Tally::default()).await.unwrap();
    wakes("hints arrive again", &site.store, &witness).await;
    wakes("hints are sent again", &witness, &site.store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_fails_at_once_and_is_not_repeated() {
    let url = server().url();
    let (_, rest) = url.split_once("://tidelock:").unwrap();
    let (_, place) = rest.split_once('@').unwrap();
    let start = Instant::now();
    let url = format!("postgres://tidelock:not-the-one@{place}");
    let error = PostgresStore::open(&url, common::options()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::CannotOpen, "{error}");
    assert!(start.elapsed() < common::options().patience / 2, "it took {:?}", start.elapsed());
    assert!(!format!("{error} {error:?}").contains("not-the-one"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_withdrawn_is_not_tried_again_and_again() {
    let patience = SHORT;
    let (proxy, schema) = (Proxy::before(server().port()).await, common::fresh_schema());
    let admin = client(server()).await;
    let create = format!("CREATE ROLE {schema} SUPERUSER LOGIN PASSWORD 'good'");
    admin.batch_execute(&create).await.unwrap();
    let (_, place) =
        address(&proxy, &schema).split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let url = format!("postgres://{schema}:good@{place}");
    let store = open(&url, self::patience(patience)).await;
    store.apply(append(&key("s"), "before")).await.unwrap();
    admin.batch_execute(&format!("ALTER ROLE {schema} PASSWORD 'another'")).await.unwrap();
    proxy.cut().await;
    let before = proxy.accepted();
    let (error, outcome) = failure(store.apply(append(&key("cold"), "lost")).await);
    assert_eq!((error.kind, outcome), (StoreErrorKind::CannotOpen, Outcome::NotApplied), "{error}");
    let error = store.stream(&key("s")).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::CannotOpen, "{error}");
    let attempts = proxy.accepted() - before;
    assert!(attempts < 60, "{attempts} logins within seconds: that is an attack on the server");
    admin.batch_execute(&format!("ALTER ROLE {schema} PASSWORD 'good'")).await.unwrap();
    store.apply(append(&key("s"), "after")).await.unwrap();
    assert_eq!(sayings(&store, &key("s")).await, ["before", "after"]);
}

/// Two servers, the second of which follows the first.
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

    /// Returns the address of the server that accepts writes.
    fn url(&self) -> String {
        let (one, two) = (self.primary.port(), self.standby.port());
        let hosts = format!("127.0.0.1:{one},127.0.0.1:{two}/");
        let url = self.primary.url().replace(&format!("127.0.0.1:{one}/"), &hosts);
        format!("{url}?target_session_attrs=read-write")
    }

    fn fail_over(&self) {
        tokio::task::block_in_place(|| {
            self.primary.kill().unwrap();
            self.standby.promote().unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_store_continues_when_a_standby_takes_over() {
    let pair = Pair::start();
    let store = PostgresStore::open(&pair.url(), common::options()).await.unwrap();
    let stream = key("s");
    let first = store.apply(append(&stream, "before")).await.unwrap();
    let refused = PostgresStore::open(&pair.standby.url(), common::options()).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::ReadOnly, "{refused}");
    // The standby follows asynchronously; commits that it has not received are lost with the primary.
    let written = client(&pair.primary).await.query_one("SELECT pg_current_wal_lsn()::text", &[]).await;
    let (written, follower) = (written.unwrap().get::<_, String>(0), client(&pair.standby).await);
    until("the standby has everything", async || {
        let sql = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn";
        follower.query_one(sql, &[&written]).await.unwrap().get(0)
    })
    .await;
    let mut watch = store.watch();
    pair.fail_over();
    let second = store.apply(append(&stream, "after")).await.unwrap();
    assert!(second.last_position() > first.last_position());
    assert_eq!(sayings(&store, &stream).await, ["before", "after"]);
    assert!(watch.changed().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_synchronous_standby_nothing_that_was_acknowledged_is_lost() {
    let pair = Pair::start();
    let store = PostgresStore::open(&pair.url(), common::options()).await.unwrap();
    let admin = client(&pair.primary).await;
    admin.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until("commits wait for the standby", async || {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    let load = Load::start(&store, 8);
    load.progress(200).await;
    pair.fail_over();
    load.progress(200).await;
    let tally = load.end().await;
    assert!(tally.slowest() < common::options().patience + SLACK, "a call took {:?}", tally.slowest());
    let url = pair.standby.url();
    check(&PostgresStore::open(&url, common::options()).await.unwrap(), &tally).await;
}
