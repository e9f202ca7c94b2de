//! `tidelock idempotency`: idempotency keys, as operators view and delete them.
//!
//! The commands open an existing store and create none.

mod delete;
mod list;
mod show;

use anyhow::Result;
use tidelock::idempotency::{Idempotency, IdempotencyKeyState};

use crate::args::{IdempotencyVerb, Source};
use crate::exit::Exit;
use crate::output;

/// Runs a verb of `idempotency`.
pub(crate) async fn run(verb: IdempotencyVerb) -> Result<Exit> {
    match verb {
        IdempotencyVerb::List(options) => list::run(&options).await,
        IdempotencyVerb::Show(options) => show::run(&options).await,
        IdempotencyVerb::Delete(options) => {
            on(&options.place, async |keys| delete::run(&keys, &options).await).await
        }
    }
}

/// Runs `work` on an existing store, and closes the store whatever the result.
async fn on(place: &Source, work: impl AsyncFnOnce(Idempotency) -> Result<Exit>) -> Result<Exit> {
    let opened = place.open().await?;
    let ended = work(Idempotency::new(&opened.shared())).await;
    opened.close().await;
    ended
}

/// Returns the state of a key in a few words.
fn words(state: &IdempotencyKeyState) -> String {
    match state {
        IdempotencyKeyState::Stored { status, body_bytes: Some(_), .. } => format!("answered with {status}"),
        IdempotencyKeyState::Stored { status, body_bytes: None, .. } => {
            format!("answered with {status}, body not kept")
        }
        IdempotencyKeyState::InFlight { by, until, .. } => {
            format!("in flight at {}, until {} at least", output::flat(by), output::instant(*until))
        }
    }
}
