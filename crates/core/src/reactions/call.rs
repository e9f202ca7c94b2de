//! One run of a handler: the user's code, which may fail, panic, hang, or be broken off.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::decide::Failure;
use super::definition::Definition;
use super::effects::{Effects, ReactionError, told};
use super::reaction::Handler;
use super::turn::Turn;
use crate::events::Context;
use crate::key::Key;
use crate::runtime::panic::{isolate, text};
use crate::store::Event;
use crate::telemetry::{REACTION_RUN, REACTIONS, follow};
use crate::worker::Worker;

/// How a run ended.
pub(super) enum Called {
    /// By itself.
    Did(Effects),
    /// By itself, without effects.
    Failed(Failure),
    /// The row may soon be somebody else's. The handler's future was dropped.
    Lost,
    /// The shutdown timeout is over. The handler's future was dropped.
    Cut,
}

/// Who is called, and for what.
pub(super) struct Call<'a> {
    pub(super) worker: &'a Worker,
    pub(super) definition: &'a Definition,
    pub(super) key: &'a Key,
    pub(super) attempt: u32,
    /// Fires when the row may soon be somebody else's.
    pub(super) lease: &'a CancellationToken,
}

impl Call<'_> {
    /// Runs the handler on events. The token that it sees fires however the run ends.
    pub(super) async fn run(&self, mut events: Vec<Event>) -> Called {
        let token = self.lease.child_token();
        let _ended = token.clone().drop_guard();
        let turn = Turn {
            reaction: Arc::clone(&self.definition.name),
            key: self.key.clone(),
            attempt: self.attempt,
            store: Arc::clone(&self.worker.store),
            token,
        };
        let (reaction, key, attempt, count) = (turn.reaction(), &self.key, self.attempt, events.len());
        let span =
            tracing::debug_span!(target: REACTIONS, REACTION_RUN, reaction, %key, attempt, events = count);
        for event in &events {
            follow(&span, Context::of(event).traceparent());
        }
        let begun = isolate("the handler", || match &self.definition.handler {
            Handler::Each(each) => events.pop().map(|event| each(turn, event)),
            Handler::Batch(batch) => Some(batch(turn, events)),
        });
        let answer = match begun {
            Ok(Some(answer)) => AssertUnwindSafe(answer).catch_unwind().instrument(span),
            Ok(None) => return Called::Did(Effects::none()),
            Err(panicked) => return Called::Failed(Failure::Again(panicked)),
        };
        tokio::select! {
            biased;
            () = self.lease.cancelled() => Called::Lost,
            () = self.worker.cut.cancelled() => Called::Cut,
            answer = answer => match answer {
                Ok(Ok(effects)) => Called::Did(effects),
                Ok(Err(error)) => Called::Failed(failure(error)),
                Err(panic) => Called::Failed(Failure::Again(format!("the handler panicked: {}", text(&*panic)))),
            },
        }
    }
}

fn failure(error: ReactionError) -> Failure {
    match error {
        ReactionError::Retry(error) => Failure::Again(told(&*error)),
        ReactionError::NonRetryable(error) => Failure::Never(told(&*error)),
        ReactionError::Defer(due) => Failure::Later(due),
    }
}
