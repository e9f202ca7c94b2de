//! `tidelock state get`: prints one record.

use anyhow::Result;
use tidelock::prelude::*;

use super::envelope::Envelope;
use super::{absent, heading};
use crate::args::StateGet;
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Single};

/// Prints the value for human readers, or everything for programs.
pub(super) async fn run(options: &StateGet) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    render::whole(&options.look, async |store| {
        let Some(document) = store.document(&key).await? else { return Ok(Single::missing(absent(&key))) };
        let text = output::pretty(&document.value);
        // In a file or a pipe, the value is printed without a heading.
        let notes = if output::is_terminal() { vec![heading(&document)] } else { Vec::new() };
        Ok(Single::new(Envelope::of(&document), text).notes(notes))
    })
    .await
}
