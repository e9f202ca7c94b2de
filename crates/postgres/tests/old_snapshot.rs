//! D14: a queue beside an old snapshot. A dump or an idle transaction keeps PostgreSQL from removing the index entries
//! of finished jobs. A claim must not walk them repeatedly.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use tidelock_core::clock::{Due, Timestamp};
use tidelock_core::id::{Owner, QueueName};
use tidelock_core::key::Key;
use tidelock_core::store::{Batch, Claim, Claimed, NewWork, Operation, Selection, Store as _, WorkFilter};
use tidelock_postgres::PostgresStore;
use tidelock_postgres::tokio_postgres::Client;

const TTL: Duration = Duration::from_secs(60);
const JOBS: i64 = 20_000;

fn queue_name() -> QueueName {
    "jobs".parse().unwrap()
}

fn worker() -> Owner {
    "worker".parse().unwrap()
}

fn job(n: i64) -> NewWork {
    NewWork::once(Key::new("job", [n]).unwrap(), queue_name())
}

async fn claim(store: &PostgresStore, limit: usize) -> Claimed {
    store.claim(Claim::queues(&worker(), [queue_name()], limit, TTL)).await.unwrap()
}

/// Opens a snapshot that sees every row of a schema for as long as the client lives.
async fn old_snapshot(schema: &str) -> Client {
    let client = common::client().await;
    let sql = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM {schema}.work");
    client.batch_execute(&sql).await.unwrap();
    client
}

/// Enqueues, claims and acknowledges this number of jobs.
async fn finish(store: &PostgresStore, jobs: i64) {
    let batch = |of: std::ops::Range<i64>| of.fold(Batch::new(), |batch, n| batch.enqueue(job(n)));
    for first in (0..jobs).step_by(1_000) {
        store.apply(batch(first..jobs.min(first + 1_000))).await.unwrap();
        let mut left = jobs.min(first + 1_000) - first;
        while left > 0 {
            let grants = claim(store, 1_000).await.grants;
            left -= i64::try_from(grants.len()).unwrap();
            let acks = grants.iter().fold(Batch::new(), |batch, grant| batch.ack(&grant.lease()));
            store.apply(acks).await.unwrap();
        }
    }
}

