//! `tidelock state set` and `delete`: a change against the version that is there, told in the record's history if it has
//! one. Nothing is overwritten unseen unless it is asked for.

use anyhow::Result;
use serde::Serialize;
use tidelock::key::reserved::check_document;
use tidelock::prelude::*;
use tidelock::state::{PastChange, history_batch, history_key};
use tidelock::store::{Document, DocumentFound, StoreErrorKind};

use super::envelope::Envelope;
use super::not_found;
use crate::args::{Condition, Source, StateDelete, StateSet};
use crate::exit::{Exit, UsageError};
use crate::{ask, input, output};

/// Writes a record.
pub(super) async fn set(options: &StateSet) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    check_document(&key)?;
    let value = value(options)?;
    let opened = options.place.open().await?;
    let store = opened.shared();
    let before = store.document(&key).await?;
    let expect = if options.if_absent {
        Expect::Absent
    } else {
        expectation(&options.condition, before.as_ref(), Expect::Any)
    };
    // Whoever forces a write wants it written.
    let same = expect != Expect::Any && before.as_ref().is_some_and(|before| before.value == value);
    let write = Write { key, expect, before, change: PastChange::Put(value) };
    let ended = write.run(&*store, same).await?;
    opened.close().await;
    write.tell(&options.place, ended)
}

/// The value that is to be written.
fn value(options: &StateSet) -> Result<Payload> {
    match (&options.value, &options.file) {
        (Some(value), _) => input::typed(value),
        (None, Some(path)) => input::in_file(path),
        (None, None) => Err(UsageError("no value was given".to_owned()).into()),
    }
}

/// Deletes a record.
pub(super) async fn delete(options: &StateDelete) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    check_document(&key)?;
    let opened = options.place.open().await?;
    let store = opened.shared();
    let before = store.document(&key).await?;
    if before.is_none() && options.condition.if_version.is_none() {
        return Ok(not_found(&key));
    }
    let expect = expectation(&options.condition, before.as_ref(), Expect::Exists);
    let write = Write { key, expect, before, change: PastChange::Delete };
    // What is not as expected is told below, without a question.
    if let Some(before) = write.before.as_ref().filter(|before| write.is_met_by(before)) {
        let name = output::key(&write.key);
        if options.consent.dry_run {
            let (key, version) = (&write.key, before.version);
            let report =
                Report { key, version, changed: false, history: None, before: Some(Envelope::of(before)) };
            return output::told(
                options.place.output,
                &report,
                format!("{name}, version {version}, would be deleted"),
            );
        }
        let size = output::bytes(before.value.len() as u64);
        let question = format!("{name} is at version {} and has {size}. Delete it?", before.version);
        if !ask::agreed(&question, options.consent.yes)? {
            return Ok(Exit::Failed);
        }
    }
    let ended = write.run(&*store, false).await?;
    opened.close().await;
    write.tell(&options.place, ended)
}

/// What must hold: the version that was asked for, or else the one that is there.
fn expectation(
    condition: &Condition,
    before: Option<&Document>,
    forced: Expect<DocVersion>,
) -> Expect<DocVersion> {
    if condition.force {
        return forced;
    }
    let version = condition.if_version.map(DocVersion).or(before.map(|before| before.version));
    version.map_or(Expect::Absent, Expect::Exact)
}

/// A change that is to be made.
struct Write {
    key: Key,
    expect: Expect<DocVersion>,
    before: Option<Document>,
    change: PastChange,
}

/// How it ended.
enum Ended {
    /// It was written as this version, and told in the history under this number.
    Written(DocVersion, Option<StreamVersion>),
    /// There was nothing to write.
    Same(DocVersion),
    /// Something else was there.
    Conflict(DocumentFound),
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report<'a> {
    key: &'a Key,
    /// The version afterwards.
    version: DocVersion,
    /// Whether anything was written.
    changed: bool,
    /// The number of the write in the record's history, if it has one.
    history: Option<StreamVersion>,
    /// The record as it was.
    before: Option<Envelope>,
}

impl Write {
    /// Whether what is there is what was expected.
    fn is_met_by(&self, before: &Document) -> bool {
        match self.expect {
            Expect::Exact(version) => before.version == version,
            Expect::Absent => false,
            Expect::Exists | Expect::Any => true,
        }
    }

    async fn run(&self, store: &dyn Store, same: bool) -> Result<Ended> {
        // The store would say so as well. But what is kept of the record, such as its expiry, was read from this version.
        match (&self.before, self.expect) {
            (Some(before), Expect::Exact(version)) if before.version != version => {
                return Ok(Ended::Conflict(DocumentFound::Present(before.clone())));
            }
            (Some(before), Expect::Absent) => {
                return Ok(Ended::Conflict(DocumentFound::Present(before.clone())));
            }
            (None, Expect::Exact(_)) => return Ok(Ended::Conflict(DocumentFound::Absent)),
            (Some(before), _) if same => return Ok(Ended::Same(before.version)),
            _ => {}
        }
        let batch = self.batch().and(self.told(store).await?);
        match store.apply(batch).await {
            Ok(receipt) => Ok(ended(&receipt)),
            Err(error) => match error.refusal() {
                Some(Refusal::Document { found, .. }) => Ok(Ended::Conflict((**found).clone())),
                _ => Err(self.explained(error)),
            },
        }
    }

    fn batch(&self) -> Batch {
        let (key, expect, batch) = (&self.key, self.expect, Batch::new());
        let expires = self.before.as_ref().and_then(|before| before.expires_at);
        match (&self.change, expires) {
            (PastChange::Put(value), None) => batch.put(key, expect, value.clone()),
            (PastChange::Put(value), Some(at)) => batch.put_until(key, expect, value.clone(), Due::At(at)),
            (PastChange::Merge(deltas), _) => batch.merge(key, deltas.clone()),
            (PastChange::Delete, _) => batch.delete(key, expect),
        }
    }

