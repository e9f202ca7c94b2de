//! Lock cancellation (L2, L10, L14, L16): dropped waiters, failing holders, passed deadlines.

use std::future::Future as _;
use std::pin::Pin;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::hand::{ALONE, Hand, OBSERVE, PULL, asking, assert_free, granted, graph, taking, thing};
use tidelock_core::lock::{LockError, Locks};

#[tokio::test]
async fn l2_a_holder_that_panics_lets_the_next_one_in() {
    let (locks, x) = (Locks::new(), thing("l2"));
    let holder = {
        let (locks, x) = (locks.clone(), x.clone());
        tokio::spawn(async move {
            let _guard = locks.lock(&x).await.expect("free");
            tokio::task::yield_now().await;
            panic!("as it should");
        })
    };
    tokio::task::yield_now().await;
    let mut next = asking(&locks, x.mode(ALONE));
    assert!(holder.await.is_err_and(|error| error.is_panic()), "the panic reaches only its caller");
    drop(granted(&mut next));
    let failed: Result<Result<(), &str>, LockError> = locks.with(&x, async { Err("an error") }).await;
    assert_eq!(failed.expect("locked"), Err("an error"));
    assert_free(&locks);
}

#[test]
fn l10_a_waiter_that_leaves_the_queue_never_runs_and_the_others_keep_their_order() {
    let (locks, x) = (Locks::new(), thing("l10"));
    let holder = taking(&locks, &x);
    let mut first = asking(&locks, x.mode(ALONE));
    let gone = asking(&locks, x.mode(ALONE));
    let mut third = asking(&locks, x.mode(ALONE));
    drop(gone);
    drop(holder);
    drop(granted(&mut first));
    drop(granted(&mut third));
    assert_free(&locks);
}

#[test]
fn l10_dropped_after_the_grant_it_passes_the_lock_on() {
    let (locks, x) = (Locks::new(), thing("l10"));
    let holder = taking(&locks, &x);
    let first = asking(&locks, x.mode(ALONE));
    let mut second = asking(&locks, x.mode(ALONE));
    drop(holder);
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    drop(granted(&mut second));
    assert_free(&locks);
}

#[test]
fn a_waiter_that_leaves_lets_in_those_it_kept_out() {
    let (locks, g) = (Locks::new(), graph());
    let pull = taking(&locks, g.mode(PULL));
    let observe = asking(&locks, g.mode(OBSERVE));
    let mut late = asking(&locks, g.mode(PULL));
    drop(observe);
    drop(granted(&mut late));
    drop(pull);
    assert_free(&locks);
}

#[test]
fn the_last_polled_waker_is_woken() {
    let (locks, x) = (Locks::new(), thing("wakers"));
    let holder = taking(&locks, &x);
    let lock = std::cell::RefCell::new(locks.lock(&x));
    let by = || {
        Hand::new(std::future::poll_fn(|context| Pin::new(&mut *lock.borrow_mut()).poll(context).map(|_| ())))
    };
    let (mut first, mut second) = (by(), by());
    assert!(first.poll().is_pending() && second.poll().is_pending());
    drop(holder);
    assert!(second.is_woken() && !first.is_woken());
    assert!(second.poll().is_ready());
}

#[test]
fn never_polled_never_asked() {
    let (locks, x) = (Locks::new(), thing("lazy"));
    drop(locks.lock(&x));
    let waiting = locks.lock(&x);
    assert!(locks.try_lock(&x).is_ok());
    drop(waiting);
    assert_free(&locks);
}

#[tokio::test]
async fn l16_when_the_time_is_up_it_is_never_granted_later() {
    let (locks, x) = (Locks::new(), thing("l16"));
    let holder = taking(&locks, &x);
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(5);
    let error = locks.lock_before(&x, deadline).await.expect_err("held");
    assert!(Instant::now() >= deadline, "not before its time");
    assert!(matches!(&error, LockError::TimedOut { state, .. } if state.holders == 1), "{error}");

    // A waiter that is granted the lock before its deadline but polled after it releases the lock to the next one.
    let deadline = Instant::now() + Duration::from_millis(300);
    let mut late = Hand::new(locks.lock_before(&x, deadline));
    assert!(late.poll().is_pending());
    let mut next = asking(&locks, x.mode(ALONE));
    drop(holder);
    while Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(matches!(late.poll(), std::task::Poll::Ready(Err(LockError::TimedOut { .. }))));
    drop(granted(&mut next));
    assert!(locks.lock_before(&x, begun).await.is_ok(), "what is free is taken, whatever the time");
    assert_free(&locks);
}

#[test]
fn l14_a_million_random_cancels_leave_no_key_behind() {
    let locks = Locks::new();
    let terms: Vec<_> = (0..100).map(|i| thing(&format!("l14-{i}"))).collect();
    let g = graph();
    let (mut random, mut cancelled) = (7_u64, 0);
    let mut waiting = std::collections::VecDeque::new();
    let mut held = std::collections::VecDeque::new();
    while cancelled < 1_000_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let choice = (random >> 33) as usize;
        let ask = if choice.is_multiple_of(3) {
            g.mode([ALONE, PULL, OBSERVE][choice / 3 % 3])
        } else {
            (&terms[choice % 100]).into()
        };
        let mut hand = Hand::new(locks.lock(ask));
        match hand.poll() {
            std::task::Poll::Ready(guard) => held.push_back(guard.expect("tasks differ")),
            std::task::Poll::Pending => waiting.push_back(hand),
        }
        if waiting.len() > 40 {
            let at = choice % waiting.len();
            waiting.swap(0, at);
            drop(waiting.pop_front());
            cancelled += 1;
        }
        if held.len() > 60 {
            drop(held.pop_front());
        }
    }
    drop(waiting);
    drop(held);
    assert_free(&locks);
}

proptest! {
    /// Every waiter that stays is granted the lock, whichever others are dropped and in whatever order.
    #[test]
    fn every_remaining_waiter_is_served(stays in proptest::collection::vec(any::<bool>(), 1..40), modes in proptest::collection::vec(0_u8..3, 40)) {
        let (locks, g) = (Locks::new(), graph());
        let holder = taking(&locks, g.mode(ALONE));
        let mut waiting: Vec<_> = stays.iter().zip(&modes).map(|(stays, mode)| {
            (*stays, asking(&locks, g.mode([ALONE, PULL, OBSERVE][usize::from(*mode)])))
        }).collect();
        drop(holder);
        waiting.retain(|(stays, _)| *stays);
        for (_, mut waiter) in waiting {
            drop(granted(&mut waiter));
        }
        assert_free(&locks);
    }
}
