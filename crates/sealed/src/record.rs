//! The document of a subject's key: the wrapped key, or the mark that it was destroyed.

use serde::{Deserialize, Serialize};
use tidelock_core::clock::Timestamp;
use tidelock_core::error::InvalidInput;
use tidelock_core::key::{Arg, Key, KeyPrefix};
use tidelock_core::payload::Payload;
use zeroize::Zeroizing;

use crate::cipher::{Context, KEY_BYTES, Locked, Secret};
use crate::error::SealedError;
use crate::master_key::{MasterKey, MasterKeyId};

const KIND: &str = "subject_key";
const VERSION: u32 = 1;

/// Returns the key of a subject's document.
pub(crate) fn key_of(subject: &str) -> Result<Key, InvalidInput> {
    if subject.is_empty() {
        let reason = "it is empty; name whose data it is".to_owned();
        return Err(InvalidInput::Name { what: "subject", text: String::new(), reason });
    }
    Key::new(KIND, [subject])
}

/// Returns the prefix of all such documents.
pub(crate) fn all() -> KeyPrefix {
    KeyPrefix::kind(KIND)
}

/// Returns the subject of such a document. `None` for others of that kind.
pub(crate) fn subject_of(key: &Key) -> Option<String> {
    match key.args().as_slice() {
        [Arg::Str(subject)] => Some(subject.clone()),
        _ => None,
    }
}

/// The state of a subject's key.
pub(crate) enum Record {
    /// The key, wrapped.
    Wrapped(Wrapped),
    /// The key was destroyed.
    Forgotten(Timestamp),
}

/// A key that a master key encrypted.
pub(crate) struct Wrapped {
    pub(crate) master: MasterKeyId,
    locked: Locked,
}

/// The serialized form of both.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Forgotten { v: u32, forgotten_at: Timestamp },
    Wrapped { v: u32, master: MasterKeyId, nonce: String, ciphertext: String },
    Other { v: u32 },
}

impl Record {
    pub(crate) fn read(key: &Key, value: &Payload) -> Result<Self, SealedError> {
        let damaged = |reason| SealedError::Damaged { key: key.clone(), reason };
        let written: Written = value.parse().map_err(|_| damaged("the document has another shape"))?;
        let (v, record) = match written {
            Written::Forgotten { v, forgotten_at } => (v, Some(Self::Forgotten(forgotten_at))),
            Written::Wrapped { v, master, nonce, ciphertext } => {
                (v, Some(Self::Wrapped(Wrapped { master, locked: Locked { nonce, ciphertext } })))
            }
            Written::Other { v } => (v, None),
        };
        if v != VERSION {
            return Err(SealedError::UnknownVersion { what: key.to_string(), found: v, known: VERSION });
        }
        record.ok_or_else(|| damaged("the document has another shape"))
    }

    pub(crate) fn write(self) -> Result<Payload, InvalidInput> {
        let v = VERSION;
        Payload::of(&match self {
            Self::Forgotten(forgotten_at) => Written::Forgotten { v, forgotten_at },
            Self::Wrapped(Wrapped { master, locked: Locked { nonce, ciphertext } }) => {
                Written::Wrapped { v, master, nonce, ciphertext }
            }
        })
    }
}

impl Wrapped {
    /// Encrypts a subject's key.
    pub(crate) fn wrap(subject: &str, secret: &Secret, master: &MasterKey) -> Result<Self, SealedError> {
        let mut text = Zeroizing::new(Vec::with_capacity(2 * KEY_BYTES));
        text.extend_from_slice(secret.bytes());
        let locked = master.secret().encrypt(&context(subject), text)?;
        Ok(Self { master: master.id().clone(), locked })
    }

    /// Decrypts the key with the master key that wrapped it.
    pub(crate) fn unwrap(&self, subject: &str, key: &Key, master: &MasterKey) -> Result<Secret, SealedError> {
        let Locked { nonce, ciphertext } = &self.locked;
        let text = master.secret().decrypt(&context(subject), nonce, ciphertext);
        let secret = text.and_then(|text| {
            let mut bytes = Zeroizing::new([0; KEY_BYTES]);
            (text.len() == KEY_BYTES).then(|| bytes.copy_from_slice(&text))?;
            Some(Secret::new(bytes))
        });
        let reason = "it was changed, or belongs to another subject";
        secret.ok_or_else(|| SealedError::Damaged { key: key.clone(), reason })
    }
}

fn context(subject: &str) -> Context {
    Context::new("tidelock.sealed.key.1", &[subject])
}
