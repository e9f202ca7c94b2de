//! Errors of sealed data. No message and no `Debug` holds a key or a value.

use std::path::PathBuf;

use thiserror::Error;
use tidelock_core::clock::Timestamp;
use tidelock_core::error::{InvalidInput, Retry};
use tidelock_core::key::Key;
use tidelock_core::store::{ApplyError, StoreError};
use tidelock_core::{codes, conversions};

use crate::associated_data::AssociatedData;
use crate::master_key::MasterKeyId;

/// The reason why a value was not sealed, opened, forgotten or rewrapped.
#[derive(Clone, Debug, Error)]
pub enum SealedError {
    /// The ciphertext does not belong here, or was changed. A cipher cannot distinguish the two.
    #[error(
        "{place}: what was sealed for {subject:?} does not open: it was changed, or was sealed for another place or subject"
    )]
    Mismatch {
        /// The subject that the sealed value names.
        subject: String,
        /// The place at which it should have been opened.
        place: AssociatedData,
    },
    /// The subject was forgotten, so no further value is sealed for it.
    #[error("subject {subject:?} was forgotten at {at}; seal for another subject, or do not keep the value")]
    Forgotten {
        /// The subject whose key was destroyed.
        subject: String,
        /// The time, by the clock of the store that had the key.
        at: Timestamp,
    },
    /// The format has a version that this program does not know.
    #[error("{what} has version {found}, and this program knows {known}; upgrade it")]
    UnknownVersion {
        /// The object with that version.
        what: String,
        /// The version.
        found: u32,
        /// The newest known version.
        known: u32,
    },
    /// The value opened, but has another type. The parser's message is withheld: it would quote the value.
    #[error("{place}: what was sealed for {subject:?} is no {expected}; open it as what it was sealed as")]
    WrongType {
        /// The subject of the sealed value.
        subject: String,
        /// The place at which it was opened.
        place: AssociatedData,
        /// The requested type.
        expected: &'static str,
    },
    /// The value cannot be serialized as JSON. The serializer's message is withheld: it might quote the value.
    #[error("{place}: a {given} for {subject:?} cannot be written as JSON; see its Serialize")]
    Unwritable {
        /// The subject of the value.
        subject: String,
        /// The place of the value.
        place: AssociatedData,
        /// The type of the value.
        given: &'static str,
    },
    /// There is no key for the subject, and no mark that it was forgotten.
    #[error(
        "{key}: there is no key, and no mark that subject {subject:?} was forgotten; check that this is the store of the keys, and its backup"
    )]
    NoKey {
        /// The subject of the sealed value.
        subject: String,
        /// The missing document.
        key: Key,
    },
    /// The document of a key does not hold a key.
    #[error("{key}: the key cannot be used: {reason}; restore the document from a backup of the keys")]
    Damaged {
        /// The document.
        key: Key,
        /// The defect of the document.
        reason: &'static str,
    },
    /// A key is wrapped by a master key that this vault does not have.
    #[error("{key}: wrapped by master key {found}, and this vault has {}; add it with Vault::with_older", listed(.known))]
    UnknownMaster {
        /// The document.
        key: Key,
        /// The required master key.
        found: MasterKeyId,
        /// The master keys of the vault.
        known: Vec<MasterKeyId>,
    },
    /// A master key cannot be loaded or saved.
    #[error("the master key from {origin}: {reason}; it is 32 random bytes, as 64 hex digits or in base64")]
    BadMaster {
        /// The source of the master key.
        origin: String,
        /// The cause of the error.
        reason: String,
    },
    /// Other users can read the file of a master key.
    #[error("the master key in {}: mode {mode:04o} lets others read it; set it to 0600, and think about whether it was read", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system provides no random numbers.
    #[error("the system gave no random numbers: {reason}")]
    NoRandomness {
        /// The error of the system.
        reason: String,
    },
    /// Other processes kept changing the document of a key.
    #[error("{key}: others changed it {attempts} times in a row; try again")]
    Contended {
        /// The document.
        key: Key,
        /// The number of attempts.
        attempts: u32,
    },
    /// A subject is not a valid key, or a value is too long.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    /// The store of the keys could not be written.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The store of the keys could not be read.
    #[error(transparent)]
    Read(#[from] StoreError),
}

fn listed(ids: &[MasterKeyId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

conversions! {
    SealedError {
        ApplyError => Write,
    }
}

codes! {
    SealedError {
        Mismatch => "TL0901",
        Forgotten => "TL0902",
        UnknownVersion => "TL0903",
        WrongType => "TL0904",
        Unwritable => "TL0905",
        NoKey => "TL0906",
        Damaged => "TL0907",
        UnknownMaster => "TL0908",
        BadMaster => "TL0909",
        Exposed => "TL0910",
        NoRandomness => "TL0911",
        Contended => ("TL0912", Retry::Now),
        Input(error) => error,
        Write(error) => error,
        Read(error) => error,
    }
}
