//! Combined mutations (S16–S18) that outlive their caller's runtime, share a hot record with other stores, and fail
//! alone.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tidelock_core::state::{MutateError, State, StateError, StateOptions, StateRegistry};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::fault_proxy::{Detour, Gate};
use crate::prelude::*;

/// The longest wait for a thread that is expected to end at once, even on a busy machine.
const HANG: Duration = Duration::from_secs(30);

type Mutation = Pin<Box<dyn Future<Output = Result<(), StateError>> + Send>>;

fn number_at(store: &Arc<dyn Store>, name: &str) -> State<i64> {
    StateRegistry::new(Arc::clone(store)).at(key(name))
}

fn add(record: &State<i64>, by: i64) -> Mutation {
    let record = record.clone();
    Box::pin(async move { record.mutate(move |number| *number += by).await.map(|_| ()) })
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Polls a mutation once, which queues it.
async fn queue<F: Future + ?Sized>(mutation: &mut Pin<Box<F>>) {
    poll_fn(|context| {
        let _ = mutation.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

/// Runs blocking code on a separate thread and waits for its end.
async fn on_thread<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(done.send(work())));
    let ended = tokio::time::timeout(HANG, ended).await;
    ended.expect("the thread hangs").expect("the thread panicked")
}

/// A runtime that was left idle after it queued a mutation does not keep other runtimes from the record.
/// Documents only.
pub async fn s16_an_idle_runtime_does_not_block_the_record(env: &Env) {
    let record = number_at(&env.store.0, "s16-idle");
    let first = record.clone();
    let idle = on_thread(move || {
        let runtime = current_thread();
        let mut mutation = add(&first, 1);
        runtime.block_on(queue(&mut mutation));
        (runtime, mutation)
    })
    .await;
    let added = add(&record.clone().limit(Some(Duration::from_secs(10))), 10).await;
    on_thread(move || drop(idle)).await;
    added.unwrap();
    assert_eq!(record.get().await.unwrap(), 11);
}

/// A runtime that ends while it drives a write fails no caller of another runtime, and the write completes.
/// Documents only.
pub async fn s16_the_end_of_a_runtime_fails_no_other_caller(env: &Env) {
    let gate = Arc::new(Gate::default());
    let record = number_at(&Detour::over(Arc::clone(&gate), &env.store.0), "s16-end");
    gate.close();
    let (first, arrived) = (record.clone(), Arc::clone(&gate));
    let runtime = on_thread(move || {
        let runtime = current_thread();
        runtime.spawn(add(&first, 1));
        runtime.block_on(arrived.arrived());
        runtime
    })
    .await;
    let mut other = add(&record, 10);
    queue(&mut other).await;
    on_thread(move || drop(runtime)).await;
    gate.open();
    other.await.unwrap();
    assert_eq!(record.get().await.unwrap(), 11, "the write in flight is applied once");
}

/// A mutation that starts while its runtime shuts down neither hangs the shutdown nor blocks the record.
/// Documents only.
pub async fn s16_a_mutation_during_shutdown_does_not_hang(env: &Env) {
    /// Polls a mutation while its task is dropped.
    struct Late(State<i64>, mpsc::Sender<()>);

    impl Drop for Late {
        fn drop(&mut self) {
            let mut mutation = add(&self.0, 1);
            let _ = mutation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let _ = self.1.send(());
        }
    }

    let record = number_at(&env.store.0, "s16-shutdown");
    let (ended, polled) = mpsc::channel();
    let late = Late(record.clone(), ended);
    std::thread::spawn(move || {
        let runtime = current_thread();
        runtime.spawn(async move {
            let _late = late;
            std::future::pending::<()>().await;
        });
        runtime.block_on(tokio::task::yield_now());
    });
    let polled = on_thread(move || polled.recv_timeout(HANG / 2)).await;
    polled.expect("a mutation during shutdown hangs");
    add(&record.clone().limit(Some(HANG)), 10).await.unwrap();
    let value = record.get().await.unwrap();
    assert!([10, 11].contains(&value), "{value}");
}

/// The length of one round of a race, and the number of rounds after which an unfair result is final. Rounds are short,
/// because the load of a machine changes: a store alone and all together are measured within the same second. Starvation
/// does not end with more rounds.
const ROUND: Duration = Duration::from_millis(400);
const ROUNDS: u32 = 20;

/// A store that mutates a hot record in closed loops.
#[derive(Clone)]
struct Racer {
    store: Arc<dyn Store>,
    callers: usize,
    /// The time that its mutators take.
    work: Option<Duration>,
}

impl Racer {
    async fn connect(env: &Env, callers: usize, work: Option<Duration>) -> Self {
        let racer = Self { store: env.connect().await.0, callers, work };
        // The connections exist before a race starts.
        add(&number_at(&racer.store, &format!("s17-warm-{}", OpId::new())), 1).await.unwrap();
        racer
    }
}

/// Lets stores mutate one record for a round. Returns the number of mutations of each.
async fn race(name: &str, racers: &[Racer]) -> Vec<u64> {
    let end = Instant::now() + ROUND;
    let mut running = Vec::new();
    for Racer { store, callers, work } in racers {
        let (record, work) = (number_at(store, name).limit(None), *work);
        let caller = move |record: State<i64>| async move {
            let mut count = 0;
            while Instant::now() < end {
                match work {
                    None => add(&record, 1).await.unwrap(),
                    Some(work) => add_slowly(&record, work).await.unwrap(),
                }
                count += 1;
            }
            count
        };
        running.push((0..*callers).map(|_| tokio::spawn(caller(record.clone()))).collect::<Vec<_>>());
    }
    let mut counts = Vec::new();
    for callers in running {
        let mut count = 0;
        for caller in callers {
            count += caller.await.unwrap();
        }
        counts.push(count);
    }
    counts
}

fn add_slowly(record: &State<i64>, work: Duration) -> Mutation {
    let record = record.clone();
    Box::pin(async move {
        let slow = move |number| async move {
            tokio::time::sleep(work).await;
            Ok::<_, std::convert::Infallible>((number + 1, ()))
        };
        match record.mutate_async(slow).await {
            Ok(_) => Ok(()),
            Err(MutateError::State(error)) => Err(error),
            Err(MutateError::Refused(never)) => match never {},
        }
    })
}

/// Races in rounds, each store alone and then all together, until the sums pass. Fails after the last round.
async fn race_until(name: &str, racers: &[Racer], passes: impl Fn(&[u64], &[u64]) -> bool) {
    let (mut alone, mut together) = (vec![0; racers.len()], vec![0; racers.len()]);
    for round in 1..=ROUNDS {
        for (sum, racer) in alone.iter_mut().zip(racers) {
            let counts = race(&format!("{name}-alone"), std::slice::from_ref(racer)).await;
            *sum += counts.iter().sum::<u64>();
        }
        for (sum, count) in together.iter_mut().zip(race(name, racers).await) {
            *sum += count;
        }
        crate::run::say(&format!("tck: {name}: alone {alone:?}, together {together:?} in {round} rounds"));
        if passes(&alone, &together) {
            return;
        }
    }
    panic!("{name}: alone {alone:?}, together {together:?}");
}

/// Independent stores that mutate one hot record each commit at least half of an equal share. Runs alone. Documents only.
pub async fn s17_stores_share_a_hot_record_fairly(env: &Env) {
    for stores in [2, 3] {
        let mut racers = Vec::new();
        for _ in 0..stores {
            racers.push(Racer::connect(env, 4, None).await);
        }
        race_until(&format!("s17-share-{stores}"), &racers, |_, together| {
            let total: u64 = together.iter().sum();
            together.iter().all(|own| own * 2 * stores >= total)
        })
        .await;
    }
}

/// Two stores that mutate one hot record commit together at least half of what one commits alone, and each of them at least
/// a fifth. Runs alone. Documents only.
pub async fn s17_turns_cost_a_small_part_of_the_rate(env: &Env) {
    let racers = [Racer::connect(env, 1, None).await, Racer::connect(env, 1, None).await];
    race_until("s17-rate", &racers, |alone, together| {
        let (one, both) = (alone.iter().sum::<u64>() / 2, together.iter().sum::<u64>());
        both * 2 >= one && together.iter().all(|own| own * 5 >= one)
    })
    .await;
}

/// Beside a store whose mutators are slow, a fast one keeps at least a third of its rate, and the slow one an eighth.
/// Runs alone. Documents only.
pub async fn s17_a_slow_store_leaves_a_fast_one_its_rate(env: &Env) {
    let slow = Some(Duration::from_millis(5));
    let racers = [Racer::connect(env, 1, None).await, Racer::connect(env, 1, slow).await];
    race_until("s17-slow", &racers, |alone, together| {
        let rates: Vec<_> = alone.iter().zip(together).collect();
        matches!(rates[..], [(fast, fast_beside), (slow, slow_beside)]
            if fast_beside * 3 >= *fast && slow_beside * 8 >= *slow)
    })
    .await;
}

/// A value with user code in its `Clone` and its `Drop`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Fragile {
    count: i64,
    #[serde(default)]
    text: String,
    #[serde(skip)]
    clone_panics: bool,
    #[serde(skip)]
    drop_panics: bool,
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if self.clone_panics {
            resume_unwind(Box::new("the value cannot be cloned"));
        }
        let (count, text) = (self.count, self.text.clone());
        Self { count, text, clone_panics: false, drop_panics: false }
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.drop_panics && !std::thread::panicking() {
            resume_unwind(Box::new("the value cannot be dropped"));
        }
    }
}

