//! One run of a handler. The user's code may fail, panic, hang or be cancelled.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::context::ReactionCtx;
use super::definition::Definition;
use super::effects::Effects;
use super::reaction::Handler;
use crate::clock::Due;
use crate::events::EventMetadata;
use crate::failure::Failure;
use crate::key::Key;
use crate::runtime::panic::{isolate, text};
use crate::store::Event;
use crate::telemetry::{REACTION_RUN, REACTIONS, follow};
use crate::worker::Worker;

/// The outcome of a handler run.
pub(super) enum Called {
    /// The handler returned effects.
    Did(Effects),
    /// The handler returned an error or panicked.
    Failed(Failure),
    /// The lease may soon expire. The handler's future was dropped.
    Lost,
    /// The shutdown timeout has expired. The handler's future was dropped.
    Cut,
}

/// A handler run: the reaction, the key and the attempt.
pub(super) struct Call<'a> {
    pub(super) worker: &'a Worker,
    pub(super) definition: &'a Definition,
    pub(super) key: &'a Key,
    pub(super) attempt: u32,
    /// Fires when the lease of the row may soon expire.
    pub(super) lease: &'a CancellationToken,
}

impl Call<'_> {
    /// Runs the handler on events. The token that the handler sees fires when the run ends, whatever the outcome.
    pub(super) async fn run(&self, mut events: Vec<Event>) -> Called {
        let token = self.lease.child_token();
        let _ended = token.clone().drop_guard();
        let turn = ReactionCtx {
            reaction: Arc::clone(&self.definition.name),
            key: self.key.clone(),
            attempt: self.attempt,
            store: Arc::clone(&self.worker.store),
            upcasters: Arc::clone(&self.definition.upcasters),
            token,
        };
        let (reaction, key, attempt, count) = (turn.reaction(), &self.key, self.attempt, events.len());
        let span =
            tracing::debug_span!(target: REACTIONS, REACTION_RUN, reaction, %key, attempt, events = count);
        match self.upcast(events) {
            Ok(present) => events = present,
            Err(failure) => return Called::Failed(failure),
        }
        for event in &events {
            follow(&span, EventMetadata::of(event).traceparent());
        }
        let begun = isolate("the handler", || match &self.definition.handler {
            Handler::Each(each) => events.pop().map(|event| each(turn, event)),
            Handler::Batch(batch) => Some(batch(turn, events)),
        });
        let answer = match begun {
            Ok(Some(answer)) => AssertUnwindSafe(answer).catch_unwind().instrument(span),
            Ok(None) => return Called::Did(Effects::none()),
            Err(panicked) => return Called::Failed(Failure::new(panicked)),
        };
        tokio::select! {
            biased;
            () = self.lease.cancelled() => Called::Lost,
            () = self.worker.cut.cancelled() => Called::Cut,
            answer = answer => match answer {
                Ok(Ok(effects)) => Called::Did(effects),
                Ok(Err(failure)) => Called::Failed(failure),
                Err(panic) => Called::Failed(Failure::new(format!("the handler panicked: {}", text(&*panic)))),
            },
        }
    }
}

/// The delay of a key whose next event has a shape that this program does not know.
const NEWER_SHAPE: Duration = Duration::from_secs(1);

impl Call<'_> {
    /// Converts events to their current shape. An event of a newer shape is deferred for a newer program.
    fn upcast(&self, events: Vec<Event>) -> Result<Vec<Event>, Failure> {
        let one = |event: Event| {
            let upcast = isolate("the upcaster", || self.definition.upcasters.upcast(event));
            match upcast {
                Ok(Ok(event)) => Ok(event),
                Ok(Err(error)) if error.is_newer() => {
                    let reaction = &self.definition.name;
                    tracing::warn!(target: REACTIONS, %reaction, %error, "event has a newer shape, key deferred");
                    Err(Failure::defer(Due::After(NEWER_SHAPE)))
                }
                Ok(Err(error)) => Err(Failure::permanent(error.to_string())),
                Err(panicked) => Err(Failure::new(panicked)),
            }
        };
        events.into_iter().map(one).collect()
    }
}
