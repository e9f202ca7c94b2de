//! `tidelock state set` and `delete`: a compare-and-swap against the current version, recorded in the record's history if
//! it has one. Nothing is overwritten unconditionally unless the caller forces it.

use anyhow::Result;
use serde::Serialize;
use tidelock::key::reserved::check_document;
use tidelock::prelude::*;
use tidelock::state::{HistoryChange, history_batch, history_key};
use tidelock::store::{DocumentFound, StoreErrorKind, StoredDocument};

use super::envelope::Envelope;
use super::not_found;
use crate::args::{Condition, Source, StateDelete, StateSet};
use crate::exit::{Exit, UsageError};
use crate::{confirm, input, output};

/// Runs `state set`.
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
    // A forced write is always written.
    let same = expect != Expect::Any && before.as_ref().is_some_and(|before| before.value == value);
    let write = Write { key, expect, before, change: HistoryChange::Put(value) };
    let ended = write.run(&*store, same).await?;
    opened.close().await;
    write.print(&options.place, ended)
}

/// Returns the value to write.
fn value(options: &StateSet) -> Result<Payload> {
    match (&options.value, &options.file) {
        (Some(value), _) => input::typed(value),
        (None, Some(path)) => input::in_file(path),
        (None, None) => Err(UsageError("no value was given".to_owned()).into()),
    }
}

/// Runs `state delete`.
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
    let write = Write { key, expect, before, change: HistoryChange::Delete };
    // An unmet expectation is reported below, without a confirmation prompt.
    if let Some(before) = write.before.as_ref().filter(|before| write.is_met_by(before)) {
        let name = output::key(&write.key);
        if options.consent.dry_run {
            let (key, version) = (&write.key, before.version);
            let report =
                Report { key, version, changed: false, history: None, before: Some(Envelope::of(before)) };
            return output::print_report(
                options.place.output,
                &report,
                format!("{name}, version {version}, would be deleted"),
            );
        }
        let size = output::bytes(before.value.len() as u64);
        let question = format!("{name} is at version {} and has {size}. Delete it?", before.version);
        if !confirm::agreed(&question, options.consent.yes)? {
            return Ok(Exit::Failed);
        }
    }
    let ended = write.run(&*store, false).await?;
    opened.close().await;
    write.print(&options.place, ended)
}

/// Returns the expected version: the requested one, or else the current one.
fn expectation(
    condition: &Condition,
    before: Option<&StoredDocument>,
    forced: Expect<DocVersion>,
) -> Expect<DocVersion> {
    if condition.force {
        return forced;
    }
    let version = condition.if_version.map(DocVersion).or(before.map(|before| before.version));
    version.map_or(Expect::Absent, Expect::Exact)
}

/// A pending change of a record.
struct Write {
    key: Key,
    expect: Expect<DocVersion>,
    before: Option<StoredDocument>,
    change: HistoryChange,
}

/// The result of a write.
enum Ended {
    /// Written as this version, and recorded in the history under this number.
    Written(DocVersion, Option<StreamVersion>),
    /// The value was already current.
    Same(DocVersion),
    /// The record was in another state than expected.
    Conflict(DocumentFound),
}

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    key: &'a Key,
    /// The version after the write.
    version: DocVersion,
    /// Whether the record was written.
    changed: bool,
    /// The number of the write in the record's history, if it has one.
    history: Option<StreamVersion>,
    /// The previous record.
    before: Option<Envelope>,
}

impl Write {
    /// Returns whether the current document meets the expectation.
    fn is_met_by(&self, before: &StoredDocument) -> bool {
        match self.expect {
            Expect::Exact(version) => before.version == version,
            Expect::Absent => false,
            Expect::Exists | Expect::Any => true,
        }
    }