/// Queues six mutations behind a blocked one, so that they share a write. Each adds 1; the third one also runs `spoil`.
async fn combined(
    env: &Env,
    name: &str,
    spoil: fn(&mut Fragile),
) -> (State<Fragile>, Vec<Result<i64, StateError>>) {
    let options = StateOptions { limit: Some(HANG), ..StateOptions::default() };
    let record: State<Fragile> = StateRegistry::new(Arc::clone(&env.store.0)).options(options).at(key(name));
    let (gate, inside) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (open, entered) = (Arc::clone(&gate), Arc::clone(&inside));
    let block = move |value: Fragile| {
        let (open, entered) = (Arc::clone(&open), Arc::clone(&entered));
        async move {
            entered.notify_one();
            open.notified().await;
            Ok::<_, ()>((value, ()))
        }
    };
    let blocked = record.clone();
    let blocking = tokio::spawn(async move { blocked.mutate_async(block).await });
    inside.notified().await;
    let mutations = (0..6).map(|i| {
        let (record, change) = (record.clone(), move |value: &mut Fragile| {
            value.count += 1;
            if i == 2 {
                spoil(value);
            }
            value.count
        });
        async move { record.mutate(change).await.map(|mutated| mutated.result) }
    });
    let mut mutations: Vec<_> = mutations.map(Box::pin).collect();
    for mutation in &mut mutations {
        queue(mutation).await;
    }
    gate.notify_one();
    blocking.await.unwrap().unwrap();
    (record, futures_util::future::join_all(mutations).await)
}

