//! Reactions: their progress, keys and dead letters, and the operator actions on them.
//!
//! An action is planned once. One batch names the planned rows, changes them and appends the audit event, after their number was confirmed.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::key::Key;
use tidelock_core::reactions::{
    Operator, OperatorVerb as Asks, ParkedEvent, ReactionFilter, ReactionKeyView, ReactionView,
};
use tidelock_core::store::{Page, SharedStore};

use crate::api::work::{Operated, confirmed};
use crate::app_state::{App, AppState};
use crate::audit::{self, AuditEntry};
use crate::openapi::shape;
use crate::request::{Answered, Body, PAGE_ROWS, PathName, QueryParams, ok, page, unreadable};
use crate::token::Caller;

/// The maximum number of keys in a page, even if the caller asks for more. `next` is the start of the remaining keys.
const KEYS: usize = 100;

fn operator(app: &AppState) -> Operator {
    Operator::new(SharedStore::clone(&app.store))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Reactions {
    #[schemars(with = "Vec<shape::Object>")]
    reactions: Vec<ReactionView>,
}

/// Returns all reactions. Their number is bounded by the declarations of the programs.
pub(crate) async fn list(State(app): State<App>) -> Answered {
    ok(&Reactions { reactions: operator(&app).reactions().await? })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysQuery {
    #[serde(default)]
    blocked: bool,
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReactionKeys")]
pub(crate) struct Keys {
    #[schemars(with = "Vec<shape::Object>")]
    keys: Vec<ReactionKeyView>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
}

/// Returns one page of the keys of a reaction.
pub(crate) async fn keys(
    State(app): State<App>,
    PathName(name): PathName,
    QueryParams(asked): QueryParams<KeysQuery>,
) -> Answered {
    let which = ReactionFilter::of(name);
    let which = if asked.blocked { which.blocked_only() } else { which };
    let page = page(asked.cursor.as_deref(), asked.limit)?;
    // Each key costs a read of the stream that it follows.
    let page = Page { limit: page.limit.min(KEYS), ..page };
    let found = operator(&app).keys(&which, page).await?;
    ok(&Keys { keys: found.rows, next: found.next })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLettersQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadLetters {
    #[schemars(with = "Vec<shape::Object>")]
    dead_letters: Vec<ParkedEvent>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
}

/// Returns one page of the dead letters of a reaction.
pub(crate) async fn dead_letters(
    State(app): State<App>,
    PathName(name): PathName,
    QueryParams(asked): QueryParams<DeadLettersQuery>,
) -> Answered {
    let found = operator(&app).parked(&name, page(asked.cursor.as_deref(), asked.limit)?).await?;
    ok(&DeadLetters { dead_letters: found.rows, next: found.next })
}

/// An operator action on a reaction.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ReactionVerb")]
pub(crate) enum Verb {
    Unblock,
    Reset,
    Retry,
    Park,
    Replay,
    Drop,
}

impl Verb {
    const fn word(self) -> &'static str {
        match self {
            Self::Unblock => "unblock",
            Self::Reset => "reset",
            Self::Retry => "retry",
            Self::Park => "park",
            Self::Replay => "replay",
            Self::Drop => "drop",
        }
    }

    const fn asks(self) -> Asks {
        match self {
            Self::Unblock => Asks::Unblock,
            Self::Reset => Asks::Reset,
            Self::Retry => Asks::RetryNow,
            Self::Park => Asks::Park,
            Self::Replay => Asks::ReplayParked,
            Self::Drop => Asks::DropParked,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OperateReaction")]
pub(crate) struct Operate {
    verb: Verb,
    /// Restricts the action to these keys. The default is all keys of the reaction.
    #[schemars(with = "Option<Vec<shape::Key>>", length(max = 1_000))]
    keys: Option<Vec<Key>>,
    /// Restricts the action to blocked keys.
    #[serde(default)]
    blocked: bool,
    /// Returns only the number of selected keys or events, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// The number of keys or events that the caller expects to change.
    confirm: Option<u64>,
}

/// Applies an action to keys of a reaction, if the caller has confirmed their number.
pub(crate) async fn operate(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(name): PathName,
    Body(body): Body<Operate>,
) -> Answered {
    let mut which = ReactionFilter::of(name.clone());
    if let Some(keys) = body.keys {
        if keys.len() > PAGE_ROWS {
            return Err(unreadable("keys", &format!("there are more than {PAGE_ROWS}")).into());
        }
        // A key that is listed twice counts once.
        which = which.keys(keys.into_iter().collect::<BTreeSet<Key>>());
    }
    if body.blocked {
        which = which.blocked_only();
    }
    let operator = operator(&app);
    let plan = operator.plan(body.verb.asks(), &which).await?;
    let would_change = plan.affected();
    if body.dry_run {
        return ok(&Operated { would_change, changed: 0 });
    }
    confirmed(body.confirm, would_change)?;
    let details = json!({"blocked": body.blocked, "selected": audit::keys(plan.keys())});
    let audit_entry = AuditEntry::new(&caller, body.verb.word(), &name, details);
    let changed = operator.apply_plan(plan.with_batch(audit_entry.batch()?)).await?;
    ok(&Operated { would_change, changed })
}
