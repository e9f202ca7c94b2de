//! Lock table and queue under loom: every interleaving of a few threads, up to a bound of preemptions.
//!
//! Compiled only with `--cfg tidelock_loom`; `cargo xtask test` runs it.

#![cfg(tidelock_loom)]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tidelock_core::lock::{LockClass, LockError, LockKey, Locks, Mode, Modes, scope};

const ALONE: Mode = Mode::new(0);
const SHARED: Mode = Mode::new(1);
static THING: LockClass =
    LockClass::new("thing").modes(Modes::new(&["alone", "shared"], &[(SHARED, SHARED)]));

fn thing(name: &str) -> LockKey {
    THING.key([name]).expect("declared once")
}

/// Runs a future as a task that locks can identify.
fn block_on<F: Future>(future: F) -> F::Output {
    loom::future::block_on(scope(future))
}

fn check(preemptions: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(test);
}

#[test]
fn three_threads_are_never_inside_together() {
    check(Some(2), || {
        let (locks, x, inside) = (Locks::new(), thing("x"), Arc::new(AtomicUsize::new(0)));
        let visit = move |locks: &Locks, x: &LockKey, inside: &AtomicUsize| {
            let guard = block_on(locks.lock(x)).expect("no cycle");
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two at once");
            inside.fetch_sub(1, Ordering::Relaxed);
            drop(guard);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (locks, x, inside) = (locks.clone(), x.clone(), inside.clone());
                thread::spawn(move || visit(&locks, &x, &inside))
            })
            .collect();
        visit(&locks, &x, &inside);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(locks.try_lock(&x).is_ok(), "nothing is left");
    });
}

#[test]
fn a_waiter_that_leaves_while_it_is_let_in_passes_the_lock_on() {
    check(Some(3), || {
        let (locks, x) = (Locks::new(), thing("x"));
        let guard = locks.try_lock(&x).expect("free").into_owned();
        let leaving = {
            let (locks, x) = (locks.clone(), x.clone());
            thread::spawn(move || {
                let mut lock = locks.lock(&x);
                let _ = Pin::new(&mut lock).poll(&mut Context::from_waker(Waker::noop()));
                drop(lock);
            })
        };
        let staying = {
            let (locks, x) = (locks.clone(), x.clone());
            thread::spawn(move || drop(block_on(locks.lock(&x)).expect("let in")))
        };
        drop(guard);
        leaving.join().expect("no panic");
        staying.join().expect("no panic");
        assert!(locks.try_lock(&x).is_ok(), "nothing is left");
    });
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    check(Some(3), || {
        let (locks, x, inside) = (Locks::new(), thing("x"), Arc::new(AtomicUsize::new(0)));
        let reading = {
            let (locks, x, inside) = (locks.clone(), x.clone(), inside.clone());
            thread::spawn(move || {
                let _guard = block_on(locks.lock(x.mode(SHARED))).expect("no cycle");
                assert!(inside.load(Ordering::Relaxed) < 100, "a writer is inside");
            })
        };
        {
            let _guard = block_on(locks.lock(x.mode(ALONE))).expect("no cycle");
            inside.fetch_add(100, Ordering::Relaxed);
            inside.fetch_sub(100, Ordering::Relaxed);
        }
        reading.join().expect("no panic");
        assert!(locks.try_lock(&x).is_ok(), "nothing is left");
    });
}

#[test]
fn of_two_tasks_in_a_cycle_at_most_one_fails_and_none_hangs() {
    check(Some(3), || {
        let (locks, x, y) = (Locks::new(), thing("x"), thing("y"));
        let crossing = |locks: &Locks, first: &LockKey, second: &LockKey| {
            block_on(async {
                let _first = locks.lock(first).await.expect("a first lock closes no cycle");
                match locks.lock(second).await {
                    Ok(_) => false,
                    Err(LockError::Deadlock { .. }) => true,
                    Err(error) => panic!("{error}"),
                }
            })
        };
        let other = {
            let (locks, x, y) = (locks.clone(), x.clone(), y.clone());
            thread::spawn(move || crossing(&locks, &y, &x))
        };
        let told = crossing(&locks, &x, &y);
        assert!(!(told & other.join().expect("no panic")), "one is enough to break it");
        assert!(locks.try_lock(&x).is_ok() && locks.try_lock(&y).is_ok(), "nothing is left");
    });
}
