//! What the user may type after `tidelock schedules`.

use clap::{Args, Subcommand};
use tidelock::prelude::*;

use super::{Look, Pages, Source};

/// `tidelock schedules`
#[derive(Debug, Subcommand)]
pub(crate) enum Schedules {
    /// Lists tasks, when they run next and how they ran
    #[command(after_help = LIST)]
    List(SchedulesList),
    /// Shows all there is about a task, with its next fires and last runs
    #[command(after_help = SHOW)]
    Show(SchedulesShow),
    /// Lists how the last runs of a task ended, newest first
    #[command(after_help = HISTORY)]
    History(SchedulesHistory),
    /// Asks for a run of a task now, or for its fires of a time that has passed
    #[command(after_help = RUN)]
    Run(SchedulesRun),
    /// Lets a task rest until it is resumed
    #[command(after_help = PAUSE)]
    Pause(SchedulesPause),
    /// Lets a task go on that is paused
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
    /// Lists archived tasks, too
    #[arg(long)]
    pub(crate) archived: bool,
    /// Which page
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
    /// The name of the task
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
    /// The name of the task
    pub(crate) task: String,
    /// Which page; 20 rows when nobody says
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
    /// The name of the task
    pub(crate) task: String,
    /// Runs the fires after this instant, such as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", requires = "to")]
    pub(crate) after: Option<Timestamp>,
    /// Runs the fires up to this instant
    #[arg(long, value_name = "INSTANT", requires = "after")]
    pub(crate) to: Option<Timestamp>,
    /// Only says how many fires are meant
    #[arg(long, requires = "after")]
    pub(crate) dry_run: bool,
    /// Does not ask; needed when nobody can be asked
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
    /// The name of the task
    pub(crate) task: String,
    /// Why, as it is recorded
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
    /// The name of the task
    pub(crate) task: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
