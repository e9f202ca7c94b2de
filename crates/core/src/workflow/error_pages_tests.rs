//! Examples of the errors of workflows for their pages: see `error/pages/tests.rs`, which compares them.

use super::journal_entry::{Kind, OpId};
use super::nondeterminism::{Nondeterminism, side_by_side};
use super::{Failure, RunStatus, StepError, WorkflowError};
use crate::clock::Timestamp;
use crate::error::{Explain, InvalidInput};
use crate::id::Owner;
use crate::payload::Payload;

/// One error for each code of workflows.
pub(crate) fn examples() -> Result<Vec<Box<dyn Explain>>, InvalidInput> {
    let outside = outside()?.into_iter().map(|error| Box::new(error) as Box<dyn Explain>);
    let inside = inside().into_iter().map(|error| Box::new(error) as Box<dyn Explain>);
    let broken = broken().into_iter().map(|error| Box::new(error) as Box<dyn Explain>);
    Ok(outside.chain(inside).chain(broken).collect())
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn run() -> String {
    text("order-17")
}

fn outside() -> Result<Vec<WorkflowError>, InvalidInput> {
    let until = Timestamp::from_micros(1_000_000_060_000_000);
    let by = Owner::new("worker-2/9f86d081884c-7")?;
    let failed = Failure::from(declined());
    let cancelled = Failure::from(withdrawn());
    Ok(vec![
        WorkflowError::UnknownRun { run: run() },
        WorkflowError::Taken { run: run(), workflow: text("order"), same_workflow: true },
        WorkflowError::Over { run: run(), status: RunStatus::Completed, asked: "signalled" },
        WorkflowError::UnknownSignal {
            run: run(),
            signal: text("aproved"),
            accepts: vec![text("approved"), text("withdrawn")],
        },
        WorkflowError::UnknownWorkflow { workflow: text("ordr"), known: vec![text("order"), text("refund")] },
        WorkflowError::Twice { workflow: text("order") },
        WorkflowError::Failed { run: run(), failure: failed },
        WorkflowError::Cancelled { run: run(), failure: cancelled },
        WorkflowError::Leased { run: run(), by, until },
        WorkflowError::Refused { run: run(), asked: "driven", reason: text("the ledger does not add up") },
        WorkflowError::NoRuntime,
    ])
}

fn declined() -> StepError {
    StepError::Failed { step: text("charge"), error: text("the card was declined"), attempts: 5 }
}

fn withdrawn() -> StepError {
    let (what, reason) = (text("signal approved 1"), text("the customer changed their mind"));
    StepError::Cancelled { what, reason }
}

fn inside() -> Vec<StepError> {
    let reason = Payload::of("yes").and_then(|sent| sent.parse::<bool>()).unwrap_err().to_string();
    vec![
        declined(),
        withdrawn(),
        StepError::Child {
            name: text("ship"),
            run: text("order-17/ship"),
            how: text("failed"),
            error: text("no such address"),
        },
        StepError::Value { what: text("approved"), reason },
    ]
}

fn broken() -> Vec<Nondeterminism> {
    let op = |(seq, name): (u32, &str)| (OpId { name: text(name), seq, input: None }, Kind::Step);
    let recorded: Vec<_> = (0..).zip(["reserve", "charge", "ship"]).map(op).collect();
    let current = ["reserve", "ship", "charge"].map(|name| (Kind::Step, text(name)));
    let what = text("step \"charge\" comes later than before");
    let reason = text("the payload does not fit: missing field `receipt` at line 1 column 12");
    vec![
        Nondeterminism::Differs { what, lists: side_by_side(&recorded, &current) },
        Nondeterminism::Twice { kind: "step", name: text("charge") },
        Nondeterminism::Misplaced { kind: "step", name: text("mail"), place: "inside a step" },
        Nondeterminism::Value { kind: "step", name: text("charge"), reason },
        Nondeterminism::Invalid {
            what: super::keys::check("the name of a step", "", 1).unwrap_err().to_string(),
        },
        Nondeterminism::Panicked { reason: text("called `Option::unwrap()` on a `None` value") },
    ]
}
