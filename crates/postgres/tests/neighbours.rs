//! Isolation of callers that share statements and connections: one caller's failure never affects another. Each case is
//! a regression test.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidelock_core::error::Outcome;
use tidelock_core::id::{EventType, Owner, QueueName};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Claim, EventFilter, Expect, NewEvent, NewWork, Operation, Selection, Store as _,
    StreamQuery,
};
use tidelock_postgres::tokio_postgres::Client;
use tidelock_postgres::{PostgresOptions, PostgresStore};

const TTL: Duration = Duration::from_secs(60);

struct Env {
    schema: String,
    store: PostgresStore,
    mine: Client,
}

/// Opens one store with one committer, and a connection of another program.
async fn env() -> Env {
    let schema = common::fresh_schema();
    let options = PostgresOptions { committers: 1, ..common::options() };
    let store = PostgresStore::open(&common::address(&schema), options).await.unwrap();
    Env { schema, store, mine: common::client().await }
}

fn key(kind: &str) -> Key {
    Key::single(kind).unwrap()
}

fn numbered(kind: &str, n: i64) -> Key {
    Key::new(kind, [n]).unwrap()
}

fn event() -> NewEvent {
    NewEvent::new(EventType::new("Happened").unwrap(), Payload::null())
}

fn queue_name(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// Returns whether the stream, the document and the work row of a batch exist.
async fn parts(env: &Env, n: i64) -> [bool; 3] {
    let sql = format!(
        "SELECT EXISTS (SELECT FROM {0}.streams WHERE key = $1), EXISTS (SELECT FROM {0}.documents WHERE key = $1), \
         EXISTS (SELECT FROM {0}.work WHERE key = $1)",
        env.schema
    );
    let row = env.mine.query_one(&sql, &[&numbered("batch", n).canonical()]).await.unwrap();
    [row.get(0), row.get(1), row.get(2)]
}

/// Another session cancels statements all the time. A batch is there completely or not at all, and the result says
/// which.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn cancelled_statements_never_split_a_batch() {
    let env = env().await;
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, nuisance, schema) = (Arc::clone(&stop), common::client().await, env.schema.clone());
    let cancelling = tokio::spawn(async move {
        let cancel = format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidelock' AND query LIKE '%{schema}.%'"
        );
        while !stopped.load(Ordering::Relaxed) {
            nuisance.simple_query(&cancel).await.unwrap();
        }
    });
    let begun = Instant::now();
    let mut answered = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        let batches: Vec<i64> = (answered..answered + 4).collect();
        answered += 4;
        let running: Vec<_> = batches
            .iter()
            .map(|n| {
                let (store, key) = (env.store.clone(), numbered("batch", *n));
                let batch = Batch::new()
                    .append(&key, Expect::Absent, [event()])
                    .put(&key, Expect::Absent, Payload::null())
                    .enqueue(NewWork::once(key, queue_name("jobs")));
                tokio::spawn(async move { store.apply(batch).await })
            })
            .collect();
        for (n, running) in batches.into_iter().zip(running) {
            let answer = running.await.unwrap();
            let found = parts(&env, n).await;
            match answer {
                Ok(_) => assert_eq!(found, [true; 3], "batch {n} was acknowledged"),
                Err(ApplyError::Store { outcome: Outcome::NotApplied, error }) => {
                    assert_eq!(found, [false; 3], "batch {n} was reported as not applied: {error}");
                }
                Err(_) => assert!(found == [true; 3] || found == [false; 3], "batch {n} is there by halves"),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    cancelling.await.unwrap();
}

/// Another transaction holds a stream: only the batches that need it wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_delays_no_other_caller() {
    let mut env = env().await;
    env.store.apply(Batch::new().append(&key("held"), Expect::Any, [event()])).await.unwrap();
    let tx = env.mine.transaction().await.unwrap();
    tx.batch_execute(&format!("SELECT FROM {}.streams FOR UPDATE", env.schema)).await.unwrap();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let store = env.store.clone();
            tokio::spawn(async move {
                store.apply(Batch::new().append(&key("held"), Expect::Any, [event()])).await
            })
        })
        .collect();
    for n in 0..20 {
        let put = Batch::new().put(&numbered("free", n), Expect::Absent, Payload::null());
        let done = tokio::time::timeout(Duration::from_secs(5), env.store.apply(put)).await;
        done.expect("no transaction locks this row").unwrap();
    }
    assert!(waiting.iter().all(|one| !one.is_finished()), "the row is still held");
    tx.rollback().await.unwrap();
    for one in waiting {
        one.await.unwrap().unwrap();
    }
    let info = env.store.stream(&key("held")).await.unwrap().unwrap();
    assert_eq!(info.head.map(|head| head.0), Some(20));
}

/// The same for claims: a claim by name waits, claims of queues do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_by_name_holds_up_no_other_claim() {
    let mut env = env().await;
    let held = NewWork::once(key("held"), queue_name("other"));
    env.store.apply(Batch::new().enqueue(held)).await.unwrap();
    for n in 0..10 {
        env.store
            .apply(Batch::new().enqueue(NewWork::once(numbered("job", n), queue_name("jobs"))))
            .await
            .unwrap();
    }
    let tx = env.mine.transaction().await.unwrap();
    tx.batch_execute(&format!("SELECT FROM {}.work WHERE key = 'held' FOR UPDATE", env.schema))
        .await
        .unwrap();
    let store = env.store.clone();
    let named =
        tokio::spawn(async move { store.claim(Claim::existing(&owner("named"), &key("held"), TTL)).await });
    for n in 0..10 {
        let claim = Claim::queues(&owner(&format!("worker-{n}")), [queue_name("jobs")], 1, TTL);
        let claimed = tokio::time::timeout(Duration::from_secs(5), env.store.claim(claim)).await;
        assert_eq!(claimed.expect("no transaction locks these rows").unwrap().grants.len(), 1);
    }
    tx.rollback().await.unwrap();
    assert_eq!(named.await.unwrap().unwrap().grants.len(), 1);
}

