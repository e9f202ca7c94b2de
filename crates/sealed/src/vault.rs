//! The vault: seals and opens values with the keys of their subjects.

use std::any::type_name;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_core::clock::{Clock, SystemClock};
use tidelock_core::store::SharedStore;
use zeroize::Zeroizing;

use crate::associated_data::AssociatedData;
use crate::cache::{Cache, KeyKnowledge};
use crate::error::SealedError;
use crate::master_key::MasterKey;
use crate::value::{Opened, Sealed, VERSION};

/// The longest padding, in bytes.
const MOST_PADDING: usize = 65_536;

/// The options of a vault.
#[derive(Clone, Debug)]
pub struct VaultOptions {
    /// How long an unwrapped key may be used before the store is read again: 60 seconds. During that time another
    /// process may continue to use it after [`Vault::forget`]. With zero the vault reads the store each time.
    pub cache_for: Duration,
    /// The approximate number of keys that are cached for that time: 4,096.
    pub cached: usize,
    /// Values are padded to a multiple of this number of bytes, so that their length reveals less: 64. There is no
    /// padding with 0 or 1, and the number is capped at 65,536.
    pub pad_to: usize,
    /// The clock that measures the age of cache entries. Default: the machine's clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for VaultOptions {
    fn default() -> Self {
        Self { cache_for: Duration::from_secs(60), cached: 4_096, pad_to: 64, clock: SystemClock::shared() }
    }
}

/// Seals values for subjects, opens them, and forgets subjects. Clones share their cache.
#[derive(Clone)]
pub struct Vault {
    pub(crate) keys: SharedStore,
    pub(crate) master: MasterKey,
    pub(crate) older: Vec<MasterKey>,
    pub(crate) options: VaultOptions,
    pub(crate) cache: Arc<Cache>,
}

impl Vault {
    /// Creates a vault whose keys are kept in this store, wrapped by this master key. Use another store than that of
    /// the events: a restored backup of the events then brings back no destroyed key.
    #[must_use]
    pub fn new(keys: SharedStore, master: MasterKey) -> Self {
        Self::with_options(keys, master, VaultOptions::default())
    }

    /// Creates a vault with options.
    #[must_use]
    pub fn with_options(keys: SharedStore, master: MasterKey, options: VaultOptions) -> Self {
        let cache = Arc::new(Cache::new(options.cached, options.cache_for));
        Self { keys, master, older: Vec::new(), options, cache }
    }

    /// Returns the same vault, which also unwraps keys that these master keys wrapped. The current one wraps new keys.
    #[must_use]
    pub fn with_older(mut self, older: impl IntoIterator<Item = MasterKey>) -> Self {
        self.older.extend(older);
        self
    }

    /// Seals a value for a subject, to be opened at this place. The first value of a subject creates its key. If
    /// several processes create it at once, they share the key of the first.
    ///
    /// # Errors
    /// [`SealedError::Forgotten`] when the subject was forgotten. [`SealedError`] when its key is unavailable, or the
    /// value cannot be serialized as JSON.
    ///
    /// # Cancel safety
    /// If the future is dropped, it leaves at most a key without any sealed value.
    pub async fn seal<T: Serialize>(
        &self,
        subject: &str,
        place: &AssociatedData,
        value: &T,
    ) -> Result<Sealed<T>, SealedError> {
        let mut text = Zeroizing::new(Vec::with_capacity(256));
        serde_json::to_writer(&mut *text, value).map_err(|_| SealedError::Unwritable {
            subject: subject.to_owned(),
            place: place.clone(),
            given: type_name::<T>(),
        })?;
        // JSON allows trailing white space, so opening need not remove the padding.
        let padded = text.len().next_multiple_of(self.options.pad_to.clamp(1, MOST_PADDING));
        text.resize(padded, b' ');
        let secret = self.key_to_seal(subject).await?;
        Ok(Sealed::new(subject, secret.encrypt(&place.context(subject), text)?))
    }

    /// Opens a value that was sealed for this place.
    ///
    /// # Errors
    /// [`SealedError::Mismatch`] when it was changed, or sealed for another place or subject;
    /// [`SealedError::WrongType`] when it is not a `T`; [`SealedError::UnknownVersion`] when a newer program sealed it.
    /// [`SealedError`] when the subject's key is unavailable. A forgotten subject is not an error.
    pub async fn open<T: DeserializeOwned>(
        &self,
        sealed: &Sealed<T>,
        place: &AssociatedData,
    ) -> Result<Opened<T>, SealedError> {
        let Sealed { v, subject, nonce, ciphertext, .. } = sealed;
        if *v != VERSION {
            let what = format!("{place}: what was sealed for {subject:?}");
            return Err(SealedError::UnknownVersion { what, found: *v, known: VERSION });
        }
        let secret = match self.key_to_open(subject).await? {
            KeyKnowledge::Key(secret) => secret,
            KeyKnowledge::Forgotten(at) => return Ok(Opened::Forgotten { at }),
        };
        let text = secret
            .decrypt(&place.context(subject), nonce, ciphertext)
            .ok_or_else(|| SealedError::Mismatch { subject: subject.clone(), place: place.clone() })?;
        let value = serde_json::from_slice(&text).map_err(|_| SealedError::WrongType {
            subject: subject.clone(),
            place: place.clone(),
            expected: type_name::<T>(),
        })?;
        Ok(Opened::Value(value))
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { master, older, options, .. } = self;
        f.debug_struct("Vault")
            .field("master", master)
            .field("older", older)
            .field("options", options)
            .finish_non_exhaustive()
    }
}
