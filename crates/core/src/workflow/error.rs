//! Workflow errors, as seen from outside a run.

use thiserror::Error;

use super::run_record::RunStatus;
use crate::clock::Timestamp;
use crate::error::{InvalidInput, codes, conversions};
use crate::failure::Failure;
use crate::id::Owner;
use crate::lease::LeaseError;
use crate::store::{ApplyError, StoreError};

/// An error of an operation on runs.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum WorkflowError {
    /// There is no such run.
    #[error("there is no run {run:?} on this store; it was never started, or its time of retention is over")]
    UnknownRun {
        /// The requested id.
        run: String,
    },
    /// The id belongs to a run of another workflow or with another input.
    #[error(
        "run {run:?} exists already as a run of {workflow:?} with {}; take another id, or start it with the same input",
        if *.same_workflow { "another input" } else { "its own input" }
    )]
    Taken {
        /// The id.
        run: String,
        /// The workflow of the run that has the id.
        workflow: String,
        /// Whether the rejected start was of the same workflow.
        same_workflow: bool,
    },
    /// The run has ended, so the operation does not apply to it.
    #[error("run {run:?} is {status} and can not be {asked}")]
    Over {
        /// The id.
        run: String,
        /// How it ended.
        status: RunStatus,
        /// The requested operation, as a past participle.
        asked: &'static str,
    },
    /// The run does not accept signals of this name.
    #[error("run {run:?} does not accept a signal {signal:?}; it accepts: {}", if .accepts.is_empty() { "none".to_owned() } else { .accepts.join(", ") })]
    UnknownSignal {
        /// The id.
        run: String,
        /// The name of the signal.
        signal: String,
        /// The signals that the run accepts.
        accepts: Vec<String>,
    },
    /// No worker has ever registered a workflow of this name on this store.
    #[error("there is no workflow {workflow:?} on this store; workers have known: {}", if .known.is_empty() { "none".to_owned() } else { .known.join(", ") })]
    UnknownWorkflow {
        /// The name.
        workflow: String,
        /// The workflows that workers have registered.
        known: Vec<String>,
    },
    /// Two workflows were registered under one name.
    #[error(
        "workflow {workflow:?} was registered twice; its runs are found by its name, so give one of them another"
    )]
    Twice {
        /// The name.
        workflow: String,
    },
    /// The run failed.
    #[error("run {run:?} failed: {failure}")]
    Failed {
        /// The id.
        run: String,
        /// The reason.
        failure: Failure,
    },
    /// The run was cancelled.
    #[error("run {run:?} was cancelled: {failure}")]
    Cancelled {
        /// The id.
        run: String,
        /// The reason.
        failure: Failure,
    },
    /// Another process currently drives the run.
    #[error("run {run:?} is driven by {by} until {until} at least; nothing was done")]
    Leased {
        /// The id.
        run: String,
        /// The owner of the lease.
        by: Owner,
        /// When the lease expires, unless it is renewed.
        until: Timestamp,
    },
    /// The operation is not possible in the current state of the run.
    #[error("run {run:?} can not be {asked}: {reason}")]
    Refused {
        /// The id.
        run: String,
        /// The requested operation, as a past participle.
        asked: &'static str,
        /// Why it is not possible.
        reason: String,
    },
    /// No Tokio runtime is available to drive runs.
    #[error("cannot start a worker: no Tokio runtime; call start() from a runtime that outlives it")]
    NoRuntime,
    /// A value or a name is invalid, and will never be accepted.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not accept a write.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// A lease could not be held.
    #[error(transparent)]
    Lease(Box<LeaseError>),
}

conversions! {
    WorkflowError {
        ApplyError => Write,
        LeaseError => Lease,
    }
}

codes! {
    WorkflowError {
        UnknownRun => "TL1001",
        Taken => "TL1002",
        Over => "TL1003",
        UnknownSignal => "TL1004",
        UnknownWorkflow => "TL1005",
        Twice => "TL1006",
        Failed => "TL1007",
        Cancelled => "TL1008",
        Leased => "TL1012",
        Refused => "TL1013",
        NoRuntime => "TL1015",
        Invalid(error) => error,
        Store(error) => error,
        Write(error) => error,
        Lease(error) => error,
    }
}