/// Returns how many entries of the ready index were read so far, once the connections of all stores have ended.
async fn entries_read(schema: &str, least: i64) -> i64 {
    let client = common::client().await;
    let sql = "SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes \
               WHERE schemaname = $1 AND indexrelname = 'work_ready'";
    let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let begun = Instant::now();
    loop {
        let read: i64 = client.query_one(sql, &[&schema]).await.unwrap().get(0);
        let open: i64 = client.query_one(others, &[&schema]).await.unwrap().get(0);
        if read >= least && open == 0 {
            return read;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{read} entries read, {open} connections");
        tokio::task::yield_now().await;
    }
}

/// Opens a store whose application name is the schema.
async fn open(schema: &str) -> PostgresStore {
    common::open(&format!("{}&application_name={schema}", common::address(schema)), None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_claims_beside_an_old_snapshot_do_not_walk_dead_entries() {
    let schema = common::fresh_schema();
    let store = open(&schema).await;
    let _snapshot = old_snapshot(&schema).await;
    finish(&store, JOBS).await;
    store.close().await;
    drop(store);
    let before = entries_read(&schema, JOBS).await;

    let store = open(&schema).await;
    let claims = 400;
    for _ in 0..claims / 2 {
        assert!(claim(&store, 1).await.grants.is_empty());
        store.apply(Batch::new().enqueue(job(0))).await.unwrap();
        let granted = claim(&store, 1).await;
        let lease = granted.grants.first().expect("what this process enqueued is granted at once").lease();
        store.apply(Batch::new().ack(&lease)).await.unwrap();
    }
    store.close().await;
    drop(store);
    let read = entries_read(&schema, before + 1).await - before;
    // Each would walk all of them; an occasional full scan remains.
    assert!(read < claims * JOBS / 4, "{read} index entries for {claims} claims beside {JOBS} dead ones");
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_a_row_below_the_bound_is_claimed_at_once_or_after_the_rest() {
    let schema = common::fresh_schema();
    let (store, other) = (open(&schema).await, open(&schema).await);
    let _snapshot = old_snapshot(&schema).await;
    finish(&store, JOBS).await;
    assert!(claim(&store, 1).await.grants.is_empty());
    let long_ago = || Due::At(Timestamp::from_micros(1_000_000));

    // A row that this process makes ready below the bound, in any way, is claimable at once.
    store.apply(Batch::new().enqueue(job(1).due(long_ago()))).await.unwrap();
    let lease = claim(&store, 1).await.grants.first().expect("enqueued").lease();
    assert!(claim(&store, 1).await.grants.is_empty());
    store.apply(Batch::new().release(&lease)).await.unwrap();
    let lease = claim(&store, 1).await.grants.first().expect("released").lease();
    store.apply(Batch::new().block(&lease, "no")).await.unwrap();
    assert!(claim(&store, 1).await.grants.is_empty());
    let blocked = WorkFilter { blocked: Some(true), ..WorkFilter::default() };
    store.apply(Batch::new().operate(Selection::Filter(blocked), Operation::Unblock)).await.unwrap();
    let lease = claim(&store, 1).await.grants.first().expect("unblocked").lease();
    store.apply(Batch::new().ack(&lease)).await.unwrap();
    assert!(claim(&store, 1).await.grants.is_empty());

    // A row of the program's own transaction is claimable when the program reports its commit.
    let mut client = common::client().await;
    let mut mine = client.transaction().await.unwrap();
    store.apply_in(&mut mine, &Batch::new().enqueue(job(2).due(long_ago()))).await.unwrap();
    assert!(claim(&store, 1).await.grants.is_empty());
    mine.commit().await.unwrap();
    store.hint();
    let lease = claim(&store, 1).await.grants.first().expect("applied in a transaction").lease();
    store.apply(Batch::new().ack(&lease)).await.unwrap();

    // A row of another process is claimable when the rest is over, and every claim before reports when to poll again.
    other.apply(Batch::new().enqueue(job(3).due(long_ago()))).await.unwrap();
    let begun = Instant::now();
    loop {
        let claimed = claim(&store, 1).await;
        if !claimed.grants.is_empty() {
            break;
        }
        let (now, next) = (store.now().await.unwrap(), claimed.next_at.expect("there is a next look"));
        assert!(next <= now.after(Duration::from_secs(30)), "{next:?} is far from {now:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "a row of another process is missed");
    }
}

/// Item 17: a claim locks only its granted rows, so claimers of several processes find rows beside each other.
#[tokio::test(flavor = "multi_thread")]
async fn claimers_of_sparse_queues_do_not_lock_each_other_out() {
    let schema = common::fresh_schema();
    let stores = [open(&schema).await, open(&schema).await];
    let queues: Vec<QueueName> = (0..6).map(|n| format!("sparse-{n}").parse().unwrap()).collect();
    for round in 0..100 {
        let mut batch = Batch::new();
        for (n, queue) in (0_i64..).zip(&queues) {
            batch = batch.enqueue(NewWork::once(Key::new("job", [round, n]).unwrap(), queue.clone()));
        }
        stores[0].apply(batch).await.unwrap();
        let ask = |limit| Claim::queues(&worker(), queues.clone(), limit, TTL);
        let (one, two) = tokio::join!(stores[0].claim(ask(2)), stores[1].claim(ask(2)));
        let granted = [one.unwrap().grants, two.unwrap().grants];
        assert_eq!(granted.each_ref().map(Vec::len), [2, 2], "round {round}: four of six rows are asked for");
        let rest = stores[0].claim(ask(6)).await.unwrap().grants;
        assert_eq!(rest.len(), 2, "round {round}");
        let acks = granted.iter().flatten().chain(&rest);
        let acks = acks.fold(Batch::new(), |batch, grant| batch.ack(&grant.lease()));
        stores[0].apply(acks).await.unwrap();
    }
}
