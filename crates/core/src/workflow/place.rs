//! Where the user's code is at the moment: in the workflow itself, inside a step, or somewhere else altogether.

use std::cell::Cell as StdCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::cell::Cell;

thread_local! {
    /// The run that this thread polls at the moment, and whether it is inside a step.
    static NOW: StdCell<(usize, bool)> = const { StdCell::new((0, false)) };
}

/// Where somebody asks from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Workflow,
    Step,
    Elsewhere,
}

/// Where the code that calls this is, seen from a run.
pub(super) fn of(cell: &Arc<Cell>) -> Place {
    match NOW.get() {
        (run, false) if run == address(cell) => Place::Workflow,
        (run, true) if run == address(cell) => Place::Step,
        _ => Place::Elsewhere,
    }
}

fn address(cell: &Arc<Cell>) -> usize {
    Arc::as_ptr(cell).addr()
}

/// Puts things back as they were, also when the code panics.
struct Back((usize, bool));

impl Drop for Back {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}

/// Does something as a workflow.
pub(super) fn in_workflow<R>(cell: &Arc<Cell>, act: impl FnOnce() -> R) -> R {
    let _back = Back(NOW.replace((address(cell), false)));
    act()
}

/// A future of a step.
pub(super) struct InStep<F>(pub(super) Pin<Box<F>>);

impl<F: Future> Future for InStep<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let (run, _) = NOW.get();
        let _back = Back(NOW.replace((run, true)));
        self.0.as_mut().poll(context)
    }
}
