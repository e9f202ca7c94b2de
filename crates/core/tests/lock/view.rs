//! Lock snapshots: holders, queues, ages, source locations, the wait-for graph, and counters.

use std::time::{Duration, Instant};

use crate::hand::{ALONE, GRAPH, Hand, OBSERVE, PULL, asking, assert_free, granted, graph, taking, thing};
use tidelock_core::lock::{Locks, TaskId};

#[test]
fn a_snapshot_shows_holders_and_waiters_with_their_places() {
    let (locks, g, x) = (Locks::new(), graph(), thing("seen"));
    let pulls = (taking(&locks, g.mode(PULL)), taking(&locks, g.mode(PULL)));
    let observer = asking(&locks, g.mode(OBSERVE));
    let held = taking(&locks, &x);
    let snapshot = locks.snapshot();
    assert_eq!(
        snapshot.terms.iter().map(|held| held.term.to_string()).collect::<Vec<_>>(),
        [r#"graph("g")"#, r#"thing("seen")"#]
    );
    let seen = &snapshot.terms[0];
    assert_eq!((seen.holders.len(), seen.waiters.len()), (2, 1));
    assert_eq!((seen.holders[0].mode, seen.waiters[0].mode), ("pull", "observe"));
    assert!(
        seen.waiters[0].place.file().ends_with("hand.rs"),
        "the place of the call: {}",
        seen.waiters[0].place
    );
    let edges: Vec<_> = snapshot.edges().collect();
    assert_eq!(edges.len(), 2, "the observer waits for both pulls");
    assert!(edges.iter().all(|edge| Some(edge.waiter) == seen.waiters[0].task && edge.term == g));
    let text = snapshot.to_string();
    assert!(text.contains("awaited by scope ") && text.contains("(observe) for "), "{text}");
    drop((pulls, observer, held));
    assert_free(&locks);
}

#[test]
fn ages_grow() {
    let (locks, x) = (Locks::new(), thing("age"));
    let _guard = taking(&locks, &x);
    let begun = Instant::now();
    let age = || locks.snapshot().terms[0].holders[0].age;
    while age() < Duration::from_millis(20) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the clock does not advance");
        std::thread::yield_now();
    }
    assert!(begun.elapsed() >= Duration::from_millis(9), "an age is right to ten milliseconds");
}

#[test]
fn events_are_counted_by_functor() {
    let (locks, g) = (Locks::new(), graph());
    let pull = taking(&locks, g.mode(PULL));
    let mut alone = asking(&locks, g.mode(ALONE));
    assert!(locks.try_lock(g.mode(PULL)).is_err());
    drop(asking(&locks, g.mode(OBSERVE)));
    drop(pull);
    drop(granted(&mut alone));
    let stats = locks.stats();
    let stats = stats.iter().find(|stats| stats.functor == GRAPH.name()).expect("used");
    assert_eq!((stats.acquired, stats.waited, stats.refused), (2, 1, 2));
    assert_eq!((stats.wait.count(), stats.hold.count()), (1, 2));
    assert_eq!(stats.wait.steps().map(|(_, count)| count).sum::<u64>(), 1);
}

#[tokio::test]
async fn tasks_have_names_that_people_can_read() {
    assert!(TaskId::current().is_some_and(|task| task.to_string().starts_with("the root task of thread ")));
    let named = tokio::spawn(async {
        (TaskId::current().map(|task| task.to_string()), tokio::task::id().to_string())
    });
    let (name, id) = named.await.expect("no panic");
    assert_eq!(name, Some(format!("task {id}")));
    let mut scoped = Hand::new(async { TaskId::current().map(|task| task.to_string()) });
    let std::task::Poll::Ready(Some(name)) = scoped.poll() else { panic!("it is done at once") };
    assert!(name.starts_with("scope "));
}
