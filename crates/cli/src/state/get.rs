//! `tidelock state get`: prints one record.

use anyhow::Result;
use tidelock::prelude::*;

use super::envelope::Envelope;
use super::{absent, heading};
use crate::args::StateGet;
use crate::exit::Exit;
use crate::output;
use crate::sight::{self, Whole};

/// Prints the value for human readers, or everything for programs.
pub(super) async fn run(options: &StateGet) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    sight::whole(&options.look, async |store| {
        let Some(document) = store.document(&key).await? else { return Ok(Whole::missing(absent(&key))) };
        let text = output::pretty(&document.value);
        // In a file or a pipe, the value is printed without a heading.
        let notes = if output::is_terminal() { vec![heading(&document)] } else { Vec::new() };
        Ok(Whole::new(Envelope::of(&document), text).notes(notes))
    })
    .await
}
