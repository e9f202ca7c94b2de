//! Exit codes, and the reports of failures on the terminal.

use std::process::ExitCode;

use tidelock::error::{Code, Explain, InvalidInput};
use tidelock::events::EventsError;
use tidelock::idempotency::IdempotencyError;
use tidelock::lease::LeaseError;
use tidelock::outbox::OutboxError;
use tidelock::reactions::ReactionsError;
use tidelock::schedule::ScheduleError;
use tidelock::state::StateError;
use tidelock::store::{ApplyError, Refusal, StoreError, StoreErrorKind};
use tidelock::workflow::WorkflowError;
use tidelock_server::ServerError;

pub(crate) use tidelock_console::address::NoFile;
pub(crate) use tidelock_console::usage::UsageError;

use crate::config::ConfigError;
use crate::output;

/// The exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Well = 0,
    /// A failure without a more specific code.
    Failed = 1,
    /// A usage error.
    Usage = 2,
    /// The requested item does not exist.
    NotFound = 3,
    /// A conflict: another caller was faster.
    Conflict = 4,
    /// Work is blocked until an operator acts.
    Blocked = 5,
    /// An awaited run failed or was cancelled.
    RunFailed = 6,
}

impl Exit {
    /// All exit codes and their meanings. The help and the manual list the same.
    pub(crate) const ALL: [(Self, &'static str); 7] = [
        (Self::Well, "well"),
        (Self::Failed, "failed"),
        (Self::Usage, "wrong usage"),
        (Self::NotFound, "not found"),
        (Self::Conflict, "conflict"),
        (Self::Blocked, "something is blocked"),
        (Self::RunFailed, "a run did not complete"),
    ];
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints the message of clap. Help and version exit with success, everything else is a usage error.
pub(crate) fn usage(refused: &clap::Error) -> ExitCode {
    let asked = !refused.use_stderr();
    // A closed pipe is not an error: the reader has seen enough.
    drop(refused.print());
    if asked { Exit::Well.into() } else { Exit::Usage.into() }
}

/// Reports an invalid configuration.
pub(crate) fn unfit(error: &ConfigError) -> ExitCode {
    eprintln!("error: {}", output::escaped(&error.to_string()));
    Exit::Usage.into()
}

/// Returns the exit code after printing. A reader that closed the pipe early is not an error.
pub(crate) fn after(printed: anyhow::Result<()>, exit: Exit) -> anyhow::Result<Exit> {
    match printed {
        Err(error) if !error.chain().any(is_closed_pipe) => Err(error),
        _ => Ok(exit),
    }
}

/// Reports a failure: the message, the code, and where to read more. A closed pipe is not a failure.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if error.chain().any(is_closed_pipe) {
        return Exit::Well;
    }
    let message = output::escaped(&format!("{error:#}"));
    match code(error) {
        Some(code) => {
            eprintln!("error[{code}]: {message}");
            eprintln!("hint: `tidelock explain {code}` says what it means and what to do");
        }
        None => eprintln!("error: {message}"),
    }
    exit(error)
}

fn is_closed_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Returns the stable code of a failure that Tidelock itself reported.
fn code(error: &anyhow::Error) -> Option<Code> {
    explained(error).map(Explain::code)
}

/// Returns the cause of a failure that Tidelock itself reported.
pub(crate) fn explained(error: &anyhow::Error) -> Option<&dyn Explain> {
    error.chain().find_map(|cause| {
        is::<StoreError>(cause)
            .or_else(|| is::<NoFile>(cause))
            .or_else(|| is::<ApplyError>(cause))
            .or_else(|| is::<InvalidInput>(cause))
            .or_else(|| is::<StateError>(cause))
            .or_else(|| is::<EventsError>(cause))
            .or_else(|| is::<ReactionsError>(cause))
            .or_else(|| is::<WorkflowError>(cause))
            .or_else(|| is::<IdempotencyError>(cause))
            .or_else(|| is::<ScheduleError>(cause))
            .or_else(|| is::<LeaseError>(cause))
            .or_else(|| is::<OutboxError>(cause))
            .or_else(|| is::<ServerError>(cause))
    })
}

fn is<'a, E: Explain + 'static>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a dyn Explain> {
    cause.downcast_ref::<E>().map(|error| error as &dyn Explain)
}

fn exit(error: &anyhow::Error) -> Exit {
    error.chain().find_map(exit_of_cause).unwrap_or(Exit::Failed)
}

fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if cause.is::<UsageError>() || cause.is::<InvalidInput>() {
        return Some(Exit::Usage);
    }
    if let Some(server) = cause.downcast_ref::<ServerError>() {
        return Some(exit_of_server(server));
    }
    if cause.is::<NoFile>() {
        return Some(Exit::NotFound);
    }
    if cause.is::<Conflict>() {
        return Some(Exit::Conflict);
    }
    if let Some(reactions) = cause.downcast_ref::<ReactionsError>() {
        return Some(exit_of_reactions(reactions));
    }
    if let Some(workflow) = cause.downcast_ref::<WorkflowError>() {
        return Some(exit_of_workflow(workflow));
    }
    if let Some(edge) = cause.downcast_ref::<IdempotencyError>() {
        return Some(exit_of_edge(edge));
    }
    if let Some(schedule) = cause.downcast_ref::<ScheduleError>() {
        return Some(exit_of_schedule(schedule));
    }
    if let Some(outbox) = cause.downcast_ref::<OutboxError>() {
        return Some(exit_of_outbox(outbox));
    }
    if let Some(LeaseError::Store(store)) = cause.downcast_ref::<LeaseError>() {
        return Some(exit_of_store(store));
    }
    if let Some(store) = cause.downcast_ref::<StoreError>() {
        return Some(exit_of_store(store));
    }
    if let Some(state) = cause.downcast_ref::<StateError>() {
        return Some(exit_of_state(state));
    }
    if let Some(events) = cause.downcast_ref::<EventsError>() {
        return Some(exit_of_events(events));
    }
    cause.downcast_ref::<ApplyError>().map(exit_of_apply)
}

fn exit_of_server(error: &ServerError) -> Exit {
    match error {
        ServerError::Beyond { .. } | ServerError::Tls { .. } => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn exit_of_schedule(error: &ScheduleError) -> Exit {
    match error {
        ScheduleError::UnknownTask { .. } => Exit::NotFound,
        ScheduleError::Archived { .. } => Exit::Conflict,
        ScheduleError::TooMany { .. } | ScheduleError::Times { .. } | ScheduleError::Invalid(_) => {
            Exit::Usage
        }
        ScheduleError::Store(error) => exit_of_store(error),
        ScheduleError::Write(error) => exit_of_apply(error),
        _ => Exit::Failed,
    }
}

fn exit_of_store(error: &StoreError) -> Exit {
    match error.kind {
        StoreErrorKind::Invalid => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn exit_of_apply(error: &ApplyError) -> Exit {
    match error {
        ApplyError::Store { .. } => Exit::Failed,
        ApplyError::Refused(refusal) => match **refusal {
            Refusal::NotFound { .. } => Exit::NotFound,
            Refusal::Invalid(_) | Refusal::Delta { .. } => Exit::Usage,
            _ => Exit::Conflict,
        },
    }
}

fn exit_of_state(error: &StateError) -> Exit {
    match error {
        StateError::Write(error) => exit_of_apply(error),
        StateError::Read(error) => exit_of_store(error),
        StateError::NotFound { .. } => Exit::NotFound,
        StateError::ConcurrentModification { .. } => Exit::Conflict,
        StateError::Invalid { .. } => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn exit_of_events(error: &EventsError) -> Exit {
    match error {
        EventsError::Write(error) => exit_of_apply(error),
        EventsError::Read(error) => exit_of_store(error),
        EventsError::Concurrency { .. } | EventsError::Closed { .. } | EventsError::Turn { .. } => {
            Exit::Conflict
        }
        EventsError::Name(_) | EventsError::Unwritable { .. } => Exit::Usage,
        EventsError::Archived { .. } | EventsError::Gap { .. } => Exit::NotFound,
        EventsError::Undecodable { .. } | EventsError::NotKept { .. } | EventsError::Base { .. } => {
            Exit::Failed
        }
    }
}

fn exit_of_reactions(error: &ReactionsError) -> Exit {
    match error {
        ReactionsError::Write(error) => exit_of_apply(error),
        ReactionsError::Store(error) => exit_of_store(error),
        ReactionsError::Unknown { .. } => Exit::NotFound,
        ReactionsError::Name { .. } | ReactionsError::Invalid { .. } => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn exit_of_workflow(error: &WorkflowError) -> Exit {
    match error {
        WorkflowError::Write(error) => exit_of_apply(error),
        WorkflowError::Store(error) => exit_of_store(error),
        WorkflowError::UnknownRun { .. } | WorkflowError::UnknownWorkflow { .. } => Exit::NotFound,
        WorkflowError::UnknownSignal { .. } | WorkflowError::Invalid(_) => Exit::Usage,
        WorkflowError::Taken { .. }
        | WorkflowError::Over { .. }
        | WorkflowError::Leased { .. }
        | WorkflowError::Refused { .. } => Exit::Conflict,
        WorkflowError::Failed { .. } | WorkflowError::Cancelled { .. } => Exit::RunFailed,
        _ => Exit::Failed,
    }
}

fn exit_of_outbox(error: &OutboxError) -> Exit {
    match error {
        OutboxError::Write(error) => exit_of_apply(error),
        OutboxError::Store(error) => exit_of_store(error),
        OutboxError::Unknown { .. } => Exit::NotFound,
        OutboxError::UnderWay { .. } => Exit::Conflict,
        OutboxError::Invalid(_) => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn exit_of_edge(error: &IdempotencyError) -> Exit {
    match error {
        IdempotencyError::Write(error) => exit_of_apply(error),
        IdempotencyError::Store(error) => exit_of_store(error),
        IdempotencyError::Unknown { .. } => Exit::NotFound,
        IdempotencyError::BadKey { .. } | IdempotencyError::Invalid(_) => Exit::Usage,
        IdempotencyError::InFlight { .. } => Exit::Conflict,
        _ => Exit::Failed,
    }
}

/// A conflict: another caller was faster, or the stored data do not match.
#[derive(Debug)]
pub(crate) struct Conflict(pub(crate) String);

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Conflict {}
