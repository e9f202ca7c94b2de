//! `tidelock schedules run`, `pause` and `resume`: commands that change a task.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::schedule::Schedules;

use super::shown;
use crate::args::{SchedulesPause, SchedulesResume, SchedulesRun};
use crate::exit::Exit;
use crate::output::told;
use crate::{ask, output};

/// The printed report of a triggered run.
#[derive(Debug, Serialize)]
struct Asked<'a> {
    task: &'a str,
    key: String,
}

/// Triggers a run, or backfills the fires of a past period.
pub(super) async fn run(tasks: &Schedules, options: &SchedulesRun) -> Result<Exit> {
    let task = options.schedule.as_str();
    if let (Some(after), Some(to)) = (options.after, options.to) {
        return backfill(tasks, options, after, to).await;
    }
    let key = tasks.run_now(task).await?;
    let shown = output::flat(&key);
    told(options.place.output, &Asked { task, key }, shown)
}

/// The printed report of a backfill.
#[derive(Debug, Serialize)]
struct Filled<'a> {
    task: &'a str,
    /// The number of fires in the period.
    fires: usize,
    dry_run: bool,
}

async fn backfill(
    tasks: &Schedules,
    options: &SchedulesRun,
    after: Timestamp,
    to: Timestamp,
) -> Result<Exit> {
    let (task, format) = (options.schedule.as_str(), options.place.output);
    let fires = tasks.count_backfill(task, after, to).await?;
    let meant = match fires {
        1 => format!("1 fire of {}", shown(task)),
        _ => format!("{} fires of {}", output::number(fires as u64), shown(task)),
    };
    if options.dry_run {
        let report = Filled { task, fires, dry_run: true };
        return told(format, &report, format!("{meant} would be run"));
    }
    if fires > 0 && !ask::agreed(&format!("Run {meant}, whether they have run before or not?"), options.yes)?
    {
        return Ok(Exit::Failed);
    }
    let fires = tasks.backfill(task, after, to).await?;
    told(format, &Filled { task, fires, dry_run: false }, format!("{meant} will be run"))
}

/// The printed report of a pause or a resumption.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    task: &'a str,
    paused: bool,
}

/// Pauses a task.
pub(super) async fn pause(tasks: &Schedules, options: &SchedulesPause) -> Result<Exit> {
    let SchedulesPause { task, reason, place } = options;
    tasks.pause(task, reason).await?;
    told(place.output, &Changed { task, paused: true }, format!("{} is paused", shown(task)))
}

/// Resumes a task.
pub(super) async fn resume(tasks: &Schedules, options: &SchedulesResume) -> Result<Exit> {
    let SchedulesResume { task, place } = options;
    tasks.resume(task).await?;
    told(place.output, &Changed { task, paused: false }, format!("{} goes on", shown(task)))
}