/// Returns which of the mutations failed.
fn failed(results: &[Result<i64, StateError>]) -> Vec<usize> {
    results.iter().enumerate().filter(|(_, result)| result.is_err()).map(|(i, _)| i).collect()
}

/// A value that is too large for the store fails its mutation and no other one of the combined write. Documents only.
pub async fn s18_an_oversize_value_fails_alone(env: &Env) {
    let spoil = |value: &mut Fragile| value.text = "x".repeat(limits::PAYLOAD_BYTES);
    let (record, results) = combined(env, "s18-oversize", spoil).await;
    assert_eq!(failed(&results), [2], "{results:?}");
    let error = results[2].as_ref().unwrap_err();
    assert_eq!((error.outcome(), error.retry()), (Outcome::NotApplied, Retry::Never), "{error}");
    assert_eq!(record.get().await.unwrap().count, 5);
}

/// A `Clone` that panics fails the mutation that made the value, with a typed error. Documents only.
pub async fn s18_a_clone_that_panics_fails_alone(env: &Env) {
    let (record, results) = combined(env, "s18-clone", |value| value.clone_panics = true).await;
    assert_eq!(failed(&results), [2], "{results:?}");
    let error = results[2].as_ref().unwrap_err();
    assert!(error.to_string().contains("the value cannot be cloned"), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    record.mutate(|value| value.count += 1).await.unwrap();
    assert_eq!(record.get().await.unwrap().count, 6);
}

/// A `Drop` that panics fails no mutation and leaves the record usable. Documents only.
pub async fn s18_a_drop_that_panics_fails_no_other(env: &Env) {
    let (record, results) = combined(env, "s18-drop", |value| value.drop_panics = true).await;
    assert!(failed(&results).is_empty(), "{results:?}");
    record.mutate(|value| value.count += 1).await.unwrap();
    assert_eq!(record.get().await.unwrap().count, 7);
}

/// A panic payload whose `Drop` panics with the next one.
struct Relapse(u32);

impl Drop for Relapse {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            resume_unwind(Box::new(Relapse(left)));
        }
    }
}

/// A panic whose payload panics in its `Drop` fails its mutation, and leaves the record usable. Documents only.
pub async fn s18_a_panic_with_a_panicking_payload_fails_alone(env: &Env) {
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct FailingValue(i64, #[serde(skip)] bool);

    impl Clone for FailingValue {
        fn clone(&self) -> Self {
            if self.1 {
                resume_unwind(Box::new(Relapse(4)));
            }
            Self(self.0, false)
        }
    }

    let record: State<FailingValue> = StateRegistry::new(Arc::clone(&env.store.0)).at(key("s18-payload"));
    let record = record.limit(Some(HANG));
    let error = record.mutate(|value| value.1 = true).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    record.mutate(|value| value.0 += 1).await.unwrap();
    assert_eq!(record.get().await.unwrap().0, 1);
}

/// A mutator that mutates another record, whose mutator mutates the first one again, is reported as reentrant at once.
/// Documents only.
pub async fn s18_a_cycle_of_mutators_is_reported(env: &Env) {
    let (first, second) = (number_at(&env.store.0, "s18-first"), number_at(&env.store.0, "s18-second"));
    let inner = {
        let first = first.clone();
        move |number: i64| {
            let first = first.clone();
            async move {
                let nested = first.mutate(|number| *number += 100).await;
                let reported = matches!(nested, Err(StateError::Reentrant { .. }));
                Ok::<_, std::convert::Infallible>((number + 10, reported))
            }
        }
    };
    let outer = {
        let second = second.clone();
        move |number: i64| {
            let (second, inner) = (second.clone(), inner.clone());
            async move {
                let mutated = second.mutate_async(inner).await.unwrap();
                Ok::<_, std::convert::Infallible>((number + 1, mutated.result))
            }
        }
    };
    let limited = first.clone().limit(Some(HANG));
    assert!(limited.mutate_async(outer).await.unwrap().result, "the cycle is not reported");
    assert_eq!((first.get().await.unwrap(), second.get().await.unwrap()), (1, 10));
}
