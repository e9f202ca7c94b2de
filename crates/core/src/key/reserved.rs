//! Names that are Tidelock's own: everything of a kind that begins with `tidelock.`, and what stands beside the streams and records of
//! users under a plain name. One list for whoever lets others write by name: the server and the command line.

use super::{Arg, Key};

/// What the kinds, lanes and event types of Tidelock begin with.
pub const PREFIX: &str = "tidelock.";
/// Documents beside a stream: its state as of an event. `snapshot("stock", "apples")` for `stock("apples")`.
pub const SNAPSHOT: &str = "snapshot";
/// Documents beside a stream whose oldest events were removed: the state that stands for them. Unlike a snapshot, it is needed: it
/// goes only when a later one takes its place, or with the stream.
pub const BASE: &str = "base";
/// Streams beside a record: what each write did to it. `history("user", "u-1")` for `user("u-1")`.
pub const HISTORY: &str = "history";
/// Streams of the copies of tagged events: `tagged("username:alice")`.
pub const TAGGED: &str = "tagged";

/// Whether the kind of a key is Tidelock's own, whatever it names.
#[must_use]
pub fn is_own(key: &Key) -> bool {
    key.kind().starts_with(PREFIX)
}

/// Whether only Tidelock writes the stream of this key.
#[must_use]
pub fn is_own_stream(key: &Key) -> bool {
    is_own(key) || stands_beside(key, &[HISTORY, TAGGED])
}

/// Whether only Tidelock writes the document of this key.
#[must_use]
pub fn is_own_document(key: &Key) -> bool {
    is_own(key) || stands_beside(key, &[SNAPSHOT, BASE])
}

/// What stands beside another key has its kind, a text, as first argument; a tag is a text as well.
fn stands_beside(key: &Key, kinds: &[&str]) -> bool {
    kinds.contains(&key.kind().as_str()) && matches!(key.args().first(), Some(Arg::Str(_)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn what_stands_beside_the_names_of_users_is_tidelocks_own() {
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
    fn names_that_stand_beside_nothing_are_for_users() {
        for theirs in ["base", "history(17)", "snapshot(1, \"a\")", "tagged", "bases(\"a\")", "tidelocks"] {
            assert!(!is_own_stream(&key(theirs)) && !is_own_document(&key(theirs)), "{theirs}");
        }
    }
}
