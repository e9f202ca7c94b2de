//! Cost of each path in round trips to the store and polls of user code. A path that gets longer fails here.
//!
//! A path is measured until it is short enough, because a timer that fires on a busy machine adds a trip to some of the
//! measurements. Runs are measured on a store without hints, because each hint of a commit makes the worker poll for
//! more work.

#![allow(clippy::restriction, reason = "a test fails by panicking")]

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidelock_core::clock::{Due, Timestamp};
use tidelock_core::events::{Aggregate, Events};
use tidelock_core::id::Epoch;
use tidelock_core::key::Key;
use tidelock_core::lease;
use tidelock_core::payload::Payload;
use tidelock_core::reactions::{Reaction, Reactions};
use tidelock_core::state::{Scope, StateRegistry};
use tidelock_core::store::*;
use tidelock_core::workflow::{
    Ctx, Failure, Queue, RunActivity, RunFilter, Worker, Workflow, WorkflowClient,
};

/// Maximum number of measurements of a path. One short measurement suffices.
const ROUNDS: usize = 200;
/// A timeout that is long enough for every path.
const LONG: Duration = Duration::from_mins(1);

/// A memory store that counts the operations that reach it.
#[derive(Debug, Default)]
struct Counted {
    store: MemoryStore,
    trips: AtomicU64,
    without_hints: bool,
}

impl layer::StoreLayer for Counted {
    fn inner(&self) -> &dyn Store {
        self.trips.fetch_add(1, Ordering::SeqCst);
        &self.store
    }

    // None of these is a round trip.
    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn estimated_now(&self) -> Timestamp {
        self.store.estimated_now()
    }

    fn watch(&self) -> Watch {
        if self.without_hints { Watcher::default().listen() } else { self.store.watch() }
    }
}

fn counted() -> (Arc<Counted>, SharedStore) {
    let counted = Arc::new(Counted::default());
    (Arc::clone(&counted), counted)
}

fn without_hints() -> (Arc<Counted>, SharedStore) {
    let counted = Arc::new(Counted { without_hints: true, ..Counted::default() });
    (Arc::clone(&counted), counted)
}

impl Counted {
    fn trips(&self) -> u64 {
        self.trips.load(Ordering::SeqCst)
    }

    /// Counts the trips of a future.
    async fn of<T>(&self, future: impl Future<Output = T>) -> (u64, T) {
        let before = self.trips();
        let output = tokio::time::timeout(LONG, future).await.expect("the path ends");
        (self.trips() - before, output)
    }
}

/// Asserts the shortest of several measurements.
async fn path<Fut: Future<Output = u64>>(name: &str, most: u64, measure: impl Fn() -> Fut) {
    let mut shortest = u64::MAX;
    for _ in 0..ROUNDS {
        shortest = shortest.min(measure().await);
        if shortest <= most {
            break;
        }
    }
    println!("{name}: {shortest} trips");
    assert!(shortest <= most, "{name} takes {shortest} trips, and {most} before");
}

#[tokio::test]
async fn a_warm_mutation_is_one_trip() {
    let (counted, store) = counted();
    let count = StateRegistry::new(store).state::<u64>(&Scope::org("o"), "count").unwrap();
    count.mutate(|count| *count += 1).await.unwrap();
    let (trips, _) = counted.of(count.mutate(|count| *count += 1)).await;
    assert_eq!(trips, 1);
}

#[derive(Clone, Debug, Default)]
struct Tally(u64);

#[derive(Debug, Serialize, Deserialize)]
enum TallyEvent {
    Added(u64),
}

impl Aggregate for Tally {
    const KIND: &'static str = "tally";
    type Event = TallyEvent;

    fn apply(&mut self, event: &TallyEvent) {
        let TallyEvent::Added(more) = event;
        self.0 += more;
    }
}

#[tokio::test]
async fn a_warm_command_is_one_trip() {
    let (counted, store) = counted();
    let events = Events::new(store);
    let add = async || {
        let add = |_: &Tally| Ok::<_, Failure>(vec![TallyEvent::Added(1)]);
        events.execute("t", add).await.unwrap()
    };
    add().await;
    let (trips, _) = counted.of(add()).await;
    assert_eq!(trips, 1);
}

/// A store that loses the first replies, and records the batches that reach it.
#[derive(Debug)]
struct Lossy {
    store: MemoryStore,
    losses: AtomicU64,
    batches: Mutex<Vec<Batch>>,
}

