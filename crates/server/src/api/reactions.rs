//! Reactions: how far they are, their keys, what was set aside, and what operators do about it.
//!
//! The operator's verbs are batches of the engine, so the audit event is written before, as something that was asked for.

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock::key::Key;
use tidelock::reactions::{KeyView, Operator, Parked, ReactionsError, Which};
use tidelock::store::SharedStore;

use crate::api::rows::confirmed;
use crate::audit::Told;
use crate::request::{Answered, Asked, Body, Named, ok, page};
use crate::shared::{App, Shared};
use crate::token::Caller;

fn operator(app: &Shared) -> Operator {
    Operator::new(SharedStore::clone(&app.store))
}

/// All reactions: there are as many as programs declare.
pub(crate) async fn list(State(app): State<App>) -> Answered {
    ok(&json!({"reactions": operator(&app).reactions().await?}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysQuery {
    #[serde(default)]
    blocked: bool,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Keys {
    keys: Vec<KeyView>,
    next: Option<Key>,
}

/// One page of the keys of a reaction.
pub(crate) async fn keys(
    State(app): State<App>,
    Named(name): Named,
    Asked(asked): Asked<KeysQuery>,
) -> Answered {
    let which = Which::of(name);
    let which = if asked.blocked { which.that_are_blocked() } else { which };
    let found = operator(&app).keys(&which, page(asked.after.as_deref(), asked.limit)?).await?;
    ok(&Keys { keys: found.rows, next: found.next })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParkedQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Aside {
    parked: Vec<Parked>,
    next: Option<Key>,
}

/// One page of what a reaction has set aside.
pub(crate) async fn parked(
    State(app): State<App>,
    Named(name): Named,
    Asked(asked): Asked<ParkedQuery>,
) -> Answered {
    let found = operator(&app).parked(&name, page(asked.after.as_deref(), asked.limit)?).await?;
    ok(&Aside { parked: found.rows, next: found.next })
}

/// What an operator does.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verb {
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

    async fn done(self, operator: &Operator, which: &Which) -> Result<u64, ReactionsError> {
        match self {
            Self::Unblock => operator.unblock(which).await,
            Self::Reset => operator.reset(which).await,
            Self::Retry => operator.retry_now(which).await,
            Self::Park => operator.park(which).await,
            Self::Replay => operator.replay_parked(which).await,
            Self::Drop => operator.drop_parked(which).await,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operate {
    verb: Verb,
    /// Only these keys; all of the reaction when they are not given.
    keys: Option<Vec<Key>>,
    /// Only keys that are blocked.
    #[serde(default)]
    blocked: bool,
    /// Only says how many are meant.
    #[serde(default)]
    dry_run: bool,
    confirm: Option<u64>,
}

/// Does something to keys of a reaction, after their number was confirmed.
pub(crate) async fn operate(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named,
    Body(body): Body<Operate>,
) -> Answered {
    let mut which = Which::of(name.clone());
    if let Some(keys) = &body.keys {
        which = which.keys(keys.iter().cloned());
    }
    if body.blocked {
        which = which.that_are_blocked();
    }
    let operator = operator(&app);
    let would = body.verb.done(&operator.clone().dry_run(), &which).await?;
    if body.dry_run {
        return ok(&json!({"would": would, "changed": 0}));
    }
    confirmed(body.confirm, would)?;
    let first = body.keys.as_ref().and_then(|keys| keys.first());
    let details = json!({"keys": would, "first": first, "blocked": body.blocked});
    Told::new(&caller, body.verb.word(), &name, details).asked(&app).await?;
    ok(&json!({"would": would, "changed": body.verb.done(&operator, &which).await?}))
}