/// However often a transaction appends, it advertises once: the lock table of the server is small.
#[tokio::test(flavor = "multi_thread")]
async fn many_appends_in_one_transaction_take_one_lock() {
    let mut env = env().await;
    let count = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = '{}.positions'::regclass::oid",
        env.schema
    );
    let append = format!("SELECT {}.append('bulk', 'Happened')", env.schema);
    let mut tx = env.mine.transaction().await.unwrap();
    for _ in 0..50 {
        tx.batch_execute(&append).await.unwrap();
    }
    assert_eq!(tx.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 1);
    // Rolling back to a savepoint releases the lock; the next append acquires it again.
    tx.rollback().await.unwrap();
    tx = env.mine.transaction().await.unwrap();
    let savepoint = tx.transaction().await.unwrap();
    savepoint.batch_execute(&append).await.unwrap();
    savepoint.rollback().await.unwrap();
    assert_eq!(tx.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 0);
    tx.batch_execute(&append).await.unwrap();
    assert_eq!(tx.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 1);
    tx.commit().await.unwrap();
    let row = env.mine.query_one(&count, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}

/// Thousands of leases renewed past their first expiry do not keep a claim from finding the free row behind them.
#[tokio::test(flavor = "multi_thread")]
async fn renewed_leases_do_not_bury_the_lane() {
    let env = env().await;
    let rows: i64 = 6_000;
    env.mine
        .batch_execute(&format!(
            "INSERT INTO {0}.work (key, seq, revision, queue, priority, recurring, ready_at, due_at, payload, attempts,
                 takeovers, lease_owner, lease_fence, leased_at, lease_expires_at, enqueued_at)
             SELECT 'leased ' || n, n, 1, 'jobs', 5, false, n, n, 'null', 1, 0, 'another', 1, 1,
                 {0}.clock() + 600000000, n FROM generate_series(1, {rows}) n;
             SELECT setval('{0}.work_seqs', {rows})",
            env.schema
        ))
        .await
        .unwrap();
    env.store.apply(Batch::new().enqueue(NewWork::once(key("free"), queue_name("jobs")))).await.unwrap();
    let claim = Claim::queues(&owner("worker"), [queue_name("jobs")], 1, TTL);
    let claimed = tokio::time::timeout(Duration::from_secs(8), env.store.claim(claim)).await;
    let grants = claimed.expect("the claim is answered").unwrap().grants;
    assert_eq!(grants.iter().map(|grant| grant.row.key.clone()).collect::<Vec<_>>(), [key("free")]);
}

/// A filtered page that reports the end of a stream has scanned exactly the events that it claims.
#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_page_of_a_stream_skips_nothing() {
    let env = env().await;
    let (writer, stop) = (env.store.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let writing = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            writer.apply(Batch::new().append(&key("busy"), Expect::Any, [event()])).await.unwrap();
        }
    });
    let begun = Instant::now();
    let mut pages = 0;
    while begun.elapsed() < Duration::from_secs(1) || pages < 20 {
        let types = vec![EventType::new("Happened").unwrap()];
        let filter = EventFilter { types, ..EventFilter::default() };
        let query = StreamQuery { filter, ..StreamQuery::forward(&key("busy"), 10_000) };
        let page = env.store.read_stream(query).await.unwrap();
        assert_eq!(page.scanned_to, page.events.last().map(|event| event.position), "page {pages}");
        pages += 1;
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
}

/// Concurrent processes create, claim and remove a row and create it again. Its fences rise all the same.
#[tokio::test(flavor = "multi_thread")]
async fn fences_of_new_rows_rise() {
    let mut env = env().await;
    let options = PostgresOptions { committers: 1, ..common::options() };
    let other = PostgresStore::open(&common::address(&env.schema), options).await.unwrap();
    let tx = env.mine.transaction().await.unwrap();
    // A transaction that creates the row `first` waits for this one.
    tx.batch_execute(&format!(
        "INSERT INTO {}.work (key, seq, revision, queue, priority, recurring, payload, attempts, takeovers, enqueued_at) \
         VALUES ('first', 0, 0, '', 0, false, 'null', 0, 0, 0)",
        env.schema
    ))
    .await
    .unwrap();
    let claim = |name: &str, row: &str| Claim::named(&owner(name), &key(row), &queue_name("locks"), TTL);
    let waiting: Vec<_> = ["first", "second"]
        .map(|row| {
            let (store, claim) = (env.store.clone(), claim("waiting", row));
            tokio::spawn(async move { store.claim(claim).await })
        })
        .into();
    // Claims and removes the second row repeatedly while the others try.
    let mut highest = 0;
    for _ in 0..20 {
        if let Some(grant) = other.claim(claim("quick", "second")).await.unwrap().grants.pop() {
            highest = highest.max(grant.fence.0);
            let this = Selection::Keys(vec![grant.row.key]);
            other.apply(Batch::new().operate(this, Operation::Remove)).await.unwrap();
        }
    }
    tx.rollback().await.unwrap();
    for one in waiting {
        let claimed = one.await.unwrap().unwrap();
        for grant in claimed.grants.iter().filter(|grant| grant.row.key == key("second")) {
            assert!(grant.fence.0 > highest || highest == 0, "{:?} after {highest}", grant.fence);
        }
    }
}
