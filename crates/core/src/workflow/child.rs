//! Child runs: results and errors, as the parent receives them.

use super::activation::Resolution;
use super::journal_entry::{ChildEnded, Ending};
use crate::failure::step_error::StepError;

/// Returns the end of a child, as its parent receives it.
pub(super) fn resolution(ended: &ChildEnded) -> Resolution {
    let (how, failure) = match &ended.ending {
        Ending::Completed(output) => return Resolution::Value(output.clone()),
        Ending::Failed(failure) => ("failed", failure),
        Ending::Cancelled(failure) => ("was cancelled", failure),
        // A child that continues as new has not ended, and reports nothing to its parent.
        Ending::Continued(_) => return Resolution::Nothing,
    };
    let (name, run) = (ended.name.clone(), ended.run.clone());
    let (how, error) = (how.to_owned(), failure.message().to_owned());
    Resolution::Error(StepError::Child { name, run, how, error })
}

/// Returns the error of a child that could not be started, as its parent receives it.
pub(super) fn refused(name: &str, run: &str, reason: &str) -> StepError {
    let (name, run) = (name.to_owned(), run.to_owned());
    StepError::Child { name, run, how: "could not be started".to_owned(), error: reason.to_owned() }
}
