//! Type-erased mutators, so that one task can run mutations of many callers.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::error::{MutateError, StateError};
use super::reentry::{Polled, Within};
use super::{Mutated, WriteOutcome};

/// The result for a caller.
pub(super) type MutateResult<R, E> = Result<Result<Mutated<R>, MutateError<E>>, Panic>;
/// The panic of a mutator, for its caller.
pub(super) type Panic = Box<dyn Any + Send>;

/// A started mutation: the new draft, or nothing when the mutator refused or panicked.
pub(super) enum StartedMutation<T> {
    Now(Option<T>),
    Later(Pin<Box<dyn Future<Output = Option<T>> + Send>>),
}

/// A mutator of a draft, which reports the result to its caller.
pub(super) trait Mutator<T>: Send {
    /// Runs on a draft. May be called again on another one.
    fn run(&mut self, draft: T, within: &Within) -> StartedMutation<T>;
    /// Reports the end to the caller. A refusal or panic of the last run is reported instead.
    fn end(self: Box<Self>, end: End);
}

/// The end of a mutation.
pub(super) enum End {
    /// The change is in the value.
    Did(WriteOutcome),
    /// The change is not in the value, for this reason.
    Failed(StateError),
    /// The change is not in the value: the mutator refused or panicked, or the caller gave up.
    ItsOwn,
}

/// The result of the last run.
type Slot<R, E> = Arc<Mutex<Option<Result<R, Fault<E>>>>>;

enum Fault<E> {
    Refused(E),
    Panicked(Panic),
}

/// A mutator with its types.
pub(super) struct TypedMutator<F, R, E> {
    call: F,
    slot: Slot<R, E>,
    answer: oneshot::Sender<MutateResult<R, E>>,
}

impl<F, R, E> TypedMutator<F, R, E> {
    pub(super) fn new(call: F) -> (Self, oneshot::Receiver<MutateResult<R, E>>) {
        let (answer, answered) = oneshot::channel();
        (Self { call, slot: Arc::default(), answer }, answered)
    }

    /// Creates a mutation without code to run, with its result.
    pub(super) fn done(call: F, result: R) -> (Self, oneshot::Receiver<MutateResult<R, E>>) {
        let (asked, answered) = Self::new(call);
        *asked.slot.lock() = Some(Ok(result));
        (asked, answered)
    }

    fn reply(self, end: End) {
        let answer = match (self.slot.lock().take(), end) {
            (Some(Err(Fault::Panicked(panic))), _) => Err(panic),
            (Some(Err(Fault::Refused(error))), _) => Ok(Err(MutateError::Refused(error))),
            (Some(Ok(result)), End::Did(outcome)) => Ok(Ok(Mutated { result, outcome })),
            (_, End::Failed(error)) => Ok(Err(error.into())),
            // The caller gave up, so no receiver waits.
            (_, End::ItsOwn) | (None, End::Did(_)) => return,
        };
        // Sending fails when the caller has gone, which is fine.
        drop(self.answer.send(answer));
    }
}

/// A synchronous mutator.
pub(super) struct AtOnce<F, R, E>(pub(super) TypedMutator<F, R, E>);

impl<T, F, R, E> Mutator<T> for AtOnce<F, R, E>
where
    F: FnMut(&mut T) -> Result<R, E> + Send,
    R: Send + 'static,
    E: Send + 'static,
{
    fn run(&mut self, mut draft: T, within: &Within) -> StartedMutation<T> {
        let call = &mut self.0.call;
        let ran = within.run(|| catch_unwind(AssertUnwindSafe(|| call(&mut draft))));
        let result = match ran {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(Fault::Refused(error)),
            Err(panic) => Err(Fault::Panicked(panic)),
        };
        let fine = result.is_ok();
        *self.0.slot.lock() = Some(result);
        StartedMutation::Now(fine.then_some(draft))
    }

    fn end(self: Box<Self>, end: End) {
        self.0.reply(end);
    }
}

/// An asynchronous mutator.
pub(super) struct InTime<F, R, E>(pub(super) TypedMutator<F, R, E>);

impl<T, F, Fut, R, E> Mutator<T> for InTime<F, R, E>
where
    T: Send + 'static,
    F: FnMut(T) -> Fut + Send,
    Fut: Future<Output = Result<(T, R), E>> + Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    fn run(&mut self, draft: T, within: &Within) -> StartedMutation<T> {
        *self.0.slot.lock() = None;
        let call = &mut self.0.call;
        let future = match within.run(|| catch_unwind(AssertUnwindSafe(|| call(draft)))) {
            Ok(future) => future,
            Err(panic) => {
                *self.0.slot.lock() = Some(Err(Fault::Panicked(panic)));
                return StartedMutation::Now(None);
            }
        };
        let slot = Arc::clone(&self.0.slot);
        let polled = Caught(Polled { future: Box::pin(future), within: within.clone() });
        StartedMutation::Later(Box::pin(async move {
            let (draft, result) = match polled.await {
                Ok(Ok((draft, result))) => (Some(draft), Ok(result)),
                Ok(Err(error)) => (None, Err(Fault::Refused(error))),
                Err(panic) => (None, Err(Fault::Panicked(panic))),
            };
            *slot.lock() = Some(result);
            draft
        }))
    }

    fn end(self: Box<Self>, end: End) {
        self.0.reply(end);
    }
}

/// A future that returns its panic as output.
struct Caught<F>(F);

impl<F: Future + Unpin> Future for Caught<F> {
    type Output = Result<F::Output, Panic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}
