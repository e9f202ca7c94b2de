//! Manually polled futures, so that a test controls every step and never sleeps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tidelock_core::lock::{
    Guard, LockClass, LockError, LockKey, LockRequest, Locks, Mode, Modes, TaskScope, scope,
};

pub(crate) const ALONE: Mode = Mode::new(0);
pub(crate) const PULL: Mode = Mode::new(1);
pub(crate) const OBSERVE: Mode = Mode::new(2);

pub(crate) static THING: LockClass = LockClass::new("thing");
pub(crate) static GRAPH: LockClass = LockClass::new("graph")
    .modes(Modes::new(&["alone", "pull", "observe"], &[(PULL, PULL), (OBSERVE, OBSERVE)]));

pub(crate) fn thing(name: &str) -> LockKey {
    THING.key([name]).expect("declared once")
}

pub(crate) fn graph() -> LockKey {
    GRAPH.key(["g"]).expect("declared once")
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future with its own waker and scope: locks identify it as a task.
pub(crate) struct Hand<F: Future> {
    future: Pin<Box<TaskScope<F>>>,
    woken: Arc<Count>,
}

impl<F: Future> Hand<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Box::pin(scope(future)), woken: Arc::default() }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst) > 0
    }
}

/// Requests a lock as a separate task, and polls once.
pub(crate) fn asking<'a>(
    locks: &'a Locks,
    ask: LockRequest<'a>,
) -> Hand<impl Future<Output = Result<Guard<'a>, LockError>>> {
    let mut hand = Hand::new(locks.lock(ask));
    match hand.poll() {
        Poll::Pending => hand,
        Poll::Ready(result) => panic!("it should wait, but: {result:?}"),
    }
}

/// Acquires a lock as a separate task.
pub(crate) fn taking<'a>(locks: &'a Locks, ask: impl Into<LockRequest<'a>>) -> Guard<'a> {
    match Hand::new(locks.lock(ask)).poll() {
        Poll::Ready(result) => result.expect("it is free"),
        Poll::Pending => panic!("it should be free"),
    }
}

/// Returns the guard of a waiter that was granted the lock.
pub(crate) fn granted<'a, F>(hand: &mut Hand<F>) -> Guard<'a>
where
    F: Future<Output = Result<Guard<'a>, LockError>>,
{
    assert!(hand.is_woken(), "it was not woken");
    match hand.poll() {
        Poll::Ready(result) => result.expect("it was let in"),
        Poll::Pending => panic!("it was woken, but not let in"),
    }
}

/// Asserts that there are no holders and no waiters.
pub(crate) fn assert_free(locks: &Locks) {
    assert_eq!(locks.snapshot().to_string(), "nothing is locked\n");
    assert_eq!(format!("{locks:?}"), "Locks { held: 0, waits: 0 }");
}
