//! Request ids, generated here or supplied by the caller. The id is in the response, in the audit event and in the log, so that the three
//! can be correlated.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Response};

/// The header of the request id.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The maximum length of an id that a caller supplies.
const LONGEST: usize = 128;

tokio::task_local! {
    static CURRENT: String;
}

/// Returns the request id: the caller's id if it is short and plain, otherwise a new one.
pub(crate) fn of(headers: &HeaderMap) -> String {
    let mut given = headers.get_all(HEADER).iter();
    match (given.next().and_then(|text| text.to_str().ok()), given.next()) {
        (Some(text), None) if is_plain(text) => text.to_owned(),
        _ => uuid::Uuid::now_v7().to_string(),
    }
}

/// Returns whether an id is safe to put into logs and headers.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(plain)
}

/// Runs a future as part of a request, and adds the id to its response.
pub(crate) async fn within<B>(id: String, doing: impl Future<Output = Response<B>>) -> Response<B> {
    let header = HeaderValue::from_str(&id);
    let mut response = CURRENT.scope(id, doing).await;
    if let Ok(header) = header {
        response.headers_mut().insert(HEADER, header);
    }
    response
}

/// Runs a task as part of the current request, which it may outlive.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    match current() {
        Some(id) => drop(tokio::spawn(CURRENT.scope(id, task))),
        None => drop(tokio::spawn(task)),
    }
}

/// Returns the id of the current request; `None` outside a request.
pub(crate) fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Returns the id of the current request for the log; empty outside a request.
pub(crate) fn shown() -> String {
    current().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_long_or_strange_is_not_taken() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                HEADER,
                HeaderValue::from_bytes(text.as_bytes()).unwrap_or(HeaderValue::from_static("")),
            );
            of(&headers)
        };
        assert_eq!(of("caller-1.a:b_C"), "caller-1.a:b_C");
        for strange in ["", "a b", "a\tb", "ä", "\"x\"", &"x".repeat(LONGEST + 1)] {
            assert_eq!(of(strange).len(), 36, "{strange:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(HEADER, HeaderValue::from_static("a"));
        twice.append(HEADER, HeaderValue::from_static("b"));
        assert_eq!(super::of(&twice).len(), 36);
    }
}
