//! Document decisions: expected versions, writes, deletes that keep the version, and merges.

use super::batch::{Expect, Missing};
use super::commit::Step;
use super::delta::{Delta, DeltaError};
use super::draft::Draft;
use super::limits::{MERGE_DEPTH, PAYLOAD_BYTES, within};
use super::receipt::{Receipt, Written};
use super::refusal::{DocumentFound, Refusal};
use super::rows::{DocumentRow, StoredDocument};
use super::working_set::WorkingSet;
use crate::clock::Due;
use crate::id::DocVersion;
use crate::key::Key;
use crate::payload::Payload;

/// Checks the expectation on a document.
pub(super) fn check(step: &mut Step<'_>, key: &Key, expect: Expect<DocVersion>) -> Result<(), Refusal> {
    let found = visible(step, key);
    let holds = match expect {
        Expect::Any => true,
        Expect::Absent => found.is_none(),
        Expect::Exists => found.is_some(),
        Expect::Exact(version) => found.as_ref().is_some_and(|d| d.version == version),
    };
    if holds {
        return Ok(());
    }
    finish_merges(step.facts, step.receipt, key);
    let found = match (visible(step, key), step.facts.document(key)) {
        (Some(document), _) => DocumentFound::Present(document),
        (None, Some(row)) => DocumentFound::Gone(row.version),
        (None, None) => DocumentFound::Absent,
    };
    Err(Refusal::Document { index: step.index, key: key.clone(), expected: expect, found: Box::new(found) })
}

fn visible(step: &Step<'_>, key: &Key) -> Option<StoredDocument> {
    step.facts.document(key)?.visible(key, step.now)
}

/// Returns the version of the next write of the key: one more than ever before, for this key or for any swept key.
fn next_version(step: &Step<'_>, key: &Key) -> DocVersion {
    step.facts.document(key).map_or(step.facts.counters.document_floor, |row| row.version).next()
}

pub(super) fn put(
    mut step: Step<'_>,
    key: &Key,
    expect: Expect<DocVersion>,
    value: &Payload,
    expires: Option<Due>,
) -> Result<(), Refusal> {
    check(&mut step, key, expect)?;
    finish_merges(step.facts, step.receipt, key);
    let version = next_version(&step, key);
    let row = DocumentRow {
        version,
        value: Some(value.clone()),
        updated_at: step.now,
        expires_at: expires.map(|due| due.resolve(step.now)),
    };
    step.facts.set_document(key, row);
    step.receipt.documents.push(Written { key: key.clone(), version, value: None });
    Ok(())
}

pub(super) fn delete(mut step: Step<'_>, key: &Key, expect: Expect<DocVersion>) -> Result<(), Refusal> {
    check(&mut step, key, expect)?;
    finish_merges(step.facts, step.receipt, key);
    let Some(row) = step.facts.document(key) else {
        let version = step.facts.counters.document_floor;
        step.receipt.documents.push(Written { key: key.clone(), version, value: None });
        return Ok(());
    };
    let mut version = row.version;
    if row.value.is_some() {
        version = version.next();
        let tombstone = DocumentRow { version, value: None, updated_at: step.now, expires_at: None };
        step.facts.set_document(key, tombstone);
    }
    step.receipt.documents.push(Written { key: key.clone(), version, value: None });
    Ok(())
}

/// Merges deltas into the value that the batch has reached so far. [`finish_merges`] writes the text once, however many merges
/// there are.
pub(super) fn merge(step: Step<'_>, key: &Key, deltas: &[Delta], missing: &Missing) -> Result<(), Refusal> {
    let index = step.index;
    let (current, version) = (visible(&step, key), next_version(&step, key));
    let (value, expires_at) = match (&current, missing) {
        (Some(document), _) => (&document.value, document.expires_at),
        (None, Missing::Create(initial)) => (initial, None),
        (None, Missing::Refuse) => return Err(Refusal::NotFound { index, key: key.clone() }),
    };
    let known = current.as_ref().and_then(|document| step.facts.take_draft(key, document.version));
    let mut draft = known.unwrap_or_else(|| Draft::of(value));
    for delta in deltas {
        draft.apply(delta).map_err(|DeltaError { needed, found }| {
            let (key, path) = (key.clone(), delta.path().to_owned());
            Refusal::Delta { index, key, path, needed, found }
        })?;
    }
    within("the nesting depth", key, draft.depth(MERGE_DEPTH), MERGE_DEPTH)?;
    within("the merged payload length in bytes", key, draft.bytes(), PAYLOAD_BYTES)?;
    let row = DocumentRow { version, value: Some(value.clone()), updated_at: step.now, expires_at };
    step.facts.set_draft(key, row, draft, step.receipt.documents.len());
    step.receipt.documents.push(Written { key: key.clone(), version, value: None });
    Ok(())
}

/// Writes the text of a merged document into its row and into the receipts of its merges.
pub(super) fn finish_merges(facts: &mut WorkingSet, receipt: &mut Receipt, key: &Key) {
    let Some((value, merges)) = facts.settle_draft(key) else { return };
    for at in merges {
        if let Some(written) = receipt.documents.get_mut(at) {
            written.value = Some(value.clone());
        }
    }
}

/// Settles every document that the batch has merged into.
pub(super) fn settle_all(facts: &mut WorkingSet, receipt: &mut Receipt) {
    for key in facts.unsettled() {
        finish_merges(facts, receipt, &key);
    }
}
