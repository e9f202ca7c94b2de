//! Moved guards (L3, L15): owned guards belong to no task, and a runtime that was only entered identifies none.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::hand::{Hand, assert_free, taking, thing};
use tidelock_core::lock::{LockClass, LockError, Locks, OwnedGuard, TaskId};

static LOW: LockClass = LockClass::new("moved-low").rank(10);
static HIGH: LockClass = LockClass::new("moved-high").rank(20);

fn polled<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Acquires a lock as a separate task, and returns an owned guard.
fn moved(locks: &Locks, name: &str) -> OwnedGuard {
    match Hand::new(locks.lock_owned(&thing(name))).poll() {
        Poll::Ready(result) => result.expect("it is free"),
        Poll::Pending => panic!("it should be free"),
    }
}

#[tokio::test]
async fn l3_a_task_waits_for_an_owned_guard_that_it_gave_away() {
    let (locks, x) = (Locks::new(), thing("given-away"));
    let guard = locks.lock_owned(&x).await.expect("free");
    let mut again = pin!(locks.lock(&x));
    assert!(polled(again.as_mut()).is_pending(), "the guard may be anywhere");
    assert!(locks.try_lock(&x).is_err_and(|error| error.is_busy()));
    tokio::spawn(async move { drop(guard) }).await.expect("no panic");
    drop(again.await.expect("let in"));
    assert_free(&locks);
}

#[test]
fn l15_an_owned_guard_that_was_given_away_closes_no_cycle() {
    let (locks, x, y) = (Locks::new(), thing("away-x"), thing("away-y"));
    let (give, mut given) = tokio::sync::mpsc::unbounded_channel();
    let third_holds = taking(&locks, &y);
    let mut first = Hand::new(async {
        give.send(locks.lock_owned(&x).await?).expect("the receiver is alive");
        locks.lock(&y).await.map(|_| ())
    });
    assert!(first.poll().is_pending(), "it waits for y");
    let mut third = Hand::new(async {
        third_holds.adopt();
        let got = locks.lock(&x).await.map(|_| ());
        drop(third_holds);
        got
    });
    assert!(third.poll().is_pending(), "it waits for the guard, which a second task has");
    drop(given.try_recv().expect("given away"));
    assert!(matches!(third.poll(), Poll::Ready(Ok(()))));
    assert!(matches!(first.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn l15_an_owned_guard_is_no_tasks_from_the_instant_of_its_grant() {
    let (locks, x, y) = (Locks::new(), thing("instant-x"), thing("instant-y"));
    let (give, mut given) = tokio::sync::mpsc::unbounded_channel();
    let (x_held, y_held) = (taking(&locks, &x), taking(&locks, &y));
    let mut first = Hand::new(async {
        let passes_on = async {
            give.send(locks.lock_owned(&x).await?).expect("the receiver is alive");
            Ok::<_, LockError>(())
        };
        let waits = async { locks.lock(&y).await.map(|_| ()) };
        let (passed, waited) = tokio::join!(passes_on, waits);
        passed.and(waited)
    });
    assert!(first.poll().is_pending(), "it waits for both");
    let mut other = Hand::new(async {
        y_held.adopt();
        let got = locks.lock(&x).await.map(|_| ());
        drop(y_held);
        got
    });
    assert!(other.poll().is_pending(), "it waits behind the first");
    drop(x_held);
    assert!(first.poll().is_pending(), "it passes x on, and waits for y");
    drop(given.try_recv().expect("passed on"));
    assert!(matches!(other.poll(), Poll::Ready(Ok(()))));
    assert!(matches!(first.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn l15_a_cycle_with_an_adopted_owned_guard_is_found() {
    let (locks, x, y) = (Locks::new(), thing("bound-x"), thing("bound-y"));
    let guard = moved(&locks, "bound-x");
    let y_held = taking(&locks, &y);
    let mut third = Hand::new(async {
        y_held.adopt();
        let got = locks.lock(&x).await.map(|_| ());
        drop(y_held);
        got
    });
    assert!(third.poll().is_pending(), "it waits for x");
    let mut second = Hand::new(async {
        guard.adopt();
        let got = locks.lock(&y).await.map(|_| ());
        drop(guard);
        got
    });
    assert!(matches!(second.poll(), Poll::Ready(Err(LockError::Deadlock { .. }))), "a silent hang");
    assert!(matches!(third.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn l3_branches_of_one_task_may_both_wait_for_owned_guards() {
    let (locks, x) = (Locks::new(), thing("both-owned"));
    let (give, mut given) = tokio::sync::mpsc::unbounded_channel();
    let held = taking(&locks, &x);
    let mut both = Hand::new(async {
        let passes_on = || async {
            give.send(locks.lock_owned(&x).await?).expect("the receiver is alive");
            Ok::<_, LockError>(())
        };
        let (one, other) = tokio::join!(passes_on(), passes_on());
        one.and(other)
    });
    assert!(both.poll().is_pending());
    drop(held);
    assert!(both.poll().is_pending(), "one of them has passed it on");
    drop(given.try_recv().expect("passed on"));
    assert!(matches!(both.poll(), Poll::Ready(Ok(()))));
    drop(given.try_recv().expect("passed on"));
    assert_free(&locks);
}

#[test]
fn l13_an_owned_guard_has_no_rank_in_its_first_task() {
    let locks = Locks::new();
    let (low, high) = (LOW.key(["a"]).expect("once"), HIGH.key(["b"]).expect("once"));
    let mut task = Hand::new(async {
        let given_away = locks.lock_owned(&high).await?;
        let low_held = locks.lock(&low).await?;
        drop((given_away, low_held));
        Ok::<_, LockError>(())
    });
    assert!(matches!(task.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn l3_tasks_of_another_executor_under_an_entered_runtime_are_not_taken_for_one() {
    for runtime in [
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime"),
    ] {
        let entered = runtime.enter();
        let (locks, x) = (Locks::new(), thing("entered"));
        let (mut one, mut other) = (pin!(locks.lock(&x)), pin!(locks.lock(&x)));
        let Poll::Ready(Ok(guard)) = polled(one.as_mut()) else { panic!("free") };
        assert!(polled(other.as_mut()).is_pending(), "another task holds it");
        assert!(locks.try_lock(&x).is_err_and(|error| error.is_busy()));
        assert_eq!(TaskId::current(), None);
        drop(guard);
        assert!(matches!(polled(other.as_mut()), Poll::Ready(Ok(_))));
        drop(entered);
    }
}

#[test]
fn l3_the_root_of_a_runtime_is_known_at_every_point_of_its_budget() {
    for runtime in [
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime"),
    ] {
        let (locks, x) = (Locks::new(), thing("root"));
        runtime.block_on(async {
            let _guard = locks.lock(&x).await.expect("free");
            // More iterations than a poll has budget. A request uses none of it.
            for spent in 0..300 {
                let reentrant = locks.lock(&x).await.err().map(|error| error.is_reentrant());
                assert_eq!(reentrant, Some(true), "after {spent} units");
                tokio::task::coop::consume_budget().await;
            }
            assert!(TaskId::current().is_some());
        });
        assert_free(&locks);
    }
}

#[test]
fn asking_who_asks_leaves_the_budget_of_the_root_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..1_000 {
            assert!(TaskId::current().is_some());
        }
        assert!(tokio::task::coop::has_budget_remaining());
    });
}
