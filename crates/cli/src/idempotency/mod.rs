//! `tidelock idempotency`: keys of requests as operators see and forget them.
//!
//! It opens a store that exists and creates none.

mod forget;
mod list;
mod show;

use anyhow::Result;
use tidelock::edge::{Idempotency, KeyState};

use crate::args::{IdempotencyVerb, Source};
use crate::exit::Exit;
use crate::output;

/// Carries out a verb.
pub(crate) async fn run(verb: IdempotencyVerb) -> Result<Exit> {
    match verb {
        IdempotencyVerb::List(options) => list::run(&options).await,
        IdempotencyVerb::Show(options) => show::run(&options).await,
        IdempotencyVerb::Forget(options) => {
            on(&options.place, async |keys| forget::run(&keys, &options).await).await
        }
    }
}

/// Does something on a store that exists, and ends the store however that ends.
async fn on(place: &Source, work: impl AsyncFnOnce(Idempotency) -> Result<Exit>) -> Result<Exit> {
    let opened = place.open().await?;
    let ended = work(Idempotency::new(&opened.shared())).await;
    opened.close().await;
    ended
}

/// How a key stands, in a few words.
fn words(state: &KeyState) -> String {
    match state {
        KeyState::Stored { status, body_bytes: Some(_), .. } => format!("answered with {status}"),
        KeyState::Stored { status, body_bytes: None, .. } => format!("answered with {status}, body not kept"),
        KeyState::InFlight { by, until, .. } => {
            format!("in flight at {}, until {} at least", output::flat(by), output::instant(*until))
        }
    }
}
