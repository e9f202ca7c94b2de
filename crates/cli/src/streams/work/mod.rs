//! Commands for stuck work: on single rows, and on the keys of reactions.

mod blocked;
mod call;
mod reaction;
mod row;
mod status;

pub(super) use blocked::run as blocked;
pub(super) use reaction::{park, replay};
pub(super) use status::{parked, run as status};

use anyhow::Result;
use tidelock::store::Operation;

use self::reaction::Change;
use crate::args::{StreamsOperate, StreamsReset};
use crate::exit::Exit;

/// Runs an operation of the store on rows or on keys of a reaction.
pub(super) async fn operate(
    options: &StreamsOperate,
    name: &'static str,
    operation: Operation,
) -> Result<Exit> {
    match &options.reaction {
        Some(reaction) => reaction::operate(options, reaction, name, Change::Operation(operation)).await,
        None => row::operate(options, name, operation).await,
    }
}

/// Runs `reset` on rows, keys or a whole reaction.
pub(super) async fn reset(options: &StreamsReset) -> Result<Exit> {
    match &options.operate.reaction {
        Some(name) if options.whole => {
            reaction::operate(&options.operate, name, "reset", Change::Whole).await
        }
        _ => operate(&options.operate, "reset", Operation::Reset).await,
    }
}
