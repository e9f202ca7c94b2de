//! Names that came from outside, as the log may have them.

/// How many characters of a name the log has.
const MOST: usize = 200;

/// Text in which characters that move the cursor, begin a line or turn the direction are written as escapes.
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

/// The beginning of a text, as the log may have it: who sends long names would fill it.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}…", escaped(text.get(..cut).unwrap_or_default())),
        None => escaped(text),
    }
}

/// Characters that change the direction of text, or take no room at all.
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