    async fn run(&self, store: &dyn Store, same: bool) -> Result<Ended> {
        // The store would reject it as well. However, the retained properties of the record, such as its expiry, were
        // read from this version.
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
        let batch = self.batch().and(self.history_batch(store).await?);
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
            (HistoryChange::Put(value), None) => batch.put(key, expect, value.clone()),
            (HistoryChange::Put(value), Some(at)) => batch.put_until(key, expect, value.clone(), Due::At(at)),
            (HistoryChange::Merge(deltas), _) => batch.merge(key, deltas.clone()),
            (HistoryChange::Delete, _) => batch.delete(key, expect),
        }
    }

    /// Returns the history part of the batch: the event, or the condition that there is still no history.
    async fn history_batch(&self, store: &dyn Store) -> Result<Batch> {
        // A key that is too long for a history has none.
        let Ok(stream) = history_key(&self.key) else { return Ok(Batch::new()) };
        match store.stream(&stream).await {
            Ok(Some(found)) if found.head.is_some() => Ok(history_batch(&self.key, self.change.clone(), 1)?),
            Ok(_) => Ok(Batch::new().guard_stream(&stream, Expect::Absent)),
            Err(error) if error.kind == StoreErrorKind::Unsupported => Ok(Batch::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the error, and prints a hint when it is unknown whether the write was committed.
    fn explained(&self, error: ApplyError) -> anyhow::Error {
        if matches!(error.outcome(), Outcome::Unknown(_)) {
            let key = output::quoted(&output::key(&self.key));
            eprintln!("hint: `tidelock state get {key}` shows whether it was written");
        }
        error.into()
    }

    fn print(&self, place: &Source, ended: Ended) -> Result<Exit> {
        let (version, changed, history) = match ended {
            Ended::Written(version, history) => (version, true, history),
            Ended::Same(version) => (version, false, None),
            Ended::Conflict(found) => return Ok(self.conflict(&found)),
        };
        let before = self.before.as_ref().map(Envelope::of);
        let report = Report { key: &self.key, version, changed, history, before };
        output::print_report(place.output, &report, self.sentence(version, changed, history))
    }

    fn sentence(&self, version: DocVersion, changed: bool, history: Option<StreamVersion>) -> String {
        let key = output::key(&self.key);
        let was = self.before.as_ref().map(|before| before.version);
        let done = match (&self.change, was) {
            _ if !changed => format!("{key} is still version {version}: the value is the same"),
            (HistoryChange::Delete, _) => {
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
            DocumentFound::Gone(_) | DocumentFound::Absent => {
                ("does not exist".to_owned(), "another writer deleted it, or the key is wrong".to_owned())
            }
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
        // A forced deletion of a record that another caller has just deleted.
        None => Ended::Conflict(DocumentFound::Absent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(n: i32) -> Payload {
        Payload::of(&n).unwrap()
    }

    /// Creates a pending write against the current document.
    async fn about_to(store: &MemoryStore, force: bool, change: HistoryChange) -> Write {
        let key = Key::single("k").unwrap();
        let before = store.document(&key).await.unwrap();
        let condition = Condition { if_version: None, force };
        let forced = if change == HistoryChange::Delete { Expect::Exists } else { Expect::Any };
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
        for change in [HistoryChange::Put(payload(9)), HistoryChange::Delete] {
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
        let write = about_to(&store, false, HistoryChange::Put(payload(9))).await;
        put(&store, 1).await;
        assert!(matches!(write.run(&store, false).await.unwrap(), Ended::Conflict(_)));
    }

    #[tokio::test]
    async fn force_writes_whatever_is_there_by_then() {
        let store = MemoryStore::new();
        put(&store, 1).await;
        let write = about_to(&store, true, HistoryChange::Put(payload(9))).await;
        put(&store, 2).await;
        assert!(matches!(write.run(&store, false).await.unwrap(), Ended::Written(DocVersion(3), None)));
        let delete = about_to(&store, true, HistoryChange::Delete).await;
        put(&store, 3).await;
        assert!(matches!(delete.run(&store, false).await.unwrap(), Ended::Written(..)));
        assert!(matches!(delete.run(&store, false).await.unwrap(), Ended::Conflict(_)), "it is gone");
    }
}
