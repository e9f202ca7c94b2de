//! A session under the lock: it loads rows from files, the model decides, and the session writes the changes.
//!
//! No rule of the contract is here. A session that is dropped or killed in the middle leaves whole files and at most
//! one journal.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{DocVersion, Epoch, OpId};
use tidelock_core::key::Key;
use tidelock_core::model::commit::{self, Stop};
use tidelock_core::model::epoch::{self, HistoryCut};
use tidelock_core::model::rows::DocumentRow;
use tidelock_core::model::working_set::{Counters, Footprint, WorkingSet};
use tidelock_core::payload::text;
use tidelock_core::store::{ApplyError, Batch, Receipt, Resolution, StoreError, StoreErrorKind};

use crate::directory::{Change, DirectoryLayout, Folder};
use crate::envelope::{self, Found};
use crate::error::{self, Failure, WriteFailure};
use crate::lock::{FileLockGuard, Mode};
use crate::{file_names, journal};

/// The name of the file that makes a directory a store.
pub(crate) const MARKER: &str = "tidelock.json";
/// The layout that this program knows.
pub(crate) const SCHEMA: u32 = 1;

/// The contents of the marker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The version of the layout.
    pub(crate) schema: u32,
    /// No document begins at or below this version.
    pub(crate) document_floor: u64,
    /// The epoch of the history. A layout that this program does not know need not have one.
    #[serde(default)]
    pub(crate) epoch: u64,
}

impl Marker {
    /// Returns the change that writes the marker.
    pub(crate) fn change(self) -> Change {
        let Self { schema, document_floor, epoch } = self;
        let content = format!(
            "{{\n  \"schema\": {schema},\n  \"document_floor\": {document_floor},\n  \"epoch\": {epoch}\n}}\n"
        );
        Change { folder: Folder::Root, name: MARKER.to_owned(), content: Some(content) }
    }

    pub(crate) fn read(disk: &DirectoryLayout) -> Result<Option<Self>, StoreError> {
        let Some(text) = disk.read(Folder::Root, MARKER)? else { return Ok(None) };
        let parsed = serde_json::from_str(&text);
        parsed.map(Some).map_err(|e| error::corrupt(&disk.path(Folder::Root, MARKER), e.to_string()))
    }
}

/// The keys of files whose names hold only a hash, as this process found them. The key of a name never changes.
#[derive(Debug, Default)]
pub(crate) struct LongKeys(Mutex<HashMap<String, Key>>);

/// The number of long keys that are remembered: about 100 MB at worst.
const REMEMBERED: usize = 65_536;

impl LongKeys {
    pub(crate) fn get(&self, name: &str) -> Option<Key> {
        self.0.lock().get(name).cloned()
    }

    pub(crate) fn remember(&self, name: &str, key: &Key) {
        let mut keys = self.0.lock();
        if keys.len() >= REMEMBERED {
            keys.clear();
        }
        keys.insert(name.to_owned(), key.clone());
    }
}

/// The store while the lock is held.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) disk: &'a DirectoryLayout,
    pub(crate) held: &'a FileLockGuard,
    pub(crate) now: Timestamp,
    pub(crate) long_keys: &'a LongKeys,
    /// The epoch as the store's handles see it.
    pub(crate) epoch: &'a AtomicU64,
}

