//! Runs that a run starts and waits for.

use super::cell::Answer;
use super::entry::{ChildEnded, Ending};
use super::failure::StepError;

/// What a parent is told of the end of a child.
pub(super) fn answer(ended: &ChildEnded) -> Answer {
    let (how, failure) = match &ended.ending {
        Ending::Completed(output) => return Answer::Value(output.clone()),
        Ending::Failed(failure) => ("failed", failure),
        Ending::Cancelled(failure) => ("was cancelled", failure),
        // Whoever continues as new has not ended, and says nothing to its parent.
        Ending::Continued(_) => return Answer::Nothing,
    };
    let (run, how, error) = (ended.run.clone(), how.to_owned(), failure.message.clone());
    Answer::Error(StepError::Child { run, how, error })
}
