//! Every metric of the table is emitted, with labels that the table has, and the guide shows the table.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use metrics_util::debugging::DebuggingRecorder;
use tidelock::lease;
use tidelock::outbox::{Delivery, Message, Outbox, Sender};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock::schedule::{Schedule, Scheduler};
use tidelock::telemetry::{METRICS, MetricKind};
use tidelock::workflow::{Ctx, Failure, Worker, Workflow, WorkflowClient};

const ONE: Workflow<u32, u32> = Workflow::new("one");
const MAILS: Outbox = Outbox::new("mails");
static DOOR: LockClass = LockClass::new("door");

fn event() -> NewEvent {
    NewEvent::new("Came".parse().unwrap(), Payload::null())
}

/// Applies a batch, one that is refused, and loses a lease.
async fn write(store: &SharedStore) {
    let stream = Key::single("guests").unwrap();
    store.apply(Batch::new().append(&stream, Expect::Absent, [event()])).await.unwrap();
    store.apply(Batch::new().append(&stream, Expect::Absent, [event()])).await.unwrap_err();
    let held = lease::request(store, &stream).try_acquire().await.unwrap();
    let (there, key) = (Arc::clone(store), stream.clone());
    let thief = tokio::spawn(async move {
        let stolen =
            lease::request(&there, &key).owner("thief".parse().unwrap()).steal("a test").await.unwrap();
        stolen.release().await.unwrap();
    });
    thief.await.unwrap();
    held.lost().await;
}

async fn wait_for_a_lock() {
    let (locks, door) = (Locks::new(), DOOR.key(["front"]).unwrap());
    let held = locks.lock(&door).await.unwrap();
    let waiting = tokio::spawn({
        let (locks, door) = (locks.clone(), door.clone());
        async move { drop(locks.lock(&door).await.unwrap()) }
    });
    while locks.snapshot().terms.iter().all(|term| term.waiters.is_empty()) {
        tokio::task::yield_now().await;
    }
    drop(held);
    waiting.await.unwrap();
}

async fn react(store: &SharedStore) {
    let reaction = Reaction::new("count").each(async |_, _| Ok::<_, Failure>(Batch::new()));
    let running = Reactions::new(Arc::clone(store)).with(reaction).start().await.unwrap();
    running.quiesce().await.unwrap();
    running.shutdown().await;
}

async fn run(store: &SharedStore) {
    let code =
        async |cx: &Ctx, n: u32| -> Result<u32, Failure> { Ok(cx.step("add", async |_| Ok(n + 1)).await?) };
    let driving = Worker::new(Arc::clone(store)).register(ONE, code).start().await.unwrap();
    assert_eq!(
        WorkflowClient::new(Arc::clone(store)).start(ONE, &1).await.unwrap().result().await.unwrap(),
        2
    );
    driving.shutdown().await;
}

async fn schedule(store: &SharedStore) {
    let task = Schedule::new("beat").every(Duration::from_millis(100)).run(async |_| Ok::<_, Failure>(()));
    let running = Scheduler::new(Arc::clone(store)).with(task).start().await.unwrap();
    while running.stats().runs == 0 {
        tokio::task::yield_now().await;
    }
    running.shutdown().await;
}

/// A task that did not run for a while: one run covers all missed times.
async fn miss() {
    let clock = Arc::new(ManualClock::default());
    let store: SharedStore = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _));
    let start = async || {
        let task = Schedule::new("hourly").every(Duration::from_secs(3_600));
        let task = task.run(async |_| Ok::<_, Failure>(()));
        Scheduler::new(Arc::clone(&store)).with(task).start().await.unwrap()
    };
    start().await.shutdown().await;
    clock.advance(Duration::from_secs(5 * 3_600));
    let running = start().await;
    while running.stats().runs == 0 {
        tokio::task::yield_now().await;
    }
    running.shutdown().await;
}

async fn send(store: &SharedStore) {
    let hello = Message::new("ada@example.com", "hello").unwrap();
    store.apply(MAILS.put(Batch::new(), &hello).unwrap()).await.unwrap();
    let deliver = |_: Delivery| async { Ok::<_, Failure>(()) };
    let sending = Sender::new(Arc::clone(store), MAILS, deliver).start().await.unwrap();
    while sending.stats().delivered == 0 {
        tokio::task::yield_now().await;
    }
    sending.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_is_reported() {
    let recorder = DebuggingRecorder::new();
    let told = recorder.snapshotter();
    recorder.install().unwrap();
    let store: SharedStore = Arc::new(MemoryStore::new());
    write(&store).await;
    wait_for_a_lock().await;
    react(&store).await;
    run(&store).await;
    schedule(&store).await;
    miss().await;
    send(&store).await;

    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, ..) in told.snapshot().into_vec() {
        let key = key.key();
        let labels = found.entry(key.name().to_owned()).or_default();
        labels.extend(key.labels().map(|label| format!("{}={}", label.key(), label.value())));
    }
    let table: BTreeMap<&str, _> = METRICS.iter().map(|metric| (metric.name, metric)).collect();
    for name in table.keys() {
        assert!(found.contains_key(*name), "{name} is in the table, and was not reported: {found:#?}");
    }
    for (name, labels) in found {
        let Some(metric) = table.get(name.as_str()) else { panic!("{name} is not in the table") };
        for label in labels {
            let (key, value) = label.split_once('=').unwrap();
            let (known, values) = metric.label.unwrap();
            assert_eq!(key, known, "{name}");
            assert!(
                name == "tidelock_conflicts_total" || values.split(", ").any(|known| known == value),
                "{name}: {label}"
            );
        }
    }
}

#[test]
fn the_guide_shows_the_table() {
    let guide = include_str!("../../../docs/operate/monitoring.md");
    for metric in METRICS {
        let kind = if metric.kind == MetricKind::Counter { "counter" } else { "histogram" };
        let label = metric.label.map_or_else(String::new, |(name, values)| format!("`{name}`: {values}"));
        let line = format!("| `{}` | {kind} | {label} | {} |", metric.name, metric.help);
        assert!(guide.contains(&line), "missing in docs/operate/monitoring.md:\n{line}");
    }
}
