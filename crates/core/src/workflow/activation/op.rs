//! The operations of an activation: steps, timers, waits for signals and children, by name and in the order of request.

use std::collections::HashMap;
use std::task::Waker;

use super::Resolution;
use crate::clock::Timestamp;
use crate::workflow::journal_entry::{Kind, OpId};

/// The state of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OpState {
    /// It has not begun, or waits for a signal or a child.
    Pending,
    /// It continues at an instant: a timer, or a step between two attempts.
    Sleeping(Timestamp),
    /// The step may begin an attempt.
    Runnable,
    /// The step runs.
    Running,
    /// It ended or began, and the commit of that is in flight.
    Committing,
    /// Its result is ready for the workflow.
    Resolved(Resolution),
    /// The workflow took the result, or dropped the operation.
    Closed,
}

/// An operation that the workflow requested.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) id: OpId,
    pub(super) state: OpState,
    /// The number of attempts that began.
    pub(super) attempt: u32,
    /// Continues when the run is cancelled.
    pub(super) shielded: bool,
    /// The signal of a wait.
    pub(super) signal: Option<String>,
    /// The run of a child that started and has not ended.
    pub(super) child: Option<String>,
    /// The workflow awaits it. An operation that is only kept neither runs nor receives.
    pub(super) awaited: bool,
    /// A transaction of the step itself records its end (`step_tx`).
    pub(super) records_itself: bool,
    /// It ran in this activation, or its end entered the journal during the activation.
    pub(super) ran: bool,
    pub(super) waker: Option<Waker>,
}

impl Op {
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, OpState::Resolved(_) | OpState::Closed)
    }

    /// Returns whether the journal may have its end although the workflow has not received it.
    pub(super) fn may_have_recorded(&self) -> bool {
        self.records_itself && self.ran
    }

    /// Changes the state and wakes the workflow.
    pub(super) fn set(&mut self, state: OpState) {
        self.state = state;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// All operations of an activation.
#[derive(Debug, Default)]
pub(super) struct OpTable {
    ops: Vec<Op>,
    /// The indexes of the open operations, in order, and of some that closed since the last visit.
    open: Vec<usize>,
    by_name: HashMap<String, usize>,
}

impl OpTable {
    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Adds an operation. Returns its index, and whether its name is new.
    pub(super) fn add(&mut self, op: Op) -> (usize, bool) {
        let index = self.ops.len();
        let new = self.by_name.insert(op.id.name.clone(), index).is_none();
        self.ops.push(op);
        self.open.push(index);
        (index, new)
    }

    /// Opens an operation again that was resolved, and whose result the workflow has not taken.
    pub(super) fn reopen(&mut self, index: usize) {
        if let Some(op) = self.ops.get_mut(index) {
            op.state = OpState::Pending;
            op.awaited = false;
            if let Err(place) = self.open.binary_search(&index) {
                self.open.insert(place, index);
            }
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Op> {
        self.ops.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Op> {
        self.ops.get_mut(index)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Op> {
        self.ops.get(*self.by_name.get(name)?)
    }

    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut Op> {
        self.ops.get_mut(*self.by_name.get(name)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter()
    }

    /// Visits every open operation, in the order of request.
    pub(super) fn each_open(&mut self, mut visit: impl FnMut(usize, &mut Op)) {
        let ops = &mut self.ops;
        self.open.retain(|index| match ops.get_mut(*index) {
            Some(op) if op.is_open() => {
                visit(*index, op);
                op.is_open()
            }
            _ => false,
        });
    }

    /// Returns whether exactly one operation is open.
    pub(super) fn has_one_open(&self) -> bool {
        let open = self.open.iter().filter(|index| self.ops.get(**index).is_some_and(Op::is_open));
        open.take(2).count() == 1
    }
}
