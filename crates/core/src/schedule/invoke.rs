//! Invocation of a task: user code that may fail, panic, hang, or be cancelled.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::definition::{Action, RunFuture, Schedule};
use super::engine::ScheduleEngine;
use super::record::Begun;
use super::tick::Tick;
use super::transition::Ended;
use crate::failure::Failure;
use crate::process;
use crate::runtime::panic::{isolate, text};
use crate::runtime::timer::sleep_until;
use crate::store::Batch;
use crate::telemetry::{SCHEDULE, SCHEDULE_RUN};
use crate::worker::bounded;
use crate::workflow::WorkflowClient;

/// The result of an invocation.
pub(super) enum Called {
    /// The run ended or was cancelled. The batch contains its effects.
    Ended(Ended, Batch),
    /// Another owner may soon acquire the row. The future was dropped, and nothing may be written.
    Lost,
}

/// An invocation of a task for one fire.
pub(super) struct Call<'a> {
    pub(super) engine: &'a ScheduleEngine,
    pub(super) task: &'a Schedule,
    pub(super) begun: &'a Begun,
    /// Fires when another owner may soon acquire the row.
    pub(super) lease: &'a CancellationToken,
}

impl Call<'_> {
    /// Runs the task. The token that the task sees fires whenever the run ends.
    pub(super) async fn run(&self) -> Called {
        let token = self.lease.child_token();
        let _ended = token.clone().drop_guard();
        let fire = self.fire(token);
        match &self.task.action {
            Some(Action::Call(code)) => match isolate("the task", || code(fire)) {
                Ok(running) => self.running(running).await,
                Err(panicked) => Called::Ended(failed(panicked), Batch::new()),
            },
            Some(Action::Start(start)) => {
                let client = WorkflowClient::new(Arc::clone(&self.engine.worker.store));
                let (ended, batch) = match isolate("the input of the workflow", || start(&client, &fire)) {
                    Ok(Ok((run, batch))) => (Ended::Started(run), batch),
                    Ok(Err(error)) => (Ended::Failed(Failure::permanent(error)), Batch::new()),
                    Err(panicked) => (failed(panicked), Batch::new()),
                };
                Called::Ended(ended, batch)
            }
            None => {
                Called::Ended(Ended::Failed(Failure::permanent("the task has nothing to do")), Batch::new())
            }
        }
    }

    fn fire(&self, token: CancellationToken) -> Tick {
        let Begun { fire, kind, attempt, .. } = *self.begun;
        let (task, store) = (Arc::from(self.task.name.as_str()), Arc::clone(&self.engine.worker.store));
        Tick { task, time: fire, kind, attempt, store, token }
    }

    async fn running(&self, running: RunFuture) -> Called {
        let Begun { fire, attempt, .. } = *self.begun;
        let task = self.task.name.as_str();
        let span = tracing::debug_span!(target: SCHEDULE, SCHEDULE_RUN, task, %fire, attempt);
        let running = AssertUnwindSafe(running).catch_unwind().instrument(span);
        let ended = |ended| Called::Ended(ended, Batch::new());
        tokio::select! {
            biased;
            () = self.lease.cancelled() => Called::Lost,
            answer = running => match answer {
                Ok(Ok(effects)) => Called::Ended(Ended::Well, effects.0),
                Ok(Err(failure)) => ended(Ended::Failed(failure)),
                Err(panic) => ended(failed(format!("the task panicked: {}", text(&*panic)))),
            },
            () = self.engine.worker.cut.cancelled() => ended(Ended::Interrupted),
            limit = over(self.task.timeout) => {
                ended(failed(format!("it took longer than its time limit of {limit:?}, and was broken off")))
            }
        }
    }
}

fn failed(reason: String) -> Ended {
    Ended::Failed(Failure::new(reason))
}

/// Waits until the timeout, if there is one.
async fn over(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            sleep_until(process::now() + bounded(limit)).await;
            limit
        }
        None => std::future::pending().await,
    }
}
