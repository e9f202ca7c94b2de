//! `tidelock schedules list`: the tasks and their current activity.

use anyhow::Result;
use comfy_table::{Cell, Table};
use tidelock::prelude::*;
use tidelock::schedule::{ScheduleActivity, ScheduleView, Schedules};

use crate::args::SchedulesList;
use crate::exit::Exit;
use crate::output::{self, Tone};
use crate::render::{self, Listing};

/// Lists the tasks.
pub(super) async fn run(options: &SchedulesList) -> Result<Exit> {
    render::listing(&options.look, &options.pages, async |store, ask| {
        let mut tasks = Schedules::new(SharedStore::clone(store)).list().await?;
        let count = tasks.len();
        tasks.retain(|task| options.archived || !matches!(task.doing, ScheduleActivity::Archived { .. }));
        let archived = count - tasks.len();
        tasks.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        let (tasks, next) = ask.of(tasks, |task| &task.record.name);
        let listing = Listing::new("tasks", tasks, table).or("no tasks").next(next);
        Ok(if archived == 0 {
            listing
        } else {
            listing.note(format!("{archived} archived; --archived lists them"))
        })
    })
    .await
}

fn table(tasks: &[ScheduleView]) -> Table {
    let header = ["task", "times", "zone", "doing", "next", "last success", "runs", "failures"];
    let mut table = output::table(&header, &[6, 7]);
    for task in tasks {
        let record = &task.record;
        table.add_row([
            output::flat(&record.name).into(),
            output::flat(&record.cron_expression).into(),
            output::flat(&task.zone).into(),
            doing(&task.doing),
            when(task.next).into(),
            when(record.last_success_time).into(),
            output::number(task.runs).into(),
            output::number(task.failures).into(),
        ]);
    }
    table
}

/// Returns an instant as text, or a dash.
pub(super) fn when(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), output::instant)
}

/// Returns the activity of a task in one word, highlighted when it needs attention.
fn doing(doing: &ScheduleActivity) -> Cell {
    let tone = match doing {
        ScheduleActivity::Runs { .. } => Tone::Good,
        ScheduleActivity::Retries { .. } | ScheduleActivity::Paused { .. } => Tone::Caution,
        ScheduleActivity::Blocked { .. } | ScheduleActivity::Broken { .. } => Tone::Bad,
        ScheduleActivity::Due | ScheduleActivity::Waits { .. } | ScheduleActivity::Archived { .. } => {
            return word(doing).into();
        }
    };
    output::cell(word(doing), tone)
}

fn word(doing: &ScheduleActivity) -> &'static str {
    match doing {
        ScheduleActivity::Runs { .. } => "runs",
        ScheduleActivity::Due => "due",
        ScheduleActivity::Waits { .. } => "waits",
        ScheduleActivity::Retries { .. } => "retries",
        ScheduleActivity::Paused { .. } => "paused",
        ScheduleActivity::Archived { .. } => "archived",
        ScheduleActivity::Blocked { .. } => "blocked",
        ScheduleActivity::Broken { .. } => "broken",
    }
}

/// Returns the activity with all details.
pub(super) fn whole(doing: &ScheduleActivity) -> String {
    let word = word(doing);
    match doing {
        ScheduleActivity::Runs { by, fire, until } => format!(
            "{word} for {} by {} until {} at least",
            output::instant(*fire),
            output::flat(by),
            output::instant(*until)
        ),
        ScheduleActivity::Due | ScheduleActivity::Waits { until: None } => word.to_owned(),
        ScheduleActivity::Waits { until: Some(until) } => format!("{word} until {}", output::instant(*until)),
        ScheduleActivity::Retries { at } => format!("{word} at {}", output::instant(*at)),
        ScheduleActivity::Paused { since, reason } => {
            format!("{word} since {}: {}", output::instant(*since), output::flat(reason))
        }
        ScheduleActivity::Archived { since } => format!("{word} since {}", output::instant(*since)),
        ScheduleActivity::Blocked { reason } | ScheduleActivity::Broken { reason } => {
            format!("{word}: {}", output::flat(reason))
        }
    }
}
