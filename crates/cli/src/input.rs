//! Input values from the command line, a file, or standard input.

use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context as _, Result};
use tidelock::payload::text;
use tidelock::prelude::*;

use crate::exit::UsageError;

/// The maximum size of an input. A value may have much whitespace, which is not stored.
const MOST_BYTES: u64 = 64 << 20;

/// Parses a value from the command line, or from standard input if it is `-`, without insignificant
/// whitespace.
pub(crate) fn typed(value: &str) -> Result<Payload> {
    if value == "-" {
        return checked(&whole(io::stdin().lock(), "standard input")?);
    }
    checked(value)
}

/// Parses a value in a file, without insignificant whitespace.
pub(crate) fn in_file(path: &Path) -> Result<Payload> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|e| unreadable(&name, &e))?;
    checked(&whole(file, &name)?)
}

fn checked(text: &str) -> Result<Payload> {
    Payload::from_json(text::compact(text.trim()))
        .context(r#"the value is no JSON; text needs quotes: '"like this"'"#)
}

fn whole(from: impl Read, name: &str) -> Result<String> {
    let mut text = String::new();
    let length = from.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|e| unreadable(name, &e))?;
    if length as u64 > MOST_BYTES {
        return Err(UsageError(format!("{name} holds more than {MOST_BYTES} bytes")).into());
    }
    Ok(text)
}

/// Returns the error for an input that cannot be read.
pub(crate) fn unreadable(name: &str, error: &io::Error) -> UsageError {
    UsageError(format!("{name} cannot be read: {error}"))
}
