//! Changing something that an authority outside of the store keeps, such as a git remote or a web service that refuses a
//! stale version: fetch it, change the copy, push it, and begin again with a fresh copy when the push is rejected.
//!
//! Tasks of this process stand in line in front of it, so they do not reject each other; other processes are met by the
//! rejected push. A change is made anew on every copy, so nothing that somebody else pushed is lost.
//!
//! # Crash safety
//! The authority decides. A process that dies between the push and its answer does not know whether it was accepted: that
//! is the authority's to tell, as it is with every write to another system.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::time::Instant;

use thiserror::Error;

use crate::error::{Explain, Explanation, Outcome, Retry};
use crate::lock::{Ask, LockError, Locks, Place, Term};
use crate::model::retry::{AfterFailure, RetryPolicy};
use crate::runtime::jitter::fraction;

/// What an authority says to a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// It is the truth from now on.
    Accepted,
    /// Somebody else was faster: what was pushed is based on an old copy.
    Rejected(String),
}

/// Why nothing was changed.
#[derive(Debug, Error)]
pub enum UpdateError<E> {
    /// The lock in front was not granted.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Fetching, changing or pushing failed. That is not tried again.
    #[error("{0}")]
    Failed(E),
    /// Every push was rejected.
    #[error(
        "{term}: {attempts} pushes from {asked} were rejected, the last one with {reason:?}; others change it all the \
         time: allow more attempts, or change it less often"
    )]
    Rejected {
        /// What was to be changed.
        term: Term,
        /// Where it was asked for.
        asked: Place,
        /// How often it was tried.
        attempts: u32,
        /// What the authority said last.
        reason: String,
    },
}

impl<E: std::error::Error> Explain for UpdateError<E> {
    fn explain(&self) -> Explanation {
        match self {
            Self::Lock(error) => error.into(),
            // A push may have failed after the authority accepted it.
            Self::Failed(_) => ("TL0522", Retry::Never, Outcome::Unknown(None)).into(),
            Self::Rejected { .. } => ("TL0521", Retry::after_secs(1)).into(),
        }
    }
}

/// How an update goes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The locks that the tasks of this process stand in line at.
    pub locks: Locks,
    /// How often a rejected push is tried again, and how long is waited before: five attempts, after up to 0.2, 0.4, 0.8
    /// and 1.6 seconds, unless told otherwise.
    pub retry: RetryPolicy,
}

impl Default for Options {
    /// The locks of the whole process, and five attempts.
    fn default() -> Self {
        Self { locks: crate::lock::global().clone(), retry: RetryPolicy::default() }
    }
}

/// Changes what an authority keeps: `fetch` gets a fresh copy, `transform` changes it and gives a result, `push` hands it
/// in. A rejected push begins again with `fetch`, after a random wait; any other failure ends it.
///
/// The result is that of the attempt that was accepted.
///
/// # Errors
/// [`UpdateError::Rejected`] when the attempts are used up; [`UpdateError::Failed`] with the first error of the three;
/// [`UpdateError::Lock`] when this task changes the term already.
///
/// # Cancel safety
/// Dropped before `push` is called, nothing was changed. Dropped later, the authority may have accepted the change.
#[track_caller]
pub fn update<'a, T, R, E, Fetch, Transform, PushIt>(
    options: &'a Options,
    term: &'a Term,
    fetch: Fetch,
    transform: Transform,
    push: PushIt,
) -> impl Future<Output = Result<R, UpdateError<E>>> + use<'a, T, R, E, Fetch, Transform, PushIt>
where
    Fetch: AsyncFn() -> Result<T, E>,
    Transform: AsyncFn(&mut T) -> Result<R, E>,
    PushIt: AsyncFn(T) -> Result<Push, E>,
{
    let asked = Location::caller();
    let lock = options.locks.lock(Ask::from(term));
    async move {
        let _guard = lock.await?;
        let mut attempts = 0;
        loop {
            let mut copy = fetch().await.map_err(UpdateError::Failed)?;
            let result = transform(&mut copy).await.map_err(UpdateError::Failed)?;
            attempts += 1;
            let reason = match push(copy).await.map_err(UpdateError::Failed)? {
                Push::Accepted => return Ok(result),
                Push::Rejected(reason) => reason,
            };
            match options.retry.after_failure(attempts, fraction()) {
                AfterFailure::Again(wait) => crate::runtime::timer::sleep_until(Instant::now() + wait).await,
                AfterFailure::Block => {
                    return Err(UpdateError::Rejected { term: term.clone(), asked, attempts, reason });
                }
            }
        }
    }
}

impl fmt::Display for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Rejected(reason) => write!(f, "rejected: {reason}"),
        }
    }
}
