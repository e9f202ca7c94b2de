//! Conversion between stored responses and HTTP responses.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tidelock_core::idempotency::StoredResponse;

/// `Idempotency-Replayed`: `true` when the response is a stored one.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Converts a stored response into an HTTP response. Names and values that are invalid in HTTP are left out.
pub(crate) fn response<B: From<Bytes>>(answer: StoredResponse) -> Response<B> {
    let mut response = Response::new(B::from(Bytes::from(answer.body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// Returns the same response, marked as replayed.
pub(crate) fn replayed<B: From<Bytes>>(answer: StoredResponse) -> Response<B> {
    let mut response = response(answer);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Returns the stored form of a response, with the chosen headers. Values that are not text are left out.
pub(crate) fn kept(
    status: StatusCode,
    headers: &HeaderMap,
    chosen: &[HeaderName],
    body: &Bytes,
) -> StoredResponse {
    let mut answer = StoredResponse::new(status.as_u16()).body(body.to_vec());
    for name in chosen {
        for value in headers.get_all(name) {
            if let Ok(value) = value.to_str() {
                answer = answer.header(name.as_str(), value);
            }
        }
    }
    answer
}
