//! `tidelock streams`: events, as operators view, follow, copy and append them.
//!
//! The commands open an existing store and create none. A change is one batch, so a killed process has made all of it or
//! nothing.

mod append;
mod close;
mod list;
mod row;
mod show;
mod tail;
mod transfer;

use anyhow::Result;
use tidelock::prelude::*;

use crate::args::Streams;
use crate::exit::Exit;
use crate::output;

/// Runs a verb of `streams`.
pub(crate) async fn run(verb: Streams) -> Result<Exit> {
    match verb {
        Streams::List(options) => list::run(&options).await,
        Streams::Show(options) => show::run(&options).await,
        Streams::Tail(options) => Box::pin(tail::run(&options)).await,
        Streams::Append(options) => append::run(&options).await,
        Streams::Close(options) => close::run(&options).await,
        Streams::Export(options) => Box::pin(transfer::export(&options)).await,
        Streams::Import(options) => Box::pin(transfer::import(&options)).await,
    }
}

/// Returns the selected range of keys.
fn range(prefix: Option<&str>) -> Result<KeyPrefix> {
    Ok(prefix.map_or_else(|| Ok(KeyPrefix::all()), str::parse)?)
}

/// Returns the selected event types.
fn types(names: &[String]) -> Result<Vec<EventType>> {
    Ok(names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?)
}

/// Reports that the stream does not exist, with a hint where to look.
fn not_found(key: &Key) -> Exit {
    absent(key).iter().for_each(|line| eprintln!("{line}"));
    Exit::NotFound
}

fn absent(key: &Key) -> Vec<String> {
    let kind = output::quoted(&key.kind());
    vec![
        format!("error: there is no stream {}", output::key(key)),
        format!("hint: `tidelock streams list --prefix {kind}` shows what there is"),
    ]
}

/// Reports that a stream is not in the expected state.
fn conflict(key: &Key, found: &str, expected: &str) -> Exit {
    let name = output::key(key);
    eprintln!("error[TL0201]: {name} {found}, and {expected}; nothing was changed");
    let name = output::quoted(&name);
    eprintln!("hint: look at it with `tidelock streams show {name} --backward` and decide again");
    Exit::Conflict
}

/// Returns the end of a stream in words.
fn ends(head: Option<StreamVersion>) -> String {
    head.map_or_else(|| "does not exist".to_owned(), |head| format!("is at version {head}"))
}

/// Returns the expectation in words.
fn expected(expect: Expect<StreamVersion>) -> String {
    match expect {
        Expect::Absent => "none was expected".to_owned(),
        Expect::Exact(version) => format!("version {version} was expected"),
        Expect::Exists | Expect::Any => "it was there just now".to_owned(),
    }
}
