//! Arguments of `tidelock schedules`.

use clap::{Args, Subcommand};
use tidelock::prelude::*;

use super::{Pages, Source, WatchArgs};

/// `tidelock schedules`
#[derive(Debug, Subcommand)]
pub(crate) enum Schedules {
    /// List schedules with their next times and last results
    #[command(after_help = LIST)]
    List(SchedulesList),
    /// Show all details of a schedule, with its next times and last runs
    #[command(after_help = SHOW)]
    Show(SchedulesShow),
    /// List the results of the last runs, newest first
    #[command(after_help = HISTORY)]
    History(SchedulesHistory),
    /// Trigger a run now, or backfill the ticks of a past period
    #[command(after_help = RUN)]
    Run(SchedulesRun),
    /// Pause a schedule until it is resumed
    #[command(after_help = PAUSE)]
    Pause(SchedulesPause),
    /// Resume a paused schedule
    #[command(after_help = RESUME)]
    Resume(SchedulesResume),
}

const LIST: &str = "\
Examples:
  tidelock schedules list --store app.db
  tidelock schedules list --archived --store app.db
  tidelock schedules list --store app.db -o jsonl | jq -r 'select(.failures > 0) | .name'

Next is the next time of the schedule.";

/// `tidelock schedules list`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesList {
    /// Include archived schedules
    #[arg(long)]
    pub(crate) archived: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const SHOW: &str = "\
Examples:
  tidelock schedules show report --store app.db
  tidelock schedules show report --store app.db -o json | jq .upcoming";

/// `tidelock schedules show`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesShow {
    /// Name of the schedule
    pub(crate) schedule: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const HISTORY: &str = "\
Examples:
  tidelock schedules history report --store app.db
  tidelock schedules history report --limit 5 --store app.db -o jsonl | jq 'select(.outcome == \"failed\")'";

/// `tidelock schedules history`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesHistory {
    /// Name of the schedule
    pub(crate) schedule: String,
    /// The page; 20 rows by default
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const RUN: &str = "\
Examples:
  tidelock schedules run report --store app.db
  tidelock schedules run report --after 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z --dry-run --store app.db
  tidelock schedules run report --after 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z --yes --store app.db

A worker that has the schedule runs it as soon as possible, even while it is paused. Without a period, the command prints the key
of the tick. With one, the schedule runs for each tick after the first instant and up to the second, whether it ran before or not.";

/// `tidelock schedules run`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesRun {
    /// Name of the schedule
    pub(crate) schedule: String,
    /// Run the ticks after this instant, such as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", requires = "to")]
    pub(crate) after: Option<Timestamp>,
    /// Run the ticks up to this instant
    #[arg(long, value_name = "INSTANT", requires = "after")]
    pub(crate) to: Option<Timestamp>,
    /// Only count the ticks
    #[arg(long, requires = "after")]
    pub(crate) dry_run: bool,
    /// Skip the confirmation; required without a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const PAUSE: &str = "\
Examples:
  tidelock schedules pause report --reason 'the printer is broken' --store app.db

A run in flight completes. Ticks during the pause never run.";

/// `tidelock schedules pause`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesPause {
    /// Name of the schedule
    pub(crate) schedule: String,
    /// Reason, which is recorded
    #[arg(long, value_name = "TEXT", default_value = "paused at the command line")]
    pub(crate) reason: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const RESUME: &str = "\
Examples:
  tidelock schedules resume report --store app.db";

/// `tidelock schedules resume`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesResume {
    /// Name of the schedule
    pub(crate) schedule: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
