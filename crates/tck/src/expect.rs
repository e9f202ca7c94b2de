//! Assertions on answers: each unpacks one refusal, or panics with the actual answer.

use tidelock_core::model::refusal::{DocumentFound, Holder, Refusal, StreamFound};
use tidelock_core::store::{ApplyError, Receipt, StoredDocument};

/// Returns the refusal of a batch that was not applied although the store is available.
#[track_caller]
pub(crate) fn refusal(answer: Result<Receipt, ApplyError>) -> Refusal {
    match answer {
        Err(ApplyError::Refused(refusal)) => *refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn stream_conflict(refusal: Refusal) -> StreamFound {
    match refusal {
        Refusal::Stream { found, .. } => found,
        other => panic!("expected a conflict on a stream, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn document_conflict(refusal: Refusal) -> DocumentFound {
    match refusal {
        Refusal::Document { found, .. } => *found,
        other => panic!("expected a conflict on a document, got {other:?}"),
    }
}

/// Returns the value and version that the loser of a race received.
#[track_caller]
pub(crate) fn present(refusal: Refusal) -> StoredDocument {
    match document_conflict(refusal) {
        DocumentFound::Present(document) => document,
        other => panic!("expected the document that won, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn fenced(refusal: Refusal) -> Holder {
    match refusal {
        Refusal::Fenced { holder, .. } => *holder,
        other => panic!("expected Fenced, got {other:?}"),
    }
}

/// Checks that exactly one task won a race. Returns the receipt of the winner and the refusals of the others.
#[track_caller]
pub(crate) fn one_winner(answers: Vec<Result<Receipt, ApplyError>>) -> (Receipt, Vec<Refusal>) {
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1, "exactly one may win, these did: {won:?}; these lost: {lost:?}");
    (won.into_iter().flatten().next().unwrap(), lost.into_iter().map(refusal).collect())
}
