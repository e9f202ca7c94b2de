//! Which containers' mutators run on this thread right now: so a mutator that asks for its own container is told.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

thread_local! {
    static RUNNING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The identity of a container's cell in this process.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether a mutator of that container runs on this thread, further up the stack.
pub(super) fn runs(number: u64) -> bool {
    RUNNING.with_borrow(|running| running.contains(&number))
}

struct Inside;

impl Inside {
    fn enter(number: u64) -> Self {
        RUNNING.with_borrow_mut(|running| running.push(number));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(|running| {
            running.pop();
        });
    }
}

/// Runs something as a mutator of that container.
pub(super) fn inside<R>(number: u64, run: impl FnOnce() -> R) -> R {
    let _inside = Inside::enter(number);
    run()
}

/// A future that is polled as a mutator of that container.
pub(super) struct Polled<F> {
    pub(super) future: Pin<Box<F>>,
    pub(super) number: u64,
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _inside = Inside::enter(self.number);
        self.future.as_mut().poll(context)
    }
}
