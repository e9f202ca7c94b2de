//! State tests without a backend (S1, S11): containers in memory, and a store whose replies are delayed.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use tidelock_core::error::{Explain as _, Outcome};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::state::{
    Change, HistoryChange, Observer, Stage, State, StateError, StateRegistry, history_batch, versions,
};
use tidelock_core::store::*;
use tokio::sync::Notify;

/// A memory store that applies writes, but replies only when the test opens the gate.
#[derive(Debug, Default)]
struct Slow {
    inner: MemoryStore,
    gate: Notify,
    /// Whether the next write panics after it was applied.
    panics: AtomicBool,
}

#[async_trait]
impl tidelock_core::store::layer::StoreLayer for Slow {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let receipt = self.inner.apply(batch).await;
        self.gate.notified().await;
        assert!(!self.panics.swap(false, Ordering::SeqCst), "the store panics");
        receipt
    }
}

#[tokio::test]
async fn s1_two_increments_in_memory_both_land_and_each_mutator_runs_once() {
    let record = State::memory("s1", 0_u64);
    let before = record.read().await.unwrap().unwrap().version;
    let runs = Arc::new(AtomicU32::new(0));
    let add = || {
        let (record, runs) = (record.clone(), Arc::clone(&runs));
        async move {
            let add = move |count: &mut u64| {
                runs.fetch_add(1, Ordering::SeqCst);
                *count += 1;
            };
            record.mutate(add).await.unwrap()
        }
    };
    tokio::join!(add(), add());
    let after = record.read().await.unwrap().unwrap();
    assert_eq!((after.value, after.version.0, runs.load(Ordering::SeqCst)), (2, before.0 + 2, 2));
}

/// A timeout that expires while a write is in flight, and not before the write has started, even on a busy machine.
const UNDER_WAY: Duration = Duration::from_millis(500);

#[tokio::test]
async fn s11_a_timeout_during_the_write_is_unknown_and_its_id_resolves() {
    let slow = Arc::new(Slow::default());
    let key = Key::single("s11").unwrap();
    let record: State<u64> = StateRegistry::new(slow.clone()).at(&key);
    let hurried = record.clone().limit(Some(UNDER_WAY));
    let error = hurried.mutate(|count| *count += 1).await.unwrap_err();
    let StateError::TimedOut { stage: Stage::Unknown(id), .. } = &error else { panic!("{error}") };
    assert_eq!(error.outcome(), Outcome::Unknown(Some(*id)));
    assert!(slow.operation(*id).await.unwrap().is_some(), "the record of the id shows that it was applied");
    slow.gate.notify_one();
    assert_eq!(record.get().await.unwrap(), 1);
}

#[test]
fn a_container_in_memory_needs_no_runtime() {
    let record = State::memory("plain", 1_u64);
    let mut mutation = pin!(record.mutate(|count| {
        *count += 1;
        *count
    }));
    let polled = mutation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(mutated)) if mutated.result == 2));
}

/// Polls a future on this thread, without a runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_container_in_a_store_needs_no_runtime_of_the_caller() {
    let states = StateRegistry::new(Arc::new(MemoryStore::new()));
    let record: State<u64> = states.at(Key::single("plain").unwrap());
    block_on(record.mutate(|count| *count += 1)).unwrap();
    block_on(record.inc("", 1)).unwrap();
    // A caller that is dropped in the middle of an async mutator stops it, and the next mutation runs.
    let endless = record.mutate_async(|count| async move {
        std::future::pending::<()>().await;
        Ok::<_, ()>((count, ()))
    });
    let mut endless = Box::pin(endless);
    assert!(endless.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(endless);
    block_on(record.mutate(|count| *count += 1)).unwrap();
    assert_eq!(block_on(record.get()).unwrap(), 3);
}

#[test]
fn async_mutators_run_on_a_runtime_with_timers() {
    let states = StateRegistry::new(Arc::new(MemoryStore::new()));
    let record: State<u64> = states.at(Key::single("timers").unwrap());
    let slow = record.mutate_async(|count| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok::<_, ()>((count + 1, ()))
    });
    block_on(slow).unwrap();
    assert_eq!(block_on(record.get()).unwrap(), 1);
}

#[tokio::test]
async fn a_store_that_panics_leaves_an_unknown_outcome_and_a_usable_record() {
    let slow = Arc::new(Slow::default());
    slow.gate.notify_one();
    slow.panics.store(true, Ordering::SeqCst);
    let record: State<u64> = StateRegistry::new(slow.clone()).at(Key::single("panics").unwrap());
    let error = record.mutate(|count| *count += 1).await.unwrap_err();
    let StateError::Panicked { stage: Stage::Unknown(id), .. } = &error else { panic!("{error}") };
    assert_eq!(error.outcome(), Outcome::Unknown(Some(*id)));
    assert!(slow.operation(*id).await.unwrap().is_some(), "the write had been applied");
    slow.gate.notify_one();
    record.mutate(|count| *count += 1).await.unwrap();
    assert_eq!(record.get().await.unwrap(), 2);
}

