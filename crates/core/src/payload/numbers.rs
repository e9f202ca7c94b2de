//! Whole numbers in JSON text that would not survive being parsed: beyond 64 bits they turn into rounded fractions.

/// The first whole number of the text that fits neither `i64` nor `u64`. What looks like one inside a string is none.
pub(crate) fn first_wide(text: &str) -> Option<&str> {
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
        if is_wide(token) {
            return Some(token);
        }
        rest = after;
    }
}

fn is_wide(token: &str) -> bool {
    let whole = !token.contains(['.', 'e', 'E']);
    whole && token.parse::<i64>().is_err() && token.parse::<u64>().is_err()
}

/// What follows a string of which `text` holds all but the opening quote.
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
