//! A guard that knows which code runs: the workflow itself, one of its steps, or neither.
//!
//! An operation requested inside a step, or in another task, would not be found again by a replay.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::activation::ActivationRef;
use crate::runtime::panic::Isolated;

thread_local! {
    /// The activation that this thread polls, by address, and whether it is inside a step.
    static CURRENT: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// The code that requests an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallSite {
    Workflow,
    Step,
    Elsewhere,
}

/// Returns where the caller runs, seen from an activation.
pub(super) fn call_site(activation: &ActivationRef) -> CallSite {
    match CURRENT.get() {
        (current, false) if current == address(activation) => CallSite::Workflow,
        (current, true) if current == address(activation) => CallSite::Step,
        _ => CallSite::Elsewhere,
    }
}

fn address(activation: &ActivationRef) -> usize {
    Arc::as_ptr(activation).addr()
}

/// Restores the previous value, also when the code panics.
struct Restore((usize, bool));

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Runs code as the workflow of an activation.
pub(super) fn in_workflow<R>(activation: &ActivationRef, run: impl FnOnce() -> R) -> R {
    let _restore = Restore(CURRENT.replace((address(activation), false)));
    run()
}

/// The future of a step.
pub(super) struct InStep<F>(Isolated<Pin<Box<F>>>);

impl<F> InStep<F> {
    pub(super) fn new(step: F) -> Self {
        Self(Isolated::new(Box::pin(step)))
    }
}

impl<F: Future> Future for InStep<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let (current, _) = CURRENT.get();
        let _restore = Restore(CURRENT.replace((current, true)));
        match self.0.get_mut() {
            Some(step) => step.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}