impl Session<'_> {
    pub(crate) fn marker(&self) -> Result<Marker, StoreError> {
        let gone = || error::corrupt(&self.disk.path(Folder::Root, MARKER), "it is gone");
        Marker::read(self.disk)?.ok_or_else(gone)
    }

    /// Returns the document in a file, deleted ones as well. A manual edit becomes a new version.
    pub(crate) fn load(&self, name: &str) -> Result<Option<(Key, DocumentRow)>, Failure> {
        let Some(content) = self.disk.read(Folder::Documents, name)? else { return Ok(None) };
        let found = envelope::parse(&self.disk.path(Folder::Documents, name), name, &content)?;
        Ok(Some(if found.edited { self.adopt(name, found)? } else { (found.key, found.row) }))
    }

    /// Persists the version of an edit before any caller sees it: a further edit must not get the same one.
    fn adopt(&self, name: &str, found: Found) -> Result<(Key, DocumentRow), Failure> {
        if self.held.mode != Mode::Exclusive {
            return Err(Failure::NeedsExclusive);
        }
        let Found { key, mut row, .. } = found;
        if row.version == DocVersion(0) {
            row.version = DocVersion(self.marker()?.document_floor);
        }
        row.version = row.version.next();
        row.updated_at = self.now;
        journal::commit(self.disk, &[document(name.to_owned(), &key, &row)])?;
        Ok((key, row))
    }

    /// Begins a new epoch. There are no positions and no fences here; versions of documents continue.
    pub(crate) fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        let marker = self.marker()?;
        let mut counters = Counters { epoch: Epoch(marker.epoch), ..Counters::default() };
        let cut = epoch::begin(&mut counters, self.now, reason);
        let change = Marker { epoch: cut.epoch.0, ..marker }.change();
        journal::commit(self.disk, &[change]).map_err(|failure| failure.error)?;
        self.epoch.store(cut.epoch.0, Ordering::Release);
        Ok(cut)
    }

    /// Returns the outcome that is recorded under an id.
    pub(crate) fn operation(&self, id: OpId) -> Result<Option<Resolution>, StoreError> {
        let name = operation_name(id);
        let Some(content) = self.disk.read(Folder::Operations, &name)? else { return Ok(None) };
        Ok(Some(self.recorded(&name, &content)?.resolution()))
    }

    /// Returns the outcome of an operation. Without a record, the id is void from now on.
    pub(crate) fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        if let Some(known) = self.operation(id)? {
            return Ok(known);
        }
        journal::commit(self.disk, &[record(id, &Record::Void { void: true, at: self.now })?])?;
        Ok(Resolution::NotApplied)
    }

    /// Decodes the record of an operation in a file.
    pub(crate) fn recorded(&self, name: &str, content: &str) -> Result<Record, StoreError> {
        serde_json::from_str(content).map_err(|e| {
            error::corrupt(&self.disk.path(Folder::Operations, name), format!("it is no receipt: {e}"))
        })
    }

    /// Applies a batch of documents.
    pub(crate) fn apply(&self, batch: &Batch) -> Result<Receipt, ApplyError> {
        if let Some(id) = batch.id()
            && let Some(known) = self.operation(id).map_err(|e| ApplyError::not_decided(e, Some(id)))?
        {
            return known.verdict(id).map_err(ApplyError::Refused);
        }
        // From here on it is known that no earlier call applied the batch.
        let not_applied = ApplyError::not_applied;
        let mut facts = self.facts(batch).map_err(not_applied)?;
        let receipt = match commit::decide(&mut facts, batch, &[], self.now) {
            Ok(receipt) => receipt,
            Err(Stop::Refused(refusal)) => return Err(ApplyError::Refused(refusal)),
            Err(Stop::NeedEventIds(_)) => return Err(not_applied(bug("a batch of documents has event ids"))),
        };
        let changes = self.changes(batch, &mut facts, &receipt).map_err(not_applied)?;
        journal::commit(self.disk, &changes).map_err(|WriteFailure { error, may_have_happened }| {
            if may_have_happened { ApplyError::unknown(error, batch.id()) } else { not_applied(error) }
        })?;
        Ok(receipt)
    }

    fn facts(&self, batch: &Batch) -> Result<WorkingSet, StoreError> {
        let marker = self.marker()?;
        self.epoch.store(marker.epoch, Ordering::Release);
        let (document_floor, epoch) = (DocVersion(marker.document_floor), Epoch(marker.epoch));
        let mut facts = WorkingSet::new(Counters { document_floor, epoch, ..Counters::default() });
        for key in Footprint::of(batch).documents {
            if !facts.knows_document(&key) {
                let row = self.load(&file_names::encode(&key)).map_err(exclusive)?;
                facts.load_document(key, row.map(|(_, row)| row));
            }
        }
        Ok(facts)
    }

    fn changes(
        &self,
        batch: &Batch,
        facts: &mut WorkingSet,
        receipt: &Receipt,
    ) -> Result<Vec<Change>, StoreError> {
        let mut changes = Vec::new();
        for key in facts.take_changes().documents {
            if let Some(row) = facts.document(&key) {
                changes.push(document(file_names::encode(&key), &key, row));
            }
        }
        if let Some(id) = batch.id() {
            changes.push(record(id, &Record::Applied(receipt.clone()))?);
        }
        Ok(changes)
    }
}

/// The contents of a file in the folder of operations.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Record {
    /// The operation was resolved as not applied.
    Void {
        /// Always true.
        void: bool,
        /// When it was resolved.
        at: Timestamp,
    },
    /// The operation was applied.
    Applied(Receipt),
}

impl Record {
    /// Returns the time at which it was written.
    pub(crate) fn at(&self) -> Timestamp {
        match self {
            Self::Void { at, .. } => *at,
            Self::Applied(receipt) => receipt.at,
        }
    }

    fn resolution(self) -> Resolution {
        match self {
            Self::Void { .. } => Resolution::NotApplied,
            Self::Applied(receipt) => Resolution::Applied(receipt.into_repeated()),
        }
    }
}

/// Returns the change that writes the record of an operation.
fn record(id: OpId, record: &Record) -> Result<Change, StoreError> {
    let json = serde_json::to_string(record).map_err(|e| bug(&e.to_string()))?;
    let content = Some(text::pretty(&text::compact(&json), 0) + "\n");
    Ok(Change { folder: Folder::Operations, name: operation_name(id), content })
}

/// Returns the change that writes a document.
pub(crate) fn document(name: String, key: &Key, row: &DocumentRow) -> Change {
    Change { folder: Folder::Documents, name, content: Some(envelope::write(key, row)) }
}

/// Returns the error of a session that holds the exclusive lock.
pub(crate) fn exclusive(failure: Failure) -> StoreError {
    match failure {
        Failure::Store(error) => error,
        Failure::NeedsExclusive => bug("the exclusive lock is held and was asked for"),
    }
}

fn operation_name(id: OpId) -> String {
    format!("{}{}", id.0, file_names::EXTENSION)
}

fn bug(detail: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Bug, "using the directory", detail)
}
