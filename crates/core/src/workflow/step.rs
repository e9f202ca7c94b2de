//! Step attempts, as the user's code receives them.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use super::context_guard::InStep;
use super::keys;
use crate::failure::Failure;
use crate::payload::Payload;
use crate::process;
use crate::runtime::panic::text;
use crate::runtime::timer::sleep_until;
use crate::store::{Batch, Expect, SharedStore};
use crate::telemetry::{STEPS, WORKFLOW, WORKFLOW_STEP, count};
use crate::worker::{Committed, LeasedWork};

/// One attempt of a step.
///
/// When the process of a step dies, another process retries the step, and [`may_have_run`](Self::may_have_run) returns `true`.
/// Pass [`key`](Self::key) as the idempotency key to the system that performs the effect; it is the same for all attempts.
#[derive(Clone)]
pub struct Step {
    pub(super) run: Arc<str>,
    pub(super) identity: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) attempt: u32,
    pub(super) again: bool,
    pub(super) takeovers: u32,
    pub(super) token: CancellationToken,
    pub(super) hold: Option<(SharedStore, Arc<LeasedWork>)>,
}

impl Step {
    /// Returns the id of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the name of the step, with its scopes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the idempotency key of this step's effect, the same for all attempts. It is `run:step`, and `run#2:step` in a run
    /// that has continued as new twice. In the id of the run, `%`, `:` and `#` are escaped as in URLs.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}:{}", self.identity, self.name)
    }

    /// Returns the attempt number, starting at 1. Attempts cut short by a crash are not counted.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns whether an earlier attempt may have performed the effect, or a part of it: it failed, or its process died.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.again || self.attempt > 1
    }

    /// Returns how often the run was taken over so far from a process that died or stalled.
    #[must_use]
    pub fn takeovers(&self) -> u32 {
        self.takeovers
    }

    /// Returns a token that fires when the step should stop: the run is cancelled, or another process may soon drive it.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub(super) fn span(&self) -> Span {
        let (step, attempt) = (&*self.name, self.attempt);
        tracing::debug_span!(target: WORKFLOW, WORKFLOW_STEP, step, attempt)
    }

    /// Saves the progress of a long step. A later attempt reads it with [`saved`](Self::saved).
    ///
    /// # Errors
    /// When the value cannot be written, or this process no longer holds the run.
    ///
    /// # Crash safety
    /// Once this returns, the value is as durable as the result of a step.
    pub async fn save<T: Serialize + Sync + ?Sized>(&self, progress: &T) -> Result<(), Failure> {
        let Some((_, holding)) = &self.hold else { return Ok(()) };
        let key = keys::progress(&self.run, &self.identity, &self.name)?;
        let batch = Batch::new().put(&key, Expect::Any, Payload::of(progress)?);
        match holding.commit(batch).await {
            Committed::Done(_) => Ok(()),
            Committed::Gone => Err(Failure::new("this process has lost the lease of the run")),
            Committed::Refused(refusal) => Err(Failure::from(*refusal)),
        }
    }

    /// Returns the progress that an earlier attempt saved.
    ///
    /// # Errors
    /// When the store cannot be read, or the value has another type.
    pub async fn saved<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        let Some((store, _)) = &self.hold else { return Ok(None) };
        let document = store.document(&keys::progress(&self.run, &self.identity, &self.name)?).await?;
        Ok(document.map(|document| document.value.parse()).transpose()?)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("key", &self.key())
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// Runs the user's code within its time limit. A panic counts as a failure.
pub(super) async fn call<T, Fut>(step: Fut, limit: Option<Duration>, span: Span) -> Result<T, Failure>
where
    Fut: Future<Output = Result<T, Failure>>,
{
    let guarded = AssertUnwindSafe(InStep::new(step)).catch_unwind().instrument(span);
    let ended = match limit {
        None => Ok(guarded.await),
        Some(limit) => tokio::select! {
            biased;
            ended = guarded => Ok(ended),
            () = sleep_until(process::now() + limit) => {
                Err(Failure::new(format!("the step did not end within {limit:?}")))
            }
        },
    };
    let ended = ended.and_then(|ended| {
        ended.unwrap_or_else(|panic| Err(Failure::new(format!("the step panicked: {}", text(&*panic)))))
    });
    if ended.is_err() {
        count(STEPS, "failed", 1);
    }
    ended
}
