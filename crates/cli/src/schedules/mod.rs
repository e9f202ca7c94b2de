//! `tidelock schedules`: tasks that run at their times, as operators see them and ask for them.
//!
//! It opens a store that exists and creates none. It runs no task: that is for the schedulers, which have the code.

mod change;
mod list;
mod show;

use anyhow::Result;
use tidelock::schedule::Schedules as Tasks;

use crate::args::{Schedules, Source};
use crate::exit::Exit;
use crate::output;

/// Carries out a verb.
pub(crate) async fn run(verb: Schedules) -> Result<Exit> {
    match verb {
        Schedules::List(options) => list::run(&options).await,
        Schedules::Show(options) => show::run(&options).await,
        Schedules::History(options) => show::history(&options).await,
        Schedules::Run(options) => {
            on(&options.place, async |tasks| change::run(&tasks, &options).await).await
        }
        Schedules::Pause(options) => {
            on(&options.place, async |tasks| change::pause(&tasks, &options).await).await
        }
        Schedules::Resume(options) => {
            on(&options.place, async |tasks| change::resume(&tasks, &options).await).await
        }
    }
}

/// Does something on a store that exists, and ends the store however that ends.
async fn on(place: &Source, work: impl AsyncFnOnce(Tasks) -> Result<Exit>) -> Result<Exit> {
    let opened = place.open().await?;
    let ended = work(Tasks::new(opened.shared())).await;
    opened.close().await;
    ended
}

/// The name of a task as a shell takes it.
fn shown(task: &str) -> String {
    output::quoted(&output::flat(task))
}
