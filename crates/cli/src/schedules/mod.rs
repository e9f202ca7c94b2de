//! `tidelock schedules`: tasks that run at their times, as operators see them and ask for them.
//!
//! It opens a store that exists and creates none. It runs no task: that is for the schedulers, which have the code.

mod change;
mod list;
mod show;

use anyhow::Result;
use serde::Serialize;
use tidelock::schedule::Schedules as Tasks;

use crate::args::{Format, Place, Schedules};
use crate::exit::Exit;
use crate::output;

/// Carries out a verb.
pub(crate) async fn run(verb: Schedules) -> Result<Exit> {
    match verb {
        Schedules::List(options) => on(&options.place, async |tasks| list::run(&tasks, &options).await).await,
        Schedules::Show(options) => on(&options.place, async |tasks| show::run(&tasks, &options).await).await,
        Schedules::History(options) => {
            on(&options.place, async |tasks| show::history(&tasks, &options).await).await
        }
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
async fn on(place: &Place, work: impl AsyncFnOnce(Tasks) -> Result<Exit>) -> Result<Exit> {
    let opened = place.open().await?;
    let ended = work(Tasks::new(opened.shared())).await;
    opened.close().await;
    ended
}

/// Prints what was done: a sentence for people, a value for programs.
fn told(format: Format, report: &impl Serialize, sentence: &str) -> Result<Exit> {
    match format {
        Format::Json => output::json(report)?,
        Format::Table => output::say(sentence)?,
    }
    Ok(Exit::Well)
}

/// The name of a task as a shell takes it.
fn shown(task: &str) -> String {
    output::quoted(&output::flat(task))
}
