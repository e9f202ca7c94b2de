//! `tidelock state get`: one record.

use anyhow::Result;
use tidelock::prelude::*;

use super::envelope::Envelope;
use super::{heading, not_found};
use crate::args::{Format, StateGet};
use crate::exit::Exit;
use crate::output;

/// Prints the value for people, or everything for programs.
pub(super) async fn run(options: &StateGet) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    let opened = options.place.open().await?;
    let found = opened.shared().document(&key).await?;
    opened.close().await;
    let Some(document) = found else { return Ok(not_found(&key)) };
    match options.place.output {
        Format::Json => output::json(&Envelope::of(&document))?,
        Format::Table => {
            // In a file or a pipe, the value stands alone.
            if output::is_terminal() {
                eprintln!("{}", heading(&document));
            }
            output::say(output::pretty(&document.value))?;
        }
    }
    Ok(Exit::Well)
}
