//! `tidelock idempotency forget`: deletes an idempotency key, so that its request runs again.

use anyhow::Result;
use serde::Serialize;
use tidelock::edge::{EdgeError, Idempotency, KeyState};

use super::words;
use crate::args::IdempotencyForget;
use crate::exit::Exit;
use crate::output::told;
use crate::{ask, output};

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    scope: &'a str,
    key: &'a str,
    forgotten: bool,
    dry_run: bool,
}

/// Shows the key, asks for confirmation, and deletes it.
pub(super) async fn run(keys: &Idempotency, options: &IdempotencyForget) -> Result<Exit> {
    let IdempotencyForget { key, scope, dry_run, yes, place } = options;
    let (view, _) = keys.show(scope, key).await?;
    let name = output::quoted(&output::flat(key));
    // A request in flight cannot be forgotten, so no confirmation is needed.
    if let KeyState::InFlight { by, since, until } = view.state {
        return Err(EdgeError::InFlight { key: key.clone(), by, since, until }.into());
    }
    let stands = words(&view.state);
    if *dry_run {
        let report = Report { scope, key, forgotten: false, dry_run: true };
        return told(place.output, &report, format!("{name} was {stands}, which would be forgotten"));
    }
    let question = format!("{name} was {stands}. Forget it, so that its request runs again?");
    if !ask::agreed(&question, *yes)? {
        return Ok(Exit::Failed);
    }
    keys.forget(scope, key).await?;
    let report = Report { scope, key, forgotten: true, dry_run: false };
    told(place.output, &report, format!("{name} is forgotten"))
}
