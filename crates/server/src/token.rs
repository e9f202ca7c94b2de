//! Who may call: tokens, what they allow, and the caller that a request was found to be.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::error::ServerError;

/// How many random bytes a new token has.
const BYTES: usize = 32;
/// How short a token of the user's own may be, in characters.
const SHORTEST: usize = 32;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Anybody: whether the process lives.
    Open,
    /// Look at everything.
    Read,
    /// Look, and change what may be changed.
    Write,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A secret that callers show. It is not printed by `{:?}`.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// A new one, with 256 random bits.
    ///
    /// # Errors
    /// [`ServerError::BadToken`] when the system has no random numbers.
    pub fn generate() -> Result<Self, ServerError> {
        let mut bytes = Zeroizing::new([0_u8; BYTES]);
        getrandom::fill(bytes.as_mut())
            .map_err(|_| ServerError::BadToken { reason: "the system gives no random numbers" })?;
        Ok(Self(Zeroizing::new(Base64UrlUnpadded::encode_string(bytes.as_ref()))))
    }

    /// One that was made before.
    ///
    /// # Errors
    /// [`ServerError::BadToken`] when it is short enough to be guessed, or cannot stand in a header.
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

    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The link that logs a browser in at the server of this address, such as `http://127.0.0.1:4400`. The token stands behind the `#`,
    /// which browsers send to nobody.
    #[must_use]
    pub fn link(&self, address: &str) -> String {
        let mut link = format!("{address}/ui/#token=");
        for byte in self.reveal().bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => link.push(byte.into()),
                // The page takes it up to the next `&`, and reads percent signs.
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

/// The tokens that a server knows, of which it keeps digests only.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Vec<(Digested, Caller)>,
}

impl Tokens {
    /// None: nobody may call.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Also this one, to look at everything.
    #[must_use]
    pub fn read(self, token: &Token) -> Self {
        self.with(token, Role::Read, Role::Read.word())
    }

    /// Also this one, to look at everything, for somebody of this name.
    #[must_use]
    pub fn read_as(self, name: &str, token: &Token) -> Self {
        self.with(token, Role::Read, name)
    }

    /// Also this one, to look and to change.
    #[must_use]
    pub fn write(self, token: &Token) -> Self {
        self.with(token, Role::Write, Role::Write.word())
    }

    /// Also this one, to look and to change, for somebody of this name: the audit says it.
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

    /// The place of a token, and who has it; `None` when nobody has it. It takes as long for every token.
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

/// Who calls. A layer of your own that stands outside of the router may put one into the extensions of a request, where
/// [tokens are left to it](crate::Options::behind_own_auth); without one, the caller may do what the server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What it may do.
    pub role: Role,
    /// Its name in the audit, for people.
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
