//! `tidelock restored`: declares that the history of a store was cut, and starts a new epoch.

use anyhow::Result;
use serde::Serialize;
use tidelock::id::Epoch;
use tidelock::prelude::*;
use tidelock::store::HistoryCut;

use crate::args::Restored;
use crate::confirm;
use crate::exit::Exit;
use crate::output::print_report;

/// The confirmation prompt before a new epoch starts.
const QUESTION: &str =
    "Programs that use the store drop what they remember, and positions and fences jump ahead. Begin it?";

#[derive(Debug, Serialize)]
struct Report {
    /// The previous epoch.
    epoch: Epoch,
    /// The recorded cut; `None` when nothing was changed.
    cut: Option<HistoryCut>,
    dry_run: bool,
}

/// Starts a new epoch.
pub(crate) async fn run(options: &Restored) -> Result<Exit> {
    let opened = options.place.open().await?;
    let ended = declare(&opened.shared(), options).await;
    opened.close().await;
    ended
}

async fn declare(store: &SharedStore, options: &Restored) -> Result<Exit> {
    let (epoch, output) = (store.epoch(), options.place.output);
    if options.consent.dry_run {
        let report = Report { epoch, cut: None, dry_run: true };
        return print_report(output, &report, format!("a new epoch would follow epoch {epoch}"));
    }
    if !confirm::agreed(&format!("A new epoch follows epoch {epoch}. {QUESTION}"), options.consent.yes)? {
        return Ok(Exit::Failed);
    }
    let cut = store.declare_cut(&options.reason).await?;
    let sentence = format!(
        "epoch {} follows epoch {}; the log was cut after position {} and continues at {}, fences after {}",
        cut.epoch, cut.previous, cut.cut_after, cut.resumes_at, cut.fence
    );
    print_report(output, &Report { epoch, cut: Some(cut), dry_run: false }, sentence)
}
