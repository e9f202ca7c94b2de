//! Reentrancy of mutators: a mutation of a state inside a mutator of the same state never gets its turn.
//!
//! A mutator may mutate another state and wait for it. The other mutator runs on another thread, so each mutation carries
//! the states whose mutators wait for it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

thread_local! {
    /// The states whose mutators run on this thread, or wait for one that does.
    static RUNNING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns a process-unique number for a state.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The state of a mutation, and those whose mutators wait for it.
#[derive(Clone, Debug)]
pub(super) struct Within {
    number: u64,
    /// `None` for a mutation outside of any mutator.
    outer: Option<Arc<[u64]>>,
}

impl Within {
    /// Returns the place of a new mutation of a state; `None` when one of its mutators waits for it.
    pub(super) fn enter(number: u64) -> Option<Self> {
        RUNNING.with_borrow(|running| {
            let outer = (!running.is_empty()).then(|| Arc::from(running.as_slice()));
            (!running.contains(&number)).then_some(Self { number, outer })
        })
    }

    /// Runs a mutator.
    pub(super) fn run<R>(&self, run: impl FnOnce() -> R) -> R {
        let _inside = Inside::of(self);
        run()
    }
}

/// Restores the states of the thread, when the run ends or panics.
struct Inside(usize);

impl Inside {
    fn of(within: &Within) -> Self {
        RUNNING.with_borrow_mut(|running| {
            let before = running.len();
            running.extend(within.outer.iter().flat_map(|outer| outer.iter()));
            running.push(within.number);
            Self(before)
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(|running| running.truncate(self.0));
    }
}

/// A future that is polled as a mutator.
pub(super) struct Polled<F> {
    pub(super) future: Pin<Box<F>>,
    pub(super) within: Within,
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _inside = Inside::of(&self.within);
        self.future.as_mut().poll(context)
    }
}
