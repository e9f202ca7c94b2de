//! A vault on an in-memory store, with a manual clock.
#![allow(clippy::unwrap_used, dead_code, reason = "tests fail by panicking; each uses a part")]

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tidelock_core::clock::ManualClock;
use tidelock_core::error::Explain as _;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Expect, MemoryStore, SharedStore};
use tidelock_sealed::{AssociatedData, MasterKey, Opened, Sealed, SealedError, Vault, VaultOptions};

pub(crate) struct Home {
    pub(crate) keys: SharedStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) master: MasterKey,
}

impl Home {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let keys: SharedStore = Arc::new(MemoryStore::with_clock(Arc::<ManualClock>::clone(&clock)));
        Self { keys, clock, master: master(1) }
    }

    pub(crate) fn options(&self) -> VaultOptions {
        VaultOptions { clock: Arc::<ManualClock>::clone(&self.clock), ..VaultOptions::default() }
    }

    /// Returns a separate vault, as another process would have it.
    pub(crate) fn vault(&self) -> Vault {
        self.with(self.options())
    }

    pub(crate) fn with(&self, options: VaultOptions) -> Vault {
        Vault::with_options(Arc::clone(&self.keys), self.master.clone(), options)
    }

    /// Returns the document of a subject's key.
    pub(crate) async fn record(&self, subject: &str) -> Option<Payload> {
        self.keys.document(&record_key(subject)).await.unwrap().map(|document| document.value)
    }

    pub(crate) async fn put_record(&self, subject: &str, value: Payload) {
        self.keys.apply(Batch::new().put(&record_key(subject), Expect::Any, value)).await.unwrap();
    }
}

pub(crate) fn record_key(subject: &str) -> Key {
    Key::new("subject_key", [subject]).unwrap()
}

pub(crate) fn master(seed: u8) -> MasterKey {
    MasterKey::from_bytes([seed; 32])
}

pub(crate) fn email(id: &str) -> AssociatedData {
    AssociatedData::of(&Key::new("customer", [id]).unwrap(), "email")
}

pub(crate) fn text() -> String {
    "ada@example.com".to_owned()
}

pub(crate) async fn read<T: DeserializeOwned>(
    vault: &Vault,
    sealed: &Sealed<T>,
    place: &AssociatedData,
) -> Option<T> {
    vault.open(sealed, place).await.unwrap().value()
}

pub(crate) fn is_forgotten<T>(opened: Result<Opened<T>, SealedError>) -> bool {
    matches!(opened, Ok(Opened::Forgotten { .. }))
}

#[track_caller]
pub(crate) fn code<T>(result: Result<T, SealedError>) -> &'static str {
    result.err().unwrap().code().as_str()
}
