//! Pretty-printing and compaction of JSON text without parsing: no number is rounded, and no key moves.

/// Maximum depth of containers that are broken into lines. It prevents a small value from becoming a huge file.
const DEEPEST: usize = 12;

/// Returns the JSON text without the white space between its parts.
#[must_use]
pub fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut strings = Strings::default();
    out.extend(json.chars().filter(|c| strings.next(*c) || !c.is_ascii_whitespace()));
    out
}

/// Formats compact JSON text over several lines, as part of a text that is indented by `level` steps.
#[must_use]
pub fn pretty(compact: &str, level: usize) -> String {
    let mut out = String::with_capacity(compact.len() * 2);
    let mut strings = Strings::default();
    let mut depth = level;
    let mut chars = compact.chars().peekable();
    while let Some(c) = chars.next() {
        if strings.next(c) {
            out.push(c);
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                depth += 1;
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    depth = depth.saturating_sub(1);
                    out.push(close);
                } else {
                    begin_line(&mut out, depth, depth);
                }
            }
            '}' | ']' => {
                begin_line(&mut out, depth.saturating_sub(1), depth);
                depth = depth.saturating_sub(1);
                out.push(c);
            }
            ',' => {
                out.push(c);
                begin_line(&mut out, depth, depth);
                if depth > DEEPEST {
                    out.push(' ');
                }
            }
            ':' => out.push_str(": "),
            other => out.push(other),
        }
    }
    out
}

/// Starts a new line for an element inside a container of the given depth.
fn begin_line(out: &mut String, indent: usize, depth: usize) {
    if depth <= DEEPEST {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", indent));
    }
}

/// A scanner that recognises which characters of a JSON text belong to strings.
#[derive(Debug, Default)]
struct Strings {
    inside: bool,
    escaped: bool,
}

impl Strings {
    /// Returns whether the next character belongs to a string, its quotes included.
    fn next(&mut self, c: char) -> bool {
        if !self.inside {
            self.inside = c == '"';
            return self.inside;
        }
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = true,
            '"' => self.inside = false,
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{compact, pretty};

    #[test]
    fn pretty_text_is_what_people_expect() {
        let text = r#"{"b":[1,2],"a":{},"c":[],"d":"x, {y} \" z:"}"#;
        let lines =
            "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": {},\n  \"c\": [],\n  \"d\": \"x, {y} \\\" z:\"\n}";
        assert_eq!(pretty(text, 0), lines);
        assert_eq!(compact(lines), text);
    }

    #[test]
    fn deep_values_stay_small_and_come_back() {
        let deep = format!("{}1,{{\"a\":2}}{}", "[".repeat(400), "]".repeat(400));
        let shown = pretty(&deep, 1);
        assert!(shown.len() < 2 * deep.len(), "{}", shown.len());
        assert_eq!(compact(&shown), deep);
    }

    #[test]
    fn no_digit_is_lost() {
        let text = "[123456789012345678901,1e400,-0.10]";
        assert_eq!(compact(&pretty(text, 3)), text);
    }
}
