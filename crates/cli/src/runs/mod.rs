//! `tidelock runs`: workflow runs, as operators view, start, signal and repair them.
//!
//! The commands open an existing store and create none. They drive no run: only workers have the code.

mod activity;
mod change;
mod entry;
mod keys;
mod list;
mod prune;
mod queues;
mod show;
mod start;
mod watch;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::workflow::WorkflowClient;

use crate::args::{Runs, Source};
use crate::exit::Exit;
use crate::output;

/// Runs a verb of `runs`.
pub(crate) async fn run(verb: Runs) -> Result<Exit> {
    match verb {
        Runs::List(options) => list::run(&options).await,
        Runs::Show(options) => show::run(&options).await,
        Runs::Steps(options) => show::steps(&options).await,
        Runs::History(options) => {
            on(&options.place, async |client, _| {
                output::json(&client.history(&options.run).await?)?;
                Ok(Exit::Well)
            })
            .await
        }
        Runs::Start(options) => start::run(&options).await,
        Runs::Signal(options) => change::signal(&options).await,
        Runs::Cancel(options) => {
            on(&options.place, async |client, _| change::cancel(&client, &options).await).await
        }
        Runs::Resume(options) => {
            on(&options.place, async |client, _| change::resume(&client, &options).await).await
        }
        Runs::Fork(options) => {
            on(&options.place, async |client, _| change::fork(&client, &options).await).await
        }
        Runs::Watch(options) => Box::pin(watch::run(&options)).await,
        Runs::Prune(options) => {
            on(&options.place, async |client, store| prune::run(&client, &*store, &options).await).await
        }
        Runs::Queues(options) => queues::list(&options).await,
        Runs::Limit(options) => {
            on(&options.place, async |client, _| queues::limit(&client, &options).await).await
        }
    }
}

/// Runs `work` on an existing store, and closes the store whatever the result.
async fn on(
    place: &Source,
    work: impl AsyncFnOnce(WorkflowClient, SharedStore) -> Result<Exit>,
) -> Result<Exit> {
    let opened = place.open().await?;
    let store = opened.shared();
    let ended = work(WorkflowClient::new(SharedStore::clone(&store)), store).await;
    opened.close().await;
    ended
}

/// Quotes the id of a run for a shell.
fn shown(run: &str) -> String {
    output::quoted(&output::flat(run))
}
