//! Detection of JSON numbers that parsing would round.

use super::decimal;

/// Returns the first number of the text that fits neither `i64` nor `u64`, or has more digits than `f64`. Digits inside
/// a string are not a number.
pub(crate) fn first_rounded(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let start = rest.find(|c: char| matches!(c, '"' | '-') || c.is_ascii_digit())?;
        let found = rest.get(start..)?;
        if let Some(inside) = found.strip_prefix('"') {
            rest = after_string(inside)?;
            continue;
        }
        let end = found.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let (token, after) = found.split_at(end.unwrap_or(found.len()));
        if !decimal::survives(token) {
            return Some(token);
        }
        rest = after;
    }
}

/// Returns the text after a JSON string. `text` begins after the opening quote.
fn after_string(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let at = rest.find(['"', '\\'])?;
        let mut following = rest.get(at..)?.chars();
        if following.next()? == '"' {
            return Some(following.as_str());
        }
        following.next()?;
        rest = following.as_str();
    }
}
