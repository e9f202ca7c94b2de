//! State mutations (S2–S15 through `tidelock_core::state`): mutators run on drafts and share writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use tidelock_core::state::{
    Change, MutateError, Observer, Stage, State, StateError, StateOptions, StateRegistry, WriteOutcome as Did,
};
use tokio::sync::Notify;

use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counter {
    count: i64,
    #[serde(default)]
    names: Vec<String>,
}

fn counter(conn: &Conn, name: &str) -> State<Counter> {
    StateRegistry::new(Arc::clone(&conn.0)).at(key(name))
}

#[derive(Default)]
struct Seen(Mutex<Vec<(usize, u32, bool)>>);

impl Observer for Seen {
    fn mutated(&self, change: &Change<'_>) {
        let committed = matches!(change.outcome, Did::Committed { .. });
        self.0.lock().unwrap().push((change.callers.len(), change.attempts, committed));
    }
}

/// All mutations of one process are applied, in far fewer writes, and each returns its result. Documents only.
pub async fn s2_sixty_four_mutations_share_writes(env: &Env) {
    let seen = Arc::new(Seen::default());
    let states = StateRegistry::new(Arc::clone(&env.store.0)).observer(seen.clone());
    let record: State<Counter> = states.at(key("s2-state"));
    let (gate, inside) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let blocker = tokio::spawn(blocking(record.clone(), &gate, &inside));
    inside.notified().await;
    let asked = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (record, asked) = (record.clone(), Arc::clone(&asked));
            tokio::spawn(async move {
                let add = |counter: &mut Counter| {
                    counter.count += 1;
                    counter.count
                };
                asked.fetch_add(1, Ordering::SeqCst);
                record.mutate(add).await.map(|mutated| mutated.result)
            })
        })
        .collect();
    while asked.load(Ordering::SeqCst) < 64 {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    blocker.await.unwrap();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap().unwrap());
    }
    results.sort_unstable();
    assert_eq!(results, (1..=64).collect::<Vec<_>>(), "each result is of its own turn");
    assert_eq!(record.get().await.unwrap().count, 64);
    let seen = seen.0.lock().unwrap();
    assert_eq!(seen.iter().map(|(mutations, ..)| mutations).sum::<usize>(), 65);
    assert!(seen.len() <= 8, "64 mutations took {} writes", seen.len());
}

/// All mutations of two processes are applied. After a conflict a mutator runs again on the value of the winner.
/// Documents only.
pub async fn s3_mutators_run_again_on_the_winners_value(env: &Env) {
    let (here, there) = (counter(&env.store, "s3-state"), counter(&env.other, "s3-state"));
    let tasks: Vec<_> = (0..40)
        .map(|i| {
            let record = if i % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                let add = move |counter: &mut Counter| {
                    counter.count += 1;
                    counter.names.push(i.to_string());
                    counter.names.len()
                };
                record.mutate(add).await.map(|mutated| (i, mutated.result))
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap().unwrap());
    }
    let value = here.get().await.unwrap();
    assert_eq!((value.count, value.names.len()), (40, 40));
    for (i, length) in answers {
        assert_eq!(
            value.names[length - 1],
            i.to_string(),
            "the result belongs to the run that was committed"
        );
    }
}

