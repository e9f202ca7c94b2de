//! Encryption and decryption: XChaCha20-Poly1305 with random nonces from the system. No other module encrypts.
//!
//! No error here gives the reason why a value does not open: a cipher cannot know it, and must not reveal it.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use chacha20poly1305::aead::common::getrandom;
use chacha20poly1305::{AeadInOut as _, KeyInit as _, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use tidelock_core::error::InvalidInput;
use tidelock_core::store::limits;
use zeroize::Zeroizing;

use crate::error::SealedError;

/// The length of a key, in bytes.
pub(crate) const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// A key. Its memory is overwritten when it is dropped, and `Debug` does not show it.
pub(crate) struct Secret(Zeroizing<[u8; KEY_BYTES]>);

impl Secret {
    pub(crate) fn new(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        Self(bytes)
    }

    /// Creates a random key.
    pub(crate) fn random() -> Result<Self, SealedError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Encrypts a text in place. Decryption needs the same `context`.
    pub(crate) fn encrypt(
        &self,
        context: &Context,
        mut text: Zeroizing<Vec<u8>>,
    ) -> Result<Locked, SealedError> {
        let mut nonce = XNonce::default();
        fill(&mut nonce)?;
        let found = text.len();
        self.cipher().encrypt_in_place(&nonce, &context.0, &mut *text).map_err(|_| too_long(found))?;
        Ok(Locked {
            nonce: Base64UrlUnpadded::encode_string(&nonce),
            ciphertext: Base64UrlUnpadded::encode_string(&text),
        })
    }

    /// Decrypts a text. `None` when any input differs from the encryption.
    pub(crate) fn decrypt(
        &self,
        context: &Context,
        nonce: &str,
        ciphertext: &str,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let nonce: [u8; NONCE_BYTES] = Base64UrlUnpadded::decode_vec(nonce).ok()?.try_into().ok()?;
        let mut text = Zeroizing::new(Base64UrlUnpadded::decode_vec(ciphertext).ok()?);
        self.cipher().decrypt_in_place(&nonce.into(), &context.0, &mut *text).ok()?;
        Some(text)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), SealedError> {
    getrandom::fill(bytes).map_err(|error| SealedError::NoRandomness { reason: error.to_string() })
}

fn too_long(found: usize) -> SealedError {
    let (what, subject) = ("the length in bytes", "a value to be sealed".to_owned());
    InvalidInput::Limit { what, subject, found, limit: limits::PAYLOAD_BYTES }.into()
}

/// The output of the cipher: nonce and ciphertext, both in base64url without padding.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Locked {
    pub(crate) nonce: String,
    pub(crate) ciphertext: String,
}

/// The associated data of a text: authenticated together with it, and not part of it.
pub(crate) struct Context(Vec<u8>);

impl Context {
    /// Creates a context from a purpose and its names. Each carries its length, so that no two contexts have the same
    /// bytes.
    pub(crate) fn new(purpose: &str, names: &[&str]) -> Self {
        let mut bytes = Vec::new();
        for name in [purpose].iter().chain(names) {
            bytes.extend(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
            bytes.extend(name.as_bytes());
        }
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Secret};
    use zeroize::Zeroizing;

    #[test]
    fn names_do_not_run_into_each_other() {
        let contexts = [
            Context::new("p", &["ab", "c"]),
            Context::new("p", &["a", "bc"]),
            Context::new("p", &["abc"]),
            Context::new("p", &["abc", ""]),
            Context::new("p", &["", "abc"]),
            Context::new("pa", &["b", "c"]),
        ];
        for (i, one) in contexts.iter().enumerate() {
            assert!(contexts.iter().skip(i + 1).all(|other| one.0 != other.0), "{i}");
        }
    }

    /// The cipher is the one that other implementations have under this name: they can open a value that was sealed
    /// here.
    /// Draft "XChaCha: eXtended-nonce ChaCha and AEAD_XChaCha20_Poly1305", A.3.1.
    #[test]
    fn the_published_example_opens() {
        let key: [u8; 32] = std::array::from_fn(|i| 0x80 + u8::try_from(i).unwrap());
        let mut context = vec![0x50, 0x51, 0x52, 0x53];
        context.extend(0xc0..=0xc7_u8);
        let nonce = "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZX";
        let ciphertext = "vW0XnT6D1DuVdleUk8DpOVcqFwAlK_rMvtKQLCE5bLtzHH8bC0qmRAvzqC9O2n45rmTGcIxUwhbLlrcu\
                          EhO0Ui-Mm6QNtdlFsRtpuYLBu54_P6wrw2lIj3ayODVl0__5IflmTJdjfal2iBL2FcaLE7UuwIdZJMHH\
                          mHlH3q_YeArPSQ";
        let text = Secret::new(Zeroizing::new(key)).decrypt(&Context(context), nonce, ciphertext);
        assert!(text.is_some_and(|text| text.starts_with(b"Ladies and Gentlemen of the class of '99")));
    }
}
