//! File names of documents: readable, injective, and never a path out of the directory.
//!
//! ```text
//! name = kind arg* ".json"
//! arg  = '=' text | '@' uuid | '#' number
//! text = a-z 0-9 _ - .     stand for themselves, but for a '.' at the very beginning
//!        A-Z               '^' and the small letter, because some file systems know no capitals
//!        everything else   '%' and two hexadecimal digits for each byte
//! ```
//!
//! A name that would be too long keeps its beginning, followed by `~` and the hash of the whole key. Then only the file
//! holds the key. No other name contains `~`.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use tidelock_core::key::{Arg, Key};

/// The extension of a document's file name.
pub(crate) const EXTENSION: &str = ".json";
/// The longest name without a hash, in bytes. With the extension it is well below the 255 of file systems.
const LONGEST: usize = 200;
/// The length of the readable part of a long name, in bytes.
const READABLE: usize = 100;

/// The key information in a file name.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedName {
    /// The key itself.
    Key(Key),
    /// The key is too long for a name; the file holds it.
    Inside,
}

/// Returns the name of the file that holds the document of this key.
#[must_use]
pub fn encode(key: &Key) -> String {
    let mut name = String::new();
    push_text(&mut name, &key.kind());
    for arg in key.args() {
        match arg {
            Arg::Str(text) => {
                name.push('=');
                push_text(&mut name, &text);
            }
            Arg::Uuid(id) => drop(write!(name, "@{id}")),
            Arg::Int(number) => drop(write!(name, "#{number}")),
        }
    }
    if name.len() > LONGEST {
        name.truncate(READABLE);
        name.push('~');
        name.push_str(&digest(key.canonical()));
    }
    name.push_str(EXTENSION);
    name
}

/// Returns the key that a file name encodes. `None` when the name encodes no key.
#[must_use]
pub fn decode(name: &str) -> Option<ParsedName> {
    let stem = name.strip_suffix(EXTENSION)?;
    if let Some((readable, hash)) = stem.split_once('~') {
        let plausible = readable.len() == READABLE && hash.len() == 64;
        return plausible.then_some(ParsedName::Inside);
    }
    let mut parts = Vec::new();
    let mut rest = stem;
    while let Some(at) = rest.rfind(['=', '@', '#']) {
        let (before, part) = rest.split_at(at);
        parts.push(part);
        rest = before;
    }
    let args: Option<Vec<Arg>> = parts.into_iter().rev().map(argument).collect();
    let key = Key::of(&take_text(rest)?, &args?).ok()?;
    (encode(&key) == name).then_some(ParsedName::Key(key))
}

fn argument(part: &str) -> Option<Arg> {
    if let Some(text) = part.strip_prefix('=') {
        return take_text(text).map(Arg::Str);
    }
    if let Some(id) = part.strip_prefix('@') {
        return id.parse().ok().map(Arg::Uuid);
    }
    part.strip_prefix('#')?.parse().ok().map(Arg::Int)
}

/// Returns the hash of a text, as hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn push_text(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            'a'..='z' | '0'..='9' | '_' | '-' => out.push(c),
            '.' if !out.is_empty() => out.push(c),
            'A'..='Z' => {
                out.push('^');
                out.push(c.to_ascii_lowercase());
            }
            other => {
                for byte in other.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "%{byte:02x}");
                }
            }
        }
    }
}

fn take_text(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '^' => bytes.push(u8::try_from(chars.next()?.to_ascii_uppercase()).ok()?),
            '%' => {
                let (high, low) = (chars.next()?.to_digit(16)?, chars.next()?.to_digit(16)?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => bytes.push(u8::try_from(other).ok()?),
        }
    }
    String::from_utf8(bytes).ok()
}
