//! Schedules (cron).

mod operate;

pub(crate) use operate::{Empty, ScheduleName, Triggered, pause, resume, run};

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidelock_core::clock::Timestamp;
use tidelock_core::schedule::{ScheduleView, Schedules, TickEntry};
use tidelock_core::store::SharedStore;

use crate::app_state::App;
use crate::openapi::shape;
use crate::request::{Answered, PathName, QueryParams, ok, rows};

/// The number of upcoming times, and of past runs, in the view of a schedule.
const FEW: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Schedules")]
pub(crate) struct Listing {
    #[schemars(with = "Vec<shape::Object>")]
    schedules: Vec<ScheduleView>,
    next: Option<String>,
}

/// Returns one page of schedules.
pub(crate) async fn list(State(app): State<App>, QueryParams(asked): QueryParams<ListQuery>) -> Answered {
    let all = Schedules::new(SharedStore::clone(&app.store));
    let (schedules, next) = all.page(asked.cursor.as_deref(), rows(asked.limit)?).await?;
    ok(&Listing { schedules, next })
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Schedule")]
pub(crate) struct ScheduleDetails {
    #[serde(flatten)]
    #[schemars(with = "shape::Object")]
    view: ScheduleView,
    #[schemars(with = "Vec<shape::Timestamp>")]
    upcoming: Vec<Timestamp>,
    #[schemars(with = "Vec<shape::Object>")]
    history: Vec<TickEntry>,
}

/// Returns a schedule with its upcoming times and its last runs.
pub(crate) async fn show(State(app): State<App>, PathName(name): PathName) -> Answered {
    let all = Schedules::new(SharedStore::clone(&app.store));
    let view = all.show(&name).await?;
    // A record that cannot be decoded has a view, but no upcoming times.
    let upcoming = all.upcoming(&name, FEW).await.unwrap_or_default();
    let history = all.history(&name, FEW).await?;
    ok(&ScheduleDetails { view, upcoming, history })
}
