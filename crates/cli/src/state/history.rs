//! `tidelock state history`: what a record was before.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::state::{Past, PastChange, history, history_key};

use crate::args::{Format, StateHistory};
use crate::exit::Exit;
use crate::output;

/// More than this of a value is not shown in a table.
const SHOWN_CHARACTERS: usize = 200;

/// What is printed.
#[derive(Debug, Serialize)]
struct Told<'a> {
    key: &'a Key,
    writes: &'a [Past],
    /// Where to go on with `--before`; `None` when these are all.
    next: Option<StreamVersion>,
}

/// Prints the last writes.
pub(super) async fn run(options: &StateHistory) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    let opened = options.place.open().await?;
    let store = opened.shared();
    let writes = history(&*store, &key, options.before.map(StreamVersion), options.limit).await?;
    let kept = !writes.is_empty() || store.stream(&history_key(&key)?).await?.is_some();
    opened.close().await;
    if !kept {
        eprintln!("error: no history of {} is kept", output::key(&key));
        eprintln!("hint: a program begins one by making its containers from `States::with_history`");
        return Ok(Exit::NotFound);
    }
    let next = writes.last().map(|past| past.number).filter(|number| number.0 > 0);
    match options.place.output {
        Format::Json => output::json(&Told { key: &key, writes: &writes, next })?,
        Format::Table => table(&writes, next)?,
    }
    Ok(Exit::Well)
}

fn table(writes: &[Past], next: Option<StreamVersion>) -> Result<()> {
    if writes.is_empty() {
        eprintln!("no writes before that");
        return Ok(());
    }
    let mut table = output::table(&["number", "at", "what", "mutations", "value or deltas"], &[0, 3]);
    for Past { number, at, mutations, change } in writes {
        let (what, content) = match change {
            PastChange::Put(value) => ("put", value.to_string()),
            PastChange::Merge(deltas) => ("merge", deltas.iter().map(delta).collect::<Vec<_>>().join(", ")),
            PastChange::Delete => ("delete", String::new()),
        };
        table.add_row([
            number.to_string(),
            output::instant(*at),
            what.to_owned(),
            mutations.to_string(),
            output::harmless(&output::cut(&content, SHOWN_CHARACTERS)),
        ]);
    }
    output::say(table)?;
    if let Some(next) = next {
        eprintln!("hint: there are older ones; go on with --before {next}");
    }
    Ok(())
}

/// A delta in a few words.
fn delta(delta: &Delta) -> String {
    match delta {
        Delta::Inc { path, by } => format!("inc {path} {by}"),
        Delta::Push { path, value } => format!("push {path} {value}"),
        Delta::Set { path, value } => format!("set {path} {value}"),
        Delta::Remove { path } => format!("remove {path}"),
    }
}
