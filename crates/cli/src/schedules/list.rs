//! `tidelock schedules list`: the tasks and their current activity.

use anyhow::Result;
use comfy_table::{Cell, Table};
use tidelock::prelude::*;
use tidelock::schedule::{Doing, Schedules, TaskView};

use crate::args::SchedulesList;
use crate::exit::Exit;
use crate::output::{self, Tone};
use crate::sight::{self, Listing};

/// Lists the tasks.
pub(super) async fn run(options: &SchedulesList) -> Result<Exit> {
    sight::listing(&options.look, &options.pages, async |store, ask| {
        let mut tasks = Schedules::new(SharedStore::clone(store)).list().await?;
        let count = tasks.len();
        tasks.retain(|task| options.archived || !matches!(task.doing, Doing::Archived { .. }));
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

fn table(tasks: &[TaskView]) -> Table {
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
fn doing(doing: &Doing) -> Cell {
    let tone = match doing {
        Doing::Runs { .. } => Tone::Good,
        Doing::Retries { .. } | Doing::Paused { .. } => Tone::Caution,
        Doing::Blocked { .. } | Doing::Broken { .. } => Tone::Bad,
        Doing::Due | Doing::Waits { .. } | Doing::Archived { .. } => return word(doing).into(),
    };
    output::cell(word(doing), tone)
}

fn word(doing: &Doing) -> &'static str {
    match doing {
        Doing::Runs { .. } => "runs",
        Doing::Due => "due",
        Doing::Waits { .. } => "waits",
        Doing::Retries { .. } => "retries",
        Doing::Paused { .. } => "paused",
        Doing::Archived { .. } => "archived",
        Doing::Blocked { .. } => "blocked",
        Doing::Broken { .. } => "broken",
    }
}

/// Returns the activity with all details.
pub(super) fn whole(doing: &Doing) -> String {
    let word = word(doing);
    match doing {
        Doing::Runs { by, fire, until } => format!(
            "{word} for {} by {} until {} at least",
            output::instant(*fire),
            output::flat(by),
            output::instant(*until)
        ),
        Doing::Due | Doing::Waits { until: None } => word.to_owned(),
        Doing::Waits { until: Some(until) } => format!("{word} until {}", output::instant(*until)),
        Doing::Retries { at } => format!("{word} at {}", output::instant(*at)),
        Doing::Paused { since, reason } => {
            format!("{word} since {}: {}", output::instant(*since), output::flat(reason))
        }
        Doing::Archived { since } => format!("{word} since {}", output::instant(*since)),
        Doing::Blocked { reason } | Doing::Broken { reason } => format!("{word}: {}", output::flat(reason)),
    }
}
