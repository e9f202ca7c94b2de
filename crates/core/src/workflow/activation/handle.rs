//! The workflow's side of an operation: a handle that is awaited, and closes the operation when dropped.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::op::OpState;
use super::{ActivationRef, Request, Resolution, Unproven};
use crate::failure::Failure;
use crate::model::retry::RetryPolicy;
use crate::payload::Payload;
use crate::store::Batch;
use crate::workflow::context_guard;
use crate::workflow::journal_entry::{JournalEntry, OpId, Ran};

/// A handle of an operation. Dropping it closes the operation.
#[derive(Debug)]
pub(in crate::workflow) struct OpHandle {
    activation: ActivationRef,
    index: usize,
}

/// The event that an awaited operation yields.
#[derive(Debug)]
pub(in crate::workflow) enum OpEvent {
    Resolved(Resolution),
    /// The step may run this attempt.
    Run(u32),
}

impl OpHandle {
    /// Requests an operation. Its name and its position in the order are fixed from now on, whenever it is awaited.
    pub(in crate::workflow) fn request(activation: &ActivationRef, request: Request) -> Self {
        let site = context_guard::call_site(activation);
        let index = activation.lock().request(request, site);
        Self { activation: Arc::clone(activation), index }
    }

    /// Waits for the result, or for permission to run an attempt.
    pub(in crate::workflow) async fn event(&self) -> OpEvent {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Waits for the result of an operation that runs no code.
    pub(in crate::workflow) async fn resolved(&self) -> Resolution {
        loop {
            if let OpEvent::Resolved(resolution) = self.event().await {
                return resolution;
            }
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<OpEvent> {
        let mut activation = self.activation.lock();
        let Some(op) = activation.ops.get_mut(self.index) else { return Poll::Pending };
        match &op.state {
            OpState::Resolved(resolution) => {
                let resolution = resolution.clone();
                op.state = OpState::Closed;
                Poll::Ready(OpEvent::Resolved(resolution))
            }
            OpState::Runnable => {
                op.state = OpState::Running;
                op.ran = true;
                op.attempt += 1;
                Poll::Ready(OpEvent::Run(op.attempt))
            }
            _ => {
                op.waker = Some(context.waker().clone());
                let first = !std::mem::replace(&mut op.awaited, true);
                activation.changed |= first;
                Poll::Pending
            }
        }
    }

    /// Ends an attempt of the step.
    pub(in crate::workflow) fn end_attempt(
        &self,
        result: Result<Payload, Failure>,
        ran: Ran,
        policy: &RetryPolicy,
        effects: Batch,
    ) {
        self.activation.lock().end_attempt(self.index, (result, ran), policy, effects);
    }

    /// Ends an attempt of a step that records its end itself. The journal decides the result.
    pub(in crate::workflow) fn end_recorded_attempt(
        &self,
        failure: Option<Failure>,
        policy: &RetryPolicy,
        ran: Ran,
    ) {
        let unproven = Unproven { index: self.index, failure, policy: *policy, ran };
        self.activation.lock().end_recorded_attempt(unproven);
    }

    /// Returns the identity of the operation in the journal.
    pub(in crate::workflow) fn id(&self) -> Option<OpId> {
        self.activation.lock().ops.get(self.index).map(|op| op.id.clone())
    }

    /// Records the beginning of the operation (a timer, a child), unless the journal has it.
    pub(in crate::workflow) fn begin(&self, make: impl FnOnce(OpId) -> (JournalEntry, Batch)) {
        self.activation.lock().begin(self.index, make);
    }

    /// Records that the operation was requested (a wait), unless the journal has it.
    pub(in crate::workflow) fn note(&self, make: impl FnOnce(OpId) -> JournalEntry) {
        self.activation.lock().note(self.index, make);
    }

    /// Stops the run: a recorded value does not fit the type that the code expects.
    pub(in crate::workflow) fn does_not_fit(&self, reason: String) {
        self.activation.lock().does_not_fit(self.index, reason);
    }
}

impl Drop for OpHandle {
    fn drop(&mut self) {
        self.activation.lock().close(self.index);
    }
}
