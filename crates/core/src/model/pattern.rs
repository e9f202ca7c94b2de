//! Portable pattern grammar of filters: literals, `^`, `$`, `.` and `.*`. Matching takes linear space and backtracks to
//! the last `.*` only.
//!
//! The grammar is deliberately small. Every backend can express it exactly (PostgreSQL as `LIKE`), and no pattern can
//! exhaust the time of a database. A backslash makes a special character literal.

use std::fmt;

use crate::error::InvalidInput;
use crate::key::KeyPrefix;

/// The longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Literal(char),
    AnyOne,
    AnyMany,
}

/// A validated pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    source: String,
    tokens: Vec<Token>,
}

impl Pattern {
    /// Validates a pattern.
    ///
    /// # Errors
    /// [`InvalidInput::Pattern`] when it is too long or uses anything beyond the grammar.
    pub fn new(source: &str) -> Result<Self, InvalidInput> {
        let refuse =
            |reason: String| InvalidInput::Pattern { pattern: source.chars().take(80).collect(), reason };
        if source.len() > MAX_PATTERN_BYTES {
            return Err(refuse(format!(
                "it has {} bytes, at most {MAX_PATTERN_BYTES} are allowed",
                source.len()
            )));
        }
        let (anchored_start, body) = source.strip_prefix('^').map_or((false, source), |body| (true, body));
        let mut tokens = Vec::new();
        if !anchored_start {
            tokens.push(Token::AnyMany);
        }
        let mut anchored_end = false;
        let mut chars = body.chars().peekable();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '$' if chars.peek().is_none() => {
                    anchored_end = true;
                    break;
                }
                '.' if chars.next_if_eq(&'*').is_some() => Token::AnyMany,
                '.' => Token::AnyOne,
                '\\' => {
                    Token::Literal(chars.next().ok_or_else(|| refuse("it ends in a backslash".to_owned()))?)
                }
                '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' => {
                    return Err(refuse(format!(
                        "{c:?} is not supported here; write \\{c} for the character"
                    )));
                }
                literal => Token::Literal(literal),
            });
        }
        if !anchored_end {
            tokens.push(Token::AnyMany);
        }
        tokens.dedup_by(|a, b| *a == Token::AnyMany && *b == Token::AnyMany);
        Ok(Self { source: source.to_owned(), tokens })
    }

    /// Returns the pattern as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Returns whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut t, mut p) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (self.tokens.get(p), text.get(t)) {
                (Some(Token::AnyMany), _) => {
                    retry = Some((p + 1, t));
                    p += 1;
                    continue;
                }
                (None, None) => return true,
                (Some(Token::AnyOne), Some(_)) => {}
                (Some(Token::Literal(want)), Some(have)) if want == have => {}
                _ => match retry {
                    Some((after, from)) if from < text.len() => {
                        retry = Some((after, from + 1));
                        (p, t) = (after, from + 1);
                        continue;
                    }
                    _ => return false,
                },
            }
            p += 1;
            t += 1;
        }
    }

    /// Returns the range of keys that may match: those that begin with the literal prefix of the pattern.
    #[must_use]
    pub fn range(&self) -> KeyPrefix {
        let literal = |token: &Token| match token {
            Token::Literal(c) => Some(*c),
            Token::AnyOne | Token::AnyMany => None,
        };
        KeyPrefix::of_text(&self.tokens.iter().map_while(literal).collect::<String>())
    }

    /// Returns the pattern as an SQL `LIKE` with `\` as escape character.
    #[must_use]
    pub fn to_like(&self) -> String {
        let mut like = String::with_capacity(self.source.len() + 2);
        for token in &self.tokens {
            match token {
                Token::AnyMany => like.push('%'),
                Token::AnyOne => like.push('_'),
                Token::Literal(c) => {
                    if matches!(c, '%' | '_' | '\\') {
                        like.push('\\');
                    }
                    like.push(*c);
                }
            }
        }
        like
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
