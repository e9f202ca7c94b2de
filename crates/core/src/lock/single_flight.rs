//! Single-flight calls: concurrent callers with the same question share one call and its result.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;

use super::class::LockKey;
use super::error::{CallSite, CycleLink, LockError};
use super::task::TaskId;
use super::wait_graph::Wanted;
use super::{LockRequest, Locks};

/// The error of a caller that got no result.
#[derive(Debug, Error)]
pub enum FlightError<E> {
    /// The call failed. Every caller that shared it gets the same error.
    #[error("{0}")]
    Failed(Arc<E>),
    /// The lock that serialises the calls was not granted.
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

/// Shared calls. Of all concurrent callers with the same question about the same term, one runs its call, and all get
/// the result.
///
/// `Q` is the question. Callers with an equal question share a call, whether it runs or still waits for its turn.
/// Callers with another question about the same term wait for their own turn, in the order of arrival. If the caller
/// that runs a call is dropped or panics, one of the callers that share it runs its own call.
///
/// ```
/// use tidelock_core::lock::{LockClass, Locks, SingleFlight};
///
/// static REPOSITORY: LockClass = LockClass::new("repository");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fetches: SingleFlight<&str, u32, std::io::Error> = SingleFlight::new(Locks::new());
/// let main = REPOSITORY.key(["main"])?;
/// let fetch = || async { Ok::<_, std::io::Error>(42) };
/// assert_eq!(fetches.run(&main, "shallow", fetch).await?, 42);
/// # Ok(())
/// # }
/// ```
pub struct SingleFlight<Q, T, E> {
    locks: Locks,
    flights: Mutex<Flights<Q, T, E>>,
}

type Landed<T, E> = Result<T, Arc<E>>;
type Sender<T, E> = watch::Sender<Option<Landed<T, E>>>;
type Receiver<T, E> = watch::Receiver<Option<Landed<T, E>>>;

/// The calls that run or wait for their turn, by term.
struct Flights<Q, T, E> {
    by_term: foldhash::HashMap<LockKey, Vec<Flight<Q, T, E>>>,
    last: u64,
}

struct Flight<Q, T, E> {
    number: u64,
    question: Q,
    leader: Option<TaskId>,
    place: CallSite,
    landed: Receiver<T, E>,
}

/// The role of a caller.
enum Role<T, E> {
    Leader(u64, Sender<T, E>),
    Follower { landed: Receiver<T, E>, leader: Option<TaskId>, place: CallSite },
}

impl<Q: PartialEq + Clone, T: Clone, E> SingleFlight<Q, T, E> {
    /// Creates a group of shared calls that run one after another for each term of these locks.
    #[must_use]
    pub fn new(locks: Locks) -> Self {
        Self { locks, flights: Mutex::new(Flights { by_term: foldhash::HashMap::default(), last: 0 }) }
    }

    /// Returns the result of `call`, or that of an equal call in flight.
    ///
    /// # Errors
    /// [`FlightError::Failed`] with the error of the call, for every caller that shares it. [`FlightError::Lock`] when
    /// the caller's task runs such a call itself ([`LockError::Reentrant`]) or would wait in a cycle.
    ///
    /// # Cancel safety
    /// A caller that shares a call can be dropped at any time. If the caller that runs it is dropped, another caller
    /// runs its own call and queues for the lock again.
    #[track_caller]
    pub fn run<'a, F, Fut>(
        &'a self,
        term: &'a LockKey,
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
                    Role::Leader(number, sender) => {
                        return self.lead(term, number, sender, call).await;
                    }
                    Role::Follower { landed, leader, place: held } => {
                        let _edge = self.follow(term, leader, place, held)?;
                        if let Some(result) = landing(landed).await {
                            return result.map_err(FlightError::Failed);
                        }
                    }
                }
            }
        }
    }

    /// Joins an equal call in flight, or starts one.
    fn enter(&self, term: &LockKey, question: &Q, place: CallSite) -> Result<Role<T, E>, LockError> {
        let (task, mine) = (TaskId::current(), question.clone());
        let mut flights = self.flights.lock();
        let on_their_way = flights.by_term.get(term).map_or(&[][..], Vec::as_slice);
        if let Some(flight) = on_their_way.iter().find(|flight| flight.question == *question) {
            let Flight { leader, place: held, landed, .. } = flight;
            return match task.filter(|task| *leader == Some(*task)) {
                None => Ok(Role::Follower { landed: landed.clone(), leader: *leader, place: held }),
                Some(task) => Err(LockError::Reentrant { term: term.clone(), task, asked: place, held }),
            };
        }
        flights.last += 1;
        let number = flights.last;
        let (sender, landed) = watch::channel(None);
        let flight = Flight { number, question: mine, leader: task, place, landed };
        flights.by_term.entry(term.clone()).or_default().push(flight);
        Ok(Role::Leader(number, sender))
    }

    /// Records that this task waits for the leader of the call, for as long as the returned value lives.
    fn follow<'a>(
        &'a self,
        term: &LockKey,
        leader: Option<TaskId>,
        asked: CallSite,
        held: CallSite,
    ) -> Result<Option<Following<'a>>, LockError> {
        let (Some(task), Some(holder)) = (TaskId::current(), leader) else { return Ok(None) };
        let wanted = Wanted::Call(Arc::new(CycleLink { task, term: term.clone(), asked, holder, held }));
        self.locks.table.note_call(task, wanted.clone())?;
        Ok(Some(Following { locks: &self.locks, task, wanted }))
    }

    /// Runs the call and sends its result to the callers that share it.
    async fn lead<F, Fut>(
        &self,
        term: &LockKey,
        number: u64,
        sender: Sender<T, E>,
        call: F,
    ) -> Result<T, FlightError<E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        // Dropped before the sender, so that followers notified of the end find no call to join.
        let over = Over { flights: &self.flights, term, number };
        let guard = self.locks.lock(LockRequest::from(term)).await?;
        let result = call().await.map_err(Arc::new);
        drop(over);
        drop(guard);
        sender.send_replace(Some(result.clone()));
        result.map_err(FlightError::Failed)
    }
}

/// Waits for the result of a call. Returns `None` when the call ended without a result.
async fn landing<T: Clone, E>(mut landed: Receiver<T, E>) -> Option<Landed<T, E>> {
    landed.wait_for(Option::is_some).await.ok().and_then(|result| result.clone())
}

impl<Q, T, E> fmt::Debug for SingleFlight<Q, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = self.flights.lock().by_term.len();
        f.debug_struct("SingleFlight").field("terms", &terms).finish_non_exhaustive()
    }
}

/// A recorded wait for a call that another task runs.
struct Following<'a> {
    locks: &'a Locks,
    task: TaskId,
    wanted: Wanted,
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.locks.table.forget_wait(self.task, &self.wanted);
    }
}

/// Removes a call from the list, however it ended.
struct Over<'a, Q, T, E> {
    flights: &'a Mutex<Flights<Q, T, E>>,
    term: &'a LockKey,
    number: u64,
}

impl<Q, T, E> Drop for Over<'_, Q, T, E> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        let mut gone = None;
        if let Some(on_their_way) = flights.by_term.get_mut(self.term) {
            let at = on_their_way.iter().position(|flight| flight.number == self.number);
            gone = at.map(|at| on_their_way.swap_remove(at));
            if on_their_way.is_empty() {
                flights.by_term.remove(self.term);
            }
        }
        drop(flights);
        // Dropping a question runs foreign code, so the list is unlocked first.
        drop(gone);
    }
}
