//! The canonical text of keys: reversible, injective, and ordered like the keys themselves under byte comparison.
//!
//! ```text
//! key  = text-of-kind arg*
//! arg  = ' '  text          a text argument
//!      | '"'  uuid          36 characters, lower case
//!      | '#'  number        see below
//! text = characters; those up to '$' (controls, space, ! " # $) are written as '$' and the character moved by 0x30
//! ```
//!
//! Every tag is smaller than `$`, and `$` is smaller than every character that stands for itself. So a component
//! that ends sorts before one that goes on, and the order of texts is the order of tuples: kind, then argument by
//! argument (text < UUID < number), shorter before longer. NUL never appears, so PostgreSQL can store it as text.
//!
//! Numbers carry their length first: `42` is `#B42` (B = two digits), `-42` is `#-X57` (the length counted down from
//! Z, the digits as nine's complement), so that byte order is numeric order.

use std::fmt::{self, Write as _};

use uuid::Uuid;

use super::Arg;
use crate::error::InvalidInput;

const TEXT: char = ' ';
const UUID: char = '"';
const INT: char = '#';
const ESCAPE: char = '$';
const ESCAPE_SHIFT: u32 = 0x30;

/// The canonical text of a kind and its arguments.
pub(super) fn encode(kind: &str, args: &[Arg]) -> String {
    let mut out = String::with_capacity(kind.len() + args.len() * 24);
    push_text(&mut out, kind);
    for arg in args {
        match arg {
            Arg::Str(text) => {
                out.push(TEXT);
                push_text(&mut out, text);
            }
            Arg::Uuid(id) => {
                out.push(UUID);
                out.push_str(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
            }
            Arg::Int(number) => {
                out.push(INT);
                push_int(&mut out, *number);
            }
        }
    }
    out
}

/// Splits canonical text into kind and arguments.
pub(super) fn decode(text: &str) -> Result<(String, Vec<Arg>), InvalidInput> {
    let mut rest = text;
    let kind = take_text(&mut rest, text)?;
    let mut args = Vec::new();
    let mut chars = rest.chars();
    while let Some(tag) = chars.next() {
        rest = chars.as_str();
        args.push(match tag {
            TEXT => Arg::Str(take_text(&mut rest, text)?),
            UUID => Arg::Uuid(take_uuid(&mut rest, text)?),
            INT => Arg::Int(take_int(&mut rest, text)?),
            other => return Err(malformed(text, &format!("{other:?} starts no argument"))),
        });
        chars = rest.chars();
    }
    Ok((kind, args))
}

/// The smallest text that is larger than a complete component and everything that has further arguments after it.
pub(super) fn end_of_component(text: &str) -> String {
    format!("{text}{ESCAPE}")
}

/// The smallest text that is larger than everything that begins with `text`.
pub(super) fn successor(text: &str) -> Option<String> {
    let mut chars: Vec<char> = text.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match u32::from(last) + 1 {
            0xD800 => 0xE000, // surrogates are no characters
            code => code,
        };
        if let Some(next) = char::from_u32(next) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

pub(super) fn malformed(text: &str, reason: &str) -> InvalidInput {
    InvalidInput::Key { text: text.chars().take(80).collect(), reason: reason.to_owned() }
}

fn push_text(out: &mut String, text: &str) {
    for c in text.chars() {
        if c <= ESCAPE {
            out.push(ESCAPE);
            out.push(char::from_u32(u32::from(c) + ESCAPE_SHIFT).unwrap_or(c));
        } else {
            out.push(c);
        }
    }
}

fn take_text(rest: &mut &str, whole: &str) -> Result<String, InvalidInput> {
    let mut out = String::new();
    let mut chars = rest.chars();
    loop {
        *rest = chars.as_str();
        match chars.next() {
            Some(ESCAPE) => {
                let shifted = chars.next().map(u32::from).and_then(|c| c.checked_sub(ESCAPE_SHIFT));
                match shifted.and_then(char::from_u32).filter(|c| *c <= ESCAPE) {
                    Some(c) => out.push(c),
                    None => return Err(malformed(whole, "an escape is broken")),
                }
            }
            Some(c) if c > ESCAPE => out.push(c),
            _ => return Ok(out),
        }
    }
}

fn take_uuid(rest: &mut &str, whole: &str) -> Result<Uuid, InvalidInput> {
    let (id, after) = rest.split_at_checked(36).ok_or_else(|| malformed(whole, "a UUID is cut off"))?;
    *rest = after;
    Uuid::parse_str(id).map_err(|e| malformed(whole, &format!("a UUID is broken: {e}")))
}

fn push_int(out: &mut String, number: i64) {
    let digits = number.unsigned_abs().to_string();
    let length = u32::try_from(digits.len()).unwrap_or(0);
    if number >= 0 {
        out.extend(char::from_u32(u32::from('A') + length - 1));
        out.push_str(&digits);
    } else {
        out.push('-');
        out.extend(char::from_u32(u32::from('Z') - length));
        out.extend(digits.chars().map(complement));
    }
}

fn complement(digit: char) -> char {
    digit.to_digit(10).and_then(|d| char::from_digit(9 - d, 10)).unwrap_or(digit)
}

fn take_int(rest: &mut &str, whole: &str) -> Result<i64, InvalidInput> {
    let broken = || malformed(whole, "a number is broken");
    let negative = rest.starts_with('-');
    let body = rest.strip_prefix('-').unwrap_or(rest);
    let letter = body.chars().next().filter(char::is_ascii_uppercase).ok_or_else(broken)?;
    let length =
        if negative { u32::from('Z') - u32::from(letter) } else { u32::from(letter) - u32::from('A') + 1 };
    let (_, digits) = body.split_at(1);
    let (digits, after) = digits.split_at_checked(length as usize).ok_or_else(broken)?;
    *rest = after;
    let text = if negative {
        std::iter::once('-').chain(digits.chars().map(complement)).collect()
    } else {
        digits.to_owned()
    };
    text.parse().map_err(|_| broken())
}

/// Writes the form for people: `cart("user-17", 42)`.
pub(super) fn write_readable(f: &mut fmt::Formatter<'_>, kind: &str, args: &[Arg]) -> fmt::Result {
    if plain_kind(kind) {
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

/// Whether a kind can be written without quotes.
fn plain_kind(kind: &str) -> bool {
    !kind.is_empty() && kind.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/'))
}

/// Reads the form for people.
pub(super) fn parse_readable(text: &str) -> Result<(String, Vec<Arg>), InvalidInput> {
    let trimmed = text.trim();
    let (kind, rest) = if trimmed.starts_with('"') {
        take_quoted(trimmed, text)?
    } else {
        let end = trimmed.find('(').unwrap_or(trimmed.len());
        let (kind, rest) = trimmed.split_at(end);
        if !plain_kind(kind) {
            return Err(malformed(text, "the kind needs quotes: it is empty or has unusual characters"));
        }
        (kind.to_owned(), rest)
    };
    let rest = rest.trim();
    if rest.is_empty() {
        return Ok((kind, Vec::new()));
    }
    let inner = rest.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
    let inner = inner.ok_or_else(|| malformed(text, "the arguments are not enclosed in ( )"))?;
    Ok((kind, parse_args(inner, text)?))
}

fn parse_args(inner: &str, text: &str) -> Result<Vec<Arg>, InvalidInput> {
    let mut args = Vec::new();
    let mut rest = inner.trim();
    while !rest.is_empty() {
        let after = if rest.starts_with('"') {
            let (arg, after) = take_quoted(rest, text)?;
            args.push(Arg::Str(arg));
            after
        } else {
            let (word, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            args.push(parse_bare(word.trim(), text)?);
            after
        };
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) if !more.trim().is_empty() => more.trim_start(),
            None if after.is_empty() => after,
            _ => return Err(malformed(text, "arguments are separated by one comma each")),
        };
    }
    Ok(args)
}

fn parse_bare(word: &str, text: &str) -> Result<Arg, InvalidInput> {
    if let Ok(number) = word.parse() {
        return Ok(Arg::Int(number));
    }
    Uuid::parse_str(word)
        .map(Arg::Uuid)
        .map_err(|_| malformed(text, &format!("{word:?} is no number and no UUID; quote text arguments")))
}

/// Takes a JSON string off the front and returns it with what follows.
fn take_quoted<'a>(from: &'a str, text: &str) -> Result<(String, &'a str), InvalidInput> {
    let mut values = serde_json::Deserializer::from_str(from).into_iter::<String>();
    match values.next() {
        Some(Ok(value)) => Ok((value, from.split_at(values.byte_offset()).1)),
        _ => Err(malformed(text, "a quoted part is not closed")),
    }
}
