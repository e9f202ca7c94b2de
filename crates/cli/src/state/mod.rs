//! `tidelock state`: records, as operators view and change them.
//!
//! The commands open an existing store and create none. A change is one batch, so a killed process has made all of it or
//! nothing.

mod envelope;
mod get;
mod history;
mod list;
mod watch;
mod write;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::store::StoredDocument;

use crate::args::State;
use crate::exit::Exit;
use crate::output;

/// Runs a verb of `state`.
pub(crate) async fn run(verb: State) -> Result<Exit> {
    match verb {
        State::List(options) => list::run(&options).await,
        State::Get(options) => get::run(&options).await,
        State::Set(options) => Box::pin(write::set(&options)).await,
        State::Delete(options) => Box::pin(write::delete(&options)).await,
        State::History(options) => history::run(&options).await,
        State::Watch(options) => watch::run(&options).await,
    }
}

/// Returns the heading of a value for human readers.
fn heading(document: &StoredDocument) -> String {
    let expires = document.expires_at.map(|at| format!(", expires {}", output::instant(at)));
    let (version, written) = (document.version, output::instant(document.updated_at));
    format!("version {version}, {written}{}", expires.unwrap_or_default())
}

/// Reports that the record does not exist, with a hint where to look.
fn not_found(key: &Key) -> Exit {
    absent(key).iter().for_each(|line| eprintln!("{line}"));
    Exit::NotFound
}

fn absent(key: &Key) -> Vec<String> {
    let kind = output::quoted(&key.kind());
    vec![
        format!("error: there is no record {}", output::key(key)),
        format!("hint: `tidelock state list --prefix {kind}` shows what there is"),
    ]
}
