//! `tidelock idempotency delete`: deletes an idempotency key, so that its request runs again.

use anyhow::Result;
use serde::Serialize;
use tidelock::idempotency::{Idempotency, IdempotencyError, IdempotencyKeyState};

use super::words;
use crate::args::IdempotencyDelete;
use crate::exit::Exit;
use crate::output::print_report;
use crate::{confirm, output};

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    scope: &'a str,
    key: &'a str,
    deleted: bool,
    dry_run: bool,
}

/// Shows the key, asks for confirmation, and deletes it.
pub(super) async fn run(keys: &Idempotency, options: &IdempotencyDelete) -> Result<Exit> {
    let IdempotencyDelete { key, scope, dry_run, yes, place } = options;
    let (view, _) = keys.show(scope, key).await?;
    let name = output::quoted(&output::flat(key));
    // The key of a request in flight cannot be deleted, so no confirmation is needed.
    if let IdempotencyKeyState::InFlight { by, since, until } = view.state {
        return Err(IdempotencyError::InFlight { key: key.clone(), by, since, until }.into());
    }
    let state = words(&view.state);
    if *dry_run {
        let report = Report { scope, key, deleted: false, dry_run: true };
        return print_report(place.output, &report, format!("{name} was {state}, which would be deleted"));
    }
    let question = format!("{name} was {state}. Delete it, so that its request runs again?");
    if !confirm::agreed(&question, *yes)? {
        return Ok(Exit::Failed);
    }
    keys.forget(scope, key).await?;
    let report = Report { scope, key, deleted: true, dry_run: false };
    print_report(place.output, &report, format!("{name} is deleted"))
}
