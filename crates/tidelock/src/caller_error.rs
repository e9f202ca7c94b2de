//! The error of a caller: one type for every operation.

use std::error::Error as StdError;
use std::fmt;

use tidelock_core::archive::ArchiveError;
use tidelock_core::error::{Code, Explain, Explanation, InvalidInput, Outcome, Retry};
use tidelock_core::events::{EventsError, ExecuteError};
use tidelock_core::idempotency::IdempotencyError;
use tidelock_core::lease::LeaseError;
use tidelock_core::lock::{LockError, LockKeyError};
use tidelock_core::outbox::OutboxError;
use tidelock_core::projections::ProjectionsError;
use tidelock_core::reactions::ReactionsError;
use tidelock_core::schedule::ScheduleError;
use tidelock_core::state::{MutateError, StateError};
use tidelock_core::store::{ApplyError, Refusal, StoreError, StoreErrorKind};
use tidelock_core::workflow::WorkflowError;

/// The class of an error, for example to choose an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is invalid.
    Invalid,
    /// The command or mutator of the application returned an error.
    Refused,
    /// There is no such row, run or schedule.
    NotFound,
    /// Another writer or holder was first.
    Conflict,
    /// The store or the engine cannot do it now, and a retry may help.
    Unavailable,
    /// Any other failure.
    Failed,
}

/// An error of any operation. `?` converts the errors of all engines.
///
/// ```
/// use tidelock::error::Retry;
/// use tidelock::{ErrorKind, Tidelock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidelock::Error> {
/// let tide = Tidelock::open("memory:").await?;
/// let error: tidelock::Error = tide.state::<u64>("").get().await.unwrap_err().into();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.retry(), Retry::Never);
/// assert_eq!(error.code().unwrap().as_str(), "TL0101");
/// # Ok(())
/// # }
/// ```
pub struct Error {
    kind: ErrorKind,
    explanation: Option<Explanation>,
    source: Box<dyn StdError + Send + Sync>,
}

impl Error {
    fn of(kind: ErrorKind, error: impl Explain + Send + Sync + 'static) -> Self {
        Self { kind, explanation: Some(error.explain()), source: Box::new(error) }
    }

    fn refused(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { kind: ErrorKind::Refused, explanation: None, source: error.into() }
    }

    /// Returns the class of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the stable code; `tidelock explain CODE` prints its page. An error of the application has none.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.explanation.as_ref().map(|explanation| explanation.code)
    }

    /// Returns whether a retry can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.explanation.as_ref().map_or(Retry::Never, |explanation| explanation.retry)
    }

    /// Returns what is known about the effects.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.explanation.as_ref().map_or(Outcome::NotApplied, |explanation| explanation.outcome)
    }

    /// Returns the error of the operation or of the application, if it has this type.
    #[must_use]
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // `Display` shows the wrapped error itself, so the chain continues with its source.
        self.source.source()
    }
}

/// Returns the class of an error that has no class of its own.
fn by_retry(error: &impl Explain) -> ErrorKind {
    match error.retry() {
        Retry::Never => ErrorKind::Failed,
        Retry::Now | Retry::After(_) => ErrorKind::Unavailable,
    }
}

fn of_store(error: &StoreError) -> ErrorKind {
    match error.kind {
        StoreErrorKind::Invalid => ErrorKind::Invalid,
        // A server that stops gets no more requests; a proxy sends them elsewhere.
        StoreErrorKind::Closed => ErrorKind::Unavailable,
        _ => by_retry(error),
    }
}

fn of_write(error: &ApplyError) -> ErrorKind {
    match error {
        ApplyError::Refused(refusal) if matches!(**refusal, Refusal::Invalid(_)) => ErrorKind::Invalid,
        ApplyError::Refused(_) => ErrorKind::Conflict,
        ApplyError::Store { error, .. } => of_store(error),
    }
}

fn of_lease(error: &LeaseError) -> ErrorKind {
    match error {
        LeaseError::Held { .. }
        | LeaseError::Waited { .. }
        | LeaseError::TimedOut { .. }
        | LeaseError::Lost { .. } => ErrorKind::Conflict,
        LeaseError::Store(error) => of_store(error),
        LeaseError::Write(error) => of_write(error),
        other => by_retry(other),
    }
}

fn of_state(error: &StateError) -> ErrorKind {
    match error {
        StateError::NotFound { .. } => ErrorKind::NotFound,
        StateError::Invalid { .. } => ErrorKind::Refused,
        StateError::ConcurrentModification { .. } => ErrorKind::Conflict,
        StateError::Read(error) => of_store(error),
        StateError::Write(error) => of_write(error),
        other => by_retry(other),
    }
}

fn of_events(error: &EventsError) -> ErrorKind {
    match error {
        EventsError::Concurrency { .. } | EventsError::Closed { .. } => ErrorKind::Conflict,
        EventsError::Name(_) => ErrorKind::Invalid,
        EventsError::Read(error) => of_store(error),
        EventsError::Write(error) => of_write(error),
        other => by_retry(other),
    }
}

fn of_workflow(error: &WorkflowError) -> ErrorKind {
    match error {
        WorkflowError::UnknownRun { .. } | WorkflowError::UnknownWorkflow { .. } => ErrorKind::NotFound,
        WorkflowError::Taken { .. } | WorkflowError::Over { .. } => ErrorKind::Conflict,
        WorkflowError::Invalid(_) | WorkflowError::UnknownSignal { .. } => ErrorKind::Invalid,
        WorkflowError::Store(error) => of_store(error),
        WorkflowError::Write(error) => of_write(error),
        WorkflowError::Lease(error) => of_lease(error),
        other => by_retry(other),
    }
}

