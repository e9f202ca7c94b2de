//! `tidelock schedules`: scheduled tasks, as operators view and trigger them.
//!
//! The commands open an existing store and create none. They run no task: only schedulers have the code.

mod change;
mod list;
mod show;

use anyhow::Result;
use tidelock::schedule::Schedules as Tasks;

use crate::args::{Schedules, Source};
use crate::exit::Exit;
use crate::output;

/// Runs a verb of `schedules`.
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

/// Runs `work` on an existing store, and closes the store whatever the result.
async fn on(place: &Source, work: impl AsyncFnOnce(Tasks) -> Result<Exit>) -> Result<Exit> {
    let opened = place.open().await?;
    let ended = work(Tasks::new(opened.shared())).await;
    opened.close().await;
    ended
}

/// Quotes the name of a task for a shell.
fn shown(task: &str) -> String {
    output::quoted(&output::flat(task))
}
