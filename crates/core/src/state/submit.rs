//! The caller's side of a mutation: submits it, waits within the limit, and returns the result.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Mutated;
use super::codec::Value;
use super::combiner::{CallSite, Combiner, Pending, Work};
use super::error::{MutateError, Stage, StateError};
use super::memory::Memory;
use super::mutation::Mutation;
use super::mutator::{AtOnce, InTime, MutateResult, Mutator, TypedMutator};
use super::reentry::Within;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::StoreError;

/// A value that runs one mutation after another.
pub(super) struct Turns<T: Value> {
    pub(super) backing: Backing<T>,
    pub(super) limit: Option<Duration>,
}

pub(super) enum Backing<T: Value> {
    Memory(Arc<Memory<T>>),
    Store(Arc<Combiner<T>>),
    /// A value whose key is invalid. Every operation returns this error.
    Invalid(StoreError),
}

impl<T: Value> Clone for Turns<T> {
    fn clone(&self) -> Self {
        let backing = match &self.backing {
            Backing::Memory(memory) => Backing::Memory(Arc::clone(memory)),
            Backing::Store(cell) => Backing::Store(Arc::clone(cell)),
            Backing::Invalid(error) => Backing::Invalid(error.clone()),
        };
        Self { backing, limit: self.limit }
    }
}

impl<T: Value> Turns<T> {
    pub(super) fn stored(cell: Arc<Combiner<T>>) -> Self {
        let limit = cell.options.limit;
        Self { backing: Backing::Store(cell), limit }
    }

    pub(super) fn name(&self) -> String {
        match &self.backing {
            Backing::Memory(memory) => memory.name().to_owned(),
            Backing::Store(cell) => cell.name(),
            Backing::Invalid(_) => "(invalid key)".to_owned(),
        }
    }

    fn number(&self) -> u64 {
        match &self.backing {
            Backing::Memory(memory) => memory.number(),
            Backing::Store(cell) => cell.number,
            Backing::Invalid(_) => 0,
        }
    }

    pub(super) async fn at_once<R, E, F>(
        &self,
        place: CallSite,
        mutator: F,
    ) -> Result<Mutated<R>, MutateError<E>>
    where
        F: FnMut(&mut T) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let (asked, answered) = TypedMutator::new(mutator);
        self.submit(place, Work::Mutate(Box::new(AtOnce(asked))), answered).await
    }

    pub(super) async fn in_time<R, E, F, Fut>(
        &self,
        place: CallSite,
        mutator: F,
    ) -> Result<Mutated<R>, MutateError<E>>
    where
        F: FnMut(T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(T, R), E>> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let (asked, answered) = TypedMutator::new(mutator);
        self.submit(place, Work::Mutate(Box::new(InTime(asked))), answered).await
    }

    pub(super) async fn submit<R, E>(
        &self,
        place: CallSite,
        work: Work<T>,
        answered: oneshot::Receiver<MutateResult<R, E>>,
    ) -> Result<Mutated<R>, MutateError<E>> {
        let Some(within) = Within::enter(self.number()) else {
            return Err(StateError::Reentrant { key: self.name() }.into());
        };
        let caller = Caller { mutation: Arc::default(), answered: false };
        let mutation = Arc::clone(&caller.mutation);
        match (&self.backing, work) {
            (Backing::Memory(memory), Work::Mutate(mutator) | Work::Deltas(_, mutator)) => {
                let answer = turn(memory, mutator, (mutation, within), answered);
                self.answer(caller, answer).await
            }
            (Backing::Store(cell), work) => {
                cell.push(Pending { work, mutation, within, since: process::now(), place })?;
                self.answer(caller, answered).await
            }
            (Backing::Invalid(error), _) => Err(StateError::Read(error.clone()).into()),
        }
    }

    /// Waits for the result until the timeout.
    async fn answer<R, E>(
        &self,
        mut caller: Caller,
        answered: impl Future<Output = Result<MutateResult<R, E>, oneshot::error::RecvError>>,
    ) -> Result<Mutated<R>, MutateError<E>> {
        // A timeout that overflows the clock is none. The timer belongs to the library, so no runtime is needed.
        let until = self.limit.and_then(|limit| Some((limit, process::now().checked_add(limit)?)));
        let answer = match until {
            None => Ok(answered.await),
            Some((limit, at)) => tokio::select! {
                biased;
                answer = answered => Ok(answer),
                () = sleep_until(at) => Err(limit),
            },
        };
        match answer {
            Ok(Ok(Ok(answer))) => {
                caller.answered = true;
                answer
            }
            Ok(Ok(Err(panic))) => std::panic::resume_unwind(panic),
            Ok(Err(_)) => Err(self.abandoned(&caller.mutation).into()),
            Err(limit) => Err(self.timed_out(&caller.mutation, limit).into()),
        }
    }

    /// Returns the error for a driver that ended without a result: the store, or user code outside of any isolation,
    /// panicked.
    fn abandoned(&self, mutation: &Mutation) -> StateError {
        let reason = "the store or the value panicked".to_owned();
        StateError::Panicked { key: self.name(), reason, stage: mutation.give_up().stage }
    }

    fn timed_out(&self, mutation: &Mutation, limit: Duration) -> StateError {
        let given_up = mutation.give_up();
        let key = self.name();
        match given_up.stage {
            Stage::NotApplied if given_up.conflicts > 0 => StateError::ConcurrentModification {
                key,
                attempts: given_up.conflicts,
                current: given_up.current,
            },
            stage => StateError::TimedOut { key, limit, stage },
        }
    }
}

async fn turn<T: Value, A>(
    memory: &Memory<T>,
    mutator: Box<dyn Mutator<T>>,
    (mutation, within): (Arc<Mutation>, Within),
    answered: oneshot::Receiver<A>,
) -> Result<A, oneshot::error::RecvError> {
    memory.run(mutator, mutation, within).await;
    answered.await
}

/// A caller. If it goes away before the result, a mutation that has not started does not start.
struct Caller {
    mutation: Arc<Mutation>,
    answered: bool,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.answered {
            self.mutation.give_up();
        }
    }
}
