//! Problem responses: errors as `application/problem+json` (RFC 9457), with the error code, the known outcome, and the value that was
//! found instead.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidelock_core::error::{Explain, InvalidInput, Outcome, Retry};
use tidelock_core::events::EventsError;
use tidelock_core::lease::LeaseError;
use tidelock_core::reactions::ReactionsError;
use tidelock_core::schedule::ScheduleError;
use tidelock_core::state::StateError;
use tidelock_core::store::{
    ApplyError, DocumentFound, Holder, Refusal, StoreError, StoreErrorKind, StreamFound,
};
use tidelock_core::workflow::WorkflowError;

use crate::error::ServerError;
use crate::request_id;
use crate::sanitize::escaped;

/// The media type of problem responses.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    outcome: Outcome,
    found: Option<Box<Value>>,
    retry_after: Option<u64>,
}

/// The body of a problem response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Sent<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    #[schemars(regex(pattern = "^TL[0-9]{4}$"))]
    code: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    /// Whether the change was applied.
    #[schemars(extend("enum" = ["applied", "not_applied", "unknown"]))]
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// The version, the holder or the number that was found instead.
    found: Option<&'a Value>,
}

impl Problem {
    /// Creates a problem that the caller has caused. The response contains the message.
    fn caller_problem(status: StatusCode, error: &impl Explain) -> Self {
        let retry_after = match error.retry() {
            Retry::After(wait) => Some(seconds(wait)),
            Retry::Never | Retry::Now => None,
        };
        let (code, detail) = (error.code().as_str(), error.to_string());
        Self { status, code, detail, outcome: error.outcome(), found: None, retry_after }
    }

    /// Creates a problem of the service. The response contains only the error code; the message is logged.
    fn logged(status: StatusCode, error: &impl Explain) -> Self {
        let (shown, request) = (escaped(&error.to_string()), request_id::shown());
        tracing::error!(target: "tidelock::server", code = %error.code(), %request, error = %shown, "a request failed");
        Self { detail: String::new(), ..Self::caller_problem(status, error) }
    }