impl Lossy {
    fn new(losses: u64) -> Arc<Self> {
        let (store, losses, batches) = (MemoryStore::new(), losses.into(), Mutex::default());
        Arc::new(Self { store, losses, batches })
    }

    /// Returns the address of the effects of each batch. The batches are retained, so no address is reused.
    fn effects(&self) -> Vec<*const Effect> {
        self.batches.lock().unwrap().iter().map(|batch| batch.effects().as_ptr()).collect()
    }
}

#[async_trait]
impl layer::StoreLayer for Lossy {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let id = batch.id();
        self.batches.lock().unwrap().push(batch.clone());
        let answer = self.store.apply(batch).await;
        let lose = |left: u64| left.checked_sub(1);
        match self.losses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose) {
            Ok(_) => {
                let lost =
                    StoreError::new(StoreErrorKind::Unreachable, "applying a batch", "the reply is lost");
                Err(ApplyError::unknown(lost, id))
            }
            Err(_) => answer,
        }
    }
}

#[tokio::test]
async fn a_retry_shares_the_effects_of_its_batch() {
    const LOSSES: u64 = 2;
    let lossy = Lossy::new(LOSSES);
    let events = Events::new(Arc::clone(&lossy) as SharedStore);
    let add = |_: &Tally| Ok::<_, Failure>((0..100).map(TallyEvent::Added).collect::<Vec<_>>());
    events.execute("t", add).await.unwrap();
    let effects = lossy.effects();
    assert_eq!(effects.len() as u64, LOSSES + 1);
    assert!(effects.windows(2).all(|pair| matches!(pair, [a, b] if a == b)), "{effects:?}");
}

#[tokio::test]
async fn a_release_that_is_retried_shares_the_effects_of_its_batch() {
    let lossy = Lossy::new(0);
    let store = Arc::clone(&lossy) as SharedStore;
    let held = lease::request(&store, Key::single("lock").unwrap()).try_acquire().await.unwrap();
    lossy.batches.lock().unwrap().clear();
    lossy.losses.store(2, Ordering::SeqCst);
    held.release().await.unwrap_err();
    let retried = async {
        while lossy.effects().len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, retried).await.expect("the release is retried");
    let effects = lossy.effects();
    assert!(effects.windows(2).all(|pair| matches!(pair, [a, b] if a == b)), "{effects:?}");
}

const STEPS: Workflow<u32, u64> = Workflow::new("steps");

/// A future that counts its polls.
struct Polls<F>(Pin<Box<F>>, Arc<AtomicU64>);

impl<F: Future> Future for Polls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.as_mut().poll(context)
    }
}

async fn steps(cx: &Ctx, count: u32) -> Result<u64, Failure> {
    let mut sum = 0;
    for n in 0..count {
        sum += cx.scope("n", n).step("add", async |_| Ok(1)).await?;
    }
    Ok(sum)
}

