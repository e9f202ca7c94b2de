//! Tests of lock acquisition: free, shared, waiting, refused, and waiting in a cycle.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::{JoinSet, yield_now};

use crate::lock::{DETECTION, LockClass, LockError, LockKey, Locks, Mode, Modes, READ, WRITE};

static PLAIN: LockClass = LockClass::new("acquire-plain");
static SHARED: LockClass = LockClass::new("acquire-shared").modes(Modes::READ_WRITE);
static LOW: LockClass = LockClass::new("acquire-low").rank(1);
static HIGH: LockClass = LockClass::new("acquire-high").rank(2);

fn plain(number: u32) -> LockKey {
    PLAIN.key([number]).unwrap()
}

fn nothing_is_left(locks: &Locks) {
    assert!(locks.snapshot().terms.is_empty());
    assert!(locks.table.waits.lock().len() == 0);
}

#[tokio::test]
async fn a_free_term_is_taken_released_and_taken_again() {
    let (locks, term) = (Locks::new(), plain(1));
    for _ in 0..3 {
        let guard = locks.lock(&term).await.unwrap();
        assert_eq!(locks.snapshot().terms.len(), 1);
        drop(guard);
        drop(locks.try_lock(&term).unwrap());
    }
    nothing_is_left(&locks);
    let stats = locks.stats();
    let stats = stats.iter().find(|stats| stats.functor == "acquire-plain").unwrap();
    assert_eq!((stats.acquired, stats.waited, stats.refused, stats.hold.count()), (6, 0, 0, 6));
}

#[tokio::test]
async fn many_terms_are_held_at_once_and_each_by_one() {
    let locks = Locks::new();
    let terms: Vec<LockKey> = (0..2_000).map(plain).collect();
    for _ in 0..2 {
        let guards: Vec<_> = terms.iter().map(|term| locks.try_lock(term).unwrap()).collect();
        assert_eq!(locks.snapshot().terms.len(), terms.len());
        assert!(terms.iter().all(|term| locks.try_lock(term).is_err()));
        assert!(guards.iter().zip(&terms).all(|(guard, term)| guard.term().as_ref() == Some(term)));
        drop(guards);
        nothing_is_left(&locks);
    }
}

#[tokio::test]
async fn a_holder_may_not_acquire_again() {
    let (locks, term) = (Locks::new(), plain(1));
    let guard = locks.lock(&term).await.unwrap();
    if DETECTION {
        assert!(matches!(locks.lock(&term).await, Err(LockError::Reentrant { .. })));
        assert!(matches!(locks.try_lock(&term), Err(LockError::Reentrant { .. })));
    } else {
        assert!(matches!(locks.try_lock(&term), Err(LockError::Busy { .. })));
    }
    drop(guard);
    drop(locks.lock(&term).await.unwrap());
    nothing_is_left(&locks);
}

#[tokio::test]
async fn a_mode_without_a_name_is_refused() {
    let (locks, term) = (Locks::new(), plain(1));
    assert!(matches!(locks.lock(term.mode(Mode::new(3))).await, Err(LockError::Mode { .. })));
    assert!(matches!(locks.try_lock(term.mode(Mode::new(3))), Err(LockError::Mode { .. })));
    nothing_is_left(&locks);
}

#[tokio::test]
async fn ranks_are_kept_in_mind_while_held_and_no_longer() {
    let locks = Locks::new();
    let (low, high) = (LOW.single().unwrap(), HIGH.single().unwrap());
    for _ in 0..2 {
        let _low = locks.lock(&low).await.unwrap();
        let _high = locks.lock(&high).await.unwrap();
    }
    let high_held = locks.lock(&high).await.unwrap();
    assert_eq!(matches!(locks.lock(&low).await, Err(LockError::OutOfOrder { .. })), DETECTION);
    drop(high_held);
    drop(locks.lock(&low).await.unwrap());
    nothing_is_left(&locks);
}

#[tokio::test]
async fn waiters_come_in_order_and_readers_together() {
    let (locks, term) = (Locks::new(), SHARED.single().unwrap());
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let first = locks.lock(term.mode(READ)).await.unwrap().into_owned();
    let mut tasks = JoinSet::new();
    for (number, mode) in [WRITE, READ, READ, WRITE, READ].into_iter().enumerate() {
        let (locks, term, order) = (locks.clone(), term.clone(), Arc::clone(&order));
        tasks.spawn(async move {
            let guard = locks.lock(term.mode(mode)).await.unwrap();
            order.lock().push(number);
            yield_now().await;
            drop(guard);
        });
        yield_now().await;
    }
    assert!(matches!(locks.try_lock(term.mode(READ)), Err(LockError::Busy { .. })), "a writer waits");
    drop(first);
    tasks.join_all().await;
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
    nothing_is_left(&locks);
}

#[tokio::test]
async fn a_waiter_that_goes_away_leaves_nothing() {
    let (locks, term) = (Locks::new(), plain(1));
    let guard = locks.lock(&term).await.unwrap().into_owned();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (locks, term) = (locks.clone(), term.clone());
        tasks.spawn(async move { locks.lock(&term).await.map(|_| ()) });
    }
    yield_now().await;
    assert_eq!(locks.snapshot().terms.iter().map(|term| term.waiters.len()).sum::<usize>(), 3);
    // Some are granted the lock and dropped before they are polled again.
    drop(guard);
    tasks.shutdown().await;
    nothing_is_left(&locks);
    drop(locks.lock(&term).await.unwrap());
}

/// Tasks in a ring each hold one term and request the term of the next task.
#[tokio::test]
async fn exactly_one_waiter_of_a_cycle_gets_the_error() {
    if !DETECTION {
        return;
    }
    for size in [2_u32, 3, 7] {
        let (locks, barrier) = (Locks::new(), Arc::new(Barrier::new(size as usize)));
        let mut tasks = JoinSet::new();
        for number in 0..size {
            let (locks, barrier) = (locks.clone(), Arc::clone(&barrier));
            tasks.spawn(async move {
                let (mine, next) = (plain(number), plain((number + 1) % size));
                let _mine = locks.lock(&mine).await.unwrap();
                barrier.wait().await;
                matches!(locks.lock(&next).await, Err(LockError::Deadlock { .. }))
            });
        }
        let told = tasks.join_all().await.into_iter().filter(|told| *told).count();
        assert_eq!(told, 1, "a ring of {size}");
        nothing_is_left(&locks);
    }
}

/// A cycle that closes through a task whose wait was granted an instant ago, but is still recorded.
#[tokio::test]
async fn a_cycle_through_a_holder_that_waited_before_is_reported() {
    if !DETECTION {
        return;
    }
    let (locks, a, b) = (Locks::new(), plain(1), plain(2));
    let first = locks.lock(&a).await.unwrap().into_owned();
    let waited = {
        let (locks, a, b) = (locks.clone(), a.clone(), b.clone());
        tokio::spawn(async move {
            let _a = locks.lock(&a).await.unwrap();
            matches!(locks.lock(&b).await, Err(LockError::Deadlock { .. }))
        })
    };
    let other = {
        let (locks, a, b) = (locks.clone(), a.clone(), b.clone());
        tokio::spawn(async move {
            let _b = locks.lock(&b).await.unwrap();
            matches!(locks.lock(&a).await, Err(LockError::Deadlock { .. }))
        })
    };
    yield_now().await;
    drop(first);
    assert!(waited.await.unwrap() != other.await.unwrap());
    nothing_is_left(&locks);
}
