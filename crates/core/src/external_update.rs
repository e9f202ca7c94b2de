//! External updates by optimistic concurrency, for data such as a git remote or a web service that rejects a stale
//! version. An update fetches the data, changes the copy and pushes it. When the push is rejected, it starts over with
//! a fresh copy.
//!
//! Tasks of this process queue for a lock, so they do not reject each other. Conflicts with other processes appear as
//! rejected pushes. The change is applied again to every fresh copy, so no write of another process is lost.
//!
//! # Crash safety
//! The external system decides. A process that dies between the push and its reply does not know whether the push was
//! accepted. Only the external system knows, as with every write to another system.

use std::fmt;
use std::future::Future;
use std::panic::Location;

use thiserror::Error;

use crate::error::{Explain, Explanation, Outcome, Retry};
use crate::lock::{CallSite, LockError, LockKey, LockRequest, Locks};
use crate::model::retry::{AfterFailure, RetryPolicy};
use crate::process;
use crate::runtime::jitter::fraction;

/// The reply of an authority to a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// The pushed copy is now the current version.
    Accepted,
    /// The pushed copy is based on an old version, because another writer was faster.
    Rejected(String),
}

/// The error of an update.
#[derive(Debug, Error)]
pub enum UpdateError<E> {
    /// The lock that serialises the updates of this process was not granted.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Fetching, changing or pushing failed. The update does not retry it.
    #[error("{0}")]
    Failed(E),
    /// Every push was rejected.
    #[error(
        "{term}: {attempts} pushes from {asked} were rejected, the last one with {reason:?}; others change it all the \
         time: allow more attempts, or change it less often"
    )]
    Rejected {
        /// The term of the update.
        term: LockKey,
        /// Where the update was requested.
        asked: CallSite,
        /// Number of pushes.
        attempts: u32,
        /// The reason of the last rejection.
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

/// Options of an update.
#[derive(Clone, Debug)]
pub struct UpdateOptions {
    /// The locks at which the tasks of this process queue.
    pub locks: Locks,
    /// The number of attempts and the delays between them. The default is five attempts, with delays of up to 0.2, 0.4,
    /// 0.8 and 1.6 seconds.
    pub retry: RetryPolicy,
}

impl Default for UpdateOptions {
    /// Returns the locks of the whole process, and five attempts.
    fn default() -> Self {
        Self { locks: crate::lock::global().clone(), retry: RetryPolicy::default() }
    }
}

/// Updates external data: `fetch` gets a fresh copy, `transform` changes it and returns a result, `push` submits it. A
/// rejected push starts over with `fetch` after a random delay. Any other failure ends the update.
///
/// Returns the result of the accepted attempt.
///
/// # Errors
/// [`UpdateError::Rejected`] when the attempts are used up. [`UpdateError::Failed`] with the first error of the three
/// functions. [`UpdateError::Lock`] when this task is already updating the term.
///
/// # Cancel safety
/// If it is dropped before `push` is called, nothing was changed. If it is dropped later, the authority may have
/// accepted the change.
#[track_caller]
pub fn update<'a, T, R, E, Fetch, Transform, PushIt>(
    options: &'a UpdateOptions,
    term: &'a LockKey,
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
    let lock = options.locks.lock(LockRequest::from(term));
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
                AfterFailure::Again(wait) => crate::runtime::timer::sleep_until(process::now() + wait).await,
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
