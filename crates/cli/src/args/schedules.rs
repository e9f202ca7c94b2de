//! Arguments of `tidelock schedules`.

use clap::{Args, Subcommand};
use tidelock::prelude::*;

use super::{Look, Pages, Source};

/// `tidelock schedules`
#[derive(Debug, Subcommand)]
pub(crate) enum Schedules {
    /// List tasks with their next fires and last results
    #[command(after_help = LIST)]
    List(SchedulesList),
    /// Show all details of a task, with its next fires and last runs
    #[command(after_help = SHOW)]
    Show(SchedulesShow),
    /// List the results of the last runs of a task, newest first
    #[command(after_help = HISTORY)]
    History(SchedulesHistory),
    /// Trigger a run of a task now, or backfill the fires of a past period
    #[command(after_help = RUN)]
    Run(SchedulesRun),
    /// Pause a task until it is resumed
    #[command(after_help = PAUSE)]
    Pause(SchedulesPause),
    /// Resume a paused task
    #[command(after_help = RESUME)]
    Resume(SchedulesResume),
}

const LIST: &str = "\
Examples:
  tidelock schedules list --store app.db
  tidelock schedules list --archived --store app.db
  tidelock schedules list --store app.db -o jsonl | jq -r 'select(.failures > 0) | .name'

Next is the next fire on the timetable. With -o json, the times of the record are text, others microseconds since 1970, UTC.";

/// `tidelock schedules list`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesList {
    /// Include archived tasks
    #[arg(long)]
    pub(crate) archived: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

const SHOW: &str = "\
Examples:
  tidelock schedules show report --store app.db
  tidelock schedules show report --store app.db -o json | jq .upcoming";

/// `tidelock schedules show`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesShow {
    /// Name of the task
    pub(crate) task: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

const HISTORY: &str = "\
Examples:
  tidelock schedules history report --store app.db
  tidelock schedules history report --limit 5 --store app.db -o jsonl | jq 'select(.outcome == \"failed\")'";

/// `tidelock schedules history`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesHistory {
    /// Name of the task
    pub(crate) task: String,
    /// The page; 20 rows by default
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

const RUN: &str = "\
Examples:
  tidelock schedules run report --store app.db
  tidelock schedules run report --after 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z --dry-run --store app.db
  tidelock schedules run report --after 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z --yes --store app.db

A scheduler that knows the task runs it as soon as it can, also while the task is paused. Without a time it prints the key of the
fire. With one, the task runs for each fire after the one instant and up to the other, whether that has run before or not.";

/// `tidelock schedules run`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesRun {
    /// Name of the task
    pub(crate) task: String,
    /// Run the fires after this instant, such as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", requires = "to")]
    pub(crate) after: Option<Timestamp>,
    /// Run the fires up to this instant
    #[arg(long, value_name = "INSTANT", requires = "after")]
    pub(crate) to: Option<Timestamp>,
    /// Only count the fires
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

A run that is under way ends. Fires that come meanwhile do not run, also not later.";

/// `tidelock schedules pause`
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesPause {
    /// Name of the task
    pub(crate) task: String,
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
    /// Name of the task
    pub(crate) task: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