    /// What is added to the batch for the history: the event, or that there still is no history.
    async fn told(&self, store: &dyn Store) -> Result<Batch> {
        // A key that is too long for a history has none.
        let Ok(stream) = history_key(&self.key) else { return Ok(Batch::new()) };
        match store.stream(&stream).await {
            Ok(Some(found)) if found.head.is_some() => Ok(history_batch(&self.key, self.change.clone(), 1)?),
            Ok(_) => Ok(Batch::new().guard_stream(&stream, Expect::Absent)),
            Err(error) if error.kind == StoreErrorKind::Unsupported => Ok(Batch::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The error, and where to look when nobody knows whether it was written.
    fn explained(&self, error: ApplyError) -> anyhow::Error {
        if matches!(error.outcome(), Outcome::Unknown(_)) {
            let key = output::quoted(&output::key(&self.key));
            eprintln!("hint: `tidelock state get {key}` shows whether it was written");
        }
        error.into()
    }

    fn tell(&self, place: &Source, ended: Ended) -> Result<Exit> {
        let (version, changed, history) = match ended {
            Ended::Written(version, history) => (version, true, history),
            Ended::Same(version) => (version, false, None),
            Ended::Conflict(found) => return Ok(self.conflict(&found)),
        };
        let before = self.before.as_ref().map(Envelope::of);
        let report = Report { key: &self.key, version, changed, history, before };
        output::told(place.output, &report, self.sentence(version, changed, history))
    }

    fn sentence(&self, version: DocVersion, changed: bool, history: Option<StreamVersion>) -> String {
        let key = output::key(&self.key);
        let was = self.before.as_ref().map(|before| before.version);
        let done = match (&self.change, was) {
            _ if !changed => format!("{key} is still version {version}: the value is the same"),
            (PastChange::Delete, _) => {
                format!("{key} is deleted; it was version {}", was.unwrap_or(version))
            }
            (_, Some(was)) => format!("{key} is version {version} now; it was {was}"),
            (_, None) => format!("{key} is version {version} now; it is new"),
        };
        history.map_or(done.clone(), |number| format!("{done}; write {number} of its history"))
    }

    fn conflict(&self, found: &DocumentFound) -> Exit {
        let key = output::key(&self.key);
        let (found, next) = match found {
            DocumentFound::Present(document) => (
                format!("is at version {}", document.version),
                format!("look at it with `tidelock state get {}` and decide again", output::quoted(&key)),
            ),
            DocumentFound::Gone(_) | DocumentFound::Absent => (
                "does not exist".to_owned(),
                "somebody else has deleted it, or the key is another".to_owned(),
            ),
        };
        let expected = match self.expect {
            Expect::Absent => "none was expected".to_owned(),
            Expect::Exact(version) => format!("version {version} was expected"),
            Expect::Exists | Expect::Any => "it was there just now".to_owned(),
        };
        eprintln!("error[TL0202]: {key} {found}, and {expected}; nothing was written");
        eprintln!("hint: {next}");
        Exit::Conflict
    }
}

fn ended(receipt: &Receipt) -> Ended {
    let told = receipt.appended.first().map(|appended| appended.last_version);
    match receipt.documents.first() {
        Some(written) => Ended::Written(written.version, told),
        // A forced deletion of what somebody else has just deleted.
        None => Ended::Conflict(DocumentFound::Absent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(n: i32) -> Payload {
        Payload::of(&n).unwrap()
    }

    /// A write that is about to be made against what is there now.
    async fn about_to(store: &MemoryStore, force: bool, change: PastChange) -> Write {
        let key = Key::single("k").unwrap();
        let before = store.document(&key).await.unwrap();
        let condition = Condition { if_version: None, force };
        let forced = if change == PastChange::Delete { Expect::Exists } else { Expect::Any };
        let expect = expectation(&condition, before.as_ref(), forced);
        Write { key, expect, before, change }
    }

    async fn put(store: &MemoryStore, n: i32) {
        let key = Key::single("k").unwrap();
        store.apply(Batch::new().put(&key, Expect::Any, payload(n))).await.unwrap();
    }

    #[tokio::test]
    async fn a_writer_in_the_same_moment_is_not_overwritten() {
        let store = MemoryStore::new();
        for change in [PastChange::Put(payload(9)), PastChange::Delete] {
            put(&store, 1).await;
            let write = about_to(&store, false, change).await;
            put(&store, 2).await;
            let Ended::Conflict(DocumentFound::Present(found)) = write.run(&store, false).await.unwrap()
            else {
                panic!("it was overwritten")
            };
            assert_eq!(found.value, payload(2));
        }
    }

    #[tokio::test]
    async fn a_record_that_appears_in_the_same_moment_is_not_overwritten() {
        let store = MemoryStore::new();
        let write = about_to(&store, false, PastChange::Put(payload(9))).await;
        put(&store, 1).await;
        assert!(matches!(write.run(&store, false).await.unwrap(), Ended::Conflict(_)));
    }

    #[tokio::test]
    async fn force_writes_whatever_is_there_by_then() {
        let store = MemoryStore::new();
        put(&store, 1).await;
        let write = about_to(&store, true, PastChange::Put(payload(9))).await;
        put(&store, 2).await;
        assert!(matches!(write.run(&store, false).await.unwrap(), Ended::Written(DocVersion(3), None)));
        let delete = about_to(&store, true, PastChange::Delete).await;
        put(&store, 3).await;
        assert!(matches!(delete.run(&store, false).await.unwrap(), Ended::Written(..)));
        assert!(matches!(delete.run(&store, false).await.unwrap(), Ended::Conflict(_)), "it is gone");
    }
}
