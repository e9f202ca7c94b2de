//! Model checks of the real async code under a random scheduler, over many thousand schedules.
//!
//! Compiled only with `--cfg tidelock_shuttle`; `cargo xtask test` runs it, `cargo xtask soak` for longer.
//! `TIDELOCK_SCHEDULES` sets the number of schedules per test.

#![cfg(tidelock_shuttle)]
#![allow(clippy::restriction, reason = "a test fails by panicking")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::task::Poll;

use shuttle::future::{JoinHandle, block_on, yield_now};
use shuttle::rand::{Rng as _, thread_rng};
use tidelock_core::lock::{LockClass, LockError, LockKey, Locks, Mode, Modes, scope};

const ALONE: Mode = Mode::new(0);
const SHARED: Mode = Mode::new(1);
static THING: LockClass =
    LockClass::new("thing").modes(Modes::new(&["alone", "shared"], &[(SHARED, SHARED)]));

fn schedules() -> usize {
    std::env::var("TIDELOCK_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(50_000)
}

fn thing(name: &str) -> LockKey {
    THING.key([name]).expect("declared once")
}

/// Spawns a task that locks can identify.
fn spawn<F: Future<Output = ()> + Send + 'static>(task: F) -> JoinHandle<()> {
    shuttle::future::spawn(scope(task))
}

fn assert_free(locks: &Locks) {
    assert_eq!(locks.snapshot().to_string(), "nothing is locked\n");
    assert_eq!(format!("{locks:?}"), "Locks { held: 0, waits: 0 }");
}

/// A counter of the tasks inside: one alone, or any number together.
#[derive(Default)]
struct Room(AtomicI32);

impl Room {
    async fn visit(&self, mode: Mode) {
        let change = if mode == ALONE { -100 } else { 1 };
        let before = self.0.fetch_add(change, Ordering::SeqCst);
        assert!(if mode == ALONE { before == 0 } else { before >= 0 }, "two at once: {before}");
        yield_now().await;
        self.0.fetch_sub(change, Ordering::SeqCst);
    }
}

/// Polls a future once, and abandons it if it is pending.
async fn once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| match Pin::new(&mut future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[test]
fn holders_exclude_each_other_and_every_waiter_is_served() {
    let test = || {
        let (locks, x, room) = (Locks::new(), thing("x"), Arc::new(Room::default()));
        let served = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..4)
            .map(|i| {
                let (locks, x, room, served) = (locks.clone(), x.clone(), room.clone(), served.clone());
                spawn(async move {
                    for round in 0..2 {
                        let mode = if (i + round) % 2 == 0 { ALONE } else { SHARED };
                        let _guard = locks.lock(x.mode(mode)).await.expect("no cycle");
                        room.visit(mode).await;
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        assert_eq!(served.load(Ordering::SeqCst), 8);
        assert_free(&locks);
    };
    shuttle::check_random(test, schedules());
}

#[test]
fn waiters_that_leave_at_any_moment_leave_nothing_behind() {
    let test = || {
        let (locks, x, room) = (Locks::new(), thing("x"), Arc::new(Room::default()));
        let tasks: Vec<_> = (0..5)
            .map(|i| {
                let (locks, x, room) = (locks.clone(), x.clone(), room.clone());
                spawn(async move {
                    let mode = if thread_rng().gen_bool(0.5) { ALONE } else { SHARED };
                    let mut lock = locks.lock(x.mode(mode));
                    if i % 2 == 0 {
                        // The future is polled, left pending while it may be granted the lock, and then dropped.
                        let first = once(&mut lock).await;
                        yield_now().await;
                        match first {
                            Some(guard) => room.visit(mode).await_with(guard.expect("no cycle")).await,
                            None => drop(lock),
                        }
                    } else {
                        let guard = lock.await.expect("no cycle");
                        room.visit(mode).await_with(guard).await;
                    }
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        assert_free(&locks);
    };
    shuttle::check_random(test, schedules());
}

/// Keeps a value alive while a future runs.
trait AwaitWith: Future + Sized {
    async fn await_with<T>(self, kept: T) -> Self::Output {
        let output = self.await;
        drop(kept);
        output
    }
}

impl<F: Future> AwaitWith for F {}

#[test]
fn exactly_one_waiter_of_a_cycle_fails_and_none_hangs() {
    let test = || {
        let locks = Locks::new();
        let terms: Vec<LockKey> = ["x", "y", "z"].map(thing).to_vec();
        let told = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|i| {
                let (locks, told) = (locks.clone(), told.clone());
                let (mine, next) = (terms[i].clone(), terms[(i + 1) % 3].clone());
                spawn(async move {
                    let _mine = locks.lock(&mine).await.expect("a first lock closes no cycle");
                    yield_now().await;
                    match locks.lock(&next).await {
                        Ok(_) => {}
                        Err(LockError::Deadlock { cycle }) => {
                            assert!(cycle.0.len() >= 2);
                            told.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(error) => panic!("{error}"),
                    }
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        assert!(told.load(Ordering::SeqCst) <= 1, "one is enough to break it");
        assert_free(&locks);
    };
    shuttle::check_random(test, schedules());
}

#[test]
fn in_one_order_there_is_no_alarm() {
    let test = || {
        let locks = Locks::new();
        let (x, y) = (thing("x"), thing("y"));
        let tasks: Vec<_> = (0..4)
            .map(|i| {
                let (locks, x, y) = (locks.clone(), x.clone(), y.clone());
                spawn(async move {
                    let first =
                        locks.lock(x.mode(if i % 2 == 0 { ALONE } else { SHARED })).await.expect("in order");
                    let _second = locks.lock(&y).await.expect("in order");
                    drop(first);
                    yield_now().await;
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        assert_free(&locks);
    };
    shuttle::check_random(test, schedules());
}