/// Returns the trips and polls of a run with `count` steps, from its start to its result.
async fn run_of(count: u32) -> (u64, u64) {
    let (counted, store) = without_hints();
    let polls = Arc::new(AtomicU64::new(0));
    let code = {
        let polls = Arc::clone(&polls);
        move |cx: &Ctx, count: u32| {
            let (cx, polls) = (cx.clone(), Arc::clone(&polls));
            async move { Polls(Box::pin(steps(&cx, count)), polls).await }
        }
    };
    let worker = Worker::new(Arc::clone(&store)).register(STEPS, code).poll_interval(LONG);
    let worker = worker.start().await.unwrap();
    let client = WorkflowClient::new(store);
    let (trips, sum) = counted.of(async { client.start(STEPS, &count).await.unwrap().result().await }).await;
    assert_eq!(sum.unwrap(), u64::from(count));
    worker.shutdown().await;
    (trips, polls.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_one_trip_and_one_poll() {
    const MORE: u32 = 50;
    let (mut trips, mut polls) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        let (few, many) = (run_of(1).await, run_of(1 + MORE).await);
        trips = trips.min(many.0.saturating_sub(few.0) * 10 / u64::from(MORE));
        polls = polls.min(many.1.saturating_sub(few.1) * 10 / u64::from(MORE));
        if trips <= 12 && polls <= 11 {
            break;
        }
    }
    println!("a step: {trips} tenths of a trip, {polls} tenths of a poll");
    assert!(trips <= 12, "a step takes {}.{} trips", trips / 10, trips % 10);
    assert!(polls <= 11, "a step takes {}.{} polls", polls / 10, polls % 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_one_step_begins_and_ends_in_few_trips() {
    path("a run of one step", 7, || async { run_of(1).await.0 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_under_limits_begins_in_few_trips() {
    // 10 trips of the run, and those of the first poll of its worker, which falls into the measurement on a busy
    // machine.
    path("a run under limits", 17, || async {
        let (counted, store) = without_hints();
        let queue = Queue::new("limited").concurrency(2).rate(1_000, Duration::from_secs(1));
        let worker = Worker::new(Arc::clone(&store)).register(STEPS, steps).queues([queue]);
        let worker = worker.poll_interval(LONG).start().await.unwrap();
        let client = WorkflowClient::new(store);
        let run = async { client.start(STEPS, &1).queue("limited").await.unwrap().result().await.unwrap() };
        let (trips, _) = counted.of(run).await;
        worker.shutdown().await;
        trips
    })
    .await;
}

#[tokio::test]
async fn a_run_is_shown_and_listed_in_few_trips() {
    let (counted, store) = counted();
    let client = WorkflowClient::new(store);
    for n in 0..100 {
        let later = Due::After(Duration::from_hours(1));
        client.start(STEPS, &1).id(format!("run-{n:03}")).due(later).await.unwrap();
    }
    let (trips, shown) = counted.of(client.show("run-042")).await;
    let shown = shown.unwrap();
    assert!(matches!(shown.doing, RunActivity::Waits { until: Some(_) }), "{shown:?}");
    assert_eq!(trips, 1, "showing a run");
    let (trips, listed) = counted.of(client.list(&RunFilter::default(), None, 100)).await;
    let listed = listed.unwrap().runs;
    assert_eq!((listed.len(), listed.get(57)), (100, Some(&shown)), "newest first");
    assert_eq!(trips, 3, "a page of the index, and two reads of 50 runs with their work rows");
}

#[tokio::test]
async fn a_lease_is_seen_in_two_trips() {
    let (counted, store) = counted();
    let key = Key::single("lock").unwrap();
    let held = lease::request(&store, &key).try_acquire().await.unwrap();
    let (trips, seen) = counted.of(lease::view(&store, &key)).await;
    assert_eq!(seen.unwrap().unwrap().holder.unwrap().fence, held.fence());
    assert_eq!(trips, 2, "the row of a lease and its wait queue");
}

/// Returns the trips of a reaction to this number of events of one key, until the last one reaches the handler.
async fn reaction_to(events: u64) -> u64 {
    let (counted, store) = counted();
    let (handled, all) = (Arc::new(AtomicU64::new(0)), Arc::new(tokio::sync::Notify::new()));
    let handler = {
        let (handled, all) = (Arc::clone(&handled), Arc::clone(&all));
        move |_, _| {
            if handled.fetch_add(1, Ordering::SeqCst) + 1 == events {
                all.notify_one();
            }
            async { Ok(Batch::new()) }
        }
    };
    let reaction = Reaction::new("handled").on(["E"]).each(handler);
    let running = Reactions::new(Arc::clone(&store)).with(reaction).poll_interval(LONG);
    let running = running.start().await.unwrap();
    let event = || NewEvent::new("E".parse().unwrap(), Payload::of(&1).unwrap());
    let append = (0..events)
        .fold(Batch::new(), |batch, _| batch.append(&Key::single("s").unwrap(), Expect::Any, [event()]));
    let (trips, ()) = counted
        .of(async {
            store.apply(append).await.unwrap();
            all.notified().await;
        })
        .await;
    running.shutdown().await;
    trips
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_backlog_is_one_trip() {
    const MORE: u64 = 300;
    let mut tenths = u64::MAX;
    for _ in 0..ROUNDS {
        let (few, many) = (reaction_to(1).await, reaction_to(1 + MORE).await);
        tenths = tenths.min(many.saturating_sub(few) * 10 / MORE);
        if tenths <= 12 {
            break;
        }
    }
    println!("an event of a backlog: {tenths} tenths of a trip");
    assert!(tenths <= 12, "an event takes {}.{} trips", tenths / 10, tenths % 10);
}
