//! Values that are typed, read from a file, or handed in on standard input.

use std::io::{self, Read};

use anyhow::{Context as _, Result};
use tidelock::payload::text;
use tidelock::prelude::*;

use crate::args::StateSet;
use crate::exit::WrongUse;

/// More than this is not even read. A value may have a lot of blanks, which are not kept.
const MOST_BYTES: u64 = 64 << 20;

/// The value that is to be written, without the blanks between its parts.
pub(super) fn value(options: &StateSet) -> Result<Payload> {
    let text = match (&options.value, &options.file) {
        (Some(value), _) if value == "-" => whole(io::stdin().lock(), "standard input")?,
        (Some(value), _) => value.clone(),
        (None, Some(path)) => {
            let name = path.display().to_string();
            let file = std::fs::File::open(path).map_err(|e| unreadable(&name, &e))?;
            whole(file, &name)?
        }
        (None, None) => return Err(WrongUse("no value was given".to_owned()).into()),
    };
    Payload::from_json(text::compact(text.trim()))
        .context(r#"the value is no JSON; text needs quotes: '"like this"'"#)
}

fn whole(from: impl Read, name: &str) -> Result<String> {
    let mut text = String::new();
    let length = from.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|e| unreadable(name, &e))?;
    if length as u64 > MOST_BYTES {
        return Err(WrongUse(format!("{name} holds more than {MOST_BYTES} bytes")).into());
    }
    Ok(text)
}

fn unreadable(name: &str, error: &io::Error) -> WrongUse {
    WrongUse(format!("{name} cannot be read: {error}"))
}
