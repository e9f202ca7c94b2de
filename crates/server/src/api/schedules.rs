//! Scheduled tasks (cron).

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidelock_core::clock::Timestamp;
use tidelock_core::schedule::{Entry, Schedules, TaskView};
use tidelock_core::store::SharedStore;

use crate::openapi::shape;
use crate::request::{Answered, Asked, Named, ok, rows};
use crate::shared::App;

/// The number of upcoming fires, and of past runs, in the view of a task.
const FEW: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Schedules")]
pub(crate) struct Listing {
    #[schemars(with = "Vec<shape::Object>")]
    schedules: Vec<TaskView>,
    next: Option<String>,
}

/// Returns one page of tasks.
pub(crate) async fn list(State(app): State<App>, Asked(asked): Asked<ListQuery>) -> Answered {
    let tasks = Schedules::new(SharedStore::clone(&app.store));
    let (schedules, next) = tasks.page(asked.after.as_deref(), rows(asked.limit)?).await?;
    ok(&Listing { schedules, next })
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Schedule")]
pub(crate) struct Whole {
    #[serde(flatten)]
    #[schemars(with = "shape::Object")]
    view: TaskView,
    #[schemars(with = "Vec<shape::Timestamp>")]
    upcoming: Vec<Timestamp>,
    #[schemars(with = "Vec<shape::Object>")]
    history: Vec<Entry>,
}

/// Returns a task with its upcoming fires and its last runs.
pub(crate) async fn show(State(app): State<App>, Named(task): Named) -> Answered {
    let tasks = Schedules::new(SharedStore::clone(&app.store));
    let view = tasks.show(&task).await?;
    // A record that cannot be decoded has a view, but no upcoming fires.
    let upcoming = tasks.upcoming(&task, FEW).await.unwrap_or_default();
    let history = tasks.history(&task, FEW).await?;
    ok(&Whole { view, upcoming, history })
}
