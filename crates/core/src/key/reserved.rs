//! Reserved names: every kind that begins with `tidelock.`, and the documents and streams that engines keep beside
//! those of users.
//!
//! This is the only list. Every entry point that writes under a name from a user calls one of the `check_` functions.
//! These are the handles of [`state`](crate::state) and [`events`](crate::events), the server, the command line and its
//! import. [`Store::apply`](crate::store::Store::apply) does not check, because engines write reserved names through
//! it.

use super::{Arg, Key};
use crate::error::InvalidInput;
use crate::id::EventType;

/// The prefix of Tidelock's kinds, queues and event types.
pub const PREFIX: &str = "tidelock.";
/// The kind of snapshot documents: the state of a stream as of an event. `snapshot("stock", "apples")` for
/// `stock("apples")`.
pub const SNAPSHOT: &str = "snapshot";
/// The kind of base documents: the state that replaces the removed oldest events of a stream. Unlike a snapshot, it is
/// required. It is removed only when a later one replaces it, or with the stream.
pub const BASE: &str = "base";
/// The kind of history streams: the changes of a record, write by write. `history("user", "u-1")` for `user("u-1")`.
pub const HISTORY: &str = "history";
/// The kind of streams with the copies of tagged events: `tagged("username:alice")`.
pub const TAGGED: &str = "tagged";

/// Returns whether the kind of a key is reserved, whatever the key names.
#[must_use]
pub fn is_own(key: &Key) -> bool {
    // No character of the prefix is escaped in canonical text.
    key.canonical().starts_with(PREFIX)
}

/// Returns whether only Tidelock writes the stream of this key.
#[must_use]
pub fn is_own_stream(key: &Key) -> bool {
    is_own(key) || stands_beside(key, &[HISTORY, TAGGED])
}

/// Returns whether only Tidelock writes the document of this key.
#[must_use]
pub fn is_own_document(key: &Key) -> bool {
    is_own(key) || stands_beside(key, &[SNAPSHOT, BASE])
}

/// Rejects a key of a reserved kind, for leases and rows of work.
///
/// # Errors
/// [`InvalidInput::Reserved`] naming the key.
pub fn check_name(key: &Key) -> Result<(), InvalidInput> {
    free(!is_own(key), key)
}

/// Rejects the key of a stream that only Tidelock writes.
///
/// # Errors
/// [`InvalidInput::Reserved`] naming the key.
pub fn check_stream(key: &Key) -> Result<(), InvalidInput> {
    free(!is_own_stream(key), key)
}

/// Rejects the key of a document that only Tidelock writes.
///
/// # Errors
/// [`InvalidInput::Reserved`] naming the key.
pub fn check_document(key: &Key) -> Result<(), InvalidInput> {
    free(!is_own_document(key), key)
}

/// Rejects the type of an event that only Tidelock appends.
///
/// # Errors
/// [`InvalidInput::Reserved`] naming the type.
pub fn check_event_type(event_type: &EventType) -> Result<(), InvalidInput> {
    free(!event_type.as_str().starts_with(PREFIX), event_type)
}

fn free(free: bool, name: &impl std::fmt::Display) -> Result<(), InvalidInput> {
    if free { Ok(()) } else { Err(InvalidInput::Reserved { name: name.to_string() }) }
}

/// Returns whether the key is of one of these kinds and has a text as first argument. In a companion key, that text is
/// the kind of the other key; in a tag stream, it is the tag.
fn stands_beside(key: &Key, kinds: &[&str]) -> bool {
    // Most keys differ in the first bytes, and are not decoded.
    kinds.iter().any(|kind| key.canonical().starts_with(kind))
        && kinds.contains(&key.kind().as_str())
        && matches!(key.args().first(), Some(Arg::Str(_)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::error::Explain as _;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn companion_keys_and_prefixed_names_are_reserved() {
        let stock = key("stock(\"apples\")");
        for kind in [SNAPSHOT, BASE] {
            assert!(is_own_document(&stock.beside(kind).unwrap()), "{kind}");
            assert!(!is_own_stream(&stock.beside(kind).unwrap()), "{kind}");
        }
        assert!(is_own_stream(&stock.beside(HISTORY).unwrap()) && is_own_stream(&key("tagged(\"a:b\")")));
        assert!(!is_own_document(&stock.beside(HISTORY).unwrap()));
        for own in ["tidelock.audit", "tidelock.run(\"r\")"] {
            assert!(is_own(&key(own)) && is_own_stream(&key(own)) && is_own_document(&key(own)));
        }
    }

    #[test]
    fn d15_a_reserved_name_is_rejected_with_its_name_and_a_code() {
        let base = key("account(\"ann\")").beside(BASE).unwrap();
        let rejected = check_document(&base).unwrap_err();
        assert_eq!(rejected.code().as_str(), "TL0106");
        assert!(rejected.to_string().contains("base(\"account\", \"ann\")"), "{rejected}");
        check_stream(&base).unwrap();
        check_stream(&key("history(\"user\", 1)")).unwrap_err();
        check_name(&key("tidelock.lease(\"a\")")).unwrap_err();
        check_event_type(&EventType::new("tidelock.snapshot").unwrap()).unwrap_err();
        check_event_type(&EventType::new("Tidelock").unwrap()).unwrap();
    }

    #[test]
    fn other_keys_of_reserved_kinds_are_for_users() {
        for theirs in ["base", "history(17)", "snapshot(1, \"a\")", "tagged", "bases(\"a\")", "tidelocks"] {
            assert!(!is_own_stream(&key(theirs)) && !is_own_document(&key(theirs)), "{theirs}");
        }
    }
}
