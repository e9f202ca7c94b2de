//! Problem responses: `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use tidelock_core::error::{Code, Explain, InvalidInput, Retry};
use tidelock_core::idempotency::{IdempotencyError, StoredResponse};
use tidelock_core::store::{ApplyError, StoreError};

use crate::error::RequestError;

/// A rejection with a status and a stable code. Internal errors of the service are logged, and not sent to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: Option<Code>,
    detail: String,
    retry_after: Option<u64>,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
}

impl Problem {
    /// Creates a problem with a status.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self { status, code: None, detail: String::new(), retry_after: None }
    }

    /// Sets the text that the caller sees.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the stable code.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = Some(code);
        self
    }

    /// Sets the header `Retry-After`, unless a retry does not help.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry_after = seconds(retry);
        self
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the code; `tidelock explain CODE` prints its page. A problem of the application has none.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// Returns the response.
    #[must_use]
    pub fn response<B: From<Bytes>>(&self) -> Response<B> {
        let body = Body {
            r#type: self
                .code
                .map_or_else(|| "about:blank".to_owned(), |code| format!("urn:tidelock:error:{code}")),
            title: self.status.canonical_reason().unwrap_or("Problem"),
            status: self.status.as_u16(),
            code: self.code.as_ref().map(|code| code.as_str()),
            detail: &self.detail,
        };
        // Texts and numbers always serialize to JSON.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(B::from(Bytes::from(body)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Creates a problem of the caller, with its details.
    fn caller(status: StatusCode, error: &impl Explain) -> Self {
        Self::new(status).with_code(error.code()).detail(error.to_string()).retry(error.retry())
    }

    /// Creates a problem of the service: the caller gets the code, and the log gets the details.
    fn logged(status: StatusCode, error: &impl Explain) -> Self {
        tracing::error!(target: "tidelock::idempotency", code = %error.code(), %error, "a request failed");
        Self::new(status).with_code(error.code()).retry(error.retry())
    }

    fn failed(error: &impl Explain) -> Self {
        let again = error.retry() != Retry::Never;
        let status = if again { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self::logged(status, error)
    }
}

fn seconds(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Never => None,
        Retry::Now => Some(0),
        Retry::After(wait) => Some(wait.as_secs().max(1)),
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        let status = match error {
            RequestError::OtherPayload { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            RequestError::MissingKey { .. } | RequestError::BrokenOff { .. } => StatusCode::BAD_REQUEST,
            RequestError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            RequestError::NotKept { .. } => StatusCode::CONFLICT,
            RequestError::BadSignature { .. } | RequestError::Stale { .. } => StatusCode::UNAUTHORIZED,
            RequestError::Panicked { .. } => return Self::logged(StatusCode::INTERNAL_SERVER_ERROR, &error),
        };
        Self::caller(status, &error)
    }
}

impl From<IdempotencyError> for Problem {
    fn from(error: IdempotencyError) -> Self {
        match &error {
            IdempotencyError::BadKey { .. } => Self::caller(StatusCode::BAD_REQUEST, &error),
            IdempotencyError::InFlight { key, .. } => {
                // The caller does not need to know which process holds the key.
                let detail = format!(
                    "a request with idempotency key {key:?} is under way; send this one again a little later"
                );
                Self { detail, ..Self::caller(StatusCode::CONFLICT, &error) }
            }
            // Another request with the key may run: a repetition by the caller gets its result.
            IdempotencyError::Lost { .. } => {
                Self { retry_after: Some(1), ..Self::logged(StatusCode::SERVICE_UNAVAILABLE, &error) }
            }
            IdempotencyError::Write(inner) => Self::from((**inner).clone()),
            IdempotencyError::Store(inner) => Self::failed(inner),
            _ => Self::failed(&error),
        }
    }
}

impl From<ApplyError> for Problem {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Refused(_) => Self::logged(StatusCode::CONFLICT, &error),
            ApplyError::Store { .. } => Self::failed(&error),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::failed(&error)
    }
}

impl From<InvalidInput> for Problem {
    fn from(error: InvalidInput) -> Self {
        Self::failed(&error)
    }
}

/// A [`StoredResponse`] as a response, for handlers that have not committed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(pub StoredResponse);

impl Reply {
    /// Returns the response.
    #[must_use]
    pub fn response<B: From<Bytes>>(self) -> Response<B> {
        crate::answer::response(self.0)
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Problem {
    fn into_response(self) -> axum_core::response::Response {
        self.response()
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Reply {
    fn into_response(self) -> axum_core::response::Response {
        self.response()
    }
}
