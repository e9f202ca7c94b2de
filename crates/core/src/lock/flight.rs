//! One call for many callers: whoever asks the same while an answer is on its way shares it.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;

use super::error::{LockError, Place};
use super::functor::Term;
use super::task::Task;
use super::{Ask, Locks};

/// Why a caller got no answer.
#[derive(Debug, Error)]
pub enum FlightError<E> {
    /// The call failed. Everybody who shared it gets the same error.
    #[error("{0}")]
    Failed(Arc<E>),
    /// The lock in front of the call was not granted.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl<E> Clone for FlightError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(error.clone()),
            Self::Lock(error) => Self::Lock(error.clone()),
        }
    }
}

/// Calls that are shared: of all callers that ask the same of the same term, one runs, and all get its result.
///
/// `Q` is the question. Callers with an equal question share a call, whether it runs or still waits for its turn; callers
/// with another question about the same term wait for their own turn, in the order of arrival. A caller that goes away or
/// panics while its call runs for others lets one of them run its own.
///
/// ```
/// use tidelock_core::lock::{Functor, Locks, SingleFlight};
///
/// static REPOSITORY: Functor = Functor::new("repository");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fetches: SingleFlight<&str, u32, std::io::Error> = SingleFlight::new(Locks::new());
/// let main = REPOSITORY.term(["main"])?;
/// let fetch = || async { Ok::<_, std::io::Error>(42) };
/// assert_eq!(fetches.run(&main, "shallow", fetch).await?, 42);
/// # Ok(())
/// # }
/// ```
pub struct SingleFlight<Q, T, E> {
    locks: Locks,
    flights: Arc<Mutex<Flights<Q, T, E>>>,
}

type Flights<Q, T, E> = foldhash::HashMap<Term, Vec<Flight<Q, T, E>>>;
type Landed<T, E> = Result<T, Arc<E>>;

struct Flight<Q, T, E> {
    question: Q,
    leader: Option<Task>,
    place: Place,
    landed: watch::Receiver<Option<Landed<T, E>>>,
}

/// What a caller is.
enum Role<T, E> {
    Leader(watch::Sender<Option<Landed<T, E>>>),
    Follower(watch::Receiver<Option<Landed<T, E>>>),
}

impl<Q: PartialEq + Clone, T: Clone, E> SingleFlight<Q, T, E> {
    /// Shared calls, one after another for each term of these locks.
    #[must_use]
    pub fn new(locks: Locks) -> Self {
        Self { locks, flights: Arc::default() }
    }

    /// The result of `call`, or that of an equal one that is on its way.
    ///
    /// # Errors
    /// [`FlightError::Failed`] with the error of the call, for everybody who shares it; [`FlightError::Lock`] when the
    /// caller's task runs such a call itself ([`LockError::Reentrant`]) or would wait in a circle.
    ///
    /// # Cancel safety
    /// A caller that shares a call can go away at any time. If the one that runs it goes away, another one runs its own.
    #[track_caller]
    pub fn run<'a, F, Fut>(
        &'a self,
        term: &'a Term,
        question: Q,
        call: F,
    ) -> impl Future<Output = Result<T, FlightError<E>>> + use<'a, Q, T, E, F, Fut>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let place = Location::caller();
        async move {
            loop {
                match self.enter(term, &question, place)? {
                    Role::Leader(sender) => return self.lead(term, &question, sender, call).await,
                    Role::Follower(mut landed) => {
                        if let Ok(result) = landed.wait_for(Option::is_some).await
                            && let Some(result) = result.clone()
                        {
                            return result.map_err(FlightError::Failed);
                        }
                    }
                }
            }
        }
    }

    /// Joins a call that is on its way, or begins one.
    fn enter(&self, term: &Term, question: &Q, place: Place) -> Result<Role<T, E>, LockError> {
        let task = Task::current();
        let mut flights = self.flights.lock();
        let on_their_way = flights.entry(term.clone()).or_default();
        if let Some(flight) = on_their_way.iter().find(|flight| flight.question == *question) {
            return match task.filter(|task| flight.leader == Some(*task)) {
                None => Ok(Role::Follower(flight.landed.clone())),
                Some(task) => {
                    Err(LockError::Reentrant { term: term.clone(), task, asked: place, held: flight.place })
                }
            };
        }
        let (sender, landed) = watch::channel(None);
        on_their_way.push(Flight { question: question.clone(), leader: task, place, landed });
        Ok(Role::Leader(sender))
    }

    /// Runs the call and tells everybody.
    async fn lead<F, Fut>(
        &self,
        term: &Term,
        question: &Q,
        sender: watch::Sender<Option<Landed<T, E>>>,
        call: F,
    ) -> Result<T, FlightError<E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        // Ended before the sender, so that those who hear of its end find no call to join.
        let over = Over { flights: &self.flights, term, question };
        let guard = self.locks.lock(Ask::from(term)).await?;
        let result = call().await.map_err(Arc::new);
        drop(over);
        drop(guard);
        sender.send_replace(Some(result.clone()));
        result.map_err(FlightError::Failed)
    }
}

impl<Q, T, E> fmt::Debug for SingleFlight<Q, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").field("terms", &self.flights.lock().len()).finish_non_exhaustive()
    }
}

/// Takes a call off the list, however it ended.
struct Over<'a, Q: PartialEq, T, E> {
    flights: &'a Mutex<Flights<Q, T, E>>,
    term: &'a Term,
    question: &'a Q,
}

impl<Q: PartialEq, T, E> Drop for Over<'_, Q, T, E> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        if let Some(on_their_way) = flights.get_mut(self.term) {
            on_their_way.retain(|flight| flight.question != *self.question);
            if on_their_way.is_empty() {
                flights.remove(self.term);
            }
        }
    }
}
