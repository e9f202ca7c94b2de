//! Rotation: keys move from an older master key to the current one. Sealed values do not change.

use tidelock_core::store::{Expect, Page, StoredDocument};

use crate::data_keys::{ATTEMPTS, Put};
use crate::error::SealedError;
use crate::record::{Record, Wrapped, all, key_of, subject_of};
use crate::vault::Vault;

/// The number of documents that are read at once.
const PAGE: usize = 500;

/// The results of rewrapping the keys of all subjects.
#[derive(Clone, Debug, Default)]
#[must_use = "an older master key is needed as long as keys failed"]
pub struct Rewrapped {
    /// The number of keys that moved to the current master key.
    pub moved: u64,
    /// The number of keys that had it already.
    pub current: u64,
    /// The number of keys that were destroyed before.
    pub forgotten: u64,
    /// The number of keys that could not be moved: their master key is missing, or they are damaged.
    pub failed: u64,
    /// The cause of the first such failure.
    pub first_failure: Option<SealedError>,
}

/// The result of rewrapping one key.
enum Fate {
    Moved,
    Current,
    Forgotten,
    Gone,
}

impl Vault {
    /// Moves the key of a subject to the current master key. Returns `true` when an older one had wrapped it, and
    /// `false` when there was nothing to do.
    ///
    /// # Errors
    /// [`SealedError::UnknownMaster`] when the vault does not have the older one. [`SealedError`] when the document is
    /// damaged or the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped while it writes, the key may have moved or not: call it again.
    pub async fn rewrap(&self, subject: &str) -> Result<bool, SealedError> {
        let document = self.keys.document(&key_of(subject)?).await?;
        Ok(matches!(self.move_key(subject, document).await?, Fate::Moved))
    }

    /// Moves the keys of all subjects to the current master key. An older one may be deleted after a run without
    /// failures, once every process uses the current one, so that no process creates keys with the older one.
    ///
    /// # Errors
    /// [`SealedError`] when the store fails. Keys that cannot be moved are counted instead.
    ///
    /// # Cancel safety
    /// If the future is dropped, some keys have moved: call it again.
    pub async fn rewrap_all(&self) -> Result<Rewrapped, SealedError> {
        let mut rewrapped = Rewrapped::default();
        let mut page = Page::first(PAGE);
        loop {
            let documents = self.keys.documents(&all(), page).await?;
            for document in documents.rows {
                let Some(subject) = subject_of(&document.key) else { continue };
                rewrapped.count(self.move_key(&subject, Some(document)).await)?;
            }
            let Some(next) = documents.next else { return Ok(rewrapped) };
            page = Page::after(&next, PAGE);
        }
    }

    async fn move_key(&self, subject: &str, found: Option<StoredDocument>) -> Result<Fate, SealedError> {
        let mut found = found;
        for _ in 0..ATTEMPTS {
            let Some(StoredDocument { key, version, value, .. }) = found else { return Ok(Fate::Gone) };
            let wrapped = match Record::read(&key, &value)? {
                Record::Forgotten(_) => return Ok(Fate::Forgotten),
                Record::Wrapped(wrapped) if wrapped.master == *self.master.id() => return Ok(Fate::Current),
                Record::Wrapped(wrapped) => wrapped,
            };
            let secret = self.unwrap(subject, &key, &wrapped)?;
            let record = Record::Wrapped(Wrapped::wrap(subject, &secret, &self.master)?).write()?;
            match self.put(&key, Expect::Exact(version), record).await? {
                Put::Done => return Ok(Fate::Moved),
                Put::Found(document) => found = document,
            }
        }
        Err(SealedError::Contended { key: key_of(subject)?, attempts: ATTEMPTS })
    }
}

impl Rewrapped {
    fn count(&mut self, fate: Result<Fate, SealedError>) -> Result<(), SealedError> {
        let counter = match fate {
            Ok(Fate::Moved) => &mut self.moved,
            Ok(Fate::Current) => &mut self.current,
            Ok(Fate::Forgotten) => &mut self.forgotten,
            Ok(Fate::Gone) => return Ok(()),
            Err(
                error @ (SealedError::Read(_) | SealedError::Write(_) | SealedError::NoRandomness { .. }),
            ) => {
                return Err(error);
            }
            Err(error) => {
                self.first_failure.get_or_insert(error);
                &mut self.failed
            }
        };
        *counter = counter.saturating_add(1);
        Ok(())
    }
}
