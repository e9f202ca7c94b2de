//! Direct parts of a JSON array or object, as ranges of its text. Nothing is parsed, so nothing can be rounded.

use std::ops::Range;

/// A direct part of a container.
pub(crate) struct Part {
    /// The name of a field with its quotes; empty in an array.
    pub(crate) name: Range<usize>,
    /// The value.
    pub(crate) value: Range<usize>,
}

/// Returns the parts of an array or object in text order; `None` when the text is not a container, or not JSON.
pub(crate) fn split(text: &str) -> Option<Vec<Part>> {
    let bytes = text.as_bytes();
    let mut at = blanks(bytes, 0);
    let close = match bytes.get(at)? {
        b'{' => b'}',
        b'[' => b']',
        _ => return None,
    };
    at = blanks(bytes, at + 1);
    let mut parts = Vec::new();
    if *bytes.get(at)? == close {
        return Some(parts);
    }
    loop {
        let mut name = at..at;
        if close == b'}' {
            name.end = string_end(bytes, at)?;
            at = blanks(bytes, name.end);
            if *bytes.get(at)? != b':' {
                return None;
            }
            at = blanks(bytes, at + 1);
        }
        let value = at..value_end(bytes, at)?;
        at = blanks(bytes, value.end);
        parts.push(Part { name, value });
        match *bytes.get(at)? {
            b',' => at = blanks(bytes, at + 1),
            found if found == close => return Some(parts),
            _ => return None,
        }
    }
}

fn blanks(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count()
}

/// Returns the end of the value that begins here. Containers are skipped without recursion.
fn value_end(bytes: &[u8], from: usize) -> Option<usize> {
    match bytes.get(from)? {
        b'"' => string_end(bytes, from),
        b'{' | b'[' => container_end(bytes, from),
        _ => {
            let rest = bytes.get(from..)?;
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'));
            (length != Some(0)).then_some(from + length.unwrap_or(rest.len()))
        }
    }
}

fn container_end(bytes: &[u8], from: usize) -> Option<usize> {
    let (mut at, mut depth) = (from, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    if *bytes.get(from)? != b'"' {
        return None;
    }
    let mut at = from + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}
