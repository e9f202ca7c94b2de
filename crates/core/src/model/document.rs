//! Decisions about documents: expected versions, writes, deletes that keep the version, and merges.

use serde_json::Value;

use super::batch::{Expect, Missing};
use super::commit::Step;
use super::delta::{self, Delta};
use super::limits::{MERGE_DEPTH, PAYLOAD_BYTES, within};
use super::measure::Measure;
use super::receipt::Written;
use super::refusal::{DocumentFound, Refusal};
use super::rows::{Document, DocumentRow};
use crate::clock::Due;
use crate::id::DocVersion;
use crate::key::Key;
use crate::payload::{Payload, numbers};

/// As much of a number as a message shows.
const SHOWN_DIGITS: usize = 80;

/// Whether the document is as expected.
pub(super) fn check(step: &Step<'_>, key: &Key, expect: Expect<DocVersion>) -> Result<(), Refusal> {
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
    let found = match (found, step.facts.document(key)) {
        (Some(document), _) => DocumentFound::Present(document),
        (None, Some(row)) => DocumentFound::Gone(row.version),
        (None, None) => DocumentFound::Absent,
    };
    Err(Refusal::Document { index: step.index, key: key.clone(), expected: expect, found: Box::new(found) })
}

fn visible(step: &Step<'_>, key: &Key) -> Option<Document> {
    step.facts.document(key)?.visible(key, step.now)
}

/// The version that the next write of the key gets: one more than ever before, for this key or for any that was
/// swept.
fn next_version(step: &Step<'_>, key: &Key) -> DocVersion {
    step.facts.document(key).map_or(step.facts.counters.document_floor, |row| row.version).next()
}

pub(super) fn put(
    step: Step<'_>,
    key: &Key,
    expect: Expect<DocVersion>,
    value: &Payload,
    expires: Option<Due>,
) -> Result<(), Refusal> {
    check(&step, key, expect)?;
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

pub(super) fn delete(step: Step<'_>, key: &Key, expect: Expect<DocVersion>) -> Result<(), Refusal> {
    check(&step, key, expect)?;
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

pub(super) fn merge(step: Step<'_>, key: &Key, deltas: &[Delta], missing: &Missing) -> Result<(), Refusal> {
    let index = step.index;
    let current = visible(&step, key);
    let (value, expires_at) = match (&current, missing) {
        (Some(document), _) => (&document.value, document.expires_at),
        (None, Missing::Create(initial)) => (initial, None),
        (None, Missing::Refuse) => return Err(Refusal::NotFound { index, key: key.clone() }),
    };
    let merged = merged(index, key, value, deltas)?;
    let value = Payload::of(&merged)?;
    within("the merged payload length in bytes", key, value.len(), PAYLOAD_BYTES)?;
    let version = next_version(&step, key);
    let row = DocumentRow { version, value: Some(value.clone()), updated_at: step.now, expires_at };
    step.facts.set_document(key, row);
    step.receipt.documents.push(Written { key: key.clone(), version, value: Some(value) });
    Ok(())
}

/// The value after all deltas. It can be written as text and read again without any loss.
fn merged(index: usize, key: &Key, value: &Payload, deltas: &[Delta]) -> Result<Value, Refusal> {
    let refuse = |path: &str, needed, found| {
        let (key, path) = (key.clone(), path.to_owned());
        Refusal::Delta { index, key, path, needed, found }
    };
    if let Some(wide) = numbers::first_wide(value.as_str()) {
        // Parsing would round it, although no delta may have asked for it to change.
        let found = wide.chars().take(SHOWN_DIGITS).collect();
        return Err(refuse("", "whole numbers of at most 64 bits", found));
    }
    let mut merged: Value = value.parse()?;
    for delta in deltas {
        delta::apply(&mut merged, delta)
            .map_err(|misfit| refuse(delta.path(), misfit.needed, misfit.found))?;
    }
    within("the nesting depth", key, Measure::of(&merged).depth, MERGE_DEPTH)?;
    Ok(merged)
}