fn of_schedule(error: &ScheduleError) -> ErrorKind {
    match error {
        ScheduleError::UnknownTask { .. } => ErrorKind::NotFound,
        ScheduleError::Invalid(_) => ErrorKind::Invalid,
        ScheduleError::Store(error) => of_store(error),
        ScheduleError::Write(error) => of_write(error),
        other => by_retry(other),
    }
}

fn of_reactions(error: &ReactionsError) -> ErrorKind {
    match error {
        ReactionsError::Unknown { .. } => ErrorKind::NotFound,
        ReactionsError::Running { .. } => ErrorKind::Conflict,
        ReactionsError::Name { .. } | ReactionsError::Invalid { .. } => ErrorKind::Invalid,
        ReactionsError::Store(error) => of_store(error),
        ReactionsError::Write(error) => of_write(error),
        ReactionsError::Lease(error) => of_lease(error),
        other => by_retry(other),
    }
}

fn of_projections(error: &ProjectionsError) -> ErrorKind {
    match error {
        ProjectionsError::Unknown { .. } => ErrorKind::NotFound,
        ProjectionsError::Behind { .. } => ErrorKind::Conflict,
        ProjectionsError::Invalid(_) => ErrorKind::Invalid,
        ProjectionsError::Reactions(error) => of_reactions(error),
        ProjectionsError::Read(error) => of_store(error),
        ProjectionsError::Write(error) => of_write(error),
    }
}

fn of_outbox(error: &OutboxError) -> ErrorKind {
    match error {
        OutboxError::Unknown { .. } => ErrorKind::NotFound,
        OutboxError::UnderWay { .. } => ErrorKind::Conflict,
        OutboxError::Invalid(_) => ErrorKind::Invalid,
        OutboxError::Store(error) => of_store(error),
        OutboxError::Write(error) => of_write(error),
        OutboxError::NoRuntime => by_retry(error),
    }
}

fn of_idempotency(error: &IdempotencyError) -> ErrorKind {
    match error {
        IdempotencyError::BadKey { .. } | IdempotencyError::Invalid(_) => ErrorKind::Invalid,
        IdempotencyError::InFlight { .. } | IdempotencyError::Lost { .. } => ErrorKind::Conflict,
        IdempotencyError::Unknown { .. } => ErrorKind::NotFound,
        IdempotencyError::Store(error) => of_store(error),
        IdempotencyError::Write(error) => of_write(error),
        IdempotencyError::Lease(error) => of_lease(error),
        other => by_retry(other),
    }
}

fn of_archive(error: &ArchiveError) -> ErrorKind {
    match error {
        ArchiveError::Pending { .. } | ArchiveError::UnderWay { .. } | ArchiveError::Removal { .. } => {
            ErrorKind::Conflict
        }
        ArchiveError::Events(error) => of_events(error),
        ArchiveError::Reactions(error) => of_reactions(error),
        ArchiveError::Lease(error) => of_lease(error),
        other => by_retry(other),
    }
}

fn of_lock(error: &LockError) -> ErrorKind {
    match error {
        LockError::Busy { .. } | LockError::TimedOut { .. } => ErrorKind::Conflict,
        other => by_retry(other),
    }
}

macro_rules! from {
    ($($error:ty => $kind:expr;)*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                let kind: fn(&$error) -> ErrorKind = $kind;
                Self::of(kind(&error), error)
            }
        }
    )*};
}

from! {
    InvalidInput => |_| ErrorKind::Invalid;
    LockKeyError => |_| ErrorKind::Invalid;
    StoreError => of_store;
    ApplyError => of_write;
    LeaseError => of_lease;
    LockError => of_lock;
    StateError => of_state;
    EventsError => of_events;
    WorkflowError => of_workflow;
    ScheduleError => of_schedule;
    ReactionsError => of_reactions;
    ProjectionsError => of_projections;
    OutboxError => of_outbox;
    IdempotencyError => of_idempotency;
    ArchiveError => of_archive;
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<MutateError<E>> for Error {
    fn from(error: MutateError<E>) -> Self {
        match error {
            MutateError::Refused(error) => Self::refused(error),
            MutateError::State(error) => error.into(),
        }
    }
}

impl<A, E: Into<Box<dyn StdError + Send + Sync>>> From<ExecuteError<A, E>> for Error {
    fn from(error: ExecuteError<A, E>) -> Self {
        match error {
            ExecuteError::Refused { error, .. } => Self::refused(error),
            ExecuteError::Events(error) => error.into(),
        }
    }
}

#[cfg(feature = "axum")]
mod response {
    use axum_core::response::{IntoResponse, Response};
    use http::StatusCode;
    use tidelock_http::Problem;

    use super::{Error, ErrorKind};

    impl IntoResponse for Error {
        /// Returns `application/problem+json`. Failures of the service are logged, and the response has only their code.
        fn into_response(self) -> Response {
            let status = match self.kind {
                ErrorKind::Invalid => StatusCode::BAD_REQUEST,
                ErrorKind::Refused => StatusCode::UNPROCESSABLE_ENTITY,
                ErrorKind::NotFound => StatusCode::NOT_FOUND,
                ErrorKind::Conflict => StatusCode::CONFLICT,
                ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                ErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let mut problem = Problem::new(status);
            if status.is_server_error() {
                let code = self.code().map(tracing::field::display);
                tracing::error!(target: "tidelock", code, error = %self, "request failed");
            } else {
                problem = problem.detail(self.to_string());
            }
            if let Some(code) = self.code() {
                problem = problem.with_code(code);
            }
            problem.retry(self.retry()).into_response()
        }
    }
}
