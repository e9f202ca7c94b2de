//! Canonical text of keys: reversible, injective, and ordered like the keys themselves under byte comparison.
//!
//! ```text
//! key  = text-of-kind arg*
//! arg  = ' '  text          a text argument
//!      | '"'  uuid          36 characters, lower case
//!      | '#'  number        see below
//! text = characters; those up to '$' (controls, space, ! " # $) are written as '$' and the character moved by 0x30
//! ```
//!
//! Every tag is smaller than `$`, and `$` is smaller than every character that represents itself. So a component that
//! ends sorts before one that continues. The order of texts is therefore the order of tuples: kind, then argument by
//! argument (text < UUID < number), shorter before longer. NUL never appears, so PostgreSQL can store it as text.
//!
//! Numbers carry their length first: `42` is `#B42` (B = two digits). `-42` is `#-X57`: the length is counted down from
//! Z, and the digits are the nine's complement. So byte order is numeric order.

use uuid::Uuid;

use super::Arg;
use crate::error::InvalidInput;

const TEXT: char = ' ';
const UUID: char = '"';
const INT: char = '#';
const ESCAPE: char = '$';
const ESCAPE_SHIFT: u32 = 0x30;

/// Returns the canonical text of a kind and its arguments.
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

/// Returns the smallest text that is larger than a complete component and everything that has further arguments after
/// it.
pub(super) fn end_of_component(text: &str) -> String {
    format!("{text}{ESCAPE}")
}

/// Returns the smallest text that is larger than everything that begins with `text`.
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
