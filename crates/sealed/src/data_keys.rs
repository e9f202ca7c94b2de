//! The keys of the subjects in their store: how they are created, found and destroyed.
//!
//! A document changes from absent to a wrapped key to a mark, and never back: every write names the version that it
//! replaces. If the process dies in the middle, the document is either unchanged or complete.

use std::sync::Arc;

use tidelock_core::clock::Timestamp;
use tidelock_core::error::Outcome;
use tidelock_core::id::DocVersion;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{ApplyError, Batch, DocumentFound, Expect, Get, Refusal, StoredDocument};

use crate::cache::KeyKnowledge;
use crate::cipher::Secret;
use crate::error::SealedError;
use crate::record::{Record, Wrapped, key_of};
use crate::vault::Vault;

/// The number of attempts on a document that other processes change.
pub(crate) const ATTEMPTS: u32 = 16;
/// The number of resends of a write with an unknown outcome. The version in the write ensures that it is applied once.
const ASK_AGAIN: u32 = 3;

/// The result of a write.
pub(crate) enum Put {
    Done,
    /// The document was not as expected. Holds the current document, if any.
    Found(Option<StoredDocument>),
}

impl Vault {
    /// Destroys the key of a subject (crypto-shredding). Afterwards no value that was sealed for the subject can be
    /// opened, and no further value is sealed for it. Returns the time of the destruction, or of the earlier one if the
    /// key was already destroyed.
    ///
    /// This vault and its clones stop at once, others when their cache is older than [`VaultOptions::cache_for`].
    ///
    /// [`VaultOptions::cache_for`]: crate::VaultOptions::cache_for
    ///
    /// # Errors
    /// [`SealedError`] when the store of the keys fails. A damaged document is replaced by the mark as well.
    ///
    /// # Cancel safety
    /// If the future is dropped while it writes, the key may be destroyed or not: call it again.
    pub async fn forget(&self, subject: &str) -> Result<Timestamp, SealedError> {
        let key = key_of(subject)?;
        // Here as well as below: if the write fails, no caller may rely on the keys that were cached before it.
        self.cache.forget(subject);
        let mut rows = self.keys.read(&[Get::Document(key.clone())]).await?;
        let (mark, mut found) = (rows.now, rows.take_document(0));
        for _ in 0..ATTEMPTS {
            if let Some(Ok(Record::Forgotten(at))) = found.as_ref().map(|it| Record::read(&key, &it.value)) {
                self.cache.forget(subject);
                return Ok(at);
            }
            let expect = found.as_ref().map_or(Expect::Absent, |document| Expect::Exact(document.version));
            match self.put(&key, expect, Record::Forgotten(mark).write()?).await? {
                Put::Done => {
                    self.cache.forget(subject);
                    return Ok(mark);
                }
                Put::Found(document) => found = document,
            }
        }
        Err(SealedError::Contended { key, attempts: ATTEMPTS })
    }

    /// Returns whether a subject was forgotten, as the store of the keys reports now.
    ///
    /// # Errors
    /// [`SealedError`] when the store fails or the document does not decode.
    pub async fn is_forgotten(&self, subject: &str) -> Result<bool, SealedError> {
        let key = key_of(subject)?;
        let Some(document) = self.keys.document(&key).await? else { return Ok(false) };
        Ok(matches!(Record::read(&key, &document.value)?, Record::Forgotten(_)))
    }

    pub(crate) async fn key_to_open(&self, subject: &str) -> Result<KeyKnowledge, SealedError> {
        match self.known(subject).await? {
            Some(known) => Ok(known),
            None => Err(SealedError::NoKey { subject: subject.to_owned(), key: key_of(subject)? }),
        }
    }

    pub(crate) async fn key_to_seal(&self, subject: &str) -> Result<Arc<Secret>, SealedError> {
        let known = match self.known(subject).await? {
            Some(known) => known,
            None => self.begin(subject).await?,
        };
        match known {
            KeyKnowledge::Key(secret) => Ok(secret),
            KeyKnowledge::Forgotten(at) => Err(SealedError::Forgotten { subject: subject.to_owned(), at }),
        }
    }

    async fn known(&self, subject: &str) -> Result<Option<KeyKnowledge>, SealedError> {
        let now = self.options.clock.now();
        self.cache.keep_to(self.keys.epoch());
        if let Some(known) = self.cache.get(subject, now) {
            return Ok(Some(known));
        }
        let (key, asked) = (key_of(subject)?, self.cache.ask(now));
        let Some(document) = self.keys.document(&key).await? else { return Ok(None) };
        let known = self.read(subject, &document)?;
        self.cache.answer(subject, &known, asked);
        Ok(Some(known))
    }

    /// Creates the first key of a subject, or returns the key of a faster process.
    async fn begin(&self, subject: &str) -> Result<KeyKnowledge, SealedError> {
        let (key, secret) = (key_of(subject)?, Arc::new(Secret::random()?));
        for _ in 0..ATTEMPTS {
            let asked = self.cache.ask(self.options.clock.now());
            let wrapped = Record::Wrapped(Wrapped::wrap(subject, &secret, &self.master)?).write()?;
            let known = match self.put(&key, Expect::Absent, wrapped).await? {
                Put::Done => KeyKnowledge::Key(secret),
                Put::Found(Some(document)) => self.read(subject, &document)?,
                Put::Found(None) => continue,
            };
            self.cache.answer(subject, &known, asked);
            return Ok(known);
        }
        Err(SealedError::Contended { key, attempts: ATTEMPTS })
    }

    fn read(&self, subject: &str, document: &StoredDocument) -> Result<KeyKnowledge, SealedError> {
        Ok(match Record::read(&document.key, &document.value)? {
            Record::Forgotten(at) => KeyKnowledge::Forgotten(at),
            Record::Wrapped(wrapped) => {
                KeyKnowledge::Key(Arc::new(self.unwrap(subject, &document.key, &wrapped)?))
            }
        })
    }

    pub(crate) fn unwrap(&self, subject: &str, key: &Key, wrapped: &Wrapped) -> Result<Secret, SealedError> {
        let masters = || std::iter::once(&self.master).chain(&self.older);
        let Some(master) = masters().find(|master| *master.id() == wrapped.master) else {
            let known = masters().map(|master| master.id().clone()).collect();
            return Err(SealedError::UnknownMaster {
                key: key.clone(),
                found: wrapped.master.clone(),
                known,
            });
        };
        wrapped.unwrap(subject, key, master)
    }

    /// Writes a document if it is as expected. Another document is not an error, and no error carries it.
    pub(crate) async fn put(
        &self,
        key: &Key,
        expect: Expect<DocVersion>,
        value: Payload,
    ) -> Result<Put, SealedError> {
        let batch = Batch::new().put(key, expect, value.clone());
        let mut asked = 0;
        loop {
            let error = match self.keys.apply(batch.clone()).await {
                Ok(_) => return Ok(Put::Done),
                Err(error) => error,
            };
            if let Some(Refusal::Document { found, .. }) = error.refusal() {
                let there = match &**found {
                    DocumentFound::Present(document) => Some(document.clone()),
                    DocumentFound::Absent | DocumentFound::Gone(_) => None,
                };
                // A repeated write that had been applied finds its own value.
                let ours = asked > 0 && there.as_ref().is_some_and(|document| document.value == value);
                return Ok(if ours { Put::Done } else { Put::Found(there) });
            }
            let unknown = matches!(error, ApplyError::Store { outcome: Outcome::Unknown(_), .. });
            if !unknown || asked >= ASK_AGAIN {
                return Err(error.into());
            }
            asked += 1;
        }
    }
}
