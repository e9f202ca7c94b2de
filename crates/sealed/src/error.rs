//! What can go wrong with sealed data. No message and no `Debug` holds a key or a value.

use std::path::PathBuf;

use thiserror::Error;
use tidelock_core::clock::Timestamp;
use tidelock_core::error::{InvalidInput, Retry};
use tidelock_core::key::Key;
use tidelock_core::store::{ApplyError, StoreError};
use tidelock_core::{codes, conversions};

use crate::master::MasterKeyId;
use crate::place::Place;

/// Why something was not sealed, opened, forgotten or rewrapped.
#[derive(Clone, Debug, Error)]
pub enum SealedError {
    /// The ciphertext does not belong here, or is not as it was. A cipher cannot tell which.
    #[error(
        "{place}: what was sealed for {subject:?} does not open: it was changed, or was sealed for another place or subject"
    )]
    Mismatch {
        /// For whom it says to be sealed.
        subject: String,
        /// Where it was to be opened.
        place: Place,
    },
    /// The subject was forgotten, so nothing more is sealed for it.
    #[error("subject {subject:?} was forgotten at {at}; seal for another subject, or do not keep the value")]
    Forgotten {
        /// Whose key was destroyed.
        subject: String,
        /// When, by the clock of the store that had the key.
        at: Timestamp,
    },
    /// It was written in a way that this program does not know.
    #[error("{what} has version {found}, and this program knows {known}; upgrade it")]
    UnknownVersion {
        /// What has that version.
        what: String,
        /// The version.
        found: u32,
        /// The newest one that is known.
        known: u32,
    },
    /// It opened, and is of another type. What the parser said is not passed on: it would quote the value.
    #[error("{place}: what was sealed for {subject:?} is no {expected}; open it as what it was sealed as")]
    WrongType {
        /// For whom it was sealed.
        subject: String,
        /// Where it was opened.
        place: Place,
        /// What was asked for.
        expected: &'static str,
    },
    /// The value cannot be written as JSON. What the serializer said is not passed on: it might quote the value.
    #[error("{place}: a {given} for {subject:?} cannot be written as JSON; see its Serialize")]
    Unwritable {
        /// For whom it was to be sealed.
        subject: String,
        /// Where.
        place: Place,
        /// What was given.
        given: &'static str,
    },
    /// There is no key for the subject, and no mark that it was forgotten.
    #[error(
        "{key}: there is no key, and no mark that subject {subject:?} was forgotten; check that this is the store of the keys, and its backup"
    )]
    NoKey {
        /// For whom the value was sealed.
        subject: String,
        /// The document that is missing.
        key: Key,
    },
    /// The document of a key does not hold a key.
    #[error("{key}: the key cannot be used: {reason}; restore the document from a backup of the keys")]
    Damaged {
        /// The document.
        key: Key,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A key is wrapped by a master key that this vault does not have.
    #[error("{key}: wrapped by master key {found}, and this vault has {}; add it with Vault::with_older", listed(.known))]
    UnknownMaster {
        /// The document.
        key: Key,
        /// The master key that would be needed.
        found: MasterKeyId,
        /// Those that the vault has.
        known: Vec<MasterKeyId>,
    },
    /// A master key cannot be loaded or saved.
    #[error("the master key from {origin}: {reason}; it is 32 random bytes, as 64 hex digits or in base64")]
    BadMaster {
        /// Where it should have come from.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// The file of a master key can be read by others.
    #[error("the master key in {}: mode {mode:04o} lets others read it; set it to 0600, and think about whether it was read", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system has no random numbers.
    #[error("the system gave no random numbers: {reason}")]
    NoRandomness {
        /// What it said.
        reason: String,
    },
    /// Others kept changing the document of a key.
    #[error("{key}: others changed it {attempts} times in a row; try again")]
    Contended {
        /// The document.
        key: Key,
        /// How often it was tried.
        attempts: u32,
    },
    /// A subject cannot be a key, or a value is too long.
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