    /// Returns the problem with another status.
    pub(crate) fn under(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    fn found(mut self, found: Value) -> Self {
        self.found = Some(Box::new(found));
        self
    }
}

/// Rounds a wait up to whole seconds, at least one.
fn seconds(wait: std::time::Duration) -> u64 {
    let more = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(more).max(1)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, code, detail, outcome, found, retry_after } = &self;
        let sent = Sent {
            r#type: format!("urn:tidelock:error:{code}"),
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            code,
            detail,
            outcome: match outcome {
                Outcome::Applied => "applied",
                Outcome::NotApplied => "not_applied",
                Outcome::Unknown(_) => "unknown",
            },
            found: found.as_deref(),
        };
        // Strings, numbers and JSON values always serialise.
        let body = serde_json::to_vec(&sent).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = *status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(*seconds));
        }
        if *status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<ServerError> for Problem {
    fn from(error: ServerError) -> Self {
        let status = match &error {
            ServerError::NoToken => StatusCode::UNAUTHORIZED,
            ServerError::NotAllowed { .. } | ServerError::CrossSite { .. } => StatusCode::FORBIDDEN,
            ServerError::OtherHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            ServerError::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ServerError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ServerError::NotFound { .. } => StatusCode::NOT_FOUND,
            ServerError::Unreadable { .. } | ServerError::LeaseTime { .. } => StatusCode::BAD_REQUEST,
            ServerError::NoCondition { .. } => StatusCode::PRECONDITION_REQUIRED,
            ServerError::OtherCount { found, .. } => {
                let found = json!(found);
                return Self::caller_problem(StatusCode::CONFLICT, &error).found(found);
            }
            ServerError::TooFast { .. } | ServerError::Guessing { .. } => StatusCode::TOO_MANY_REQUESTS,
            ServerError::TooMany { .. } | ServerError::Busy { .. } | ServerError::NotReady { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ServerError::TooLong { .. } => StatusCode::GATEWAY_TIMEOUT,
            ServerError::Panicked
            | ServerError::BadToken { .. }
            | ServerError::Beyond { .. }
            | ServerError::Tls { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::caller_problem(status, &error)
    }
}

impl From<InvalidInput> for Problem {
    fn from(error: InvalidInput) -> Self {
        let status = match error {
            InvalidInput::Reserved { .. } => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::caller_problem(status, &error)
    }
}

/// Returns the HTTP status of a store error.
fn status(kind: StoreErrorKind) -> StatusCode {
    match kind {
        StoreErrorKind::Busy
        | StoreErrorKind::TransactionConflict
        | StoreErrorKind::Full
        | StoreErrorKind::Closed
        | StoreErrorKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
        StoreErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Invalid => Self::caller_problem(StatusCode::BAD_REQUEST, &error),
            kind => Self::logged(status(kind), &error),
        }
    }
}

impl From<ApplyError> for Problem {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Refused(refusal) => Self::from(*refusal),
            ApplyError::Store { error: ref inner, .. } if inner.kind == StoreErrorKind::Invalid => {
                Self::caller_problem(StatusCode::BAD_REQUEST, &error)
            }
            ApplyError::Store { error: ref inner, .. } => Self::logged(status(inner.kind), &error),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let caller_problem = |status| Self::caller_problem(status, &refusal);
        match &refusal {
            Refusal::Stream { found, .. } => caller_problem(StatusCode::CONFLICT).found(match found {
                StreamFound::Absent => json!({"version": null}),
                StreamFound::At(version) => json!({"version": version}),
            }),
            Refusal::Document { found, .. } => {
                caller_problem(StatusCode::PRECONDITION_FAILED).found(match &**found {
                    DocumentFound::Present(document) => json!({"version": document.version}),
                    DocumentFound::Absent | DocumentFound::Gone(_) => json!({"version": null}),
                })
            }
            Refusal::Fenced { holder, .. } => caller_problem(StatusCode::CONFLICT).found(match &**holder {
                Holder::Held(lease) => json!({"holder": lease}),
                Holder::Nobody | Holder::Gone => json!({"holder": null}),
            }),
            Refusal::NotFound { .. } => caller_problem(StatusCode::NOT_FOUND),
            Refusal::Invalid(_) => caller_problem(StatusCode::BAD_REQUEST),
            _ => caller_problem(StatusCode::CONFLICT),
        }
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Store(inner) => inner.into(),
            LeaseError::Write(inner) => (*inner).into(),
            LeaseError::Held { ref owner, fence, since, until, .. } => {
                let holder = json!({"owner": owner, "fence": fence, "leased_at": since, "expires_at": until});
                Self::caller_problem(StatusCode::CONFLICT, &error).found(json!({"holder": holder}))
            }
            LeaseError::NoKeeper { .. } => Self::logged(StatusCode::INTERNAL_SERVER_ERROR, &error),
            _ => Self::caller_problem(StatusCode::CONFLICT, &error),
        }
    }
}

impl From<WorkflowError> for Problem {
    fn from(error: WorkflowError) -> Self {
        match error {
            WorkflowError::Store(inner) => inner.into(),
            WorkflowError::Write(inner) => (*inner).into(),
            WorkflowError::Lease(inner) => (*inner).into(),
            WorkflowError::Invalid(inner) => inner.into(),
            WorkflowError::UnknownRun { .. } | WorkflowError::UnknownWorkflow { .. } => {
                Self::caller_problem(StatusCode::NOT_FOUND, &error)
            }
            WorkflowError::UnknownSignal { .. } => {
                Self::caller_problem(StatusCode::UNPROCESSABLE_ENTITY, &error)
            }
            WorkflowError::Twice { .. } | WorkflowError::NoRuntime => {
                Self::logged(StatusCode::INTERNAL_SERVER_ERROR, &error)
            }
            _ => Self::caller_problem(StatusCode::CONFLICT, &error),
        }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Store(inner) => inner.into(),
            ScheduleError::Write(inner) => (*inner).into(),
            ScheduleError::Invalid(inner) => inner.into(),
            ScheduleError::UnknownTask { .. } => Self::caller_problem(StatusCode::NOT_FOUND, &error),
            ScheduleError::Archived { .. } | ScheduleError::TooMany { .. } => {
                Self::caller_problem(StatusCode::CONFLICT, &error)
            }
            _ => Self::logged(StatusCode::INTERNAL_SERVER_ERROR, &error),
        }
    }
}

impl From<ReactionsError> for Problem {
    fn from(error: ReactionsError) -> Self {
        match error {
            ReactionsError::Store(inner) => inner.into(),
            ReactionsError::Write(inner) => (*inner).into(),
            ReactionsError::Lease(inner) => (*inner).into(),
            ReactionsError::Unknown { .. } => Self::caller_problem(StatusCode::NOT_FOUND, &error),
            ReactionsError::Running { .. } => Self::caller_problem(StatusCode::CONFLICT, &error),
            ReactionsError::Invalid { .. } | ReactionsError::Name { .. } => {
                Self::caller_problem(StatusCode::UNPROCESSABLE_ENTITY, &error)
            }
            _ => Self::logged(StatusCode::INTERNAL_SERVER_ERROR, &error),
        }
    }
}

impl From<StateError> for Problem {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Read(inner) => inner.into(),
            StateError::Write(inner) => (*inner).into(),
            StateError::History { .. } => Self::caller_problem(StatusCode::CONFLICT, &error),
            _ => Self::logged(StatusCode::INTERNAL_SERVER_ERROR, &error),
        }
    }
}

impl From<EventsError> for Problem {
    fn from(error: EventsError) -> Self {
        match error {
            EventsError::Read(inner) => inner.into(),
            _ => Self::logged(StatusCode::INTERNAL_SERVER_ERROR, &error),
        }
    }
}
