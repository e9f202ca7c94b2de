//! `tidelock reactions`: reactions, their keys and their dead letters, as operators view and repair them.
//!
//! The commands open an existing store and create none. A change is one batch for each page of keys, so an interrupted
//! command has changed some of them completely.

mod dead_letters;
mod operate;
mod status;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::store::Operation;

use self::operate::{Change, apply};
use crate::args::{Reactions, ReactionsPrioritize};
use crate::exit::Exit;

/// Runs a verb of `reactions`.
pub(crate) async fn run(verb: Reactions) -> Result<Exit> {
    let none: &[u64] = &[];
    match verb {
        Reactions::List(options) => status::list(&options).await,
        Reactions::Status(options) => status::keys(&options).await,
        Reactions::Blocked(options) => status::blocked(&options).await,
        Reactions::DeadLetters(options) => dead_letters::list(&options).await,
        Reactions::Unblock(options) => {
            apply("unblock", Change::Operation(Operation::Unblock), &options, none).await
        }
        Reactions::Retry(options) => {
            apply("retry", Change::Operation(Operation::RetryNow), &options, none).await
        }
        Reactions::Reset(options) => {
            let change = if options.whole { Change::Whole } else { Change::Operation(Operation::Reset) };
            apply("reset", change, &options.operate, none).await
        }
        Reactions::Prioritize(ReactionsPrioritize { priority, operate }) => {
            let operation = Operation::Prioritize(Priority::new(priority)?);
            apply("prioritize", Change::Operation(operation), &operate, none).await
        }
        Reactions::Park(options) => apply("park", Change::Park, &options, none).await,
        Reactions::Replay(options) => {
            apply("replay", Change::Replay, &options.operate, &options.position).await
        }
        Reactions::Drop(options) => apply("drop", Change::Drop, &options.operate, &options.position).await,
    }
}
