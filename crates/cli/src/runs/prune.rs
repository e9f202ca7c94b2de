//! `tidelock runs prune`: removes runs that ended long ago.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::workflow::WorkflowClient;

use super::list::ago;
use crate::args::RunsPrune;
use crate::exit::Exit;
use crate::output::print_report;
use crate::{confirm, output};

/// The printed report.
#[derive(Debug, Serialize)]
struct Report {
    /// The number of matching runs.
    selected: usize,
    removed: usize,
    /// The instant before which they ended.
    before: Timestamp,
    dry_run: bool,
}

/// Counts the matching runs, asks for confirmation, and removes them.
pub(super) async fn run(client: &WorkflowClient, store: &dyn Store, options: &RunsPrune) -> Result<Exit> {
    let most = options.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let selected = client.count_retirable(options.older, most).await?;
    let (format, before) = (options.place.output, ago(store.now().await?, options.older));
    let runs = format!("{} that ended before {}", counted(selected), output::instant(before));
    if options.dry_run {
        let report = Report { selected, removed: 0, before, dry_run: true };
        return print_report(format, &report, format!("{runs} would be removed"));
    }
    let question = format!("Remove {runs}, with their journals, signals and index entries?");
    if selected > 0 && !confirm::agreed(&question, options.yes)? {
        return Ok(Exit::Failed);
    }
    // At most the confirmed number, although more runs may have reached the age since.
    let removed = client.retire(options.older, selected).await?;
    let report = Report { selected, removed, before, dry_run: false };
    print_report(format, &report, format!("{} removed", counted(removed)))
}

fn counted(runs: usize) -> String {
    match runs {
        1 => "1 run".to_owned(),
        _ => format!("{} runs", output::number(runs as u64)),
    }
}
