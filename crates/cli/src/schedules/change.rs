//! `tidelock schedules run`, `pause` and `resume`: commands that change a schedule.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::schedule::Schedules;

use super::shown;
use crate::args::{SchedulesPause, SchedulesResume, SchedulesRun};
use crate::exit::Exit;
use crate::output::print_report;
use crate::{confirm, output};

/// The printed report of a triggered run.
#[derive(Debug, Serialize)]
struct TriggeredRun<'a> {
    schedule: &'a str,
    key: String,
}

/// Triggers a run, or backfills the ticks of a past period.
pub(super) async fn run(tasks: &Schedules, options: &SchedulesRun) -> Result<Exit> {
    let schedule = options.schedule.as_str();
    if let (Some(after), Some(to)) = (options.after, options.to) {
        return backfill(tasks, options, after, to).await;
    }
    let key = tasks.run_now(schedule).await?;
    let shown = output::flat(&key);
    print_report(options.place.output, &TriggeredRun { schedule, key }, shown)
}

/// The printed report of a backfill.
#[derive(Debug, Serialize)]
struct Filled<'a> {
    schedule: &'a str,
    /// The number of ticks in the period.
    ticks: usize,
    dry_run: bool,
}

async fn backfill(
    tasks: &Schedules,
    options: &SchedulesRun,
    after: Timestamp,
    to: Timestamp,
) -> Result<Exit> {
    let (schedule, format) = (options.schedule.as_str(), options.place.output);
    let ticks = tasks.count_backfill(schedule, after, to).await?;
    let meant = match ticks {
        1 => format!("1 tick of {}", shown(schedule)),
        _ => format!("{} ticks of {}", output::number(ticks as u64), shown(schedule)),
    };
    if options.dry_run {
        let report = Filled { schedule, ticks, dry_run: true };
        return print_report(format, &report, format!("{meant} would be run"));
    }
    if ticks > 0
        && !confirm::agreed(&format!("Run {meant}, whether they have run before or not?"), options.yes)?
    {
        return Ok(Exit::Failed);
    }
    let ticks = tasks.backfill(schedule, after, to).await?;
    print_report(format, &Filled { schedule, ticks, dry_run: false }, format!("{meant} will be run"))
}

/// The printed report of a pause or a resumption.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    schedule: &'a str,
    paused: bool,
}

/// Pauses a schedule.
pub(super) async fn pause(tasks: &Schedules, options: &SchedulesPause) -> Result<Exit> {
    let SchedulesPause { schedule, reason, place } = options;
    tasks.pause(schedule, reason).await?;
    print_report(place.output, &Changed { schedule, paused: true }, format!("{} is paused", shown(schedule)))
}

/// Resumes a schedule.
pub(super) async fn resume(tasks: &Schedules, options: &SchedulesResume) -> Result<Exit> {
    let SchedulesResume { schedule, place } = options;
    tasks.resume(schedule).await?;
    print_report(
        place.output,
        &Changed { schedule, paused: false },
        format!("{} is resumed", shown(schedule)),
    )
}
