//! The idempotency key in a request header.

use http::{HeaderMap, HeaderName};
use tidelock_core::idempotency::IdempotencyError;

/// `Idempotency-Key`.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Reads the key from a header, if there is one. It is a quoted string, as in the draft, or the bare text that most
/// clients send.
pub(crate) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, IdempotencyError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad("", "the header is there more than once"));
    }
    let Ok(text) = value.to_str().map(str::trim) else { return Err(bad("", "the key is not ASCII")) };
    match text.strip_prefix('"') {
        Some(quoted) => {
            unquoted(quoted).map(Some).ok_or_else(|| bad(text, "the quoted string does not end well"))
        }
        None => Ok(Some(text.to_owned())),
    }
}

/// Formats a key as a quoted string.
#[cfg(feature = "send")]
pub(crate) fn quoted(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

fn unquoted(text: &str) -> Option<String> {
    let (mut key, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(key),
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            other => key.push(other),
        }
    }
}

fn bad(key: &str, reason: &str) -> IdempotencyError {
    IdempotencyError::BadKey { key: key.chars().take(80).collect(), reason: reason.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{IDEMPOTENCY_KEY, read};

    fn key(values: &[&[u8]]) -> Result<Option<String>, ()> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        }
        read(&headers, &IDEMPOTENCY_KEY).map_err(drop)
    }

    #[test]
    fn a_key_is_read_bare_or_quoted() {
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&[b"8e03978e"]), Ok(Some("8e03978e".to_owned())));
        assert_eq!(key(&[b"\"8e03978e\""]), Ok(Some("8e03978e".to_owned())));
        assert_eq!(key(&[br#""a\"b\\c""#]), Ok(Some(r#"a"b\c"#.to_owned())));
        assert_eq!(key(&[b""]), Ok(Some(String::new())), "the engine refuses it");
    }

    #[test]
    fn invalid_keys_are_rejected() {
        for bad in
            [&[b"\"a".as_slice()][..], &[b"\"a\"b"], &[br#""a\n""#], &[b"\""], &[b"a", b"a"], &[b"\xff"]]
        {
            assert_eq!(key(bad), Err(()), "{bad:?}");
        }
    }
}
