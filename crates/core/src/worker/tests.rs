//! Tests of the worker on the memory store, with an engine that only acknowledges its rows.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{ClaimSpec, Engine, LeasedWork, Metered, Worker, WorkerHandle, WorkerOptions};
use crate::id::QueueName;
use crate::key::Key;
use crate::store::{Batch, Grant, MemoryStore, NewWork, SharedStore};

/// An engine that acknowledges its work, or waits for the shutdown timeout when `slow`.
#[derive(Debug)]
struct Acks {
    worker: Arc<Worker>,
    slow: bool,
    executed: AtomicUsize,
    interrupted: AtomicUsize,
}

impl Metered for Acks {
    type Stats = (usize, usize);

    fn stats(&self) -> (usize, usize) {
        (self.executed.load(Ordering::SeqCst), self.interrupted.load(Ordering::SeqCst))
    }
}

impl Engine for Acks {
    const NAME: &'static str = "acks";

    fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    fn claims(&self) -> Vec<ClaimSpec> {
        vec![ClaimSpec { queues: vec![queue_name()], lease_ttl: self.worker.options.lease_ttl, events: 0 }]
    }

    async fn execute(self: Arc<Self>, _grant: Grant, work: LeasedWork) {
        self.executed.fetch_add(1, Ordering::SeqCst);
        if self.slow {
            self.worker.cut.cancelled().await;
            self.interrupted.fetch_add(1, Ordering::SeqCst);
            return work.release().await;
        }
        drop(work.commit(Batch::new().ack(work.lease())).await);
    }
}

fn queue_name() -> QueueName {
    QueueName::new("acks").unwrap()
}

fn row(number: usize) -> Key {
    Key::new("ack", [number.to_string()]).unwrap()
}

async fn with_rows(count: usize) -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let rows = (0..count).fold(Batch::new(), |batch, at| batch.enqueue(NewWork::once(row(at), queue_name())));
    store.apply(rows).await.unwrap();
    store
}

fn start(store: &SharedStore, slow: bool, options: WorkerOptions) -> WorkerHandle<Acks> {
    let worker = Worker::new(Arc::clone(store), options).unwrap();
    WorkerHandle::start(Acks {
        worker,
        slow,
        executed: AtomicUsize::new(0),
        interrupted: AtomicUsize::new(0),
    })
}

async fn executed(handle: &WorkerHandle<Acks>, count: usize) {
    while handle.stats().0 < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn more_work_than_slots_is_executed_once() {
    let store = with_rows(10).await;
    let handle = start(&store, false, WorkerOptions { concurrency: 3, ..WorkerOptions::default() });
    executed(&handle, 10).await;
    assert_eq!(handle.shutdown().await, (10, 0));
    assert_eq!(store.work(&row(0)).await.unwrap(), None);
}

#[tokio::test]
async fn slots_bound_the_executions() {
    let store = with_rows(3).await;
    let options =
        WorkerOptions { concurrency: 2, shutdown_timeout: Duration::ZERO, ..WorkerOptions::default() };
    let handle = start(&store, true, options);
    executed(&handle, 2).await;
    assert_eq!(handle.worker().active(), 2);
    assert_eq!(handle.shutdown().await, (2, 2), "executions that outlast the timeout are interrupted");
    assert_eq!(store.work(&row(0)).await.unwrap().unwrap().lease, None, "and release their rows");
}

#[tokio::test]
async fn an_abort_leaves_the_lease_to_expire() {
    let store = with_rows(1).await;
    let handle = start(&store, true, WorkerOptions::default());
    executed(&handle, 1).await;
    let owner = handle.owner().clone();
    handle.abort().await;
    assert_eq!(store.work(&row(0)).await.unwrap().unwrap().lease.unwrap().owner, owner);
}

#[tokio::test]
async fn new_work_wakes_an_idle_worker() {
    let store = with_rows(0).await;
    let options = WorkerOptions { poll_interval: Duration::from_hours(1), ..WorkerOptions::default() };
    let handle = start(&store, false, options);
    store.apply(Batch::new().enqueue(NewWork::once(row(0), queue_name()))).await.unwrap();
    executed(&handle, 1).await;
    assert_eq!(handle.shutdown().await, (1, 0));
}
