//! The name of a request: made here, or taken from the caller. It is in the answer, in the audit and in the log, so that the three can be
//! brought together.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Response};

/// The header that has it.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The longest that is taken from a caller.
const LONGEST: usize = 128;

tokio::task_local! {
    static CURRENT: String;
}

/// The name of a request with these headers: the caller's own, if it is short and plain, and a new one otherwise.
pub(crate) fn of(headers: &HeaderMap) -> String {
    let mut given = headers.get_all(HEADER).iter();
    match (given.next().and_then(|text| text.to_str().ok()), given.next()) {
        (Some(text), None) if is_plain(text) => text.to_owned(),
        _ => uuid::Uuid::now_v7().to_string(),
    }
}

/// It goes into logs and into headers.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(plain)
}

/// Runs something as part of a request.
pub(crate) async fn within<B>(id: String, doing: impl Future<Output = Response<B>>) -> Response<B> {
    let header = HeaderValue::from_str(&id);
    let mut response = CURRENT.scope(id, doing).await;
    if let Ok(header) = header {
        response.headers_mut().insert(HEADER, header);
    }
    response
}

/// The request that is worked on; `None` outside of all.
pub(crate) fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// The same for the log.
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
