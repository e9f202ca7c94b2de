//! `tidelock state watch`: the versions of a record as they arrive. It stops on Ctrl-C or when the reader
//! closes standard output.

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::state::versions;
use tidelock::store::StoredDocument;

use super::envelope::Envelope;
use super::heading;
use crate::args::{Layout, StateWatch};
use crate::exit::Exit;
use crate::output::{self, Tone};
use crate::stdout_closed;

/// Watches until a stop is requested.
pub(super) async fn run(options: &StateWatch) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    let opened = options.place.open().await?;
    let store = opened.shared();
    let ended = tokio::select! {
        // Listens before the first version is printed: a reader of that version may interrupt at once.
        biased;
        asked_to_stop = tokio::signal::ctrl_c() => asked_to_stop.map_err(Into::into),
        () = stdout_closed::gone() => Ok(()),
        ended = follow(&store, &key, options.place.output) => ended,
    };
    opened.close().await;
    ended.map(|()| Exit::Well)
}

async fn follow(store: &SharedStore, key: &Key, layout: Layout) -> Result<()> {
    let mut versions = versions(store, key);
    let mut told = None;
    loop {
        match versions.next().await {
            Ok(found) => {
                told = None;
                print(key, found.map(|found| found.value).as_ref(), layout)?;
            }
            Err(error) => {
                // An unavailable server may come back. Its absence is reported once.
                let Retry::After(pause) = error.retry() else { return Err(error.into()) };
                let message = output::escaped(&format!("warning[{}]: {error}", error.code()));
                if told.as_ref() != Some(&message) {
                    eprintln!("{message}");
                    told = Some(message);
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}

fn print(key: &Key, found: Option<&StoredDocument>, layout: Layout) -> Result<()> {
    if layout != Layout::Table {
        return output::json_line(&found.map_or_else(|| Envelope::none(key), Envelope::of));
    }
    let Some(document) = found else {
        return output::say(output::styled(&format!("there is no record {}", output::key(key)), Tone::Bold));
    };
    let head = output::styled(&heading(document), Tone::Bold);
    output::say(format!("{head}\n{}", output::pretty(&document.value)))
}
