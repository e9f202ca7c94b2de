//! What callers want done to a draft, with its types put away so that one task can carry out many of them.

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
use super::{Mutated, Outcome};

/// What a caller is told.
pub(super) type Answer<R, E> = Result<Result<Mutated<R>, MutateError<E>>, Panic>;
/// The panic of a mutator, for its caller.
pub(super) type Panic = Box<dyn Any + Send>;

/// A mutation that was begun: the new draft, or nothing when the mutator refused or panicked.
pub(super) enum Running<T> {
    Now(Option<T>),
    Later(Pin<Box<dyn Future<Output = Option<T>> + Send>>),
}

/// Changes a draft, and answers its caller.
pub(super) trait Mutator<T>: Send {
    /// Runs on a draft. May be called again on another one.
    fn run(&mut self, draft: T, within: &Within) -> Running<T>;
    /// Tells the caller how it ended. A mutator that refused or panicked on its last run tells that instead.
    fn end(self: Box<Self>, end: End);
}

/// How a mutation ended.
pub(super) enum End {
    /// Its change is in the value.
    Did(Outcome),
    /// Nothing of it is, for this reason.
    Failed(StateError),
    /// Nothing of it is, and the mutator said why; or nobody wanted it any more.
    ItsOwn,
}

/// What the last run gave.
type Slot<R, E> = Arc<Mutex<Option<Result<R, Fault<E>>>>>;

enum Fault<E> {
    Refused(E),
    Panicked(Panic),
}

/// A mutator with its types.
pub(super) struct Asked<F, R, E> {
    call: F,
    slot: Slot<R, E>,
    answer: oneshot::Sender<Answer<R, E>>,
}

impl<F, R, E> Asked<F, R, E> {
    pub(super) fn new(call: F) -> (Self, oneshot::Receiver<Answer<R, E>>) {
        let (answer, answered) = oneshot::channel();
        (Self { call, slot: Arc::default(), answer }, answered)
    }

    /// A mutation that has nothing to run, with its result.
    pub(super) fn done(call: F, result: R) -> (Self, oneshot::Receiver<Answer<R, E>>) {
        let (asked, answered) = Self::new(call);
        *asked.slot.lock() = Some(Ok(result));
        (asked, answered)
    }

    fn tell(self, end: End) {
        let answer = match (self.slot.lock().take(), end) {
            (Some(Err(Fault::Panicked(panic))), _) => Err(panic),
            (Some(Err(Fault::Refused(error))), _) => Ok(Err(MutateError::Refused(error))),
            (Some(Ok(result)), End::Did(outcome)) => Ok(Ok(Mutated { result, outcome })),
            (_, End::Failed(error)) => Ok(Err(error.into())),
            // Nobody wanted it any more, so nobody listens.
            (_, End::ItsOwn) | (None, End::Did(_)) => return,
        };
        // A caller that went away hears nothing.
        drop(self.answer.send(answer));
    }
}

/// A mutator that is done at once.
pub(super) struct AtOnce<F, R, E>(pub(super) Asked<F, R, E>);

impl<T, F, R, E> Mutator<T> for AtOnce<F, R, E>
where
    F: FnMut(&mut T) -> Result<R, E> + Send,
    R: Send + 'static,
    E: Send + 'static,
{
    fn run(&mut self, mut draft: T, within: &Within) -> Running<T> {
        let call = &mut self.0.call;
        let ran = within.run(|| catch_unwind(AssertUnwindSafe(|| call(&mut draft))));
        let result = match ran {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(Fault::Refused(error)),
            Err(panic) => Err(Fault::Panicked(panic)),
        };
        let fine = result.is_ok();
        *self.0.slot.lock() = Some(result);
        Running::Now(fine.then_some(draft))
    }

    fn end(self: Box<Self>, end: End) {
        self.0.tell(end);
    }
}

/// A mutator that takes a while.
pub(super) struct InTime<F, R, E>(pub(super) Asked<F, R, E>);

impl<T, F, Fut, R, E> Mutator<T> for InTime<F, R, E>
where
    T: Send + 'static,
    F: FnMut(T) -> Fut + Send,
    Fut: Future<Output = Result<(T, R), E>> + Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    fn run(&mut self, draft: T, within: &Within) -> Running<T> {
        *self.0.slot.lock() = None;
        let call = &mut self.0.call;
        let future = match within.run(|| catch_unwind(AssertUnwindSafe(|| call(draft)))) {
            Ok(future) => future,
            Err(panic) => {
                *self.0.slot.lock() = Some(Err(Fault::Panicked(panic)));
                return Running::Now(None);
            }
        };
        let slot = Arc::clone(&self.0.slot);
        let polled = Caught(Polled { future: Box::pin(future), within: within.clone() });
        Running::Later(Box::pin(async move {
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
        self.0.tell(end);
    }
}

/// A future whose panic becomes its output.
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
