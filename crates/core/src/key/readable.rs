//! Human-readable form of keys: `kind`, `kind("text", 42)`. Text is quoted as in JSON; numbers and UUIDs are not.
//! Errors name the character at which the text stops being a key.

use std::fmt::{self, Write as _};

use uuid::Uuid;

use super::encoding::malformed;
use super::{Arg, KeyPrefix};
use crate::error::InvalidInput;

/// Writes the human-readable form: `cart("user-17", 42)`.
pub(super) fn write(f: &mut fmt::Formatter<'_>, kind: &str, args: &[Arg]) -> fmt::Result {
    if !kind.is_empty() && kind.chars().all(is_plain) {
        f.write_str(kind)?;
    } else {
        write!(f, "{}", serde_json::Value::from(kind))?;
    }
    if args.is_empty() {
        return Ok(());
    }
    f.write_char('(')?;
    for (i, arg) in args.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        match arg {
            Arg::Str(text) => write!(f, "{}", serde_json::Value::from(text.as_str()))?,
            Arg::Uuid(id) => write!(f, "{id}")?,
            Arg::Int(number) => write!(f, "{number}")?,
        }
    }
    f.write_char(')')
}

/// Returns whether a kind can contain this character without quotes.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}

/// Parses a whole key.
pub(super) fn key(text: &str) -> Result<(String, Vec<Arg>), InvalidInput> {
    let mut reader = Reader { whole: text, rest: text };
    let (kind, args, end) = reader.all()?;
    match end {
        End::Closed => Ok((kind, args)),
        End::Inside => Err(reader.wrong("the closing ) is missing")),
        End::Quoted { from, .. } => Err(from.wrong("a quoted part is not closed")),
    }
}

/// Parses a prefix of keys: a kind, a key, or a key that ends after some of its arguments or inside a text.
pub(super) fn prefix(text: &str) -> Result<KeyPrefix, InvalidInput> {
    let (kind, args, end) = Reader { whole: text, rest: text }.all()?;
    Ok(match end {
        End::Closed | End::Inside => KeyPrefix::under(&kind, &args),
        End::Quoted { start, .. } => KeyPrefix::starting(&kind, &args, &start),
    })
}

/// The position at which a text ends.
enum End<'a> {
    /// After the whole key.
    Closed,
    /// Among the arguments, after one of them or before the first.
    Inside,
    /// Inside a text argument that begins with `start`.
    Quoted { start: String, from: Reader<'a> },
}

/// An argument, or the beginning of one.
enum Found {
    Arg(Arg),
    Start(String),
}

/// A parser that knows its position in the text.
#[derive(Clone, Copy)]
struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn all(&mut self) -> Result<(String, Vec<Arg>, End<'a>), InvalidInput> {
        self.pass_blanks();
        let kind = self.kind()?;
        self.pass_blanks();
        if self.rest.is_empty() {
            return Ok((kind, Vec::new(), End::Closed));
        }
        if !self.takes('(') {
            return Err(self.wrong("arguments must begin with ("));
        }
        let mut args = Vec::new();
        let end = self.args(&mut args)?;
        self.pass_blanks();
        if !self.rest.is_empty() {
            return Err(self.wrong("nothing may follow the closing )"));
        }
        Ok((kind, args, end))
    }

    fn kind(&mut self) -> Result<String, InvalidInput> {
        if self.rest.starts_with('"') {
            let from = *self;
            return match self.quoted()? {
                Found::Arg(Arg::Str(kind)) => Ok(kind),
                _ => Err(from.wrong("a quoted part is not closed")),
            };
        }
        let (kind, rest) = self.rest.split_at(self.rest.find(|c| !is_plain(c)).unwrap_or(self.rest.len()));
        if kind.is_empty() && (rest.is_empty() || rest.starts_with('(')) {
            return Err(self.wrong("the kind is missing"));
        }
        self.rest = rest;
        self.pass_blanks();
        match self.rest.chars().next() {
            Some(c) if c != '(' => Err(self.wrong(&format!("a kind with {c:?} needs quotes"))),
            _ => Ok(kind.to_owned()),
        }
    }

    /// Parses arguments up to the closing parenthesis, or to the end of the text.
    fn args(&mut self, args: &mut Vec<Arg>) -> Result<End<'a>, InvalidInput> {
        self.pass_blanks();
        if self.takes(')') {
            return Ok(End::Closed);
        }
        while !self.rest.is_empty() {
            let from = *self;
            match self.arg()? {
                Found::Arg(arg) => args.push(arg),
                Found::Start(start) => return Ok(End::Quoted { start, from }),
            }
            self.pass_blanks();
            if self.takes(')') {
                return Ok(End::Closed);
            }
            if !self.rest.is_empty() && !self.takes(',') {
                return Err(self.wrong("arguments are separated by one comma each"));
            }
            self.pass_blanks();
        }
        Ok(End::Inside)
    }

    fn arg(&mut self) -> Result<Found, InvalidInput> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        let ends = |c: char| matches!(c, ',' | ')') || c.is_whitespace();
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        if word.is_empty() {
            return Err(self.wrong("an argument is missing; arguments are separated by one comma each"));
        }
        let number = word.parse().map(Arg::Int).ok();
        let Some(arg) = number.or_else(|| Uuid::parse_str(word).map(Arg::Uuid).ok()) else {
            return Err(self.wrong(&format!("{word:?} is no number and no UUID; quote text arguments")));
        };
        self.rest = rest;
        Ok(Found::Arg(arg))
    }

    /// Parses a JSON string, or the start of one when the text ends inside it.
    fn quoted(&mut self) -> Result<Found, InvalidInput> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        match values.next() {
            Some(Ok(value)) => {
                self.rest = self.rest.split_at(values.byte_offset()).1;
                Ok(Found::Arg(Arg::Str(value)))
            }
            Some(Err(error)) if error.is_eof() => {
                let start = serde_json::from_str(&format!("{}\"", self.rest));
                let start =
                    start.map_err(|_| self.wrong("a quoted part breaks off in the middle of a \\"))?;
                self.rest = "";
                Ok(Found::Start(start))
            }
            _ => Err(self.wrong("a quoted part is not written as in JSON")),
        }
    }

    fn takes(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn pass_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Builds the error for this position. Characters count from 1.
    fn wrong(&self, what: &str) -> InvalidInput {
        if self.rest.is_empty() {
            return malformed(self.whole, &format!("at the end, {what}"));
        }
        let passed = self.whole.strip_suffix(self.rest).unwrap_or_default();
        malformed(self.whole, &format!("at character {}, {what}", passed.chars().count() + 1))
    }
}
