//! Webhook signatures: they prove the sender and the time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;
use tidelock_core::clock::{Clock, SystemClock, Timestamp};
use tidelock_core::error::InvalidInput;
use zeroize::Zeroizing;

use crate::error::RequestError;

/// `Webhook-Signature`.
pub const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// The shortest secret, in bytes.
const MIN_SECRET_BYTES: usize = 16;
/// The default tolerance between the time of a signature and now.
const TOLERANCE: Duration = Duration::from_mins(5);
/// The most signatures that are checked in one header.
const MAX_SIGNATURES: usize = 8;

/// A secret that a sender and a receiver share. It is never shown, and wiped when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Creates a secret of at least 16 bytes; 32 random bytes are recommended.
    ///
    /// # Errors
    /// [`InvalidInput::Name`] when it is shorter.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, InvalidInput> {
        let bytes = Zeroizing::new(bytes.into());
        if bytes.len() < MIN_SECRET_BYTES {
            let reason = format!("it has {} bytes, at least {MIN_SECRET_BYTES} are needed", bytes.len());
            return Err(InvalidInput::Name { what: "the secret of webhooks", text: String::new(), reason });
        }
        Ok(Self(bytes))
    }

    fn mac(&self, seconds: i64, key: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(format!("{seconds}\n{key}\n").as_bytes());
        mac.update(body);
        Some(mac)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Returns the value of the header [`SIGNATURE`] for a webhook that is sent at this instant.
#[must_use]
pub fn sign(secret: &Secret, at: Timestamp, key: &str, body: &[u8]) -> String {
    let seconds = seconds(at);
    // An HMAC accepts a secret of any length.
    let tag = secret.mac(seconds, key, body).map(|mac| mac.finalize().into_bytes());
    let hex: String = tag.into_iter().flatten().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

fn seconds(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}

/// Verifies that a webhook was signed with a secret, and recently.
#[derive(Clone, Debug)]
pub struct Verifier {
    secrets: Vec<Secret>,
    tolerance: Duration,
    clock: Arc<dyn Clock>,
}

impl Verifier {
    /// Accepts webhooks that were signed with this secret within the last 5 minutes.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self { secrets: vec![secret], tolerance: TOLERANCE, clock: SystemClock::shared() }
    }

    /// Accepts this secret as well: during a rotation, both are valid.
    #[must_use]
    pub fn or(mut self, secret: Secret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sets how far the time of a signature may be from now, in either direction. The default is 5 minutes. Within it,
    /// a copy of a webhook is recognised by its key; keep keys for longer than that.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets another clock than that of the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Checks the signature of a webhook with this key and body. The duration does not reveal how much of a signature matches.
    ///
    /// # Errors
    /// [`RequestError::BadSignature`] and [`RequestError::Stale`].
    pub fn check(&self, headers: &HeaderMap, key: &str, body: &[u8]) -> Result<(), RequestError> {
        let bad = |reason| RequestError::BadSignature { reason };
        let mut values = headers.get_all(SIGNATURE).iter();
        let value = values.next().ok_or_else(|| bad("there is none"))?;
        if values.next().is_some() {
            return Err(bad("there is more than one header"));
        }
        let text = value.to_str().map_err(|_| bad("it is no text"))?;
        let (seconds, tags) = parsed(text).ok_or_else(|| bad("it is not t=SECONDS,v1=HEX"))?;
        let fits = |secret: &Secret| {
            let fits = |tag: &Vec<u8>| {
                secret.mac(seconds, key, body).is_some_and(|mac| mac.verify_slice(tag).is_ok())
            };
            tags.iter().any(fits)
        };
        if !self.secrets.iter().any(fits) {
            return Err(bad("no secret fits it"));
        }
        // Only a valid signature gets an error about its time.
        let (signed, now) = (Timestamp::from_micros(seconds.saturating_mul(1_000_000)), self.clock.now());
        let away = now.since(signed).max(signed.since(now));
        if away > self.tolerance {
            return Err(RequestError::Stale { away, tolerance: self.tolerance });
        }
        Ok(())
    }
}

fn parsed(text: &str) -> Option<(i64, Vec<Vec<u8>>)> {
    let (mut seconds, mut tags) = (None, Vec::new());
    for part in text.split(',') {
        match part.trim().split_once('=')? {
            ("t", value) if seconds.is_none() => seconds = Some(value.parse().ok()?),
            ("t", _) => return None,
            ("v1", value) if tags.len() < MAX_SIGNATURES => tags.push(unhex(value)?),
            // A version that is not known here.
            _ => {}
        }
    }
    Some((seconds?, tags)).filter(|(_, tags)| !tags.is_empty())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).filter_map(|i| text.get(i..i + 2));
    pairs.map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::HeaderMap;
    use tidelock_core::clock::{Clock as _, ManualClock};

    use super::{SIGNATURE, Secret, Verifier, sign};
    use crate::error::RequestError;

    fn secret(text: &str) -> Secret {
        Secret::new(text.repeat(16)).unwrap()
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(SIGNATURE, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_signed_requests_are_accepted() {
        let clock = Arc::new(ManualClock::default());
        let verifier = Verifier::new(secret("a")).or(secret("b")).clock(clock.clone());
        let signature = sign(&secret("b"), clock.now(), "k.1", b"body");
        assert_eq!(signature.len(), "t=1000000000,v1=".len() + 64);
        let check = |values: &[&str], key: &str, body: &[u8]| verifier.check(&headers(values), key, body);
        check(&[&signature], "k.1", b"body").unwrap();
        check(&[&format!("{signature},v2=what")], "k.1", b"body").unwrap();
        let other = sign(&secret("c"), clock.now(), "k.1", b"body");
        check(&[&format!("{other},{}", signature.split_once(',').unwrap().1)], "k.1", b"body").unwrap();
        let later = signature.replace("t=1000000000", "t=1000000001");
        for (values, key, body) in [
            (vec![signature.as_str()], "k.1", b"bodY".as_slice()),
            (vec![&signature], "k", b".1body"),
            (vec![&signature], "k.2", b"body"),
            (vec![&other], "k.1", b"body"),
            (vec![&later], "k.1", b"body"),
            (vec![&signature, &signature], "k.1", b"body"),
            (vec![], "k.1", b"body"),
            (vec!["t=1000000000"], "k.1", b"body"),
            (vec!["t=1000000000,v1="], "k.1", b"body"),
            (vec!["t=1000000000,v1=zz"], "k.1", b"body"),
            (vec!["v1=00"], "k.1", b"body"),
            (vec![""], "k.1", b"body"),
        ] {
            let refused = check(&values, key, body).unwrap_err();
            assert!(matches!(refused, RequestError::BadSignature { .. }), "{values:?}: {refused}");
        }
    }

    #[test]
    fn a_signature_has_its_time() {
        let clock = Arc::new(ManualClock::default());
        let verifier = Verifier::new(secret("a")).tolerance(Duration::from_secs(60)).clock(clock.clone());
        let signature = sign(&secret("a"), clock.now(), "k", b"");
        clock.advance(Duration::from_secs(60));
        verifier.check(&headers(&[&signature]), "k", b"").unwrap();
        clock.advance(Duration::from_secs(1));
        let stale = verifier.check(&headers(&[&signature]), "k", b"").unwrap_err();
        assert!(matches!(stale, RequestError::Stale { .. }), "{stale}");
        let future = sign(&secret("a"), clock.now().after(Duration::from_secs(61)), "k", b"");
        verifier.check(&headers(&[&future]), "k", b"").unwrap_err();
    }

    #[test]
    fn a_known_answer() {
        // printf '1\nk\nbody' | openssl dgst -sha256 -hmac aaaaaaaaaaaaaaaa
        let signature =
            sign(&secret("a"), tidelock_core::clock::Timestamp::from_micros(1_999_999), "k", b"body");
        assert_eq!(signature, "t=1,v1=1885ecaad2e0c78132772d780d27bce1782e8a86d1f4742339151752b835f022");
    }

    #[test]
    fn a_secret_is_long_and_is_not_shown() {
        assert!(Secret::new("short").is_err());
        assert!(!format!("{:?}", Verifier::new(secret("hush"))).contains("hush"));
    }
}
