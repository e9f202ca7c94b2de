//! Something that was asked for, as the code that waits for it holds it.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::inner::{Inner, State};
use super::{Answer, Cell, Outgoing};
use crate::model::retry::RetryPolicy;
use crate::payload::Payload;
use crate::store::Batch;
use crate::workflow::broken::Broken;
use crate::workflow::entry::{Entry, OpId};
use crate::workflow::failure::Failure;

/// Something that was asked for. Dropped, nobody waits for it any more.
#[derive(Debug)]
pub(in crate::workflow) struct Asked {
    pub(super) cell: Arc<Cell>,
    pub(super) index: usize,
}

/// What follows when something that was asked for is awaited.
#[derive(Debug)]
pub(in crate::workflow) enum Turn {
    Answer(Answer),
    /// The step may run, as this attempt.
    Run(u32),
}

impl Asked {
    /// Waits for an answer, or for leave to run.
    pub(in crate::workflow) async fn turn(&self) -> Turn {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Turn> {
        let mut inner = self.cell.inner.lock();
        let Some(op) = inner.ops.get_mut(self.index) else { return Poll::Pending };
        match &op.state {
            State::Answered(answer) => {
                let answer = answer.clone();
                op.state = State::Over;
                Poll::Ready(Turn::Answer(answer))
            }
            State::Permitted => {
                op.state = State::Running;
                op.ran = true;
                op.attempt += 1;
                Poll::Ready(Turn::Run(op.attempt))
            }
            _ => {
                op.waker = Some(context.waker().clone());
                let first = !std::mem::replace(&mut op.awaited, true);
                inner.changed |= first;
                Poll::Pending
            }
        }
    }

    /// The step ended.
    pub(in crate::workflow) fn ended(
        &self,
        ended: Result<Payload, Failure>,
        policy: &RetryPolicy,
        effects: Batch,
    ) {
        self.cell.inner.lock().ended(self.index, ended, policy, effects);
    }

    /// A step ended that was to record that itself.
    pub(in crate::workflow) fn maybe_recorded(&self, failure: Option<Failure>, policy: &RetryPolicy) {
        self.cell.inner.lock().maybe_recorded(self.index, failure, policy);
    }

    /// What it is in the journal.
    pub(in crate::workflow) fn id(&self) -> Option<OpId> {
        self.cell.inner.lock().ops.get(self.index).map(|op| op.id.clone())
    }

    /// What is to be written when it begins: a timer that is set, a child that is started. Not when it was written before.
    pub(in crate::workflow) fn begin(&self, make: impl FnOnce(OpId) -> (Entry, Batch)) {
        let mut inner = self.cell.inner.lock();
        let Inner { ops, recorded, .. } = &mut *inner;
        let Some(op) = ops.get_mut(self.index) else { return };
        if !op.is_open() || recorded.contains_key(&op.id.name) {
            return;
        }
        op.state = State::Held;
        let (entry, effects) = make(op.id.clone());
        inner.changed = true;
        inner.outbox.push(Outgoing {
            op: Some(self.index),
            delivered: false,
            ..Outgoing::written(Some(entry), effects)
        });
    }

    /// Records that it is waited for, unless it was recorded before.
    pub(in crate::workflow) fn note(&self, make: impl FnOnce(OpId) -> Entry) {
        let mut inner = self.cell.inner.lock();
        let Some(op) = inner.ops.get(self.index) else { return };
        if op.is_open() && !inner.recorded.contains_key(&op.id.name) {
            let entry = make(op.id.clone());
            inner.outbox.push(Outgoing::written(Some(entry), Batch::new()));
        }
    }

    /// A recorded value does not fit.
    pub(in crate::workflow) fn does_not_fit(&self, reason: String) {
        let mut inner = self.cell.inner.lock();
        let Some(op) = inner.ops.get(self.index) else { return };
        let broken = Broken::Value { kind: op.kind.word(), name: op.id.name.clone(), reason };
        inner.broken.get_or_insert(broken);
        inner.changed = true;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.cell.inner.lock().drop_op(self.index);
    }
}
