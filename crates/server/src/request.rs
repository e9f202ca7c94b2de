//! Request extractors and response helpers. An extractor that fails returns a problem with an error code.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::Page;

use crate::app_state::App;
use crate::error::ServerError;
use crate::problem::Problem;
use crate::sanitize::escaped;

/// The maximum number of rows in a page.
pub(crate) const PAGE_ROWS: usize = 1_000;
/// The default number of rows in a page.
const SOME_ROWS: usize = 100;

/// The result of a handler.
pub(crate) type Answered = Result<Response, Problem>;

/// Extractor of the query parameters.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(error) => Err(unreadable("the query", &error.body_text()).into()),
        }
    }
}

/// Extractor of the name in the path.
pub(crate) struct PathName(pub(crate) String);

impl PathName {
    /// Parses the name as a key.
    pub(crate) fn key(&self) -> Result<Key, Problem> {
        Ok(self.0.parse()?)
    }
}

impl FromRequestParts<App> for PathName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(error) => Err(unreadable("the path", &error.body_text()).into()),
        }
    }
}

/// Extractor of a key and a number in the path.
pub(crate) struct Numbered {
    pub(crate) key: Key,
    pub(crate) number: u64,
}

impl FromRequestParts<App> for Numbered {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Path::<(String, u64)>::from_request_parts(parts, app).await {
            Ok(Path((key, number))) => Ok(Self { key: key.parse()?, number }),
            Err(error) => Err(unreadable("the path", &error.body_text()).into()),
        }
    }
}

/// Extractor of a JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bytes = whole(request, app.options.body_bytes).await?;
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Self(body)),
            Err(error) => Err(unreadable("the body", &error.to_string()).into()),
        }
    }
}

/// Reads the body up to the limit. Rejects a body whose announced length exceeds it.
async fn whole(request: Request, limit: usize) -> Result<Bytes, ServerError> {
    let announced = request.body().size_hint().lower();
    if usize::try_from(announced).is_ok_and(|bytes| bytes <= limit) {
        return read(request, limit).await;
    }
    // The announced length suffices to reject the request before the body is read.
    Err(ServerError::TooLarge { limit })
}

async fn read(request: Request, limit: usize) -> Result<Bytes, ServerError> {
    match Limited::new(request.into_body(), limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ServerError::TooLarge { limit }),
        Err(error) => Err(unreadable("the body", &error.to_string())),
    }
}

pub(crate) fn unreadable(what: &'static str, reason: &str) -> ServerError {
    ServerError::Unreadable { what, reason: escaped(reason) }
}

/// Returns the number of rows in a page, checked against its bounds.
pub(crate) fn rows(limit: Option<usize>) -> Result<usize, ServerError> {
    match limit {
        None => Ok(SOME_ROWS),
        Some(limit) if (1..=PAGE_ROWS).contains(&limit) => Ok(limit),
        Some(limit) => Err(unreadable("limit", &format!("{limit} is not between 1 and {PAGE_ROWS}"))),
    }
}

/// Parses the parameters of a page in key order.
pub(crate) fn page(after: Option<&str>, limit: Option<usize>) -> Result<Page, Problem> {
    let after = after.map(str::parse).transpose()?;
    Ok(Page { after, limit: rows(limit)? })
}

/// Parses a key prefix. Without one, the range contains all keys.
pub(crate) fn range(prefix: Option<&str>) -> Result<KeyPrefix, Problem> {
    Ok(prefix.map_or_else(|| Ok(KeyPrefix::all()), str::parse)?)
}

/// Returns the value of a header. Fails if the header occurs more than once.
pub(crate) fn header_text(
    headers: &HeaderMap,
    name: header::HeaderName,
    shown: &'static str,
) -> Result<Option<String>, ServerError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(unreadable(shown, "it is given twice"));
    }
    let text = value.to_str().map_err(|_| unreadable(shown, "it is not ASCII"))?;
    Ok(Some(text.to_owned()))
}

/// Returns the caller's trace context in the W3C format. An invalid header is ignored and does not fail the request.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = header_text(headers, header::HeaderName::from_static("traceparent"), "traceparent").ok()??;
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let known = |part: &str| part.bytes().any(|byte| byte != b'0');
    match parts.as_slice() {
        [version, trace, span, flags]
            if [version.len(), trace.len(), span.len(), flags.len()] == [2, 32, 16, 2]
                && parts.iter().all(|part| hex(part))
                && *version != "ff"
                && known(trace)
                && known(span) =>
        {
            Some(text)
        }
        _ => None,
    }
}

/// Returns a response with a JSON body.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Answered {
    let text = serde_json::to_vec(body).map_err(|error| unreadable("the answer", &error.to_string()))?;
    let kind = HeaderValue::from_static("application/json");
    Ok((status, [(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Returns a 200 response with a JSON body.
pub(crate) fn ok(body: &impl Serialize) -> Answered {
    json(StatusCode::OK, body)
}
