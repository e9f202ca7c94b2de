//! Document history, where the program keeps one, and conflict counters, where the program shows them.

use std::collections::BTreeMap;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidelock_core::clock::Timestamp;
use tidelock_core::id::StreamVersion;
use tidelock_core::key::Key;
use tidelock_core::model::delta::DeltaError;
use tidelock_core::model::draft::Draft;
use tidelock_core::payload::Payload;
use tidelock_core::state::{HistoryChange, HistoryEntry, HistoryPage, history_page};

use crate::app_state::{App, AppState};
use crate::error::ServerError;
use crate::host::Tally;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, Numbered, PathName, QueryParams, ok, rows, unreadable};

/// The maximum number of merges that are read back to compute a past value.
const BACK: usize = 5_000;
const PAGE: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    cursor: Option<u64>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "History")]
pub(crate) struct Listing {
    #[schemars(with = "Vec<shape::Object>")]
    writes: Vec<HistoryEntry>,
    /// The cursor of the next page.
    #[schemars(with = "Option<u64>")]
    next: Option<StreamVersion>,
}

/// Returns the last writes to a document, newest first.
pub(crate) async fn list(
    State(app): State<App>,
    name: PathName,
    QueryParams(asked): QueryParams<HistoryQuery>,
) -> Answered {
    let limit = rows(asked.limit)?;
    let before = asked.cursor.map(StreamVersion);
    let HistoryPage { writes, end } = history_page(app.store(), &name.key()?, before, limit).await?;
    let next = writes.last().map(|write| write.number).filter(|number| !end && number.0 > 0);
    ok(&Listing { writes, next })
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ValueAt")]
pub(crate) struct At {
    #[schemars(with = "u64")]
    number: StreamVersion,
    #[schemars(with = "shape::Timestamp")]
    recorded_at: Timestamp,
    /// The value. It is also `null` if the document was deleted.
    #[schemars(with = "serde_json::Value")]
    value: Option<Payload>,
    deleted: bool,
}

/// Returns the value of a document after a write of its history.
pub(crate) async fn at(State(app): State<App>, asked: Numbered) -> Answered {
    let Numbered { key, number } = asked;
    let Some((recorded_at, value)) = value_after(&app, &key, number).await? else {
        let name = format!("{key}, write {number}");
        return Err(ServerError::NotFound { what: "history of", name }.into());
    };
    ok(&At { number: StreamVersion(number), recorded_at, deleted: value.is_none(), value })
}

/// Searches backwards for the last put or delete, and applies the later merges to its value.
async fn value_after(
    app: &AppState,
    key: &Key,
    number: u64,
) -> Result<Option<(Timestamp, Option<Payload>)>, Problem> {
    let mut before = Some(StreamVersion(number.saturating_add(1)));
    let mut merges: Vec<HistoryEntry> = Vec::new();
    let mut when = None;
    while merges.len() < BACK {
        let HistoryPage { writes, end } = history_page(app.store(), key, before, PAGE).await?;
        before = writes.last().map(|oldest| oldest.number);
        for past in writes {
            if when.is_none() && past.number.0 != number {
                return Ok(None);
            }
            let at = *when.get_or_insert(past.at);
            let base = match past.change {
                HistoryChange::Merge(_) => {
                    merges.push(past);
                    continue;
                }
                HistoryChange::Put(value) => Some(value),
                HistoryChange::Delete => None,
            };
            return Ok(Some((at, merged(base, &merges)?)));
        }
        if end || before.is_none() {
            return match when {
                None => Ok(None),
                Some(_) => {
                    Err(unreadable("number", "the value that it builds on was removed from the history")
                        .into())
                }
            };
        }
    }
    let reason = format!("it was built by more than {BACK} merges; request a write of a whole value");
    Err(unreadable("number", &reason).into())
}

fn merged(base: Option<Payload>, merges: &[HistoryEntry]) -> Result<Option<Payload>, Problem> {
    if merges.is_empty() {
        return Ok(base);
    }
    let mut value = Draft::of(&base.unwrap_or_default());
    for past in merges.iter().rev() {
        let HistoryChange::Merge(deltas) = &past.change else { continue };
        for step in deltas {
            let misfit = |misfit: DeltaError| {
                let reason =
                    format!("write {} needs {}, and there is {}", past.number, misfit.needed, misfit.found);
                unreadable("the history", &reason)
            };
            value.apply(step).map_err(misfit)?;
        }
    }
    Ok(Some(value.payload()))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Conflicts {
    /// Whether the program shows its conflicts here.
    shown: bool,
    kinds: BTreeMap<String, Tally>,
}

/// Returns the conflict counters of state mutations, by the kind of record.
pub(crate) async fn conflicts(State(app): State<App>) -> Answered {
    let seen = app.inspected.conflicts.get();
    ok(&Conflicts { shown: seen.is_some(), kinds: seen.map(|seen| seen.by_kind()).unwrap_or_default() })
}
