//! Master keys: from bytes, text or a file. They wrap the keys of the subjects and are kept in no store.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use base64ct::{Base64, Base64Unpadded, Base64Url, Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::cipher::{KEY_BYTES, Secret};
use crate::error::SealedError;

/// The longest file with a key, in bytes.
const MOST_BYTES: usize = 1_024;

/// The name of a master key: a short hash that does not reveal the key.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MasterKeyId(String);

impl fmt::Display for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_debug().fmt(f)
    }
}

impl fmt::Debug for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKeyId({self})")
    }
}

/// The key that wraps the keys of the subjects. It belongs outside every store: in a file for the program's user alone,
/// or in a secret manager.
///
/// Its memory is overwritten when the last clone is dropped. `Debug` shows its id.
#[derive(Clone)]
pub struct MasterKey {
    id: MasterKeyId,
    secret: Arc<Secret>,
}

impl MasterKey {
    /// Generates a master key from the system's random numbers.
    ///
    /// # Errors
    /// [`SealedError::NoRandomness`].
    pub fn generate() -> Result<Self, SealedError> {
        Ok(Self::of(Secret::random()?))
    }

    /// Creates a master key from raw bytes, which must be random: a password is not a key.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self::of(Secret::new(Zeroizing::new(bytes)))
    }

    /// Parses 64 hex digits, or base64 in any of its variants. Surrounding white space is ignored.
    ///
    /// # Errors
    /// [`SealedError::BadMaster`], without the text.
    pub fn from_text(text: &str) -> Result<Self, SealedError> {
        Self::parse("a text", text)
    }

    /// Reads a file that holds such a text, or the 32 raw bytes. On Unix only its owner may have any rights on it.
    ///
    /// # Errors
    /// [`SealedError::Exposed`] when other users may read or write it, [`SealedError::BadMaster`] when it cannot be
    /// read or holds something else.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, SealedError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| bad(path, &error))?;
        // Checks the open file: the name could refer to another one by now.
        check_private(path, &file.metadata().map_err(|error| bad(path, &error))?)?;
        let mut held = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 1));
        let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX);
        file.take(most.saturating_add(1)).read_to_end(&mut held).map_err(|error| bad(path, &error))?;
        if let Ok(bytes) = <[u8; KEY_BYTES]>::try_from(held.as_slice()) {
            return Ok(Self::from_bytes(bytes));
        }
        let text = if held.len() > MOST_BYTES { "" } else { std::str::from_utf8(&held).unwrap_or_default() };
        Self::parse(&path.display().to_string(), text)
    }

    /// Writes the key to a new file, as base64, for its user alone. An existing file is not changed.
    ///
    /// # Errors
    /// [`SealedError::BadMaster`] when the file exists or cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SealedError> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(|error| bad(path, &error))?;
        let mut text = self.to_text();
        text.push('\n');
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| bad(path, &error))
    }

    /// Returns the key itself, as base64, for [`from_text`](Self::from_text).
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(Base64::encode_string(self.secret.bytes()))
    }

    /// Returns the name of the key.
    #[must_use]
    pub fn id(&self) -> &MasterKeyId {
        &self.id
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    fn of(secret: Secret) -> Self {
        let hash =
            Sha256::new().chain_update("tidelock.sealed.master.1").chain_update(secret.bytes()).finalize();
        let id = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { id: MasterKeyId(id), secret: Arc::new(secret) }
    }

    fn parse(origin: &str, text: &str) -> Result<Self, SealedError> {
        let text = text.trim();
        let secret = from_hex(text).or_else(|| from_base64(text)).ok_or_else(|| SealedError::BadMaster {
            origin: origin.to_owned(),
            reason: format!("{} characters that are no key", text.chars().count()),
        })?;
        Ok(Self::of(Secret::new(secret)))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

fn from_hex(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let digits = text.as_bytes();
    if digits.len() != 2 * KEY_BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn from_base64(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    type Spelling = fn(&str, &mut [u8]) -> Option<usize>;
    let spellings: [Spelling; 4] = [
        |text, bytes| Base64::decode(text, bytes).ok().map(<[u8]>::len),
        |text, bytes| Base64Unpadded::decode(text, bytes).ok().map(<[u8]>::len),
        |text, bytes| Base64Url::decode(text, bytes).ok().map(<[u8]>::len),
        |text, bytes| Base64UrlUnpadded::decode(text, bytes).ok().map(<[u8]>::len),
    ];
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    spellings.iter().any(|read| read(text, &mut *bytes) == Some(KEY_BYTES)).then_some(bytes)
}

#[cfg(unix)]
fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), SealedError> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(SealedError::Exposed { path: path.to_owned(), mode })
}

#[cfg(not(unix))]
fn check_private(_path: &Path, _metadata: &fs::Metadata) -> Result<(), SealedError> {
    Ok(())
}

fn bad(path: &Path, error: &std::io::Error) -> SealedError {
    SealedError::BadMaster { origin: path.display().to_string(), reason: error.to_string() }
}