#[tokio::test]
async fn s11_what_was_given_up_while_it_was_written_is_never_written_under_another_id() {
    let slow = Arc::new(Slow::default());
    let key = Key::single("s11-conflict").unwrap();
    let record: State<u64> = StateRegistry::new(slow.clone()).at(&key);
    let warm = tokio::spawn({
        let record = record.clone();
        async move { record.set(1).await }
    });
    slow.gate.notify_one();
    warm.await.unwrap().unwrap();
    // A foreign write, so that the next write of the record, which expects version 1, is refused.
    slow.inner.apply(Batch::new().put(&key, Expect::Any, Payload::of(&5).unwrap())).await.unwrap();
    let hurried = record.clone().limit(Some(UNDER_WAY));
    let error = hurried.mutate(|count| *count += 1).await.unwrap_err();
    let StateError::TimedOut { stage: Stage::Unknown(id), .. } = &error else { panic!("{error}") };
    // The refusal arrives. A lookup of the id reports that the batch was not applied, and that stays true.
    slow.gate.notify_one();
    assert!(slow.operation(*id).await.unwrap().is_none());
    slow.gate.notify_one();
    record.mutate(|count| *count += 10).await.unwrap();
    assert_eq!(record.get().await.unwrap(), 15, "what was given up did not come after all");
}

#[derive(Default)]
struct ReportedWrites(std::sync::Mutex<Vec<(Vec<u32>, u32, u32)>>);

impl Observer for ReportedWrites {
    fn mutated(&self, change: &Change<'_>) {
        let lines = change.callers.iter().map(|place| place.line()).collect();
        self.0.lock().unwrap().push((lines, change.attempts, change.conflicts));
        assert!(change.new.is_some_and(|new| new.as_str() != "3"), "the observer does not like 3");
    }
}

#[tokio::test]
async fn an_observer_sees_the_caller_and_its_panic_changes_nothing() {
    let told = Arc::new(ReportedWrites::default());
    let states = StateRegistry::new(Arc::new(MemoryStore::new())).observer(told.clone());
    let record: State<u64> = states.at(Key::single("observed").unwrap());
    let (line, _) = (line!(), record.mutate(|count| *count += 1).await.unwrap());
    record.inc("", 1).await.unwrap();
    record.set(3).await.unwrap();
    assert_eq!(record.get().await.unwrap(), 3);
    let told = told.0.lock().unwrap();
    assert_eq!(*told, [(vec![line], 1, 0), (vec![line + 1], 1, 0), (vec![line + 2], 1, 0)]);
}

#[tokio::test]
async fn a_check_that_panics_refuses() {
    let states = StateRegistry::new(Arc::new(MemoryStore::new()));
    let check = |count: &u64| if *count < 2 { Ok(()) } else { panic!("too many") };
    let record: State<u64> = states.checked(&Key::single("checked").unwrap(), check);
    record.set(1).await.unwrap();
    let error = record.set(2).await.unwrap_err();
    assert!(matches!(&error, StateError::Invalid { reason, .. } if reason.contains("too many")), "{error}");
    assert_eq!(record.get().await.unwrap(), 1);
}

#[tokio::test]
async fn a_container_in_memory_is_watched_too() {
    let record = State::memory("watched", 1_u64);
    let mut versions = record.watch();
    assert_eq!(versions.next().await.unwrap().unwrap().value, 1);
    record.set(2).await.unwrap();
    record.set(3).await.unwrap();
    assert_eq!(versions.next().await.unwrap().unwrap().value, 3);
    let waiting = tokio::spawn(async move { versions.next().await });
    tokio::task::yield_now().await;
    record.set(4).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().value, 4);
}

#[tokio::test]
async fn a_write_without_a_container_is_observed_and_recorded() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let states = StateRegistry::new(Arc::clone(&store)).with_history();
    let key = Key::new("count", ["visits"]).unwrap();
    let record: State<u64> = states.at(&key);
    record.set(1).await.unwrap();
    let mut seen = versions(&store, &key);
    assert_eq!(seen.next().await.unwrap().unwrap().value.value, Payload::of(&1).unwrap());

    let value = Payload::of(&5).unwrap();
    let told = history_batch(&key, HistoryChange::Put(value.clone()), 1).unwrap();
    store.apply(Batch::new().put(&key, Expect::Exists, value.clone()).and(told)).await.unwrap();
    let document = seen.next().await.unwrap().unwrap().value;
    assert_eq!(Some(document), store.document(&key).await.unwrap());
    let past = record.history(None, 10).await.unwrap();
    assert_eq!(past[0].change, HistoryChange::Put(value));
    assert_eq!(past.iter().map(|past| past.mutations).collect::<Vec<_>>(), [1, 1]);
}