/// Retries after conflicts are bounded. The error has the number of attempts and the current version, and nothing is
/// stored. Documents only.
pub async fn s4_attempts_are_bounded(env: &Env) {
    let options = StateOptions { attempts: Some(3), ..StateOptions::default() };
    let record: State<Counter> =
        StateRegistry::new(Arc::clone(&env.store.0)).options(options).at(key("s4-state"));
    record.set(Counter::default()).await.unwrap();
    // A foreign writer interferes every time.
    let other = env.other.clone();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let mutated = record
        .mutate_async(move |mut counter: Counter| {
            let (other, run) = (other.clone(), counted.fetch_add(1, Ordering::SeqCst));
            async move {
                let foreign = json!({"count": 100 + i64::from(run), "names": []});
                other.done(Batch::new().put(&key("s4-state"), Expect::Any, payload(foreign))).await;
                counter.count += 1;
                Ok::<_, ()>((counter, ()))
            }
        })
        .await;
    let Err(MutateError::State(StateError::ConcurrentModification { attempts, current, .. })) = mutated
    else {
        panic!("expected a concurrent modification: {mutated:?}")
    };
    assert_eq!((attempts, current), (3, Some(env.store.doc(&key("s4-state")).await.unwrap().version)));
    assert_eq!(record.get().await.unwrap().count, 102, "nothing of ours is stored");
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

/// A value equal to the cached one is still written if another process wrote in between. Documents only.
pub async fn s5_a_stale_cache_suppresses_nothing(env: &Env) {
    let record = counter(&env.store, "s5-state");
    let old = Counter { count: 1, names: vec![] };
    record.set(old.clone()).await.unwrap();
    env.other.done(Batch::new().put(&key("s5-state"), Expect::Any, payload(json!({"count": 2})))).await;
    let did = record.set(old.clone()).await.unwrap();
    assert!(matches!(did, Did::Committed { .. }), "{did:?}");
    assert_eq!(counter(&env.other, "s5-state").get().await.unwrap(), old);
}

/// A value equal to the confirmed one is not written. Documents only.
pub async fn s6_an_equal_value_is_not_written(env: &Env) {
    let record = counter(&env.store, "s6-state");
    let first = record.set(Counter { count: 5, names: vec![] }).await.unwrap();
    let same = record.mutate(|counter| counter.count = 5).await.unwrap();
    assert_eq!(same.outcome, Did::Unchanged { version: first.version() });
    assert_eq!(env.store.doc(&key("s6-state")).await.unwrap().version, first.version());
}

/// Deltas from two processes add up and share writes with concurrent ones. Documents only.
pub async fn s7_deltas_never_conflict(env: &Env) {
    let (here, there) = (counter(&env.store, "s7-state"), counter(&env.other, "s7-state"));
    here.set(Counter::default()).await.unwrap();
    let tasks: Vec<_> = (0..60)
        .map(|i| {
            let record = if i % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                if i % 3 == 0 {
                    record.push("/names", i.to_string()).await
                } else {
                    record.inc("/count", 1).await
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let value = there.get().await.unwrap();
    assert_eq!((value.count, value.names.len()), (40, 20));
    // A mutation after deltas continues from their result.
    assert_eq!(here.mutate(|counter| counter.count).await.unwrap().result, 40);
}

/// A delta on a missing record creates nothing. A delta that does not fit fails alone. Documents only.
pub async fn s8_deltas_need_a_record(env: &Env) {
    let record = counter(&env.store, "s8-state");
    assert!(matches!(record.inc("/count", 1).await, Err(StateError::NotFound { .. })));
    assert!(env.store.doc(&key("s8-state")).await.is_none());
    record.set(Counter::default()).await.unwrap();
    let (fits, misfit) = tokio::join!(record.inc("/count", 1), record.inc("/names", 1));
    fits.unwrap();
    let error = misfit.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    assert_eq!(record.get().await.unwrap().count, 1);
}

/// A mutation that times out in the queue never runs its mutator. Documents only.
pub async fn s9_time_that_is_up_in_the_queue(env: &Env) {
    for record in [counter(&env.store, "s9-state"), State::memory("s9", Counter::default())] {
        let (gate, inside) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let blocker = tokio::spawn(blocking(record.clone(), &gate, &inside));
        inside.notified().await;
        let ran = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ran);
        let hurried = record.clone().limit(Some(Duration::from_millis(20)));
        let late = hurried.mutate(move |_| counted.fetch_add(1, Ordering::SeqCst)).await.unwrap_err();
        assert!(matches!(late, StateError::TimedOut { stage: Stage::NotStarted, .. }), "{late}");
        gate.notify_one();
        blocker.await.unwrap();
        record.mutate(|counter| counter.count += 1).await.unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 0, "it never runs");
    }
}

/// Holds the container until the gate opens.
fn blocking(
    record: State<Counter>,
    gate: &Arc<Notify>,
    inside: &Arc<Notify>,
) -> impl Future<Output = ()> + use<> {
    let (gate, inside) = (Arc::clone(gate), Arc::clone(inside));
    async move {
        let wait = move |counter: Counter| {
            let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
            async move {
                inside.notify_one();
                gate.notified().await;
                Ok::<_, ()>((counter, ()))
            }
        };
        record.mutate_async(wait).await.unwrap();
    }
}

/// The result of a mutator that times out is discarded, and others continue. Documents only.
pub async fn s10_time_that_is_up_while_it_runs(env: &Env) {
    for record in [counter(&env.store, "s10-state"), State::memory("s10", Counter::default())] {
        // Long enough for the mutator to start on a busy machine.
        let hurried = record.clone().limit(Some(Duration::from_millis(500)));
        let endless = |counter: Counter| async move {
            std::future::pending::<()>().await;
            Ok::<_, ()>((counter, ()))
        };
        let slow = hurried.mutate_async(endless).await.unwrap_err();
        let MutateError::State(StateError::TimedOut { stage, .. }) = &slow else { panic!("{slow:?}") };
        assert_eq!(*stage, Stage::NotApplied);
        record.mutate(|counter| counter.count += 1).await.unwrap();
        assert_eq!(record.get().await.unwrap().count, 1, "nothing of it was applied");
    }
}

/// A result that does not fit the type, or fails the check, is rejected, and the old value stays. Documents only.
pub async fn s12_an_invalid_result_is_rejected(env: &Env) {
    let states = StateRegistry::new(Arc::clone(&env.store.0));
    let positive = |counter: &Counter| if counter.count < 0 { Err("below zero".to_owned()) } else { Ok(()) };
    let record: State<Counter> = states.checked(&key("s12-state"), positive);
    record.set(Counter { count: 3, names: vec![] }).await.unwrap();
    let misfit = record.patch(json!({"count": "three"})).await.unwrap_err();
    assert!(matches!(misfit, StateError::Invalid { .. }), "{misfit}");
    let negative = record.mutate(|counter| counter.count = -1).await.unwrap_err();
    assert!(matches!(&negative, StateError::Invalid { reason, .. } if reason == "below zero"), "{negative}");
    record.patch(json!({"count": 4})).await.unwrap();
    assert_eq!(record.get().await.unwrap().count, 4);
}

/// A mutator that mutates the same container gets an error at once. Another container is allowed. Documents only.
pub async fn s13_nested_mutations_are_rejected(env: &Env) {
    for record in [counter(&env.store, "s13-state"), State::memory("s13", Counter::default())] {
        let (inner, other) = (record.clone(), counter(&env.store, "s13-other"));
        let nested = move |mut counter: Counter| {
            let (inner, other) = (inner.clone(), other.clone());
            async move {
                let told = inner.mutate(|counter| counter.count += 100).await;
                other.mutate(|counter| counter.count += 1).await.unwrap();
                counter.count += 1;
                Ok::<_, ()>((counter, matches!(told, Err(StateError::Reentrant { .. }))))
            }
        };
        assert!(record.mutate_async(nested).await.unwrap().result);
        assert_eq!(record.get().await.unwrap().count, 1);
    }
}

/// Among mutations that share a write, one that fails or panics does not affect the others. Documents only.
pub async fn s14_one_that_fails_fails_alone(env: &Env) {
    let record = counter(&env.store, "s14-state");
    let (gate, inside) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let blocker = tokio::spawn(blocking(record.clone(), &gate, &inside));
    inside.notified().await;
    let tasks: Vec<_> = (0..9)
        .map(|i| {
            let record = record.clone();
            tokio::spawn(async move {
                let change = move |counter: &mut Counter| {
                    counter.count += 1;
                    assert_ne!(i % 3, 2, "as it should");
                    if i % 3 == 1 { Err("no") } else { Ok(counter.count) }
                };
                record.try_mutate(change).await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    gate.notify_one();
    blocker.await.unwrap();
    for (i, task) in tasks.into_iter().enumerate() {
        match (i % 3, task.await) {
            (0, answer) => drop(answer.unwrap().unwrap()),
            (1, answer) => assert!(matches!(answer.unwrap(), Err(MutateError::Refused("no")))),
            (_, answer) => assert!(answer.unwrap_err().is_panic(), "a panic reaches its caller"),
        }
    }
    assert_eq!(record.get().await.unwrap().count, 3);
}

/// A mutator that rejects a stale value runs again on the newest one. Documents only.
pub async fn s5_a_rejection_is_based_on_the_newest_value(env: &Env) {
    let record = counter(&env.store, "s5-no");
    record.set(Counter::default()).await.unwrap();
    let restocked = payload(json!({"count": 1, "names": []}));
    env.other.done(Batch::new().put(&key("s5-no"), Expect::Any, restocked)).await;
    let take = |counter: &mut Counter| {
        if counter.count == 0 {
            return Err("sold out");
        }
        counter.count -= 1;
        Ok(())
    };
    record.try_mutate(take).await.unwrap();
    assert!(matches!(record.try_mutate(take).await, Err(MutateError::Refused("sold out"))));
    assert!(matches!(counter(&env.store, "s5-none").try_mutate(take).await, Err(MutateError::Refused(_))));
    assert!(env.store.doc(&key("s5-none")).await.is_none(), "a mutator that says no creates nothing");
}

/// If the caller is cancelled while its mutation waits, the mutator does not run. Documents only.
pub async fn s15_a_cancelled_caller(env: &Env) {
    for record in [counter(&env.store, "s15-state"), State::memory("s15", Counter::default())] {
        let (gate, inside) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let blocker = tokio::spawn(blocking(record.clone(), &gate, &inside));
        inside.notified().await;
        let waiting = record.clone();
        let gone = tokio::spawn(async move { waiting.mutate(|counter| counter.count += 100).await });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        gate.notify_one();
        blocker.await.unwrap();
        record.mutate(|counter| counter.count += 1).await.unwrap();
        assert_eq!(record.get().await.unwrap().count, 1);
    }
}

/// A record that cannot be decoded is an error and stays unchanged. Documents only.
pub async fn x7_an_undecodable_record_stays(env: &Env) {
    let strange = json!({"count": "many"});
    env.store.done(Batch::new().put(&key("x7-state"), Expect::Any, payload(strange.clone()))).await;
    let record = counter(&env.store, "x7-state");
    let error = record.mutate(|counter| counter.count += 1).await.unwrap_err();
    assert!(matches!(error, StateError::Undecodable { .. }), "{error}");
    assert!(record.get().await.is_err());
    assert_eq!(env.store.value(&key("x7-state")).await, Some(strange));
    record.set(Counter::default()).await.unwrap_err();
}
