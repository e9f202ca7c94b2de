//! Execution of a fire on a separate row, concurrently with others.

use std::sync::Arc;

use super::definition::Schedule;
use super::error::ScheduleError;
use super::execution::{Job, PUT_OFF, Read, Wrote, is_run, refused};
use super::invoke::{Call, Called};
use super::keys;
use super::record::Begun;
use super::registration::written;
use super::tick::TickKind;
use super::transition::{self, Ended, Run};
use crate::clock::{Due, Timestamp};
use crate::failure::Failure;
use crate::key::Key;
use crate::store::Batch;

impl Job {
    /// Runs the fire, unless its task is gone.
    pub(super) async fn beside(&self, name: &str, fire: Timestamp) -> Result<(), ScheduleError> {
        let key = keys::task(name)?;
        let kind = self.grant.row.payload.parse().unwrap_or(TickKind::Scheduled);
        let run = Run { fire, kind, attempt: self.grant.row.attempts, lost: 0 };
        let (task, begun) = loop {
            let Some(Read { mut record, version, now }) = self.read(&key).await? else { return Ok(()) };
            if record.archived.is_some() {
                return self.end(&key, Batch::new().ack(self.lease())).await;
            }
            let Some(task) = self.engine.tasks.get(name).map(Arc::clone) else {
                return self.end(&key, Batch::new().defer(self.lease(), Due::After(PUT_OFF))).await;
            };
            let begun = transition::begin(&mut record, run, self.engine.worker.owner.as_str(), now);
            match self.write(&key, written(&key, version, &record)?).await {
                Wrote::Done => break (task, begun),
                Wrote::Changed => {}
                Wrote::Gone | Wrote::Refused(_) => return self.gone(),
            }
        };
        if run.attempt > task.attempts() {
            let ended = Ended::Failed(Failure::permanent("its process died, as often as it may be tried"));
            return self.ended(&key, &task, &begun, ended, Batch::new()).await;
        }
        let call = Call { engine: &self.engine, task: &task, begun: &begun, lease: self.work.token() };
        match call.run().await {
            Called::Ended(ended, effects) => self.ended(&key, &task, &begun, ended, effects).await,
            Called::Lost => self.gone(),
        }
    }

    /// Records the end of the run and its retry, if any.
    async fn ended(
        &self,
        key: &Key,
        task: &Schedule,
        begun: &Begun,
        ended: Ended,
        effects: Batch,
    ) -> Result<(), ScheduleError> {
        let (mut ended, mut effects) = (ended, effects);
        loop {
            let Some(Read { mut record, version, now }) = self.read(key).await? else { return Ok(()) };
            let (entry, again) = transition::end_beside(&mut record, begun, &ended, now);
            let batch = self.ending(key, &record, version, entry).await?.and(effects.clone());
            let batch = match (again, &ended) {
                (None, _) => batch.ack(self.lease()),
                (Some(_), Ended::Interrupted) => batch.defer(self.lease(), Due::Now),
                (Some(at), Ended::Failed(error)) => batch.fail(self.lease(), error.message(), Due::At(at)),
                (Some(at), _) => batch.fail(self.lease(), "", Due::At(at)),
            };
            match self.write(key, batch).await {
                Wrote::Done => return self.counted(&ended),
                Wrote::Changed => {}
                Wrote::Gone => return self.gone(),
                Wrote::Refused(refusal) if matches!(ended, Ended::Started(_)) && is_run(&refusal) => {
                    effects = Batch::new();
                }
                Wrote::Refused(refusal) => {
                    tracing::debug!(target: crate::telemetry::SCHEDULE, task = task.name, %refusal, "effects are refused");
                    (ended, effects) = (refused(&refusal), Batch::new());
                }
            }
        }
    }

    async fn end(&self, key: &Key, batch: Batch) -> Result<(), ScheduleError> {
        match self.write(key, batch).await {
            Wrote::Done => Ok(()),
            _ => self.gone(),
        }
    }
}
