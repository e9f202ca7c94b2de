//! Escaping of untrusted text for logs.

/// The maximum number of characters of a logged name.
const MOST: usize = 200;

/// Escapes control characters and characters that change the direction of text.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns_direction(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Truncates and escapes a text for the log, so that long names cannot flood it.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}…", escaped(text.get(..cut).unwrap_or_default())),
        None => escaped(text),
    }
}

/// Returns whether a character changes the direction of text, separates lines, or has no width.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::{MOST, escaped, short};

    #[test]
    fn a_name_cannot_forge_a_line_or_turn_around() {
        let shown = escaped("a\r\n\u{1b}[2Jb\u{202e}c\u{2066}d\u{feff}ä");
        assert_eq!(shown, "a\\u{d}\\u{a}\\u{1b}[2Jb\\u{202e}c\\u{2066}d\\u{feff}ä");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(short(&"ä".repeat(MOST)), "ä".repeat(MOST));
        assert_eq!(short(&"ä".repeat(MOST + 1)), format!("{}…", "ä".repeat(MOST)));
        assert_eq!(short("a\n"), "a\\u{a}");
    }
}
