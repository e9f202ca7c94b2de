//! Delivery of one grant: a message, or messages in order.
//!
//! The success is recorded after the delivery. If the process dies in between, the message is delivered again with the same
//! key.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::deliver::Delivery;
use super::message::Written;
use super::sender::OutboxEngine;
use crate::clock::Due;
use crate::failure::Failure;
use crate::model::retry::AfterFailure;
use crate::payload::Payload;
use crate::process;
use crate::runtime::jitter::fraction;
use crate::runtime::panic::text;
use crate::runtime::timer::sleep_until;
use crate::store::{Batch, Grant};
use crate::telemetry::OUTBOX;
use crate::worker::{Committed, LeasedWork};

/// A row in progress.
pub(super) struct Job {
    engine: Arc<OutboxEngine>,
    work: LeasedWork,
}

/// The outcome of one attempt.
enum Ended {
    Delivered,
    Failed(Failure),
    /// It was cancelled: the lease is lost, or the process shuts down.
    BrokenOff,
}

impl Job {
    pub(super) fn new(engine: Arc<OutboxEngine>, work: LeasedWork) -> Self {
        Self { engine, work }
    }

    pub(super) async fn run(self, grant: Grant) {
        if grant.row.follow.is_none() {
            let attempts = grant.row.attempts;
            self.one(&grant.row.payload, attempts, Batch::new().ack(self.work.lease())).await;
            return;
        }
        let stream = grant.row.key.clone();
        let mut attempts = grant.row.attempts;
        for event in &grant.events {
            if self.engine.worker.stopping.is_cancelled() {
                return self.work.release().await;
            }
            let done = Batch::new()
                .advance(self.work.lease(), event.position)
                .truncate(&stream, event.version.next());
            if !self.one(&event.payload, attempts, done).await {
                return;
            }
            attempts = 1;
        }
        // A later message wakes the row, so no message is missed when the row is acknowledged.
        let end = if grant.more {
            Batch::new().release(self.work.lease())
        } else {
            Batch::new().ack(self.work.lease())
        };
        self.commit(end).await;
    }

    /// Delivers one message and records the outcome. Returns whether it was delivered and the lease is still held.
    async fn one(&self, payload: &Payload, attempts: u32, done: Batch) -> bool {
        let policy = &self.engine.options.retry;
        if !policy.allows(attempts) {
            self.block("its attempts are used up: the processes that sent it died, or lost it").await;
            return false;
        }
        let written: Written = match payload.parse() {
            Ok(written) => written,
            Err(error) => {
                self.block(&error.to_string()).await;
                return false;
            }
        };
        let id = written.id.clone();
        let _slot = match self.engine.destinations.enter(&written.destination).await {
            Ok(slot) => slot,
            Err(wait) => {
                self.commit(Batch::new().defer(self.work.lease(), Due::After(wait))).await;
                return false;
            }
        };
        match self.attempt(Delivery { outbox: self.engine.outbox.name(), written, attempt: attempts }).await {
            Ended::Delivered => {
                let committed = self.commit(done).await;
                if committed {
                    self.engine.counters.delivered.add(1);
                }
                committed
            }
            Ended::Failed(error) => {
                self.engine.counters.failed.add(1);
                tracing::debug!(target: OUTBOX, outbox = self.engine.outbox.name(), id, attempts, %error, "not delivered");
                self.failed(attempts, &error).await;
                false
            }
            Ended::BrokenOff => {
                self.work.release().await;
                false
            }
        }
    }

    async fn attempt(&self, message: Delivery) -> Ended {
        let limit = self.engine.options.timeout;
        let delivering = AssertUnwindSafe(self.engine.deliver.deliver(message)).catch_unwind();
        tokio::select! {
            biased;
            () = self.work.token().cancelled() => Ended::BrokenOff,
            () = self.engine.worker.cut.cancelled() => Ended::BrokenOff,
            ended = delivering => match ended {
                Ok(Ok(())) => Ended::Delivered,
                Ok(Err(error)) => Ended::Failed(error),
                Err(panic) => Ended::Failed(Failure::new(format!("it panicked: {}", text(&*panic)))),
            },
            () = sleep_until(process::now() + limit) => {
                Ended::Failed(Failure::new(format!("it was not delivered within {limit:?}")))
            }
        }
    }

    async fn failed(&self, attempts: u32, error: &Failure) {
        match self.engine.options.retry.after_failure(attempts, fraction()) {
            AfterFailure::Again(wait) if !error.is_permanent() => {
                let wait = error.wait(wait, self.engine.worker.store.estimated_now());
                let batch = Batch::new().fail(self.work.lease(), error.message(), Due::After(wait));
                self.commit(batch).await;
            }
            AfterFailure::Again(_) | AfterFailure::Block => self.block(error.message()).await,
        }
    }

    async fn block(&self, reason: &str) {
        let row = &self.work.lease().key;
        tracing::warn!(target: OUTBOX, %row, reason, "a message is blocked; unblock or discard it");
        if self.commit(Batch::new().block(self.work.lease(), reason)).await {
            self.engine.counters.blocked.add(1);
        }
    }

    /// Commits a batch. Returns whether it was applied.
    async fn commit(&self, batch: Batch) -> bool {
        match self.work.commit(batch).await {
            Committed::Done(_) => true,
            Committed::Gone => false,
            Committed::Refused(refusal) => {
                let row = &self.work.lease().key;
                tracing::error!(target: OUTBOX, %row, %refusal, "the end of a delivery was refused; the message is sent again");
                self.work.release().await;
                false
            }
        }
    }
}
