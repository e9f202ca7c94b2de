//! Lock order (L1, L5, L6, L9, L11, L12): when each waiter is granted the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::hand::{ALONE, Hand, OBSERVE, PULL, asking, assert_free, granted, graph, taking, thing};
use tidelock_core::lock::Locks;

#[test]
fn l1_arrival_order_even_against_a_newcomer_in_the_instant_of_release() {
    let (locks, x) = (Locks::new(), thing("l1"));
    let holder = taking(&locks, &x);
    let mut first = asking(&locks, x.mode(ALONE));
    let mut second = asking(&locks, x.mode(ALONE));
    let mut third = asking(&locks, x.mode(ALONE));
    drop(holder);
    // The lock is released, and the first waiter has not been polled.
    let mut newcomer = asking(&locks, x.mode(ALONE));
    assert!(locks.try_lock(&x).is_err_and(|error| error.is_busy()), "the newcomer barges in");
    assert!(second.poll().is_pending() && !second.is_woken(), "only the next one is woken");

    let guard = granted(&mut first);
    assert!(second.poll().is_pending());
    drop(guard);
    drop(granted(&mut second));
    drop(granted(&mut third));
    drop(granted(&mut newcomer));
    assert_free(&locks);
}

#[test]
fn l5_a_late_pull_does_not_overtake_an_observer() {
    let (locks, g) = (Locks::new(), graph());
    let pull = taking(&locks, g.mode(PULL));
    let mut observe = asking(&locks, g.mode(OBSERVE));
    let mut late = asking(&locks, g.mode(PULL));
    drop(pull);
    let observing = granted(&mut observe);
    assert!(late.poll().is_pending());
    drop(observing);
    drop(granted(&mut late));
    assert_free(&locks);
}

#[test]
fn l6_the_head_comes_in_with_the_compatible_ones_right_behind_it() {
    let (locks, g) = (Locks::new(), graph());
    let alone = taking(&locks, g.mode(ALONE));
    let mut first = asking(&locks, g.mode(PULL));
    let mut second = asking(&locks, g.mode(PULL));
    let mut observe = asking(&locks, g.mode(OBSERVE));
    let mut last = asking(&locks, g.mode(PULL));
    drop(alone);
    let (one, two) = (granted(&mut first), granted(&mut second));
    assert!(observe.poll().is_pending() && last.poll().is_pending());
    drop(one);
    assert!(observe.poll().is_pending(), "one of two pulls still runs");
    drop(two);
    let observing = granted(&mut observe);
    assert!(last.poll().is_pending());
    drop(observing);
    drop(granted(&mut last));
    assert_free(&locks);
}

#[test]
fn l9_different_keys_do_not_meet() {
    let locks = Locks::new();
    // More terms than a shard searches linearly, so that the hashed part is used.
    let terms: Vec<_> = (0..5_000).map(|i| thing(&format!("l9-{i}"))).collect();
    let guards: Vec<_> = terms.iter().map(|term| taking(&locks, term)).collect();
    assert_eq!(locks.snapshot().terms.len(), 5_000);
    for (term, guard) in terms.iter().zip(&guards) {
        assert_eq!(guard.term().as_ref(), Some(term));
    }
    drop(guards);
    assert_free(&locks);
}

#[test]
fn l11_four_thousand_waiters_are_four_thousand_hand_offs() {
    let (locks, x) = (Locks::new(), thing("l11"));
    let mut guard = taking(&locks, &x);
    let mut waiters: Vec<_> = (0..4_000).map(|_| asking(&locks, x.mode(ALONE))).collect();
    for i in 0..waiters.len() {
        drop(guard);
        let woken = waiters.iter().skip(i).take(3).filter(|waiter| waiter.is_woken()).count();
        assert_eq!(woken, 1, "a release wakes one waiter, not all");
        guard = granted(&mut waiters[i]);
    }
    drop(guard);
    assert_free(&locks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_exclusive_is_serial() {
    let (locks, x) = (Locks::new(), thing("l12"));
    let (inside, total) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks = (0..64).map(|_| {
        let (locks, x, inside, total) = (locks.clone(), x.clone(), inside.clone(), total.clone());
        tokio::spawn(async move {
            for _ in 0..200 {
                let _guard = locks.lock(&x).await.expect("granted");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                let seen = total.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                total.store(seen + 1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert_eq!(total.load(Ordering::SeqCst), 64 * 200);
    assert_free(&locks);
}

#[test]
fn a_holder_steps_down_and_lets_the_compatible_ones_in() {
    let (locks, g) = (Locks::new(), graph());
    let mut alone = taking(&locks, g.mode(ALONE));
    let mut first = asking(&locks, g.mode(OBSERVE));
    let mut pull = asking(&locks, g.mode(PULL));
    alone.downgrade(OBSERVE).expect("a downgrade from the exclusive mode");
    assert_eq!(alone.mode(), OBSERVE);
    let observing = granted(&mut first);
    assert!(pull.poll().is_pending());
    let error = alone.downgrade(ALONE).expect_err("there is no way up");
    assert!(error.to_string().contains("no way from mode observe to mode 0"), "{error}");
    alone.downgrade(PULL).expect_err("a pull keeps observers out");
    drop((alone, observing));
    drop(granted(&mut pull));
    assert_free(&locks);
}

#[tokio::test]
async fn other_threads_wait_by_blocking() {
    let (locks, x) = (Locks::new(), thing("blocking"));
    let guard = locks.lock(&x).await.expect("free");
    let thread = {
        let (locks, x) = (locks.clone(), x.clone());
        std::thread::spawn(move || locks.lock_blocking(&x).map(|_| ()))
    };
    while locks.snapshot().terms.first().is_none_or(|held| held.waiters.is_empty()) {
        tokio::task::yield_now().await;
    }
    drop(guard);
    thread.join().expect("no panic").expect("granted");
    assert_free(&locks);
}

#[tokio::test]
async fn with_runs_under_the_lock_and_gives_the_result() {
    let (locks, x) = (Locks::new(), thing("with"));
    let inside = locks.with(&x, async { locks.snapshot().terms.len() }).await.expect("free");
    assert_eq!(inside, 1);
    let mut waiting = Hand::new(locks.with(&x, async { 7 }));
    assert_eq!(waiting.poll().map(Result::ok), Poll::Ready(Some(7)));
    assert_free(&locks);
}
