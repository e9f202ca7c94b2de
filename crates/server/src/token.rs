//! Access tokens, their roles, and the authenticated caller of a request.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::error::ServerError;

/// The number of random bytes in a new token.
const BYTES: usize = 32;
/// The minimum length of a token that the user supplies, in characters.
const SHORTEST: usize = 32;

/// The permissions of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// No token required: liveness checks only.
    Open,
    /// Read everything.
    Read,
    /// Read everything, and write where the server allows it.
    Write,
}

impl Role {
    /// Returns the name of the role.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A secret that authenticates callers. `{:?}` does not print it.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Generates a new token with 256 random bits.
    ///
    /// # Errors
    /// [`ServerError::BadToken`] when the operating system supplies no random numbers.
    pub fn generate() -> Result<Self, ServerError> {
        let mut bytes = Zeroizing::new([0_u8; BYTES]);
        getrandom::fill(bytes.as_mut())
            .map_err(|_| ServerError::BadToken { reason: "the system gives no random numbers" })?;
        Ok(Self(Zeroizing::new(Base64UrlUnpadded::encode_string(bytes.as_ref()))))
    }

    /// Creates a token from existing text.
    ///
    /// # Errors
    /// [`ServerError::BadToken`] when the text is short enough to be guessed, or is not valid in a header.
    pub fn new(text: impl Into<String>) -> Result<Self, ServerError> {
        let text = Zeroizing::new(text.into());
        if text.len() < SHORTEST {
            return Err(ServerError::BadToken { reason: "it has less than 32 characters; let one be made" });
        }
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(ServerError::BadToken { reason: "it has other characters than visible ASCII" });
        }
        Ok(Self(text))
    }

    /// Returns the secret.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the link that logs a browser in at the server with this address, such as `http://127.0.0.1:4400`. The token is in the
    /// fragment after the `#`, which browsers do not send to any server.
    #[must_use]
    pub fn link(&self, address: &str) -> String {
        let mut link = format!("{address}/ui/#token=");
        for byte in self.reveal().bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => link.push(byte.into()),
                // The page reads the token up to the next `&`, and decodes percent escapes.
                other => link.push_str(&format!("%{other:02X}")),
            }
        }
        link
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

pub(crate) type Digested = [u8; 32];

/// The set of tokens that a server accepts. It holds only their digests.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Vec<(Digested, Caller)>,
}

impl Tokens {
    /// Creates an empty set, with which the server refuses all callers.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a token that may read everything.
    #[must_use]
    pub fn read(self, token: &Token) -> Self {
        self.with(token, Role::Read, Role::Read.word())
    }

    /// Adds a token that may read everything, for a caller with this name.
    #[must_use]
    pub fn read_as(self, name: &str, token: &Token) -> Self {
        self.with(token, Role::Read, name)
    }

    /// Adds a token that may read and write.
    #[must_use]
    pub fn write(self, token: &Token) -> Self {
        self.with(token, Role::Write, Role::Write.word())
    }

    /// Adds a token that may read and write, for a caller with this name. The audit stream records the name.
    #[must_use]
    pub fn write_as(self, name: &str, token: &Token) -> Self {
        self.with(token, Role::Write, name)
    }

    fn with(mut self, token: &Token, role: Role, name: &str) -> Self {
        self.known.push((digest(token.reveal()), Caller { role, name: name.to_owned() }));
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the index and the caller of a token, or `None` if the token is unknown. The comparison takes the same time for every token.
    pub(crate) fn find(&self, shown: &Digested) -> Option<(usize, Caller)> {
        let (mut found, mut place) = (Choice::from(0), 0_u64);
        for (index, (known, _)) in (0_u64..).zip(&self.known) {
            let same = known.ct_eq(shown);
            place = u64::conditional_select(&place, &index, same);
            found |= same;
        }
        let place = usize::try_from(place).ok()?;
        self.known.get(place).map(|(_, caller)| (place, caller.clone())).filter(|_| found.into())
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.known.len()).finish()
    }
}

pub(crate) fn digest(text: &str) -> Digested {
    Sha256::digest(text.as_bytes()).into()
}

/// The authenticated caller of a request.
///
/// Where [tokens are left to your own layer](crate::ServerOptions::behind_own_auth), that layer may insert a `Caller` into the extensions of
/// the request. It must wrap the router. Without a `Caller`, the request may do everything that the server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The role of the caller.
    pub role: Role,
    /// The name of the caller in the audit stream, for human readers.
    pub name: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_token_is_known_by_all_of_its_characters() {
        let (read, write) = (Token::generate().unwrap(), Token::generate().unwrap());
        let tokens = Tokens::none().read(&read).write_as("ada", &write);
        let known = |token: &Token| tokens.find(&digest(token.reveal())).unwrap();
        assert_eq!(known(&read), (0, Caller { role: Role::Read, name: "read".to_owned() }));
        assert_eq!(known(&write), (1, Caller { role: Role::Write, name: "ada".to_owned() }));
        for wrong in ["", "x", &read.reveal()[1..], &format!("{}x", write.reveal())] {
            assert_eq!(tokens.find(&digest(wrong)), None, "{wrong}");
        }
        assert_eq!(Tokens::none().find(&digest("")), None);
    }

    #[test]
    fn new_tokens_differ_have_256_bits_and_are_not_printed() {
        let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(Base64UrlUnpadded::decode_vec(one.reveal()).unwrap().len(), 32);
        let shown = format!("{one:?} {:?}", Tokens::none().read(&one));
        assert!(!shown.contains(one.reveal()), "{shown}");
    }

    #[test]
    fn a_link_holds_a_token_of_any_characters() {
        let own = Token::new("100%&more#of=it+/?0123456789abcdef").unwrap();
        let link = own.link("http://localhost:1");
        assert_eq!(link, "http://localhost:1/ui/#token=100%25%26more%23of%3Dit%2B%2F%3F0123456789abcdef");
        let made = Token::generate().unwrap();
        assert!(made.link("").ends_with(made.reveal()), "what is made needs no percent signs");
    }

    #[test]
    fn a_token_that_can_be_guessed_or_not_be_sent_is_refused() {
        for bad in ["", "short", &"x".repeat(31), &format!("{}\n", "x".repeat(40)), &"ä".repeat(40)] {
            assert!(Token::new(bad).is_err(), "{bad:?}");
        }
        assert!(Token::new("x".repeat(32)).is_ok());
    }
}
